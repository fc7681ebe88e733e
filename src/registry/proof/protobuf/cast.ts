/** Cast of one written value to the reader's type of the field.
 *  Source: protobuf.dev, "Updating A Message Type" and "Encoding". If no rule covers a value, the
 *  value is promised only if it is zero in both types, because then nothing changes. */

import type { ProtoValueDatum } from '../../../formats/datum.ts';
import type { ProtoEnum, ProtoField } from '../../../formats/protobuf/tree.ts';

export interface Cast {
  /** Value that the consumer's program sees. */
  readonly value: unknown;
  /** True: the number, text or bytes are unchanged. */
  readonly same: boolean;
}

export const LENGTH_DELIMITED = 'a length and bytes';

const WIRE: Readonly<Record<string, string>> = {
  double: 'eight bytes',
  fixed64: 'eight bytes',
  sfixed64: 'eight bytes',
  float: 'four bytes',
  fixed32: 'four bytes',
  sfixed32: 'four bytes',
  string: LENGTH_DELIMITED,
  bytes: LENGTH_DELIMITED,
  message: LENGTH_DELIMITED,
};

/** Wire form of a single value. */
export const wireOfType = (type: string): string => WIRE[type] ?? 'a varint';

/** Families of types: the specification allows changes within a family, "as if cast". */
const FAMILY: Readonly<Record<string, string>> = {
  int32: 'plain',
  int64: 'plain',
  uint32: 'plain',
  uint64: 'plain',
  bool: 'plain',
  enum: 'plain',
  sint32: 'zigzag',
  sint64: 'zigzag',
  fixed32: 'fixed32',
  sfixed32: 'fixed32',
  fixed64: 'fixed64',
  sfixed64: 'fixed64',
  string: 'text',
  bytes: 'text',
};
const familyOf = (type: string): string => FAMILY[type] ?? type;

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

const isUnsigned = (type: string): boolean => type.startsWith('u') || type.startsWith('fixed');

const integerOf = (value: ProtoValueDatum): bigint =>
  typeof value === 'boolean' ? (value ? 1n : 0n) : BigInt(value as number | bigint);

/** Returns the name of an enum number. Without a name: the number for an open enum, undefined for a
 *  closed one. */
function enumValue(enumeration: ProtoEnum, number: number): string | number | undefined {
  return enumeration.values.get(number) ?? (enumeration.closed ? undefined : number);
}

/** Returns the reader's value of a field without presence that is not on the wire. */
export function implicitDefault({ type, enumeration }: ProtoField): unknown {
  if (enumeration !== undefined) {
    const [first] = enumeration.values.keys();
    return first === undefined ? 0 : enumeration.values.get(first);
  }
  if (type === 'string') return '';
  if (type === 'bytes') return Buffer.alloc(0);
  if (type === 'bool') return false;
  return type.endsWith('64') ? 0n : 0;
}

/** Casts a value. Undefined: the specification promises nothing for it. Neither field holds
 *  messages. */
export function cast(written: ProtoField, reader: ProtoField, value: ProtoValueDatum): Cast | undefined {
  const family = familyOf(written.type);
  if (family !== familyOf(reader.type)) {
    if (wireOfType(written.type) !== wireOfType(reader.type) || !isZero(value)) return undefined;
    return fromInteger(reader, 0n, 0n);
  }
  switch (family) {
    case 'text':
      return castText(reader.type, value as string | Uint8Array);
    case 'float':
    case 'double':
      return { value, same: true };
    case 'zigzag':
      return castZigzag(reader.type, integerOf(value));
    default: {
      const wide = integerOf(value);
      const result = fromInteger(reader, wide, wide);
      // A bool keeps only whether the number is zero, so the name is lost.
      if (result !== undefined && written.type === 'enum' && reader.type === 'bool')
        return { ...result, same: false };
      return result;
    }
  }
}

/** Zero has the same bytes in every number type; minus zero has not. */
export const isZero = (value: ProtoValueDatum): boolean =>
  value === 0n || value === false || Object.is(value, 0);

function fromInteger(reader: ProtoField, wide: bigint, written: bigint): Cast | undefined {
  const { type, enumeration } = reader;
  if (enumeration !== undefined) {
    const number = BigInt.asIntN(32, wide);
    const value = enumValue(enumeration, Number(number));
    return value === undefined ? undefined : { value, same: number === written };
  }
  if (type === 'bool') {
    const truth = BigInt.asUintN(64, wide) !== 0n;
    return { value: truth, same: written === (truth ? 1n : 0n) };
  }
  if (type === 'float' || type === 'double') return { value: Number(wide), same: true };
  const bits = type.endsWith('64') ? 64 : 32;
  const number = isUnsigned(type) ? BigInt.asUintN(bits, wide) : BigInt.asIntN(bits, wide);
  return { value: bits === 64 ? number : Number(number), same: number === written };
}

/** The zigzag-encoded number is truncated to 32 bits before it is decoded. */
function castZigzag(type: string, value: bigint): Cast {
  if (type === 'sint64') return { value, same: true };
  const folded = BigInt.asUintN(32, value >= 0n ? value * 2n : -value * 2n - 1n);
  const number = folded % 2n === 0n ? folded / 2n : -(folded + 1n) / 2n;
  return { value: Number(number), same: number === value };
}

function castText(type: string, value: string | Uint8Array): Cast | undefined {
  if (type === 'bytes') {
    return { value: typeof value === 'string' ? Buffer.from(value, 'utf8') : Buffer.from(value), same: true };
  }
  if (typeof value === 'string') return { value, same: true };
  try {
    return { value: utf8.decode(value), same: true };
  } catch {
    return undefined;
  }
}
