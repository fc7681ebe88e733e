/** Edge values of Avro's primitive types. The first value of each type is the one with fewest
 *  bytes. */
import type { AvroPrimitive } from '../../../formats/avro/syntax/tree.ts';
import type { AvroDatum } from '../../../formats/datum.ts';

const bytes = (...values: readonly number[]): Uint8Array => Uint8Array.from(values);
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Texts whose bytes are easily lost: empty; one, several and four bytes a character; a byte order
 *  mark; NUL; and a length that needs two bytes. */
const TEXTS = ['', 'a', 'größe', '本🚚', '\ufeffx', '\u0000', 'x'.repeat(64)] as const;

/** Bytes that are not UTF-8: an invalid first byte, an overlong form, half a surrogate pair, a code
 *  point above the last, a cut sequence. */
const INVALID_UTF8 = [
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
    // Double rounding (to a double, then to a float) gives another float than one rounding.
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
  bytes: [bytes(), bytes(0x61), ...TEXTS.slice(2, 5).map(utf8), ...INVALID_UTF8],
  string: TEXTS,
};

/** Keys of maps: an ordinary one first, then the empty one and one that has a meaning in JavaScript
 *  objects. */
export const AVRO_KEYS = ['k', '', '__proto__', 'größe🚚'] as const;

/** Values of a fixed: all zero, all ones, counting. */
export function fixedEdges(size: number): readonly Uint8Array[] {
  if (size === 0) return [bytes()];
  return [new Uint8Array(size), new Uint8Array(size).fill(0xff), new Uint8Array(size).map((_, i) => i + 1)];
}
