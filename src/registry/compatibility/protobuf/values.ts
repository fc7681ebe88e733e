/** What becomes of single values when a field's type changes: the Protobuf specification as a table.
 *
 *  A family of types shares its wire form and its meaning; inside it a value that the reader's type holds comes back,
 *  and any other is cast. So a reading is exact where the reader's type holds all that the writer's can write.
 *  Source: protobuf.dev, "Updating A Message Type", "Encoding" and "Enum Behavior".
 */
import type { ProtoEnum, ProtoField } from '../../../formats/protobuf/tree.ts';

interface ScalarType {
  readonly family: string;
  readonly wire: 'varint' | 'fixed32' | 'fixed64' | 'length';
  /** Of integers: least and most. */
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
  // An open enum; a closed one holds its own numbers alone.
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
  /** Bytes that are no UTF-8 are no text. */
  | { readonly kind: 'text' }
  /** A closed enum takes these for unknown; undefined: any number may come. */
  | { readonly kind: 'dropped'; readonly numbers: readonly number[] | undefined }
  /** Another wire form: the reader passes over it. Otherwise the same form with another meaning. */
  | { readonly kind: 'wrong'; readonly sameWire: boolean };

const EXACT: ValueReading = { kind: 'exact' };

/** Neither field holds messages. */
export function readingOf(writer: ProtoField, reader: ProtoField): ValueReading {
  if (writer.type === reader.type && reader.enumeration === undefined) return EXACT;
  const from = typeOf(writer);
  const to = typeOf(reader);
  if (from.family !== to.family) {
    const sameWire = from.wire === to.wire;
    // Zero is all bits zero in every varint.
    return sameWire && writesOnlyZero(writer) ? EXACT : { kind: 'wrong', sameWire };
  }
  if (from.family === 'text') return writer.type === 'bytes' ? { kind: 'text' } : EXACT;
  const written = writer.enumeration?.closed === true ? writer.enumeration : undefined;
  const range = from.range as readonly [bigint, bigint];
  if (reader.enumeration?.closed === true) return missingOf(reader.enumeration, written, range);
  // A name is more than whether its number is zero.
  const named = reader.type === 'bool' ? writer.enumeration?.values.keys().next().value : undefined;
  const example = exampleOf(written, range, reader) ?? (named === undefined ? undefined : BigInt(named));
  return example === undefined ? EXACT : { kind: 'cast', example, result: castText(example, reader.type) };
}

function missingOf(
  reader: ProtoEnum,
  written: ProtoEnum | undefined,
  [least, most]: readonly [bigint, bigint],
): ValueReading {
  // Of integers only bool has so few values that an enum can have them all.
  if (written === undefined && most - least > 1n) return { kind: 'dropped', numbers: undefined };
  const numbers = written === undefined ? [Number(least), Number(most)] : [...written.values.keys()];
  const missing = numbers.filter((number) => !reader.values.has(number));
  return missing.length === 0 ? EXACT : { kind: 'dropped', numbers: missing };
}

/** Values that are easily recognised after a cast, from the plainest on. */
const EXAMPLES = [7n, -1n, 4_294_967_301n, 4_294_967_295n, UINT64[1]];

/** A number that the writer can write and the reader's type does not hold. */
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

/** A closed enum whose only number is zero. */
export const writesOnlyZero = ({ enumeration }: ProtoField): boolean =>
  enumeration?.closed === true && enumeration.values.size === 1 && enumeration.values.has(0);

/** A field whose value is zero wherever nothing was read. */
export const isZeroUnread = (field: ProtoField): boolean =>
  !field.repeated &&
  field.mapKey === undefined &&
  !field.presence &&
  !field.required &&
  typeOf(field) !== undefined &&
  typeOf(field).wire !== 'length';

/** For a sentence: `repeated int32`, `map<string, Item>`, `the closed enum Status`. */
export function wordOf(field: ProtoField): string {
  const type = field.message?.name ?? field.enumeration?.name ?? field.type;
  if (field.mapKey !== undefined) return `map<${field.mapKey}, ${type}>`;
  const label = field.repeated ? 'repeated ' : '';
  if (field.message !== undefined) return `${label}${field.delimited ? 'group' : 'message'} ${type}`;
  return field.enumeration === undefined ? `${label}${type}` : `${label}enum ${type}`;
}
