/** Decodes a batch of framed records into values and failures, with one compiled reader for each
 *  writer schema.
 *  Invariants: (1) every row becomes a value (null for a tombstone) or a failure with a reason of
 *  the closed list;
 *  (2) `decode` does no I/O, because `prepare` loads the schemas first. */

import type { Kernels } from '../../addon/surface.ts';
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import { FrameBatch } from '../../core/layout/frame-batch.ts';
import { FRAME_STATUS } from '../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { AvroJsonOptions } from '../../formats/avro/json/print.ts';
import type { Decode } from '../../formats/decode.ts';
import type { Schema } from '../../formats/schema.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { COMPILED_CODECS, type RecordCodecs } from '../../serde/codec.ts';
import { QUARANTINE_REASONS, type QuarantineReason } from '../../serde/errors.ts';
import { messagePath } from '../../serde/frame.ts';
import { registryError } from '../errors.ts';
import { readerCodec } from '../proof/reader.ts';
import { NULL_FORM, type ValueForm, valueForm } from './form.ts';

export interface DecodedRow {
  readonly row: number;
  /** Id of the writer schema, or its guid where a header holds the guid; 0 without one. */
  readonly schemaId: number | string;
  /** Null for a tombstone. */
  readonly value: unknown;
  /** Prints values of the row's schema, and finds their fields. */
  readonly form: ValueForm;
}

export interface FailedRow {
  readonly row: number;
  /** Id or guid of the writer schema; 0 if the frame has none. */
  readonly schemaId: number | string;
  readonly reason: QuarantineReason;
  readonly error: MillraceError;
}

export interface DecodedBatch {
  readonly decoded: readonly DecodedRow[];
  readonly failed: readonly FailedRow[];
  /** Number of rows that were decoded and not selected. Default 0. */
  readonly skipped?: number;
  /** Number of rows of the batch that count as read: a reader that has enough leaves the rest.
   *  Default all. */
  readonly end?: number;
}

/** Decoder of batches. The rows of `decoded` and `failed` are in the order of the batch. */
export interface RecordDecoder {
  /** Loads the schemas that are missing. May be called again for the same batch.
   *  @throws registry_unavailable, registry_protocol: wait and call again */
  prepare(records: RecordBatch): Promise<void>;
  /** Decodes the batch of the latest `prepare`, without I/O. */
  decode(records: RecordBatch): DecodedBatch;
}

/** Cache entry of a writer schema id: the schema, or the error why it has none. */
type Writer =
  | { readonly schema: Schema; readonly byPath: Map<string, Reading | MillraceError> }
  | MillraceError;

interface Reading {
  readonly decode: Decode;
  readonly form: ValueForm;
}

const isFailure = (value: object): value is MillraceError => value instanceof Error;

/** Decoder with one reader schema. */
export class BatchDecoder implements RecordDecoder {
  private readonly client: RegistryClient;
  private readonly kernels: Kernels;
  private readonly reader: Schema;
  private readonly frames: FrameBatch;
  private readonly writers = new Map<number, Writer>();
  /** Errors of ids that the registry does not know, for the current batch only. The client's
   *  negative cache decides when to ask again. */
  private readonly unknown = new Map<number, MillraceError>();
  /** Forms of the reader's values, by message path. */
  private readonly forms = new Map<string, ValueForm>();
  private readonly print: AvroJsonOptions;
  private readonly codecs: RecordCodecs;
  private readonly context: string;

  /** @param context of the ids of the records; empty: that of the registry's address */
  constructor(
    client: RegistryClient,
    kernels: Kernels,
    reader: Schema,
    rowCapacity: number,
    codecs: RecordCodecs = COMPILED_CODECS,
    print: AvroJsonOptions = {},
    context = '',
  ) {
    this.context = context;
    this.codecs = codecs;
    this.client = client;
    this.kernels = kernels;
    this.reader = reader;
    this.print = print;
    this.frames = FrameBatch.create(rowCapacity);
  }

  /** Scans the frames and loads the schemas that are missing. May be called again for the same
   *  batch.
   *  @throws registry_unavailable, registry_protocol: wait and call again */
  async prepare(records: RecordBatch): Promise<void> {
    this.kernels.scanFrames(records, this.reader.format === 'PROTOBUF', this.frames);
    const { status, schemaId } = this.frames.columns;
    /** Number of records by schema id. */
    const missing = new Map<number, number>();
    let known = 0;
    const startMs = this.client.nowMs();
    for (let row = 0; row < records.rowCount; row++) {
      if (status[row] !== FRAME_STATUS.OK) continue;
      const id = schemaId[row] as number;
      if (this.writers.has(id)) known++;
      else missing.set(id, (missing.get(id) ?? 0) + 1);
    }
    const tookMs = this.client.nowMs() - startMs;
    this.unknown.clear();
    if (missing.size > 0) this.keep(await this.client.schemasById(missing, this.context));
    this.client.countHits(known, tookMs);
  }

