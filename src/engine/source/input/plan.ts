/** Plan of one writer's schema: the decoder of the columns that the job reads, and the readers that
 *  turn them into events. */
import type { ColumnBatch } from '../../../core/columns/batch.ts';
import type { PayloadSpans } from '../../../core/columns/kernel.ts';
import type { ColumnSchema } from '../../../core/columns/schema.ts';
import { BatchViews } from '../../../core/columns/views.ts';
import type { MillraceError } from '../../../core/errors.ts';
import type { Filter } from '../../../core/filter/compile.ts';
import { COLUMN_STATUS, EVENT_STATUS } from '../../../core/layout/layouts.gen.ts';
import { DECIMAL_SCALE_MAX } from '../../aggregate/definition.ts';
import { engineError } from '../../errors.ts';
import type { ColumnReader, FieldGet, RowMap } from './columns.ts';
import type { EventWords } from './words.ts';

/** Rows that a plan decodes at a time: few enough that the columns stay in the cache. */
const PLAN_ROWS = 2048;

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
  dedup: 'give a field that is an integer, a text, bytes or a uuid, outside of lists and maps',
  aggregate:
    'give a field that is an int or a long (Avro) or an integer (Protobuf), one that is a float or a double with its kind, such as sum(FIELD:double), a decimal or a text of digits with its decimal places, such as sum(FIELD:decimal2), or for distinct and topk an integer, a text, bytes or a uuid; enums, booleans and fields in lists and maps are not supported',
  where:
    'compare fields that are texts, numbers, decimals, booleans or enums, outside of lists and maps; FIELD:decimal reads a text or an integer as a decimal',
} as const;

const STATUS_OF: Readonly<Record<number, number>> = {
  [COLUMN_STATUS.OK]: EVENT_STATUS.OK,
  [COLUMN_STATUS.MALFORMED]: EVENT_STATUS.MALFORMED_PAYLOAD,
  [COLUMN_STATUS.INCOMPATIBLE]: EVENT_STATUS.INCOMPATIBLE_SCHEMA,
  [COLUMN_STATUS.TOO_LARGE]: EVENT_STATUS.MALFORMED_PAYLOAD,
  [COLUMN_STATUS.NULL_VALUE]: EVENT_STATUS.NULL,
};

export class WriterPlan {
  /** Indexes of the filter's fields that the schema lacks. */
  readonly absent: readonly number[];
  private readonly decoder: PlanDecoder;
  private readonly views: BatchViews;
  private readonly readers: PlanReaders;
  private batch: ColumnBatch | undefined;

  /** Owns the decoder. @param make receives the views that the readers read */
  constructor(decoder: PlanDecoder, make: (views: BatchViews) => PlanReaders) {
    this.decoder = decoder;
    this.views = new BatchViews(decoder.schema);
    try {
      this.readers = make(this.views);
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

  close(): void {
    this.decoder.close();
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
      if (statuses[i] !== COLUMN_STATUS.OK)
        status[rows[i] as number] = STATUS_OF[statuses[i] as number] ?? EVENT_STATUS.MALFORMED_PAYLOAD;
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
