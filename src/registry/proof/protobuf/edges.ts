/** Edge values of Protobuf types, for decoders and casts. The first value of each type is the
 *  default. */

import type { ProtoValueDatum } from '../../../formats/datum.ts';
import type { ProtoEnum, ProtoField } from '../../../formats/protobuf/tree.ts';

type Values = readonly ProtoValueDatum[];

const bytes = (...values: readonly number[]): Uint8Array => Uint8Array.from(values);
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

const SIGNED_32: Values = [0, 1, -1, 7, 2 ** 31 - 1, -(2 ** 31)];
const UNSIGNED_32: Values = [0, 1, 7, 2 ** 31, 2 ** 32 - 1];
const SIGNED_64: Values = [
  0n,
  1n,
  -1n,
  7n,
  2n ** 31n,
  // Truncation to 32 bits gives different results for the value and for its zigzag form.
  -(2n ** 31n) - 1n,
  2n ** 32n + 5n,
  2n ** 53n + 1n,
  2n ** 63n - 1n,
  -(2n ** 63n),
];
const UNSIGNED_64: Values = [
  0n,
  1n,
  7n,
  2n ** 31n,
  // The lower 32 bits are zero.
  2n ** 32n,
  2n ** 32n + 5n,
  2n ** 53n + 1n,
  2n ** 63n,
  2n ** 64n - 1n,
];
const NOT_FINITE: Values = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];

/** Texts whose bytes are easily lost: one, several and four bytes a character; a byte order mark;
 *  NUL; and a length that needs two bytes. */
const TEXTS = ['', 'a', 'größe', '本🚚', '\ufeffx', '\u0000', 'x'.repeat(130)] as const;

/** Bytes that are not UTF-8: an invalid first byte, an overlong form, half a surrogate pair, a code
 *  point above the last, a cut sequence. */
const INVALID_UTF8: Values = [
  bytes(0xff, 0xfe, 0x00),
  bytes(0xc0, 0x80),
  bytes(0xed, 0xa0, 0x80),
  bytes(0xf4, 0x90, 0x80, 0x80),
  bytes(0x61, 0xe2, 0x82),
];

const SCALAR_EDGES: Readonly<Record<string, Values>> = {
  int32: SIGNED_32,
  sint32: SIGNED_32,
  sfixed32: SIGNED_32,
  uint32: UNSIGNED_32,
  fixed32: UNSIGNED_32,
  int64: SIGNED_64,
  sint64: SIGNED_64,
  sfixed64: SIGNED_64,
  uint64: UNSIGNED_64,
  fixed64: UNSIGNED_64,
  bool: [false, true],
  float: [0, 1.5, -0, Math.fround(-0.1), Math.fround(3.4028234663852886e38), 2 ** -149, ...NOT_FINITE],
  double: [0, 1.5, -0, -0.1, 2 ** 53, Number.MAX_VALUE, Number.MIN_VALUE, ...NOT_FINITE],
  string: TEXTS,
  // The third value is also a valid message: field 1, a varint.
  bytes: [bytes(), bytes(0x61), bytes(0x08, 0x01), ...TEXTS.slice(2, 5).map(utf8), ...INVALID_UTF8],
};

/** Numbers that an open enum may hold without a name. */
const UNNAMED = [1, -1, 2 ** 31 - 1, -(2 ** 31)] as const;

/** Returns every named number, and some unnamed ones if the enum is open. */
function enumEdges({ values, closed }: ProtoEnum): readonly number[] {
  const named = [...values.keys()];
  if (closed) return named;
  let most = 0;
  for (const number of named) most = Math.max(most, number);
  const unnamed = [Math.min(most + 1, 2 ** 31 - 1), ...UNNAMED].filter((number) => !values.has(number));
  return [...named, ...new Set(unnamed)];
}

/** Returns the edge values of a scalar or enum type, the default first. */
export const protoEdges = ({ type, enumeration }: ProtoField): Values =>
  enumeration === undefined ? (SCALAR_EDGES[type] ?? []) : enumEdges(enumeration);

/** Returns edge values of map keys: ordinary ones first, then the default, and one that has a
 *  meaning in JavaScript objects. */
export function mapKeyEdges(type: string): Values {
  if (type === 'string') return ['k', 'l', '', '__proto__', 'größe🚚'];
  const [zero, ...others] = SCALAR_EDGES[type] ?? [];
  return [...others, zero as ProtoValueDatum];
}