  private keep(found: ReadonlyMap<number, Schema | MillraceError>): void {
    for (const [id, result] of found) {
      if (!isFailure(result)) this.writers.set(id, { schema: result, byPath: new Map() });
      else if (result.code === 'incompatible_schema') this.writers.set(id, result);
      else if (result.code === 'unknown_schema_id') this.unknown.set(id, result);
      else this.unknown.set(id, registryError('unknown_schema_id', result.message, { cause: result }));
    }
  }

  /** Decodes the batch of the latest `prepare`. */
  decode(records: RecordBatch): DecodedBatch {
    const { status, schemaId, payloadStart, payloadLength } = this.frames.columns;
    const { arena } = records.columns;
    const bytes = Buffer.from(arena.buffer as ArrayBuffer, arena.byteOffset, arena.byteLength);
    const decoded: DecodedRow[] = [];
    const failed: FailedRow[] = [];
    for (let row = 0; row < records.rowCount; row++) {
      const id = schemaId[row] as number;
      try {
        const verdict = status[row] as number;
        if (verdict === FRAME_STATUS.NULL_VALUE)
          decoded.push({ row, schemaId: 0, value: null, form: NULL_FORM });
        else {
          if (verdict !== FRAME_STATUS.OK)
            throw frameError(verdict, records.columns.valueLength[row] as number);
          const start = payloadStart[row] as number;
          const { decode, form } = this.readerOf(id, row, bytes);
          const value = decode(bytes, start, start + (payloadLength[row] as number));
          decoded.push({ row, schemaId: id, value, form });
        }
      } catch (thrown) {
        failed.push(failedRow(row, status[row] === FRAME_STATUS.OK ? id : 0, thrown));
      }
    }
    return { decoded, failed };
  }

  private readerOf(id: number, row: number, bytes: Buffer): Reading {
    const writer = this.writers.get(id) ?? this.unknown.get(id);
    if (writer === undefined) throw registryError('unknown_schema_id', `no schema was prepared for id ${id}`);
    if (isFailure(writer)) throw writer;
    const { messageIndex, indexStart, payloadStart } = this.frames.columns;
    const single = messageIndex[row] as number;
    let key = '0';
    let path: readonly number[] | undefined;
    if (this.reader.format === 'PROTOBUF') {
      if (single >= 0) key = String(single);
      else {
        path = messagePath(bytes, indexStart[row] as number, payloadStart[row] as number);
        key = path.join();
      }
    }
    let made = writer.byPath.get(key);
    if (made === undefined) {
      made = this.compile(writer.schema, path ?? [Math.max(0, single)]);
      if (writer.byPath.size < PATHS_MAX) writer.byPath.set(key, made);
    }
    if (isFailure(made)) throw made;
    return made;
  }

  private compile(writer: Schema, path: readonly number[]): Reading | MillraceError {
    const decode = compile(this.reader, writer, path, this.codecs);
    if (isFailure(decode)) return decode;
    const own = readerPath(this.reader, writer, path);
    const key = own.join();
    const form = this.forms.get(key) ?? valueForm(this.reader, own, this.print);
    this.forms.set(key, form);
    return { decode, form };
  }
}

/** Message indexes of the reader's message with the name of the written one. */
function readerPath(reader: Schema, writer: Schema, path: readonly number[]): readonly number[] {
  if (reader.format !== 'PROTOBUF' || writer.format !== 'PROTOBUF') return path;
  const key = path.join();
  const written = writer.tree.messages.find((message) => message.path.join() === key);
  return reader.tree.byName.get(written?.name ?? '')?.path ?? path;
}

/** Turns the error of a row into its failure. @throws an error that is no fact about the record */
export function failedRow(row: number, schemaId: number | string, thrown: unknown): FailedRow {
  const error = findMillraceError(thrown);
  const reason = error?.row.reason as QuarantineReason | undefined;
  // An error without a reason is a bug of Millrace and must not look like a bad record.
  if (error === undefined || reason === undefined || !QUARANTINE_REASONS.includes(reason)) throw thrown;
  return { row, schemaId, reason, error };
}

/** Most message paths cached for one writer schema; further paths (hostile input) are compiled for
 *  each record. */
const PATHS_MAX = 1024;

function compile(
  reader: Schema,
  writer: Schema,
  path: readonly number[],
  codecs: RecordCodecs,
): Decode | MillraceError {
  try {
    return readerCodec(reader, writer, path, codecs);
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return error.row.reason === undefined
      ? registryError('incompatible_schema', error.message, { cause: error })
      : error;
  }
}

/** Error of a value whose frame cannot be read. @param status FRAME_STATUS.* */
export function frameError(status: number, length: number): MillraceError {
  switch (status) {
    case FRAME_STATUS.BAD_MAGIC:
      return registryError('bad_magic', 'the value does not begin with the magic byte 0x00');
    case FRAME_STATUS.BAD_MESSAGE_INDEX:
      return registryError('bad_message_index', 'the message indexes are cut short, negative or too deep');
    default:
      return registryError('truncated_frame', `a value of ${length} bytes is too short for a frame`);
  }
}
