/** Values of a record for the oracle of `engine verify`: objects of the generic codecs, and JSON
 *  trees with exact numbers. It shares no code with the columns that the engine reads. */
import {
  DECIMAL_BYTES_MAX,
  DECIMAL_CHARS_MAX,
  DECIMAL_PLACES_MAX,
  Decimal,
} from '../../core/decimal/exact.ts';
import type { AvroNode } from '../../formats/avro/syntax/tree.ts';
import { exactInteger } from '../../formats/json/number.ts';
import { type JsonNode, memberOf, readJson } from '../../formats/json/text.ts';

/** A value of a field: absent fields are undefined. */
export type FieldValue = string | number | bigint | boolean | Uint8Array | null | undefined | object;

/** Number of a JSON document, with its digits. */
class Digits {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

const UTF8 = new TextDecoder('utf-8', { fatal: true });

/** Parses a JSON document; undefined: the bytes are none. */
export function jsonOf(bytes: Uint8Array): JsonNode | undefined {
  try {
    return readJson(UTF8.decode(bytes), { comments: false, repeatedKeys: true });
  } catch {
    return undefined;
  }
}

export function jsonAt(root: JsonNode, path: readonly string[]): FieldValue {
  let at: JsonNode | undefined = root;
  for (const name of path) {
    if (at?.kind !== 'object') return undefined;
    at = memberOf(at, name);
  }
  switch (at?.kind) {
    case undefined:
      return undefined;
    case 'null':
      return null;
    case 'boolean':
    case 'string':
      return at.value;
    case 'number':
      return new Digits(at.digits);
    default:
      return at;
  }
}

const camel = (name: string): string =>
  name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

/** Value at a path of a decoded record; null where a record on the way is null. Protobuf fields are
 *  found by both of their names. */
export function valueAt(record: unknown, path: readonly string[]): FieldValue {
  let at: unknown = record;
  for (const name of path) {
    if (at === null) return null;
    if (typeof at !== 'object' || at === undefined || at instanceof Uint8Array) return undefined;
    const fields = at as Readonly<Record<string, unknown>>;
    if (Object.hasOwn(fields, name)) at = fields[name];
    else at = Object.entries(fields).find(([own]) => camel(own) === name)?.[1];
  }
  return at as FieldValue;
}

/** Elements of a value that is a list; undefined: it is none. */
export function elementsOf(value: FieldValue): readonly unknown[] | undefined {
  if (Array.isArray(value)) return value;
  const node = value as JsonNode | null | undefined;
  return typeof node === 'object' && node?.kind === 'array' ? node.items : undefined;
}

/** Node of a field of an Avro schema, or of the elements of a list whose name ends with [].
 *  Undefined: it has no such field. */
export function avroField(tree: AvroNode, path: readonly string[]): AvroNode | undefined {
  let at: AvroNode | undefined = tree;
  for (const step of path) {
    const isList = step.endsWith('[]');
    const name = isList ? step.slice(0, -2) : step;
    const record: AvroNode | undefined = at && withoutNull(at);
    at = record?.kind === 'record' ? record.fields.find((one) => one.name === name)?.type : undefined;
    if (!isList) continue;
    const list: AvroNode | undefined = at && withoutNull(at);
    at = list?.kind === 'array' ? list.items : undefined;
  }
  return at && withoutNull(at);
}

function withoutNull(node: AvroNode): AvroNode {
  if (node.kind !== 'union') return node;
  const rest = node.branches.filter((one) => one.kind !== 'primitive' || one.type !== 'null');
  return rest.length === 1 ? (rest[0] as AvroNode) : node;
}

/** Integer of a value; undefined: it is none. */
export function integerOf(value: FieldValue): bigint | undefined {
  if (typeof value === 'bigint') return value;
  if (typeof value === 'number') return Number.isInteger(value) ? BigInt(value) : undefined;
  return value instanceof Digits ? exactInteger(value.text) : undefined;
}

/** Number of a value as a double; undefined: it is none. */
export function doubleOf(value: FieldValue): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value === 'bigint') return Number(value);
  return value instanceof Digits ? Number(value.text) : undefined;
}

/** An exact number: `whole` times 10^-places. */
interface Scaled {
  readonly whole: bigint;
  readonly places: number;
}

const DIGITS = /^([-+]?)([0-9]*)[.]?([0-9]*)$/;

function scaledOfText(text: string): Scaled | undefined {
  if (text.length > DECIMAL_CHARS_MAX) return undefined;
  const [mantissa = '', power = '0', ...more] = text.split(/e/i);
  const [, sign, before = '', behind = ''] = DIGITS.exec(mantissa) ?? [];
  const isNumber = before.length + behind.length > 0 && /^[-+]?[0-9]{1,9}$/.test(power) && more.length === 0;
  if (sign === undefined || !isNumber) return undefined;
  const whole = BigInt(before + behind);
  return { whole: sign === '-' ? -whole : whole, places: behind.length - Number(power) };
}

function scaledOfBytes(bytes: Uint8Array, places: number): Scaled | undefined {
  if (bytes.length === 0) return undefined;
  const isNegative = (bytes[0] as number) >= 0x80;
  const first = bytes.findIndex((byte) => byte !== (isNegative ? 0xff : 0));
  const rest = bytes.subarray(first < 0 ? bytes.length : first);
  let whole = isNegative ? -1n : 0n;
  for (const byte of rest.subarray(0, DECIMAL_BYTES_MAX + 1)) whole = whole * 256n + BigInt(byte);
  // One bit of the bytes is the sign.
  return BigInt.asIntN(8 * DECIMAL_BYTES_MAX, whole) === whole && rest.length <= DECIMAL_BYTES_MAX
    ? { whole, places }
    : undefined;
}

