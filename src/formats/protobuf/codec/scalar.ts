/** Scalar types of Protobuf: their encoding, and their values in a program. 64-bit integers are
 *  bigint, other numbers number. Source: protobuf.dev, "Encoding" and "Scalar Value Types". */
import { invariant } from '../../../core/errors.ts';
import type { ProtoEnum } from '../tree.ts';
import { type ProtoInput, WIRE } from './input.ts';

declare global {
  interface String {
    /** True when the text has no lone surrogate. */
    isWellFormed(): boolean;
  }
}

type ProtoMethod = Exclude<keyof ProtoInput, 'bytes' | 'at'> & string;

export interface ProtoScalar {
  readonly wire: number;
  /** Method of the input that `read` calls. */
  readonly method: ProtoMethod;
  /** Value of an absent field without presence. */
  readonly zero: unknown;
  readonly read: (input: ProtoInput) => unknown;
  /** True when a value is of this type and in its range. */
  readonly fits: (value: unknown) => boolean;
}

const number =
  (least: number, most: number) =>
  (value: unknown): boolean =>
    Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
const long =
  (least: bigint, most: bigint) =>
  (value: unknown): boolean =>
    typeof value === 'bigint' && value >= least && value <= most;

const isInt32 = number(-(2 ** 31), 2 ** 31 - 1);
const isUint32 = number(0, 2 ** 32 - 1);
const isInt64 = long(-(2n ** 63n), 2n ** 63n - 1n);
const isUint64 = long(0n, 2n ** 64n - 1n);
const isNumber = (value: unknown): boolean => typeof value === 'number';

const int32: ProtoScalar = {
  wire: WIRE.VARINT,
  method: 'int32',
  zero: 0,
  read: (input) => input.int32(),
  fits: isInt32,
};

/** Enums are encoded as int32. */
export const ENUM_NUMBER = int32;

const SCALARS: Readonly<Record<string, ProtoScalar>> = {
  int32,
  uint32: {
    wire: WIRE.VARINT,
    method: 'uint32',
    zero: 0,
    read: (input) => input.uint32(),
    fits: isUint32,
  },
  sint32: {
    wire: WIRE.VARINT,
    method: 'sint32',
    zero: 0,
    read: (input) => input.sint32(),
    fits: isInt32,
  },
  bool: {
    wire: WIRE.VARINT,
    method: 'bool',
    zero: false,
    read: (input) => input.bool(),
    fits: (value) => typeof value === 'boolean',
  },
  int64: {
    wire: WIRE.VARINT,
    method: 'int64',
    zero: 0n,
    read: (input) => input.int64(),
    fits: isInt64,
  },
  uint64: {
    wire: WIRE.VARINT,
    method: 'uint64',
    zero: 0n,
    read: (input) => input.uint64(),
    fits: isUint64,
  },
  sint64: {
    wire: WIRE.VARINT,
    method: 'sint64',
    zero: 0n,
    read: (input) => input.sint64(),
    fits: isInt64,
  },
  fixed32: {
    wire: WIRE.FIXED32,
    method: 'fixed32',
    zero: 0,
    read: (input) => input.fixed32(),
    fits: isUint32,
  },
  sfixed32: {
    wire: WIRE.FIXED32,
    method: 'sfixed32',
    zero: 0,
    read: (input) => input.sfixed32(),
    fits: isInt32,
  },
  fixed64: {
    wire: WIRE.FIXED64,
    method: 'fixed64',
    zero: 0n,
    read: (input) => input.fixed64(),
    fits: isUint64,
  },
  sfixed64: {
    wire: WIRE.FIXED64,
    method: 'sfixed64',
    zero: 0n,
    read: (input) => input.sfixed64(),
    fits: isInt64,
  },
  float: {
    wire: WIRE.FIXED32,
    method: 'float',
    zero: 0,
    read: (input) => input.float(),
    fits: isNumber,
  },
  double: {
    wire: WIRE.FIXED64,
    method: 'double',
    zero: 0,
    read: (input) => input.double(),
    fits: isNumber,
  },
  string: {
    wire: WIRE.LENGTH,
    method: 'text',
    zero: '',
    read: (input) => input.text(),
    fits: (value) => typeof value === 'string' && value.isWellFormed(),
  },
  bytes: {
    wire: WIRE.LENGTH,
    method: 'blob',
    zero: Buffer.alloc(0),
    read: (input) => input.blob(),
    fits: (value) => value instanceof Uint8Array,
  },
};

/** Looks up a scalar type. @param type its name in the language */
export function scalarOf(type: string): ProtoScalar {
  const scalar = SCALARS[type];
  invariant(scalar !== undefined, `${type} is a scalar type`);
  return scalar;
}

/** Names of an enum's numbers in a program: the number itself where an open enum has no name for
 *  it; undefined where a closed one has none. */
export function enumNames({ values, closed }: ProtoEnum): (number: number) => string | number | undefined {
  return (number) => values.get(number) ?? (closed ? undefined : number);
}

/** Value of an absent enum: the name of its first number. */
export function zeroName(enumeration: ProtoEnum): string | number | undefined {
  const [first] = enumeration.values.keys();
  return enumNames(enumeration)(first ?? 0);
}
