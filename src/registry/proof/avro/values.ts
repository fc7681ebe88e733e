/** Values of Avro's primitive types that a decoder may stumble over. The first of each is the one with fewest bytes. */
import type { AvroPrimitive } from '../../../formats/avro/syntax/tree.ts';
import type { AvroDatum } from '../../../formats/datum.ts';

const bytes = (...values: readonly number[]): Uint8Array => Uint8Array.from(values);
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Where a text's bytes are easily lost: nothing, one byte each, several, four, a mark at the beginning, NUL, and more
 *  than one byte's worth of length. */
const TEXTS = ['', 'a', 'größe', '本🚚', '\ufeffx', '\u0000', 'x'.repeat(64)] as const;

/** Of bytes that are no UTF-8: never a first byte, an overlong form, half a pair, above the last point, cut short. */
const NO_TEXTS = [
  bytes(0xff, 0xfe, 0x00),
  bytes(0xc0, 0x80),
  bytes(0xed, 0xa0, 0x80),
  bytes(0xf4, 0x90, 0x80, 0x80),
  bytes(0x61, 0xe2, 0x82),
] as const;

export const AVRO_EDGES: Readonly<Record<AvroPrimitive, readonly AvroDatum[]>> = {
  null: [null],
  boolean: [false, true],
  int: [0, 1, -1, 63, 64, -65, 2 ** 24 + 1, -(2 ** 24) - 1, 2 ** 31 - 1, -(2 ** 31)],
  long: [
    0n,
    1n,
    -1n,
    2n ** 24n + 1n,
    2n ** 31n,
    2n ** 53n + 1n,
    -(2n ** 53n) - 1n,
    // Rounded to a double first, and to a float then, it is another float than rounded once.
    2n ** 60n + 2n ** 36n + 1n,
    2n ** 63n - 1n,
    -(2n ** 63n),
  ],
  float: [
    0,
    -0,
    1.5,
    Math.fround(-0.1),
    Math.fround(3.4028234663852886e38),
    2 ** -149,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
  ],
  double: [
    0,
    -0,
    -0.1,
    2 ** 53,
    Number.MAX_VALUE,
    Number.MIN_VALUE,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
  ],
  bytes: [bytes(), bytes(0x61), ...TEXTS.slice(2, 5).map(utf8), ...NO_TEXTS],
  string: TEXTS,
};

/** Keys of maps: the usual one first, then the empty one and one that objects of JavaScript treat as their own. */
export const AVRO_KEYS = ['k', '', '__proto__', 'größe🚚'] as const;

/** Bytes of a fixed: all zero, all ones, counting. */
export function fixedEdges(size: number): readonly Uint8Array[] {
  if (size === 0) return [bytes()];
  return [new Uint8Array(size), new Uint8Array(size).fill(0xff), new Uint8Array(size).map((_, i) => i + 1)];
}
