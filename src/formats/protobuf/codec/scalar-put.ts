/** Writers of scalar values and enums of a program. A 64-bit integer is a bigint or a safe integer;
 *  an enum is a name or a number. Source: protobuf.dev, "Encoding" and "Scalar Value Types". */

import type { Put } from '../../binary/object-writer.ts';
import type { Sink } from '../../sink.ts';
import { ValueRefusal } from '../../value-refusal.ts';
import type { ProtoEnum } from '../tree.ts';

/** Place of a value: behind its tag, or 0 for a value without a tag of its own. */
export interface ScalarPlace {
  readonly tag: number;
  /** True where a zero means absent, so that neither tag nor value is written. */
  readonly hidesZero: boolean;
}

type PutAt = (place: ScalarPlace) => Put;

const putTag = (sink: Sink, tag: number): void => {
  if (tag !== 0) sink.varint(tag);
};

/** Writes an int32. Negative numbers have ten bytes, as 64-bit numbers do. */
function putInt32(sink: Sink, value: number): void {
  if (value >= 0) sink.varint(value);
  else sink.varintWords(value, -1);
}

const int32Of =
  (type: string, write: (sink: Sink, value: number) => void): PutAt =>
  ({ tag, hidesZero }) =>
  (sink, value) => {
    if (typeof value !== 'number' || value !== (value | 0)) throw ValueRefusal.of(value, type);
    if (hidesZero && value === 0) return;
    putTag(sink, tag);
    write(sink, value);
  };

const uint32Of =
  (type: string, write: (sink: Sink, value: number) => void): PutAt =>
  ({ tag, hidesZero }) =>
  (sink, value) => {
    if (typeof value !== 'number' || value !== value >>> 0) throw ValueRefusal.of(value, type);
    if (hidesZero && value === 0) return;
    putTag(sink, tag);
    write(sink, value);
  };

/** @param writeSafe writes a number; absent: it is written as a bigint */
const int64Of =
  (
    type: string,
    write: (sink: Sink, value: bigint) => void,
    writeSafe?: (sink: Sink, value: number) => void,
  ): PutAt =>
  ({ tag, hidesZero }) =>
  (sink, value) => {
    if (typeof value === 'bigint') {
      if (BigInt.asIntN(64, value) !== value) throw ValueRefusal.of(value, type);
      if (hidesZero && value === 0n) return;
      putTag(sink, tag);
      write(sink, value);
      return;
    }
    if (!Number.isSafeInteger(value)) throw ValueRefusal.ofWide(value, type);
    if (hidesZero && value === 0) return;
    putTag(sink, tag);
    if (writeSafe === undefined) write(sink, BigInt(value as number));
    else writeSafe(sink, value as number);
  };

const uint64Of =
  (
    type: string,
    write: (sink: Sink, value: bigint) => void,
    writeSafe?: (sink: Sink, value: number) => void,
  ): PutAt =>
  ({ tag, hidesZero }) =>
  (sink, value) => {
    if (typeof value === 'bigint') {
      if (BigInt.asUintN(64, value) !== value) throw ValueRefusal.of(value, type);
      if (hidesZero && value === 0n) return;
      putTag(sink, tag);
      write(sink, value);
      return;
    }
    if (!Number.isSafeInteger(value) || (value as number) < 0) throw ValueRefusal.ofWide(value, type);
    if (hidesZero && value === 0) return;
    putTag(sink, tag);
    if (writeSafe === undefined) write(sink, BigInt(value as number));
    else writeSafe(sink, value as number);
  };

const floatOf =
  (type: string, write: (sink: Sink, value: number) => void): PutAt =>
  ({ tag, hidesZero }) =>
  (sink, value) => {
    if (typeof value !== 'number') throw ValueRefusal.of(value, type);
    // A negative zero is not the default.
    if (hidesZero && Object.is(value, 0)) return;
    putTag(sink, tag);
    write(sink, value);
  };

const bool: PutAt =
  ({ tag, hidesZero }) =>
  (sink, value) => {
    if (typeof value !== 'boolean') throw ValueRefusal.of(value, 'bool');
    if (hidesZero && !value) return;
    putTag(sink, tag);
    sink.byte(value ? 1 : 0);
  };

const string: PutAt =
  ({ tag, hidesZero }) =>
  (sink, value) => {
    if (typeof value !== 'string') throw ValueRefusal.of(value, 'string');
    if (hidesZero && value === '') return;
    putTag(sink, tag);
    if (!sink.text(value, 0)) throw ValueRefusal.of(value, 'string, which cannot hold a lone surrogate');
  };

const bytes: PutAt =
  ({ tag, hidesZero }) =>
  (sink, value) => {
    if (!(value instanceof Uint8Array)) throw ValueRefusal.of(value, 'bytes');
    if (hidesZero && value.length === 0) return;
    putTag(sink, tag);
    sink.varint(value.length);
    sink.raw(value);
  };

const putWide = (sink: Sink, value: bigint): void => sink.varintWide(value);
const putSafe = (sink: Sink, value: number): void => sink.varintSafe(value);
const putFixed32 = (sink: Sink, value: number): void => sink.fixed32(value);
const putFixed64 = (sink: Sink, value: bigint): void => sink.fixed64(value);

const SCALAR_PUTS: Readonly<Record<string, PutAt>> = {
  int32: int32Of('int32', putInt32),
  sint32: int32Of('sint32', (sink, value) => sink.zigzag(value)),
  sfixed32: int32Of('sfixed32', putFixed32),
  uint32: uint32Of('uint32', (sink, value) => sink.varint(value)),
  fixed32: uint32Of('fixed32', putFixed32),
  int64: int64Of('int64', putWide, putSafe),
  sint64: int64Of(
    'sint64',
    (sink, value) => sink.zigzagWide(value),
    (sink, value) => sink.zigzagSafe(value),
  ),
  sfixed64: int64Of('sfixed64', putFixed64),
  uint64: uint64Of('uint64', putWide, putSafe),
  fixed64: uint64Of('fixed64', putFixed64),
  float: floatOf('float', (sink, value) => sink.float(value)),
  double: floatOf('double', (sink, value) => sink.double(value)),
  bool,
  string,
  bytes,
};

/** Writer of a scalar. @param type its name in the language */
export const scalarPut = (type: string, place: ScalarPlace): Put => (SCALAR_PUTS[type] as PutAt)(place);

/** Writer of an enum. */
export function enumPut({ values, numbers, closed, name }: ProtoEnum, { tag, hidesZero }: ScalarPlace): Put {
  return (sink, value) => {
    const number = typeof value === 'string' ? numbers.get(value) : value;
    if (typeof number !== 'number' || number !== (number | 0) || (closed && !values.has(number)))
      throw ValueRefusal.of(value, `enum ${name}`);
    if (hidesZero && number === 0) return;
    putTag(sink, tag);
    putInt32(sink, number);
  };
}

const INTEGER_KEY = /^(0|-?[1-9][0-9]{0,19})$/;

/** Value of a map's key, from the text of a property; undefined where the text is no such key. */
export function mapKeyOf(type: string, text: string): unknown {
  if (type === 'string') return text;
  if (type === 'bool') return text === 'true' ? true : text === 'false' ? false : undefined;
  if (!INTEGER_KEY.test(text)) return undefined;
  return type.endsWith('64') ? BigInt(text) : Number(text);
}
