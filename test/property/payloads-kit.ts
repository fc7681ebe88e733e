/** Runs an encoder and returns the payload. */
import type { Encode } from '../../src/formats/decode.ts';
import { Payloads } from '../../src/formats/payloads.ts';

/** Bytes of one value. The first buffer is small, so that most values make it grow. */
export function encodedBy(encode: Encode, value: unknown): Buffer {
  const payloads = new Payloads(1, 16);
  encode(value, payloads);
  return Buffer.from(payloads.bytes.subarray(0, payloads.used));
}
