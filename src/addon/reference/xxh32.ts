/** Streaming XXH32: the digest of all bytes that a generator wrote, independent of the batches that
 *  they were written in.
 *
 *  State words: 0-3 the four lanes, 4 total bytes modulo 2^32, 5 is 1 once there were 16 or more
 *  bytes, 6 number of buffered bytes, 8-11 the buffered bytes. Source: xxHash specification 0.1.1,
 *  section XXH32; seed 0. */
import { XXH32 } from '../../core/layout/layouts.gen.ts';

const PRIME_1 = 0x9e3779b1;
const PRIME_2 = 0x85ebca77;
const PRIME_3 = 0xc2b2ae3d;
const PRIME_4 = 0x27d4eb2f;
const PRIME_5 = 0x165667b1;
const TOTAL = 4;
const LARGE = 5;
const KEPT = 6;
/** State word with the number of bytes buffered for the next stripe, always fewer than a stripe
 *  has. */
export const XXH32_KEPT_WORD = KEPT;
export const XXH32_STRIPE_BYTES = 16;
const KEPT_WORDS = 8;

const rotate = (x: number, bits: number): number => (x << bits) | (x >>> (32 - bits));
const lane = (acc: number, word: number): number =>
  Math.imul(rotate((acc + Math.imul(word, PRIME_2)) | 0, 13), PRIME_1);

export function xxh32Create(): Uint32Array {
  const state = new Uint32Array(XXH32.WORDS);
  state[0] = PRIME_1 + PRIME_2;
  state[1] = PRIME_2;
  state[2] = 0;
  state[3] = -PRIME_1;
  return state;
}

/** Adds bytes[start, start + length). @shape state u32[XXH32.WORDS] */
export function xxh32Update(state: Uint32Array, bytes: Uint8Array, start: number, length: number): void {
  const end = start + length;
  let at = start;
  state[TOTAL] = (state[TOTAL] as number) + length;
  let kept = state[KEPT] as number;
  const keep = new Uint8Array(state.buffer, state.byteOffset + KEPT_WORDS * 4, 16);
  if (kept + length < 16) {
    keep.set(bytes.subarray(at, end), kept);
    state[KEPT] = kept + length;
    return;
  }
  state[LARGE] = 1;
  let a = (state[0] as number) | 0;
  let b = (state[1] as number) | 0;
  let c = (state[2] as number) | 0;
  let d = (state[3] as number) | 0;
  if (kept > 0) {
    keep.set(bytes.subarray(at, at + 16 - kept), kept);
    at += 16 - kept;
    kept = 0;
    const view = new DataView(keep.buffer, keep.byteOffset, 16);
    a = lane(a, view.getInt32(0, true));
    b = lane(b, view.getInt32(4, true));
    c = lane(c, view.getInt32(8, true));
    d = lane(d, view.getInt32(12, true));
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (; at + 16 <= end; at += 16) {
    a = lane(a, view.getInt32(at, true));
    b = lane(b, view.getInt32(at + 4, true));
    c = lane(c, view.getInt32(at + 8, true));
    d = lane(d, view.getInt32(at + 12, true));
  }
  state[0] = a;
  state[1] = b;
  state[2] = c;
  state[3] = d;
  keep.set(bytes.subarray(at, end));
  state[KEPT] = end - at;
}

/** Digest of the bytes so far; more bytes may follow. */
export function xxh32Digest(state: Uint32Array): number {
  const [a, b, c, d, total] = state as unknown as [number, number, number, number, number];
  let hash =
    state[LARGE] === 1
      ? (rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)) | 0
      : (c + PRIME_5) | 0;
  hash = (hash + total) | 0;
  const keep = new Uint8Array(state.buffer, state.byteOffset + KEPT_WORDS * 4, 16);
  const view = new DataView(keep.buffer, keep.byteOffset, 16);
  const kept = state[KEPT] as number;
  let at = 0;
  for (; at + 4 <= kept; at += 4)
    hash = Math.imul(rotate((hash + Math.imul(view.getInt32(at, true), PRIME_3)) | 0, 17), PRIME_4);
  for (; at < kept; at++)
    hash = Math.imul(rotate((hash + Math.imul(keep[at] as number, PRIME_5)) | 0, 11), PRIME_1);
  hash = Math.imul(hash ^ (hash >>> 15), PRIME_2);
  hash = Math.imul(hash ^ (hash >>> 13), PRIME_3);
  return (hash ^ (hash >>> 16)) >>> 0;
}
