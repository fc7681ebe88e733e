/** Checks the default of a field, and formats it as in a descriptor. Format: descriptor.proto,
 *  `default_value`. */

import { floatText } from '../descriptor/float.ts';
import type { OptionNode } from '../syntax/ast.ts';
import { integerOf, protoFail } from '../syntax/lexer.ts';
import type { LinkedField } from './model.ts';

const INTEGER_BITS: Readonly<Record<string, readonly [signed: boolean, bits: bigint]>> = {
  int32: [true, 32n],
  sint32: [true, 32n],
  sfixed32: [true, 32n],
  uint32: [false, 32n],
  fixed32: [false, 32n],
  int64: [true, 64n],
  sint64: [true, 64n],
  sfixed64: [true, 64n],
  uint64: [false, 64n],
  fixed64: [false, 64n],
};

/** Integer of a value's text; undefined where it does not fit the type. */
export function integerValue(type: string, text: string): bigint | undefined {
  const range = INTEGER_BITS[type];
  if (range === undefined) return undefined;
  const negative = text.startsWith('-');
  const digits = negative ? text.slice(1) : text;
  if (!/^(0[xX][0-9a-fA-F]+|\d+)$/.test(digits)) return undefined;
  const value = negative ? -integerOf(digits) : integerOf(digits);
  const [signed, bits] = range;
  return (signed ? BigInt.asIntN(Number(bits), value) : BigInt.asUintN(Number(bits), value)) === value
    ? value
    : undefined;
}

/** Number of a value's text, including infinities and nan. */
export function floatValue(text: string): number | undefined {
  const word = /^(-?)(inf|infinity|nan)$/i.exec(text);
  if (word !== null) {
    const size = word[2]?.toLowerCase() === 'nan' ? Number.NaN : Number.POSITIVE_INFINITY;
    return word[1] === '-' ? -size : size;
  }
  const negative = text.startsWith('-');
  const digits = negative ? text.slice(1) : text;
  if (!/^(0[xX][0-9a-fA-F]+|[\d.][\w.+-]*)$/.test(digits)) return undefined;
  const isInteger = /^(0[xX]|\d+$)/.test(digits);
  const value = isInteger ? Number(integerOf(digits)) : Number(digits.replace(/[fF]$/, ''));
  return negative ? -value : value;
}

/** Checks a default. @throws invalid_schema where it does not fit the field */
export function checkDefault(field: LinkedField, option: OptionNode): void {
  if (defaultText(field, option) === undefined) {
    const type = field.target?.name ?? field.type;
    protoFail(`the default of ${field.fullName} does not fit ${type}`, option.at);
  }
}

/** Default as in a descriptor; undefined where it does not fit the field. */
export function defaultText(field: LinkedField, { value }: OptionNode): string | undefined {
  const { type, target } = field;
  if (value.kind === 'string') {
    if (type === 'string') return value.bytes.toString();
    return type === 'bytes' ? escaped(value.bytes) : undefined;
  }
  if (value.kind !== 'word' && value.kind !== 'number') return undefined;
  if (target?.kind === 'enum') {
    return target.node.values.some(({ name }) => name === value.text) ? value.text : undefined;
  }
  if (type === 'bool') return value.text === 'true' || value.text === 'false' ? value.text : undefined;
  if (type === 'float' || type === 'double') {
    const number = floatValue(value.text);
    return number === undefined ? undefined : floatText(number, type);
  }
  return integerValue(type, value.text)?.toString();
}

const NAMED: Readonly<Record<number, string>> = {
  9: '\\t',
  10: '\\n',
  13: '\\r',
  34: '\\"',
  39: "\\'",
  92: '\\\\',
};

/** Bytes with the escapes of C. */
function escaped(bytes: Buffer): string {
  let out = '';
  for (const byte of bytes) {
    const named = NAMED[byte];
    if (named !== undefined) out += named;
    else if (byte >= 32 && byte < 127) out += String.fromCharCode(byte);
    else out += `\\${byte.toString(8).padStart(3, '0')}`;
  }
  return out;
}
