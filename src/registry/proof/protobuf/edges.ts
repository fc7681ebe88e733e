/** Values of Protobuf's types that a decoder or a cast may stumble over. The first of each is the default. */

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
  // Cut to 32 bits as a value and as a folded number it becomes two different ones.
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
  // Its lower half is zero.
  2n ** 32n,
  2n ** 32n + 5n,
  2n ** 53n + 1n,
  2n ** 63n,
  2n ** 64n - 1n,
];
const NOT_FINITE: Values = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];

/** Where a text's bytes are easily lost: one byte each, several, four, a mark at the beginning, NUL, and a length of
 *  two bytes. */
const TEXTS = ['', 'a', 'größe', '本🚚', '\ufeffx', '\u0000', 'x'.repeat(130)] as const;

/** Of bytes that are no UTF-8: never a first byte, an overlong form, half a pair, above the last point, cut short. */
const NO_TEXTS: Values = [
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
  // One of them is a message's encoding by chance: field 1, a varint.
  bytes: [bytes(), bytes(0x61), bytes(0x08, 0x01), ...TEXTS.slice(2, 5).map(utf8), ...NO_TEXTS],
};

/** Numbers that an open enum may hold without a name. */
const UNNAMED = [1, -1, 2 ** 31 - 1, -(2 ** 31)] as const;

/** Every named number, and where the enum is open some without a name. */
function enumEdges({ values, closed }: ProtoEnum): readonly number[] {
  const named = [...values.keys()];
  if (closed) return named;
  let most = 0;
  for (const number of named) most = Math.max(most, number);
  const unnamed = [Math.min(most + 1, 2 ** 31 - 1), ...UNNAMED].filter((number) => !values.has(number));
  return [...named, ...new Set(unnamed)];
}

/** Of a field that holds no message, or of a map's values that are none; the default first. */
export const protoEdges = ({ type, enumeration }: ProtoField): Values =>
  enumeration === undefined ? (SCALAR_EDGES[type] ?? []) : enumEdges(enumeration);

/** Of a map's keys: the usual ones first, then the default, and one that objects of JavaScript treat as their own. */
export function mapKeyEdges(type: string): Values {
  if (type === 'string') return ['k', 'l', '', '__proto__', 'größe🚚'];
  const [zero, ...others] = SCALAR_EDGES[type] ?? [];
  return [...others, zero as ProtoValueDatum];
}
