/** Plan of one writer's schema: the decoder of the columns that the job reads, and the readers that
 *  turn them into events. */
import { ColumnBatch } from '../../../core/columns/batch.ts';
import type { PayloadSpans } from '../../../core/columns/kernel.ts';
import type { ColumnSchema } from '../../../core/columns/schema.ts';
import { UnnestedColumns } from '../../../core/columns/unnest.ts';
import { BatchViews } from '../../../core/columns/views.ts';
import { invariant, type MillraceError } from '../../../core/errors.ts';
import type { Filter } from '../../../core/filter/compile.ts';
import { COLUMN_STATUS, EVENT_STATUS } from '../../../core/layout/layouts.gen.ts';
import { DECIMAL_SCALE_MAX } from '../../aggregate/definition.ts';
import { engineError } from '../../errors.ts';
import { type FieldPath, isInList, plainPath } from '../list/path.ts';
import type { ColumnReader, FieldGet, RowMap } from './columns.ts';
import type { EventWords } from './words.ts';

/** Rows that a plan decodes at a time: few enough that the columns stay in the cache. */
export const PLAN_ROWS = 2048;
/** Greatest number of bytes of the columns of records with lists. */
const LIST_COLUMN_BYTES_MAX = 128 << 20;

/** Decoder of columns of any format. */
export interface PlanDecoder {
  readonly schema: ColumnSchema;
  createBatch(rowCapacity: number): ColumnBatch;
  decode(payloads: PayloadSpans, from: number, to: number, into: ColumnBatch): number;
  close(): void;
}

/** Readers of a plan, in the order in which they run: a filtered event needs a time and nothing
 *  else. */
export interface PlanReaders {
  readonly time: readonly ColumnReader[];
  readonly where: { readonly filter: Filter; readonly gets: ReadonlyArray<FieldGet | undefined> } | undefined;
  readonly fields: readonly ColumnReader[];
}

/** Fault of a schema: none of its records is an event. */
export class SchemaFault extends Error {
  /** EVENT_STATUS.* */
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export const missingField = (flag: string, path: readonly string[]): SchemaFault =>
  new SchemaFault(
    EVENT_STATUS.MISSING_FIELD,
    `its schema has no field ${path.join('.')} (-${flag}), and no default`,
  );

/** @throws SchemaFault if no path that the schema has is in the list of the job
 *  @param named paths of the filter, one of which is in the list if no other setting names it */
export function demandList(
  list: FieldPath | undefined,
  known: readonly FieldPath[],
  named: readonly FieldPath[],
): void {
  if (list === undefined || known.some((path) => isInList(path, list))) return;
  throw missingField('where', named.find((path) => isInList(path, list)) ?? list);
}

/** Settings that name fields. */
export type InputFlag = 'key' | 'time' | 'value' | 'where' | 'dedup' | 'aggregate';

/** Error of a field whose type this version cannot read. @param next what to give instead */
export function unsupported(
  flag: InputFlag,
  path: readonly string[],
  type: string,
  next: string = SUPPORTED[flag],
): MillraceError {
  return engineError(
    'unsupported_field',
    `-${flag}=${path.join('.')} is ${type}, which -${flag} cannot read`,
    { next },
  );
}

/** Flag to give for a decimal that is not read as one.
 *  @param scale of its type; undefined: each value has its own */
export function decimalNext(flag: 'value' | 'aggregate', path: readonly string[], scale?: number): string {
  const isExact = scale !== undefined && scale <= DECIMAL_SCALE_MAX;
  const field = `${path.join('.')}:decimal${Math.min(scale ?? 2, DECIMAL_SCALE_MAX)}`;
  const given = flag === 'value' ? `-value=${field}` : `sum(${field})`;
  return isExact
    ? `state its decimal places: ${given}`
    : `state its decimal places, up to ${DECIMAL_SCALE_MAX}, such as ${given}`;
}

const SUPPORTED = {
  key: 'give one or several fields that are integers, strings, bytes or uuids (FIELD,FIELD), or @key; enums, decimals, floats and booleans are not supported yet',
  value:
    'give a field that is an int or a long (Avro) or an integer (Protobuf, JSON), a decimal with its decimal places (-value=FIELD:decimal2), or leave -value out to count; floats and doubles need -aggregate=sum(FIELD:double); enums and booleans are not supported',
  time: 'give a timestamp type in UTC, an integer with its unit, such as -time=FIELD:ms, a text in ISO 8601, or @timestamp',
  dedup:
    'give a field that is an integer, a text, bytes or a uuid, outside of maps; [] behind the name of a list means its elements',
  aggregate:
    'give a field that is an int or a long (Avro) or an integer (Protobuf), one that is a float or a double with its kind, such as sum(FIELD:double), a decimal or a text of digits with its decimal places, such as sum(FIELD:decimal2), or for distinct and topk an integer, a text, bytes or a uuid; enums, booleans and fields in maps are not supported; [] behind the name of a list means its elements: sum(items[].qty)',
  where:
    'compare fields that are texts, numbers, decimals, booleans or enums, outside of maps, and [] behind the name of a list for its elements; FIELD:decimal reads a text or an integer as a decimal',
} as const;

const STATUS_OF: Readonly<Record<number, number>> = {
  [COLUMN_STATUS.OK]: EVENT_STATUS.OK,
  [COLUMN_STATUS.MALFORMED]: EVENT_STATUS.MALFORMED_PAYLOAD,
  [COLUMN_STATUS.INCOMPATIBLE]: EVENT_STATUS.INCOMPATIBLE_SCHEMA,
  [COLUMN_STATUS.TOO_LARGE]: EVENT_STATUS.MALFORMED_PAYLOAD,
  [COLUMN_STATUS.NULL_VALUE]: EVENT_STATUS.NULL,
};

/** Status of a row whose payload cannot be read. @param status COLUMN_STATUS.* */
export const columnFault = (status: number): number => STATUS_OF[status] ?? EVENT_STATUS.MALFORMED_PAYLOAD;

export class WriterPlan {
  /** Indexes of the filter's fields that the schema lacks. */
  readonly absent: readonly number[];
  private readonly decoder: PlanDecoder;
  private readonly views: BatchViews;
  private readonly readers: PlanReaders;
  private batch: ColumnBatch | undefined;
  /** Columns of the elements of the job's list; undefined: records are events. */
  private readonly elementsOf: UnnestedColumns | undefined;

