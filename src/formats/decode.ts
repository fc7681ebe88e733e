/** Compiled encoders of a schema and decoders of a pair of schemas. */
import type { Payloads } from './payloads.ts';

/** Appends the encoded form of one value. @throws value_refused, with nothing appended */
export type Encode = (value: unknown, into: Payloads) => void;

export interface WriterCodec {
  readonly encode: Encode;
  /** Path of the written message in its file; null for Avro. */
  readonly messageIndexes: Int32Array | null;
}

/** Reads the payload in `bytes[start, end)`. 64-bit integers are bigint, absent optional values
 *  null. Never reads outside the span.
 *  @throws malformed_payload with the details `at`, the byte of the payload, and `path` */
export type Decode = (bytes: Buffer, start: number, end: number) => unknown;