/** @param places decimal places of bytes, by their type */
function scaledOf(value: FieldValue, places: number | undefined): Scaled | undefined {
  if (value instanceof Digits) return scaledOfText(value.text);
  if (typeof value === 'string') return scaledOfText(value);
  if (value instanceof Uint8Array) return places === undefined ? undefined : scaledOfBytes(value, places);
  const integer = integerOf(value);
  if (integer !== undefined) return { whole: integer, places: 0 };
  if (typeof value !== 'object' || value === null) return undefined;
  // A message of Protobuf.
  const { value: inner, scale } = value as { readonly value?: unknown; readonly scale?: unknown };
  if (inner === '') return { whole: 0n, places: 0 };
  if (typeof inner === 'string') return scaledOfText(inner);
  return inner instanceof Uint8Array && typeof scale === 'number' ? scaledOfBytes(inner, scale) : undefined;
}

/** Decimal of a value as a whole number of 10^-scale that has 64 bits; undefined: it is none. */
export function decimalOf(value: FieldValue, scale: number, places: number | undefined): bigint | undefined {
  const found = scaledOf(value, places);
  if (found === undefined || found.whole === 0n) return found?.whole;
  if (Math.abs(found.places) > DECIMAL_PLACES_MAX) return undefined;
  const [up, down] = [Math.max(0, scale - found.places), Math.max(0, found.places - scale)];
  const times = found.whole * 10n ** BigInt(up);
  const unit = 10n ** BigInt(down);
  const whole = times / unit;
  return whole * unit === times && BigInt.asIntN(64, whole) === whole ? whole : undefined;
}

/** A value that is no decimal: not null, and equal to nothing. */
const NO_DECIMAL = {};

/** Value of a field that a filter reads as a decimal. */
export function filterDecimal(value: FieldValue, places: number | undefined): unknown {
  if (value === null || value === undefined) return undefined;
  const found = scaledOf(value, places);
  if (found === undefined) return NO_DECIMAL;
  if (found.whole === 0n) return new Decimal(0n, 0);
  if (Math.abs(found.places) > DECIMAL_PLACES_MAX) return NO_DECIMAL;
  return new Decimal(found.whole * 10n ** BigInt(Math.max(0, -found.places)), Math.max(0, found.places));
}

/** Text of `whole` times 10^-scale. */
export function decimalOfWhole(whole: bigint, scale: number): string {
  const size = whole < 0n ? -whole : whole;
  const unit = 10n ** BigInt(scale);
  const behind = scale === 0 ? '' : `.${String((size % unit) + unit).slice(1)}`;
  return `${whole < 0n ? '-' : ''}${size / unit}${behind}`;
}

/** True for the value of a message of Protobuf that is a decimal. */
export const isDecimalMessage = (value: FieldValue): boolean =>
  typeof value === 'object' && value !== null && 'value' in value && !('kind' in value);

/** Value as a filter compares it. */
export function filterValue(value: FieldValue): unknown {
  if (!(value instanceof Digits)) return value === null ? undefined : value;
  const number = Number(value.text);
  return Number.isInteger(number) && !Number.isSafeInteger(number)
    ? (exactInteger(value.text) ?? number)
    : number;
}

/** Identifier as text: a letter for its type, and the value. Undefined: the value is none. */
export function identifierOf(value: FieldValue): string | undefined {
  const integer = integerOf(value);
  if (integer !== undefined) return `i${integer}`;
  if (typeof value === 'string') return `s${value}`;
  return value instanceof Uint8Array ? `b${Buffer.from(value).toString('hex')}` : undefined;
}

const ISO =
  /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,18}))?)?(?:[Zz]|([+-])(\d\d):?(\d\d))$/;

/** Time of a text in ISO 8601 with a zone, in ms; undefined: it is none. */
export function isoTime(text: string): bigint | undefined {
  const match = ISO.exec(text);
  if (match === null) return undefined;
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map((part) => Number(part ?? '0')) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  const isDate = date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
  if (!isDate || hour > 23 || minute > 59 || second > 59) return undefined;
  const [zoneHours, zoneMinutes] = [Number(match[9] ?? '0'), Number(match[10] ?? '0')];
  if (zoneHours > 23 || zoneMinutes > 59) return undefined;
  const zone = (zoneHours * 60 + zoneMinutes) * 60_000 * (match[8] === '-' ? -1 : 1);
  const fraction = Number((match[7] ?? '').padEnd(3, '0').slice(0, 3));
  return BigInt(date.getTime() + ((hour * 60 + minute) * 60 + second) * 1000 + fraction - zone);
}

const PER_MS = { s: 1n, ms: 1n, us: 1000n, ns: 1_000_000n } as const;

/** Time in ms, rounded down. */
export function unitTime(value: bigint, unit: keyof typeof PER_MS): bigint {
  if (unit === 's') return value * 1000n;
  return floorDivide(value, PER_MS[unit]);
}

export function floorDivide(a: bigint, b: bigint): bigint {
  const quotient = a / b;
  return a % b < 0n ? quotient - 1n : quotient;
}
