/** Encoder of columns into framed records of one schema. */
import { chooseColumnKernels, type NativeSetting } from '../../addon/codec.ts';
import type { ColumnBatch } from '../../core/columns/batch.ts';
import { EncodedFrames } from '../../core/columns/frames.ts';
import type { ColumnKernels } from '../../core/columns/kernel.ts';
import type { ColumnSchema } from '../../core/columns/schema.ts';
import type { MillraceError } from '../../core/errors.ts';
import { ENCODE_STATUS } from '../../core/layout/layouts.gen.ts';
import { type ArrowBatch, columnsFromArrow } from '../../formats/arrow/columns.ts';
import { type BatchEncoder, batchEncoder } from '../../formats/columns/encoder.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { registryError } from '../errors.ts';
import { ColumnRecords } from './column-records.ts';
import { COLUMN_FORMATS } from './options.ts';
import { notCached } from './record-schemas.ts';
import type { SerdeTimes } from './serde-metrics.ts';
import { type Framing, WriterSchema, type WriterSchemaOptions, type WrittenSchema } from './writer-schema.ts';

/** Options of a column encoder: those of a serializer, whose schema it writes. */
export interface ColumnEncoderOptions extends WriterSchemaOptions {
  /** Use of the addon: `on` demands it, `off` runs the TypeScript reference implementation. Default
   *  auto: the addon where it is built. */
  readonly native?: NativeSetting;
}

/** Columns that an encoder reads: a batch of a column decoder, or a record batch or table of
 *  apache-arrow. */
export type EncoderInput = ColumnRecords | ArrowBatch | { readonly batches: readonly ArrowBatch[] };

interface Loaded extends WrittenSchema, Framing {
  readonly encoder: BatchEncoder;
}

/** Framed records of one call, one after the other in one buffer; made by
 *  `RecordColumnEncoder.encode`. Views of it are valid until it is passed to `encode` again. */
export class FramedRecords {
  /** Headers of every record: the schema id header, or none. */
  readonly headers: Readonly<Record<string, Buffer>>;
  private readonly frames: EncodedFrames;
  private readonly encoder: BatchEncoder;

  constructor(frames: EncodedFrames, encoder: BatchEncoder, headers: Readonly<Record<string, Buffer>>) {
    this.frames = frames;
    this.encoder = encoder;
    this.headers = headers;
  }

  get rowCount(): number {
    return this.frames.rowCount;
  }

  /** All frames, one after the other. */
  get bytes(): Uint8Array {
    return new Uint8Array(this.frames.buffer, 0, this.frames.used);
  }

  /** Start of each frame in `bytes`, and behind them the end of the last one. A row without a
   *  frame has no bytes. @shape u32[rowCount + 1] */
  get offsets(): Uint32Array {
    return this.frames.offsets.subarray(0, this.rowCount + 1);
  }

  /** View of the record of a row; null for a tombstone. @throws the error of the row, RangeError
   *  for a row that does not exist */
  record(row: number): Buffer | null {
    if (!(row >= 0 && row < this.rowCount)) throw new RangeError(`the records have no row ${row}`);
    const error = this.errorOf(row);
    if (error !== undefined) throw error;
    return this.frames.frame(row);
  }

  /** Error of a row that has no record, with the path of the refused column in its details;
   *  undefined for any other row. */
  errorOf(row: number): MillraceError | undefined {
    return this.encoder.errorOf(this.frames, row);
  }

  /** Rows whose record is not written, because the schema refuses a value. */
  refusedRows(): number[] {
    const { status } = this.frames;
    const rows: number[] = [];
    for (let row = 0; row < this.rowCount; row++)
      if (status[row] !== ENCODE_STATUS.OK && status[row] !== ENCODE_STATUS.NULL_VALUE) rows.push(row);
    return rows;
  }

  /** Memory of the frames. */
  get memory(): EncodedFrames {
    return this.frames;
  }
}

/** Encoder of columns for one topic; made by `SchemaRegistry.columnEncoder`. */
export class RecordColumnEncoder {
  private readonly options: ColumnEncoderOptions;
  private readonly writer: WriterSchema;
  private readonly times: SerdeTimes;
  private readonly kernels: ColumnKernels;
  private loading: Promise<Loaded> | undefined;
  private loaded: Loaded | undefined;

