/** What compiled writers and readers are, and which pairs of schemas they are made for. */
import { findingLine, isCompatible } from '../compatibility/finding.ts';
import { checkPair } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import type { Schema } from '../schemas/schema.ts';
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

/** For Protobuf, whose wire does not say what was lost. @throws incompatible_schema where the rules refuse the pair: a
 *  silent wrong value is worse than a parked record */
export function demandCompatible(reader: Schema, writer: Schema): void {
  const findings = checkPair(reader, writer);
  if (isCompatible(findings)) return;
  const lines = findings.filter((finding) => !isCompatible([finding])).map(findingLine);
  throw registryError(
    'incompatible_schema',
    `the reader's schema cannot read the writer's: ${lines.join('; ')}`,
  );
}
