/** Port of the codec kernels: the addon and the TypeScript reference implementation.
 *
 *  A program is data: code for the interpreter of a format, and a pool of constants. Kernels check
 *  a program once, when it is opened, so that no code makes them access memory of others. */
import { coreError } from '../errors.ts';
import type { ColumnBatch } from './batch.ts';
import type { EncodedFrames } from './frames.ts';
import type { ColumnSchema } from './schema.ts';

/** Payloads in one buffer. A length below 0 is a null value. */
export interface PayloadSpans {
  readonly bytes: Uint8Array;
  readonly start: Uint32Array;
  readonly length: Int32Array;
}

export interface ColumnProgram {
  readonly schema: ColumnSchema;
  readonly code: Int32Array;
  readonly pool: Uint8Array;
}

/** Opened program of one format. */
export interface ColumnDecoder {
  /** Appends rows for the payloads `from` to `to` (exclusive) and returns the number of rows
   *  appended. Fewer than requested: the next row lacks room in the buffer NEED_SLOT of the batch's
   *  state, which must hold NEED_BYTES; no part of that row is appended. The spans must lie inside
   *  `payloads.bytes`. With `skips` the first row is appended without values, as TOO_LARGE.
   *  @throws out_of_range for a span outside its buffer, or more rows than the batch has */
  decode(payloads: PayloadSpans, from: number, to: number, into: ColumnBatch, skips: boolean): number;
  /** Frees the program; calling it again has no effect. */
  close(): void;
}

/** Program that encodes columns. @shape code i32[columns * words of the format] */
export interface EncodeProgram {
  readonly schema: ColumnSchema;
  readonly code: Int32Array;
  /** Lists of words, each behind its length. */
  readonly tables: Int32Array;
}

/** Opened program that encodes columns of one format. */
export interface ColumnEncoder {
  /** Appends a frame for each row from `from` to `to` (exclusive): `prefix` and payload. Returns
   *  the number of rows appended. Fewer than requested: the buffer must hold NEED_BYTES for the
   *  next row, no part of which is appended. With `skips` the first row is appended as TOO_LARGE.
   *  @throws out_of_range for rows that the batch does not have, or more rows than `into` has;
   *    layout_mismatch for a batch with other columns */
  encode(
    columns: ColumnBatch,
    from: number,
    to: number,
    prefix: Uint8Array,
    into: EncodedFrames,
    skips: boolean,
  ): number;
  /** Frees the program; calling it again has no effect. */
  close(): void;
}

export interface ColumnKernels {
  readonly name: 'native' | 'reference';
  /** Opens a program that encodes Avro. @throws out_of_range for words that are no program */
  openAvroEncoder(program: EncodeProgram): ColumnEncoder;
  /** Opens a program that encodes Protobuf. @throws out_of_range for words that are no program */
  openProtobufEncoder(program: EncodeProgram): ColumnEncoder;
  /** Opens a program for Avro payloads. @throws out_of_range for code that is no program */
  openAvro(program: ColumnProgram): ColumnDecoder;
  /** Opens a program for Protobuf payloads. @throws out_of_range for code that is no program */
  openProtobuf(program: ColumnProgram): ColumnDecoder;
}

/** Decodes payloads into a batch and grows it as needed. Returns the number of rows appended: fewer
 *  than requested when the batch has reached its byte limit or its row capacity. A row that exceeds
 *  the limit in an empty batch gets status TOO_LARGE. */
export function decodeColumns(
  decoder: ColumnDecoder,
  payloads: PayloadSpans,
  from: number,
  to: number,
  into: ColumnBatch,
): number {
  if (!(from >= 0 && from <= to && to <= payloads.start.length && to <= payloads.length.length))
    throw coreError('out_of_range', `payloads ${from} to ${to} are not among the spans`);
  const end = Math.min(to, from + into.rowCapacity - into.rowCount);
  let at = from;
  while (at < end) {
    at += decoder.decode(payloads, at, end, into, false);
    if (at === end || into.grow()) continue;
    if (into.rowCount > 0) break;
    at += decoder.decode(payloads, at, at + 1, into, true);
  }
  return at - from;
}

/** Encodes rows and grows the frames as needed. Returns the number of rows appended: fewer than
 *  requested when the frames have reached their byte limit or their row capacity. A row that
 *  exceeds the limit in an empty buffer gets status TOO_LARGE. */
export function encodeColumns(
  encoder: ColumnEncoder,
  columns: ColumnBatch,
  from: number,
  to: number,
  prefix: Uint8Array,
  into: EncodedFrames,
): number {
  if (!(from >= 0 && from <= to && to <= columns.rowCount))
    throw coreError('out_of_range', `rows ${from} to ${to} are not among the rows of the batch`);
  const end = Math.min(to, from + into.rowCapacity - into.rowCount);
  let at = from;
  while (at < end) {
    at += encoder.encode(columns, at, end, prefix, into, false);
    if (at === end || into.grow()) continue;
    if (into.rowCount > 0) break;
    at += encoder.encode(columns, at, at + 1, prefix, into, true);
  }
  return at - from;
}
