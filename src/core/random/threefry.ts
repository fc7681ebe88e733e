/** Threefry-4x32-20, a counter-based generator: random words as a pure function of a key and a
 *  counter, so event n needs no earlier event.
 *  Uses only additions, rotations and exclusive ors of 32-bit words. The published test vectors are
 *  in docs/reference/generator.md. Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as
 *  easy as 1, 2, 3 (SC 2011). */
import { GEN } from '../layout/layouts.gen.ts';

const PARITY = 0x1bd11bda;
const TWO_32 = 4_294_967_296;

/** Writes four random words of a key (k0..k3) and a counter (c0..c3) to `out`. @shape out u32[4] */
export function threefry4x32(
  k0: number,
  k1: number,
  k2: number,
  k3: number,
  c0: number,
  c1: number,
  c2: number,
  c3: number,
  out: Uint32Array,
): void {
  // The five key words rotate by one position with every key injection.
  let a = k0 | 0;
  let b = k1 | 0;
  let c = k2 | 0;
  let d = k3 | 0;
  let e = PARITY ^ a ^ b ^ c ^ d;
  let x0 = (c0 + a) | 0;
  let x1 = (c1 + b) | 0;
  let x2 = (c2 + c) | 0;
  let x3 = (c3 + d) | 0;
  for (let injection = 1; injection <= 5; injection++) {
    if ((injection & 1) === 1) {
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 10) | (x1 >>> 22)) ^ x0;
      x2 = (x2 + x3) | 0;
      x3 = ((x3 << 26) | (x3 >>> 6)) ^ x2;
      x0 = (x0 + x3) | 0;
      x3 = ((x3 << 11) | (x3 >>> 21)) ^ x0;
      x2 = (x2 + x1) | 0;
      x1 = ((x1 << 21) | (x1 >>> 11)) ^ x2;
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 13) | (x1 >>> 19)) ^ x0;
      x2 = (x2 + x3) | 0;
      x3 = ((x3 << 27) | (x3 >>> 5)) ^ x2;
      x0 = (x0 + x3) | 0;
      x3 = ((x3 << 23) | (x3 >>> 9)) ^ x0;
      x2 = (x2 + x1) | 0;
      x1 = ((x1 << 5) | (x1 >>> 27)) ^ x2;
    } else {
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 6) | (x1 >>> 26)) ^ x0;
      x2 = (x2 + x3) | 0;
      x3 = ((x3 << 20) | (x3 >>> 12)) ^ x2;
      x0 = (x0 + x3) | 0;
      x3 = ((x3 << 17) | (x3 >>> 15)) ^ x0;
      x2 = (x2 + x1) | 0;
      x1 = ((x1 << 11) | (x1 >>> 21)) ^ x2;
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 25) | (x1 >>> 7)) ^ x0;
      x2 = (x2 + x3) | 0;
      x3 = ((x3 << 10) | (x3 >>> 22)) ^ x2;
      x0 = (x0 + x3) | 0;
      x3 = ((x3 << 18) | (x3 >>> 14)) ^ x0;
      x2 = (x2 + x1) | 0;
      x1 = ((x1 << 20) | (x1 >>> 12)) ^ x2;
    }
    const first = a;
    a = b;
    b = c;
    c = d;
    d = e;
    e = first;
    x0 = (x0 + a) | 0;
    x1 = (x1 + b) | 0;
    x2 = (x2 + c) | 0;
    x3 = (x3 + d + injection) | 0;
  }
  out[0] = x0;
  out[1] = x1;
  out[2] = x2;
  out[3] = x3;
}

/** Seed as two 32-bit words. */
export interface Seed {
  readonly low: number;
  readonly high: number;
}

/** Converts any whole number to a seed, modulo 2^64. */
export function seedOf(value: bigint | number): Seed {
  const wide = BigInt.asUintN(64, BigInt(value));
  return { low: Number(wide & 0xffff_ffffn), high: Number(wide >> 32n) };
}

/** Random words of one stream of a seed: key (seed, stream, GEN.KEY), counter (index, part, block).
 */
export class RandomStream {
  private readonly seed: Seed;
  private readonly stream: number;
  /** Words of the last call. @shape u32[4] */
  readonly words = new Uint32Array(4);

  constructor(seed: Seed, stream: number) {
    this.seed = seed;
    this.stream = stream;
  }

  /** Fills `words` for entry `index` (a whole number below 2^53); `part` and `block` select further
   *  groups of four words. */
  at(index: number, part = 0, block = 0): Uint32Array {
    const { low, high } = this.seed;
    threefry4x32(
      low,
      high,
      this.stream,
      GEN.KEY,
      index >>> 0,
      Math.floor(index / TWO_32),
      part,
      block,
      this.words,
    );
    return this.words;
  }

  /** Returns a fraction in [0, 1) from 32 bits of one of the last words. */
  fraction(word: number): number {
    return (this.words[word] as number) / TWO_32;
  }
}

const HEX = Array.from({ length: 256 }, (_, i) => i.toString(16).padStart(2, '0'));

/** Formats four words as a lower-case UUID of version 4 (RFC 9562). */
export function uuidOf(words: Uint32Array): string {
  let text = '';
  for (let i = 0; i < 16; i++) {
    let byte = ((words[i >> 2] as number) >>> (24 - 8 * (i & 3))) & 0xff;
    if (i === 6) byte = (byte & 0x0f) | 0x40;
    if (i === 8) byte = (byte & 0x3f) | 0x80;
    if (i === 4 || i === 6 || i === 8 || i === 10) text += '-';
    text += HEX[byte];
  }
  return text;
}
