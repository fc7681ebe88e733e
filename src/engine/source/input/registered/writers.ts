/** Writers of the records of a topic: their schemas from the registry, and a plan for each.
 *
 *  Invariants: (1) a registry that does not answer pauses the input and makes no record invalid;
 *  (2) the plan of a writer depends on its schema, on the reader's schema and on the job alone. */
import type { Kernels } from '../../../../addon/surface.ts';
import type { ColumnKernels } from '../../../../core/columns/kernel.ts';
import { findMillraceError, type MillraceError } from '../../../../core/errors.ts';
import { FrameBatch } from '../../../../core/layout/frame-batch.ts';
import { EVENT_STATUS, FRAME_STATUS } from '../../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../core/layout/record-batch.ts';
import type { Schema } from '../../../../formats/schema.ts';
import { messagePath } from '../../../../serde/frame.ts';
import { avroPlan } from '../avro.ts';
import type { InputFields } from '../definition.ts';
import { SchemaFault, type WriterPlan } from '../plan.ts';
import { protobufPlan } from '../protobuf.ts';

/** Writers whose plans are kept from batch to batch. If there are more, all are made again: the
 *  client keeps their schemas. */
const WRITERS_MAX = 256;
/** Messages of one schema that a topic may have records of. */
const MESSAGES_MAX = 256;

export interface RegisteredParts {
  readonly kernels: Pick<Kernels, 'scanFrames'>;
  readonly columns: ColumnKernels;
  readonly format: 'avro' | 'protobuf';
  readonly fields: InputFields;
  /** Schema that resolves fields which a writer's schema lacks; undefined: there is none. */
  readonly reader: Schema | undefined;
  /** Returns the schema of each id, or the error why it has none. Waits while the registry is away;
   *  undefined if the run is to end meanwhile. */
  readonly schemas: (
    records: ReadonlyMap<number, number>,
  ) => Promise<ReadonlyMap<number, Schema | MillraceError> | undefined>;
  /** Counts lookups that were answered here. */
  readonly countHits: (count: number) => void;
  /** True: a field type that cannot be read ends the run; false: it makes the writer's records
   *  invalid. */
  readonly refusesTypes: () => boolean;
  /** Called when a plan is made. */
  readonly onPlan: (plan: WriterPlan) => void;
}

/** Plan of a writer's records, or the fault that all of them have. */
export type Reading = WriterPlan | SchemaFault;

interface Writer {
  readonly schema: Schema;
  readonly byPath: Map<string, Reading>;
}

const FRAME_FAULT: Readonly<Record<number, number>> = {
  [FRAME_STATUS.BAD_MAGIC]: EVENT_STATUS.BAD_MAGIC,
  [FRAME_STATUS.TRUNCATED]: EVENT_STATUS.TRUNCATED_FRAME,
  [FRAME_STATUS.BAD_MESSAGE_INDEX]: EVENT_STATUS.BAD_MESSAGE_INDEX,
  [FRAME_STATUS.NULL_VALUE]: EVENT_STATUS.NULL,
};

/** Status of a row whose frame cannot be read. @param status FRAME_STATUS.* */
export const frameFault = (status: number): number => FRAME_FAULT[status] ?? EVENT_STATUS.TRUNCATED_FRAME;

export class Writers {
  private readonly parts: RegisteredParts;
  private readonly isProtobuf: boolean;
  private readonly onForget: () => void;
  private frames: FrameBatch | undefined;
  private readonly writers = new Map<number, Writer | SchemaFault>();
  /** Faults of ids that the registry does not know, for the current batch only: the client decides
   *  when to ask again. */
  private readonly unknown = new Map<number, SchemaFault>();

  /** @param onForget called when no plan is valid any more */
  constructor(parts: RegisteredParts, onForget: () => void) {
    this.parts = parts;
    this.isProtobuf = parts.format === 'protobuf';
    this.onForget = onForget;
  }

  /** Scans the frames of a batch, and loads the schemas that it needs. Returns the frames, which
   *  are valid until the next call; undefined if the run is to end meanwhile. */
  open(records: RecordBatch): FrameBatch | Promise<FrameBatch | undefined> {
    if (this.frames === undefined || this.frames.rowCapacity < records.rowCapacity)
      this.frames = FrameBatch.create(records.rowCapacity);
    const { frames } = this;
    this.parts.kernels.scanFrames(records, this.isProtobuf, frames);
    if (this.writers.size > WRITERS_MAX) this.forget();
    this.unknown.clear();
    const missing = this.missing(records, frames);
    return missing === undefined ? frames : this.load(missing, frames);
  }

  forget(): void {
    for (const writer of this.writers.values())
      if (!(writer instanceof SchemaFault))
        for (const reading of writer.byPath.values()) if (!(reading instanceof SchemaFault)) reading.close();
    this.writers.clear();
    this.onForget();
  }

