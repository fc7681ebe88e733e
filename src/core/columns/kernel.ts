/** Port of the codec kernels: the addon and the TypeScript reference implementation.
 *
 *  A program is data: code for the interpreter of a format, and a pool of constants. Kernels check
 *  a program once, when it is opened, so that no code makes them access memory of others. */
import { coreError } from '../errors.ts';
import type { ColumnBatch } from './batch.ts';
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

export interface ColumnKernels {
  readonly name: 'native' | 'reference';
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