  /** Owns the decoder. @param list path of the job's list
   *  @param make receives the columns of the events, and the views that the readers read */
  constructor(
    decoder: PlanDecoder,
    list: FieldPath | undefined,
    make: (schema: ColumnSchema, views: BatchViews) => PlanReaders,
  ) {
    this.decoder = decoder;
    this.elementsOf = list && UnnestedColumns.of(decoder.schema, plainPath(list));
    const { schema } = this.elementsOf ?? decoder;
    this.views = new BatchViews(schema);
    try {
      this.readers = make(schema, this.views);
      if (list !== undefined && this.elementsOf === undefined)
        throw new SchemaFault(EVENT_STATUS.INCOMPATIBLE_SCHEMA, `${list.join('.')} has no columns`);
    } catch (thrown) {
      decoder.close();
      throw thrown;
    }
    const gets = this.readers.where?.gets ?? [];
    this.absent = gets.flatMap((get, index) => (get === undefined ? [index] : []));
  }

  /** Reads the payloads into the rows of events that have status OK. */
  run(payloads: PayloadSpans, rows: Int32Array, words: EventWords): void {
    this.batch ??= this.decoder.createBatch(PLAN_ROWS);
    const { batch } = this;
    for (let from = 0; from < rows.length; ) {
      batch.clear();
      const count = this.decoder.decode(payloads, from, rows.length, batch);
      this.views.attach(batch);
      this.read(this.mapOf(rows.subarray(from, from + count)), batch.status, words);
      from += count;
    }
  }

  /** Decodes payloads of records whose lists have the events, up to PLAN_ROWS of them: as many as
   *  the batch has room for. The batch is valid until the next call. */
  decodeRecords(payloads: PayloadSpans, count: number): ColumnBatch {
    this.batch ??= ColumnBatch.create(this.decoder.schema, PLAN_ROWS, LIST_COLUMN_BYTES_MAX);
    this.batch.clear();
    this.decoder.decode(payloads, 0, count, this.batch);
    this.lists.attach(this.batch);
    return this.batch;
  }

  /** Number of elements of a record that was decoded last. REQUIRES: its status is OK */
  elements(record: number): number {
    return this.lists.elements(record);
  }

  /** Reads the elements of records that were decoded last into rows of events that have status OK.
   *  @param rows ascending, one for each element */
  readElements(records: Int32Array, rows: Int32Array, words: EventWords): void {
    const batch = this.lists.rows(records, rows.length);
    this.views.attach(batch);
    this.read(this.mapOf(rows), batch.status, words);
  }

  close(): void {
    this.decoder.close();
  }

  private get lists(): UnnestedColumns {
    invariant(this.elementsOf !== undefined, 'a plan of a job with a list has its columns');
    return this.elementsOf;
  }

  private mapOf(rows: Int32Array): RowMap {
    const count = rows.length;
    const first = rows[0] ?? -1;
    // Rows ascend, so the last one says whether they are consecutive.
    const isWhole = this.readers.where === undefined && rows[count - 1] === first + count - 1;
    return { count, rows, first: isWhole ? first : -1 };
  }

  private read(map: RowMap, statuses: Uint8Array, words: EventWords): void {
    const { status } = words;
    const { count, rows } = map;
    for (let i = 0; i < count; i++)
      if (statuses[i] !== COLUMN_STATUS.OK) status[rows[i] as number] = columnFault(statuses[i] as number);
    const { time, where, fields } = this.readers;
    for (const read of time) read(map, words);
    if (where !== undefined) {
      const { filter, gets } = where;
      let at = 0;
      const value = (field: number): unknown => gets[field]?.(at);
      for (; at < count; at++) {
        const row = rows[at] as number;
        if (status[row] === EVENT_STATUS.OK && !filter.matches(value)) status[row] = EVENT_STATUS.FILTERED;
      }
    }
    for (const read of fields) read(map, words);
  }
}
