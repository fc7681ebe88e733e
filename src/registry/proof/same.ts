/** Equality of plain values, and their text form. */

const isBytes = (value: unknown): value is Uint8Array => value instanceof Uint8Array;
const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;

/** Compares exactly: -0 is not 0, NaN equals NaN, 1n is not 1, null is not undefined; the order of
 *  an object's own keys is ignored. */
export function sameValue(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true;
  if (!isObject(one) || !isObject(other)) return false;
  if (isBytes(one) || isBytes(other))
    return isBytes(one) && isBytes(other) && Buffer.compare(one, other) === 0;
  if (Array.isArray(one) || Array.isArray(other))
    return (
      Array.isArray(one) &&
      Array.isArray(other) &&
      one.length === other.length &&
      one.every((item, i) => sameValue(item, other[i]))
    );
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && sameValue(one[key], other[key]))
  );
}

/** Path of the first difference, such as `.items[2].price`; empty where the values themselves
 *  differ. Undefined for equal values, as `sameValue` compares them. */
export function differenceOf(one: unknown, other: unknown): string | undefined {
  if (sameValue(one, other)) return undefined;
  if (!isObject(one) || !isObject(other) || isBytes(one) || isBytes(other)) return '';
  const isList = Array.isArray(one);
  if (isList !== Array.isArray(other)) return '';
  for (const key of new Set([...Object.keys(one), ...Object.keys(other)])) {
    const both = Object.hasOwn(one, key) && Object.hasOwn(other, key);
    const inside = both ? differenceOf(one[key], other[key]) : '';
    if (inside !== undefined) return isList ? `[${key}]${inside}` : `.${key}${inside}`;
  }
  return '';
}

const BYTE_TEXT_SPECIAL = /[^ !#-[\]-~]/g;

/** Renders bytes as a JSON text of U+0000 to U+00FF. */
export function bytesText(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
  const safe = text.replace(
    BYTE_TEXT_SPECIAL,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return `"${safe}"`;
}

/** Renders a number; numbers that JSON lacks become texts. */
export function floatText(value: number): string {
  if (!Number.isFinite(value)) return `"${value}"`;
  return Object.is(value, -0) ? '-0.0' : String(value);
}

/** Renders a decoded value as JSON; 64-bit integers as digits. */
export function plainJson(value: unknown): string {
  if (typeof value === 'number') return floatText(value);
  if (typeof value === 'bigint') return String(value);
  if (isBytes(value)) return bytesText(value);
  if (Array.isArray(value)) return `[${value.map(plainJson).join(',')}]`;
  if (isObject(value)) {
    const members = Object.keys(value).map((key) => `${JSON.stringify(key)}:${plainJson(value[key])}`);
    return `{${members.join(',')}}`;
  }
  return JSON.stringify(value) ?? 'nothing';
}