  /** Says why the row of the batch that was opened last is no event. @param fault of its fields */
  describe(records: RecordBatch, row: number, fault: string | undefined): string | undefined {
    const { frames } = this;
    if (frames === undefined || frames.columns.status[row] !== FRAME_STATUS.OK) return undefined;
    const id = frames.columns.schemaId[row] as number;
    const reading = this.readingOf(records, frames, row);
    const why = reading instanceof SchemaFault ? reading.message : fault;
    return why === undefined ? `schema ${id}` : `schema ${id}: ${why}`;
  }

  readingOf(records: RecordBatch, frames: FrameBatch, row: number): Reading {
    const { schemaId, messageIndex, indexStart, payloadStart } = frames.columns;
    const id = schemaId[row] as number;
    const writer = this.writers.get(id) ?? this.unknown.get(id);
    if (writer === undefined)
      return new SchemaFault(EVENT_STATUS.UNKNOWN_SCHEMA_ID, `no schema has id ${id}`);
    if (writer instanceof SchemaFault) return writer;
    const single = messageIndex[row] as number;
    const path =
      this.isProtobuf && single < 0
        ? messagePath(records.columns.arena, indexStart[row] as number, payloadStart[row] as number)
        : [Math.max(0, single)];
    const key = path.join();
    const known = writer.byPath.get(key);
    if (known !== undefined) return known;
    if (writer.byPath.size >= MESSAGES_MAX)
      return new SchemaFault(
        EVENT_STATUS.BAD_MESSAGE_INDEX,
        `the topic has records of more than ${MESSAGES_MAX} messages of the schema`,
      );
    const made = this.compile(writer.schema, path);
    writer.byPath.set(key, made);
    return made;
  }

  /** Number of records of each id without a known schema; undefined for none. */
  private missing({ rowCount }: RecordBatch, { columns }: FrameBatch): Map<number, number> | undefined {
    const { status, schemaId } = columns;
    let found: Map<number, number> | undefined;
    let known = -1;
    let hits = 0;
    for (let row = 0; row < rowCount; row++) {
      if (status[row] !== FRAME_STATUS.OK) continue;
      const id = schemaId[row] as number;
      if (id === known || this.writers.has(id)) {
        known = id;
        hits++;
      } else {
        found ??= new Map();
        found.set(id, (found.get(id) ?? 0) + 1);
      }
    }
    this.parts.countHits(hits);
    return found;
  }

  private async load(
    missing: ReadonlyMap<number, number>,
    frames: FrameBatch,
  ): Promise<FrameBatch | undefined> {
    const found = await this.parts.schemas(missing);
    if (found === undefined) return undefined;
    for (const [id, schema] of found) {
      if (!(schema instanceof Error)) this.writers.set(id, { schema, byPath: new Map() });
      else if (schema.code === 'incompatible_schema')
        this.writers.set(id, new SchemaFault(EVENT_STATUS.INCOMPATIBLE_SCHEMA, schema.message));
      else this.unknown.set(id, new SchemaFault(EVENT_STATUS.UNKNOWN_SCHEMA_ID, schema.message));
    }
    return frames;
  }

  private compile(writer: Schema, path: readonly number[]): Reading {
    const { refusesTypes, onPlan } = this.parts;
    try {
      const plan = this.plan(writer, path);
      onPlan(plan);
      return plan;
    } catch (thrown) {
      if (thrown instanceof SchemaFault) return thrown;
      const error = findMillraceError(thrown);
      if (error === undefined || (error.code === 'unsupported_field' && refusesTypes())) throw thrown;
      return new SchemaFault(EVENT_STATUS.INCOMPATIBLE_SCHEMA, error.message);
    }
  }

  private plan(writer: Schema, path: readonly number[]): WriterPlan {
    const { columns, fields, reader, format } = this.parts;
    if (writer.format !== format.toUpperCase())
      throw new SchemaFault(
        EVENT_STATUS.INCOMPATIBLE_SCHEMA,
        `the schema is ${writer.format}, and -format is ${format}`,
      );
    if (writer.format === 'AVRO')
      return avroPlan(columns, fields, reader?.format === 'AVRO' ? reader : undefined, writer);
    const key = path.join();
    const message =
      writer.format === 'PROTOBUF' ? writer.tree.messages.find((one) => one.path.join() === key) : undefined;
    if (message === undefined)
      throw new SchemaFault(
        EVENT_STATUS.BAD_MESSAGE_INDEX,
        `the schema has no message at [${path.join(', ')}]`,
      );
    return protobufPlan(columns, fields, reader?.format === 'PROTOBUF' ? reader : undefined, message);
  }
}
