/** A compiled pair of writer and reader. */
import type { Payloads } from './payloads.ts';

/** Appends the encoded form of one value. @throws value_refused, and then nothing was appended */
export type Encode = (value: unknown, into: Payloads) => void;

export interface WriterCodec {
  readonly encode: Encode;
  /** Path of the written message in its file; null for Avro. */
  readonly messageIndexes: Int32Array | null;
}

/** Reads the payload in `bytes[start, end)`. 64-bit integers are bigint, absent optional values null.
 *  @throws malformed_payload, whose details say `at`, the byte of the payload, and `path`; never reads outside the span */
export type Decode = (bytes: Buffer, start: number, end: number) => unknown;
