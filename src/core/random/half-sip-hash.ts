/** Hash of a key: HalfSipHash-1-3 with a secret of 64 bits and a result of 64 bits.
 *
 *  The secret keeps a producer from choosing keys whose hashes collide. All arithmetic is of 32
 *  bits. Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF"; the reference code
 *  halfsiphash.c with 1 and 3 rounds. */

/** Hash that was computed last. */
export interface KeyHash {
  low: number;
  high: number;
  /** Hashes `length` bytes from word `at` on, which are followed by zeros up to a whole word. */
  hash(words: Int32Array, at: number, length: number): void;
}

export class HalfSipHash implements KeyHash {
  low = 0;
  high = 0;
  private readonly k0: number;
  private readonly k1: number;

  /** @param secret 8 bytes */
  constructor(secret: Uint8Array) {
    const view = new DataView(secret.buffer, secret.byteOffset, 8);
    this.k0 = view.getInt32(0, true);
    this.k1 = view.getInt32(4, true);
  }

  hash(words: Int32Array, at: number, length: number): void {
    const { k0, k1 } = this;
    let v0 = k0;
    let v1 = k1 ^ 0xee;
    let v2 = 0x6c796765 ^ k0;
    let v3 = 0x74656462 ^ k1;
    const whole = length >> 2;
    const rest = length & 3;
    for (let block = 0; block <= whole; block++) {
      // The last block has the rest of the bytes, and the length in its highest byte.
      const m =
        block < whole
          ? (words[at + block] as number)
          : (length << 24) | (rest === 0 ? 0 : (words[at + whole] as number) & ((1 << (rest * 8)) - 1));
      v3 ^= m;
      v0 = (v0 + v1) | 0;
      v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
      v0 = (v0 << 16) | (v0 >>> 16);
      v2 = (v2 + v3) | 0;
      v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
      v0 = (v0 + v3) | 0;
      v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
      v2 = (v2 + v1) | 0;
      v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
      v2 = (v2 << 16) | (v2 >>> 16);
      v0 ^= m;
    }
    v2 ^= 0xee;
    for (let round = 0; round < 6; round++) {
      if (round === 3) {
        this.low = v1 ^ v3;
        v1 ^= 0xdd;
      }
      v0 = (v0 + v1) | 0;
      v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
      v0 = (v0 << 16) | (v0 >>> 16);
      v2 = (v2 + v3) | 0;
      v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
      v0 = (v0 + v3) | 0;
      v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
      v2 = (v2 + v1) | 0;
      v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
      v2 = (v2 << 16) | (v2 >>> 16);
    }
    this.high = v1 ^ v3;
  }
}
