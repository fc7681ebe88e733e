/** Exact decimal numbers: an integer, and the number of its digits behind the point. */

/** Most characters of a text that is read as a number: it bounds the work for hostile texts. */
export const DECIMAL_CHARS_MAX = 1_000;
/** Most decimal places of a number, and most zeros that an exponent puts before the point. */
export const DECIMAL_PLACES_MAX = 1_000;
/** Most bytes of an integer that is read as a number, without leading bytes that repeat its sign. A
 *  longer one is above 10^(DECIMAL_PLACES_MAX + 19), so it does not have 64 bits at any scale. */
export const DECIMAL_BYTES_MAX = 512;
/** Optional sign, digits with at most one point, optional exponent. */
const TEXT = /^([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,9}))?$/;

/** Powers of ten that fit into 128 bits. */
const POWERS: readonly bigint[] = Array.from({ length: 39 }, (_, power) => 10n ** BigInt(power));

/** 10^power. REQUIRES: `power` is a whole number from 0 */
export const powerOfTen = (power: number): bigint => POWERS[power] ?? 10n ** BigInt(power);

export class Decimal {
  /** The number times 10^scale. */
  readonly unscaled: bigint;
  /** Decimal places, from 0. */
  readonly scale: number;

  constructor(unscaled: bigint, scale: number) {
    this.unscaled = unscaled;
    this.scale = scale;
  }

  /** Reads a text such as `-12.50`, `.5`, `7` or `1.2e-3`. Undefined: the text is no number, or is
   *  beyond DECIMAL_CHARS_MAX or DECIMAL_PLACES_MAX. */
  static parse(text: string): Decimal | undefined {
    if (text.length > DECIMAL_CHARS_MAX) return undefined;
    const [, sign, whole = '', fraction = '', power = '0'] = TEXT.exec(text) ?? [];
    if (sign === undefined || whole.length + fraction.length === 0) return undefined;
    const digits = BigInt(`${whole}${fraction}`);
    const unscaled = sign === '-' ? -digits : digits;
    const places = fraction.length - Number(power);
    if (unscaled === 0n) return new Decimal(0n, 0);
    if (Math.abs(places) > DECIMAL_PLACES_MAX) return undefined;
    return places >= 0 ? new Decimal(unscaled, places) : new Decimal(unscaled * powerOfTen(-places), 0);
  }

  /** Negative, zero or positive, as this number is less than, equal to or greater than `other`. */
  compare(other: Decimal): number {
    const scale = Math.max(this.scale, other.scale);
    const [one, two] = [this.scaledTo(scale), other.scaledTo(scale)];
    return one < two ? -1 : one > two ? 1 : 0;
  }

  private scaledTo(scale: number): bigint {
    return this.unscaled * powerOfTen(scale - this.scale);
  }
}

/** Text of `unscaled` / 10^scale with exactly `scale` decimal places. */
export function decimalText(unscaled: bigint, scale: number): string {
  if (scale === 0) return String(unscaled);
  const digits = String(unscaled < 0n ? -unscaled : unscaled).padStart(scale + 1, '0');
  const point = digits.length - scale;
  return `${unscaled < 0n ? '-' : ''}${digits.slice(0, point)}.${digits.slice(point)}`;
}

/** Integer of a text with a fixed number of decimal places, times 10 to that number. REQUIRES: the
 *  text is one of `decimalText` */
export const unscaledOf = (text: string): bigint => BigInt(text.replace('.', ''));

/** `numerator` / `denominator`, rounded to the nearest integer, ties to the even one. REQUIRES: the
 *  denominator is positive */
export function dividedHalfEven(numerator: bigint, denominator: bigint): bigint {
  const quotient = numerator / denominator;
  const rest = numerator % denominator;
  const twice = rest < 0n ? -2n * rest : 2n * rest;
  const isUp = twice > denominator || (twice === denominator && quotient % 2n !== 0n);
  return isUp ? quotient + (numerator < 0n ? -1n : 1n) : quotient;
}

/** Index of the first byte of a big-endian integer that does not only repeat its sign. */
export function firstSignificant(bytes: Uint8Array, start: number, end: number): number {
  const filler = (bytes[start] as number) < 0x80 ? 0 : 0xff;
  let from = start;
  while (end - from > 1 && bytes[from] === filler && ((bytes[from + 1] as number) ^ filler) < 0x80) from++;
  return from;
}

/** Integer of big-endian bytes in two's complement; 0 for no bytes. */
export function integerOfBytes(bytes: Uint8Array): bigint {
  if (bytes.length === 0) return 0n;
  const hex = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('hex');
  return BigInt.asIntN(8 * bytes.length, BigInt(`0x${hex}`));
}

/** Big-endian bytes of an integer in two's complement, as few as it needs. */
export function bytesOfInteger(value: bigint): Uint8Array {
  // One bit more than the digits of the size holds the sign.
  const size = value < 0n ? ~value : value;
  const length = Math.floor(size.toString(2).length / 8) + 1;
  const hex = BigInt.asUintN(8 * length, value).toString(16);
  return new Uint8Array(Buffer.from(hex.padStart(2 * length, '0'), 'hex'));
}
