/** The hash of keys compared with the reference algorithm on numbers of any size. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HalfSipHash } from '../../../../src/core/random/half-sip-hash.ts';

const MASK = 0xffff_ffffn;

/** HalfSipHash with a result of 8 bytes, as halfsiphash.c describes it. */
function reference(secret: Uint8Array, bytes: Uint8Array, rounds: readonly [number, number]): bigint {
  const word = (from: Uint8Array, at: number): bigint =>
    [0, 1, 2, 3].reduce((sum, i) => sum | (BigInt(from[at + i] ?? 0) << BigInt(8 * i)), 0n);
  const [k0, k1] = [word(secret, 0), word(secret, 4)];
  let [v0, v1, v2, v3] = [k0, k1 ^ 0xeen, 0x6c796765n ^ k0, 0x74656462n ^ k1];
  const rotated = (value: bigint, bits: bigint): bigint => ((value << bits) | (value >> (32n - bits))) & MASK;
  const mix = (times: number): void => {
    for (let i = 0; i < times; i++) {
      v0 = (v0 + v1) & MASK;
      v1 = rotated(v1, 5n) ^ v0;
      v0 = rotated(v0, 16n);
      v2 = (v2 + v3) & MASK;
      v3 = rotated(v3, 8n) ^ v2;
      v0 = (v0 + v3) & MASK;
      v3 = rotated(v3, 7n) ^ v0;
      v2 = (v2 + v1) & MASK;
      v1 = rotated(v1, 13n) ^ v2;
      v2 = rotated(v2, 16n);
    }
  };
  const whole = bytes.length - (bytes.length % 4);
  const blocks = Array.from({ length: whole / 4 }, (_, i) => word(bytes, i * 4));
  blocks.push(word(bytes.subarray(whole), 0) | (BigInt(bytes.length & 255) << 24n));
  for (const block of blocks) {
    v3 ^= block;
    mix(rounds[0]);
    v0 ^= block;
  }
  v2 ^= 0xeen;
  mix(rounds[1]);
  const low = v1 ^ v3;
  v1 ^= 0xddn;
  mix(rounds[1]);
  return low | ((v1 ^ v3) << 32n);
}

describe('hash of keys', () => {
  it('the reference of this test gives the published result of HalfSipHash-2-4 for no bytes', () => {
    // Source: vectors.h of github.com/veorq/SipHash, vectors_hsip64[0]: 21 8d 1f 59 b9 b8 3c c8.
    expect(reference(Uint8Array.of(0, 1, 2, 3, 4, 5, 6, 7), new Uint8Array(0), [2, 4])).toBe(
      0xc83cb8b9591f8d21n,
    );
  });

  it('the hash equals the reference with 1 and 3 rounds for every length and secret', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 8, maxLength: 8 }),
        fc.uint8Array({ maxLength: 1024 }),
        fc.nat(3),
        (secret, bytes, from) => {
          const words = new Int32Array(264);
          new Uint8Array(words.buffer).set(bytes, from * 4);
          const hash = new HalfSipHash(secret);
          hash.hash(words, from, bytes.length);
          const result = (BigInt(hash.high >>> 0) << 32n) | BigInt(hash.low >>> 0);
          expect(result).toBe(reference(secret, bytes, [1, 3]));
        },
      ),
    );
  });
});
