/** Effect of a changed field type on single values: the Protobuf specification as a table.
 *
 *  Types of one family share their wire form and meaning. Within a family, a value that the
 *  reader's type can hold stays the same, and any other value is cast. So a reading is exact if the
 *  reader's type holds every value that the writer's type can write.
 *  Source: protobuf.dev, "Updating A Message Type", "Encoding" and "Enum Behavior". */
import type { ProtoEnum, ProtoField } from '../../../formats/protobuf/tree.ts';

interface ScalarType {
  readonly family: string;
  readonly wire: 'varint' | 'fixed32' | 'fixed64' | 'length';
  /** Least and greatest value of an integer type. */
  readonly range?: readonly [bigint, bigint];
}

const INT32 = [-(2n ** 31n), 2n ** 31n - 1n] as const;
const INT64 = [-(2n ** 63n), 2n ** 63n - 1n] as const;
const UINT32 = [0n, 2n ** 32n - 1n] as const;
const UINT64 = [0n, 2n ** 64n - 1n] as const;

const TYPES: Readonly<Record<string, ScalarType>> = {
  int32: { family: 'plain integers', wire: 'varint', range: INT32 },
  int64: { family: 'plain integers', wire: 'varint', range: INT64 },
  uint32: { family: 'plain integers', wire: 'varint', range: UINT32 },
  uint64: { family: 'plain integers', wire: 'varint', range: UINT64 },
  bool: { family: 'plain integers', wire: 'varint', range: [0n, 1n] },
  // Range of an open enum; a closed enum holds only its own numbers.
  enum: { family: 'plain integers', wire: 'varint', range: INT32 },
  sint32: { family: 'zigzag integers', wire: 'varint', range: INT32 },
  sint64: { family: 'zigzag integers', wire: 'varint', range: INT64 },
  fixed32: { family: 'four-byte integers', wire: 'fixed32', range: UINT32 },
  sfixed32: { family: 'four-byte integers', wire: 'fixed32', range: INT32 },
  fixed64: { family: 'eight-byte integers', wire: 'fixed64', range: UINT64 },
  sfixed64: { family: 'eight-byte integers', wire: 'fixed64', range: INT64 },
  float: { family: 'float', wire: 'fixed32' },
  double: { family: 'double', wire: 'fixed64' },
  string: { family: 'text', wire: 'length' },
  bytes: { family: 'text', wire: 'length' },
};

const typeOf = (field: ProtoField): ScalarType => TYPES[field.type] as ScalarType;

/** Types of one family read each other's bytes. */
export const familyOf = (type: string): string => TYPES[type]?.family ?? type;

export type ValueReading =
  | { readonly kind: 'exact' }
  /** The format's own rules change some values; `example` becomes `result`. */
  | { readonly kind: 'cast'; readonly example: bigint; readonly result: string }
  /** Bytes are read as text, and bytes that are not UTF-8 are refused. */
  | { readonly kind: 'text' }
  /** Numbers that are unknown to the reader's closed enum; undefined: any number may occur. */
  | { readonly kind: 'dropped'; readonly numbers: readonly number[] | undefined }
  /** The wire forms differ, so the reader skips the value; or they are equal with another meaning.
   */
  | { readonly kind: 'wrong'; readonly sameWire: boolean };

const EXACT: ValueReading = { kind: 'exact' };

/** Neither field holds messages. */
export function readingOf(writer: ProtoField, reader: ProtoField): ValueReading {
  if (writer.type === reader.type && reader.enumeration === undefined) return EXACT;
  const from = typeOf(writer);
  const to = typeOf(reader);
  if (from.family !== to.family) {
    const sameWire = from.wire === to.wire;
    // Zero has the same bytes in every varint type.
    return sameWire && writesOnlyZero(writer) ? EXACT : { kind: 'wrong', sameWire };
  }
  if (from.family === 'text') return writer.type === 'bytes' ? { kind: 'text' } : EXACT;
  const written = writer.enumeration?.closed === true ? writer.enumeration : undefined;
  const range = from.range as readonly [bigint, bigint];
  if (reader.enumeration?.closed === true) return missingOf(reader.enumeration, written, range);
  // A bool keeps only whether the number is zero, so a named number loses its name.
  const named = reader.type === 'bool' ? writer.enumeration?.values.keys().next().value : undefined;
  const example = exampleOf(written, range, reader) ?? (named === undefined ? undefined : BigInt(named));
  return example === undefined ? EXACT : { kind: 'cast', example, result: castText(example, reader.type) };
}

function missingOf(
  reader: ProtoEnum,
  written: ProtoEnum | undefined,
  [least, most]: readonly [bigint, bigint],
): ValueReading {
  // Among the integers only bool has so few values that an enum can have them all.
  if (written === undefined && most - least > 1n) return { kind: 'dropped', numbers: undefined };
  const numbers = written === undefined ? [Number(least), Number(most)] : [...written.values.keys()];
  const missing = numbers.filter((number) => !reader.values.has(number));
  return missing.length === 0 ? EXACT : { kind: 'dropped', numbers: missing };
}

/** Values that are easy to recognize after a cast, the simplest first. */
const EXAMPLES = [7n, -1n, 4_294_967_301n, 4_294_967_295n, UINT64[1]];

/** Returns a number that the writer can write and the reader's type cannot hold. */
function exampleOf(
  written: ProtoEnum | undefined,
  [least, most]: readonly [bigint, bigint],
  reader: ProtoField,
): bigint | undefined {
  const [from, to] = typeOf(reader).range as readonly [bigint, bigint];
  const isOutside = (number: bigint): boolean => number < from || number > to;
  if (written === undefined) {
    if (least >= from && most <= to) return undefined;
    return EXAMPLES.find((number) => number >= least && number <= most && isOutside(number)) ?? most;
  }
  for (const number of written.values.keys()) if (isOutside(BigInt(number))) return BigInt(number);
  return undefined;
}

function castText(value: bigint, type: string): string {
  if (type === 'bool') return String(value !== 0n);
  const bits = type.endsWith('64') ? 64 : 32;
  const isUnsigned = type.startsWith('u') || type.startsWith('fixed');
  return String(isUnsigned ? BigInt.asUintN(bits, value) : BigInt.asIntN(bits, value));
}

/** True for a closed enum whose only number is zero. */
export const writesOnlyZero = ({ enumeration }: ProtoField): boolean =>
  enumeration?.closed === true && enumeration.values.size === 1 && enumeration.values.has(0);

/** True for a field whose value is zero if nothing was read. */
export const isZeroUnread = (field: ProtoField): boolean =>
  !field.repeated &&
  field.mapKey === undefined &&
  !field.presence &&
  !field.required &&
  typeOf(field) !== undefined &&
  typeOf(field).wire !== 'length';

/** Describes a field's type: `repeated int32`, `map<string, Item>`, `enum Status`. */
export function wordOf(field: ProtoField): string {
  const type = field.message?.name ?? field.enumeration?.name ?? field.type;
  if (field.mapKey !== undefined) return `map<${field.mapKey}, ${type}>`;
  const label = field.repeated ? 'repeated ' : '';
  if (field.message !== undefined) return `${label}${field.delimited ? 'group' : 'message'} ${type}`;
  return field.enumeration === undefined ? `${label}${type}` : `${label}enum ${type}`;
}