  /** @throws bad_option, addon_missing, addon_mismatch */
  constructor(client: RegistryClient, options: ColumnEncoderOptions, times: SerdeTimes) {
    this.options = options;
    this.times = times;
    this.writer = new WriterSchema(client, options, 'column encoder', COLUMN_FORMATS);
    this.kernels = chooseColumnKernels(options.native);
  }

  /** Loads the schema and its id, once. A failed load is repeated by the next call.
   *  @returns this encoder
   *  @throws as `Serializer.prefetch` does
   */
  async prefetch(): Promise<this> {
    this.loading ??= this.writer.load().then((written) => this.compile(written));
    try {
      this.loaded = await this.loading;
    } catch (thrown) {
      this.loading = undefined;
      throw thrown;
    }
    return this;
  }

  /** Id of the schema. @throws schema_not_cached before a prefetch, see encode */
  get schemaId(): number {
    return this.ready().id;
  }

  /** Columns that the encoder reads. @throws schema_not_cached */
  get schema(): ColumnSchema {
    return this.ready().encoder.schema;
  }

  /** Encodes all rows as framed records, in order. A row with a value that the schema refuses costs
   *  only itself. The schema was loaded by this object's prefetch, or by `SchemaRegistry.prefetch`
   *  of the topic.
   *  @param into result of this encoder whose memory is used again: its views end
   *  @throws bad_option for columns of another schema, value_refused for a table without one of the
   *    columns, out_of_range for frames beyond 1 GiB, schema_not_cached
   *  @example
   *  const framed = encoder.encode(records);
   *  const messages = Array.from({ length: framed.rowCount }, (_, row) => framed.record(row));
   */
  encode(columns: EncoderInput, into?: FramedRecords): FramedRecords {
    const { encoder, prefix, headers, schema } = this.ready();
    const startMs = this.times.nowMs();
    const batches = batchesOf(columns, encoder.schema, schema.identity);
    const rows = batches.reduce((sum, { rowCount }) => sum + rowCount, 0);
    const frames = framesFor(rows, into);
    for (const batch of batches)
      if (encoder.encode(batch, 0, batch.rowCount, prefix, frames) < batch.rowCount)
        throw registryError('bad_option', `${rows} rows need more than ${frames.bytesMax} bytes of frames`, {
          next: 'encode fewer rows at a time',
        });
    this.times.encodedColumns(startMs);
    return new FramedRecords(frames, encoder, headers);
  }

  /** Frees the program of the kernel; results stay. The encoder cannot be used any more. */
  close(): void {
    this.loaded?.encoder.close();
  }

  private ready(): Loaded {
    if (this.loaded === undefined) {
      const written = this.writer.cached();
      this.loaded = written && this.compile(written);
    }
    if (this.loaded === undefined) throw notCached('the schema of this column encoder');
    return this.loaded;
  }

  private compile(written: WrittenSchema): Loaded {
    const encoder = batchEncoder(this.kernels, written.schema, this.options.message);
    return { ...written, encoder, ...this.writer.framing(written, encoder.messageIndexes) };
  }
}

function framesFor(rows: number, into: FramedRecords | undefined): EncodedFrames {
  const old = into?.memory;
  if (old === undefined || old.rowCapacity < rows) return EncodedFrames.create(Math.max(1, rows));
  old.clear();
  return old;
}

/** Batches of the input, in the columns of the encoder. */
function batchesOf(columns: EncoderInput, schema: ColumnSchema, identity: string): readonly ColumnBatch[] {
  if (!(columns instanceof ColumnRecords)) {
    const parts = 'batches' in columns ? columns.batches : [columns];
    return parts.map((part) => columnsFromArrow(part, schema));
  }
  const { batch } = columns;
  if (!schema.equals(batch.schema))
    throw registryError(
      'bad_option',
      `the batch has other columns than the schema: ${columns.names.join(', ')}`,
      {
        next: 'decode with the schema of the encoder as reader schema, and with all fields',
      },
    );
  if (!columns.fitsWriter(identity))
    throw registryError(
      'bad_option',
      'a recursive type of the batch has the bytes of another writer schema',
      {
        next: 'serialize the values of the rows',
      },
    );
  return [batch];
}
