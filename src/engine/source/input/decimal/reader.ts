/** Decimals as integers of 64 bits: a number times 10 to the scale that the job states. A number
 *  with more decimal places, or beyond 64 bits, is refused and never rounded. */
import {
  DECIMAL_BYTES_MAX,
  DECIMAL_CHARS_MAX,
  DECIMAL_PLACES_MAX,
  Decimal,
  decimalText,
  firstSignificant,
  integerOfBytes,
  powerOfTen,
} from '../../../../core/decimal/exact.ts';
import type { Sign } from '../definition.ts';

const TWO_32 = 2 ** 32;
/** Digits of a number that a double holds exactly. */
const EXACT_DIGITS = 15;
const DIGIT_0 = 0x30;
const POINT = 0x2e;
const MINUS = 0x2d;
const PLUS = 0x2b;
const POWERS: readonly number[] = Array.from({ length: EXACT_DIGITS + 1 }, (_, power) => 10 ** power);

/** Why a value is no decimal of the job. */
export type DecimalFault = 'number' | 'places' | 'range';

/** Text of a fault of a field, for people. */
export function decimalFaultText(fault: DecimalFault, path: readonly string[], scale: number): string {
  const name = path.join('.');
  if (fault === 'number') return `${name} is no decimal number`;
  return fault === 'places'
    ? `${name} has more than ${scale} decimal places`
    : `${name} is beyond ${decimalText(2n ** 63n - 1n, scale)}`;
}

/** Decimal that was read last. Each `read…` returns false where there is none, and sets `fault`. */
export class DecimalReader {
  low = 0;
  high = 0;
  fault: DecimalFault = 'number';
  readonly scale: number;
  private readonly words = new Int32Array(2);
  private readonly wide = new BigInt64Array(this.words.buffer);
  private readonly reversed = new Uint8Array(32);

  constructor(scale: number) {
    this.scale = scale;
  }

  /** Reads a text in ASCII, such as `-12.50`, `.5` or `1e3`. */
  readText(bytes: Uint8Array, start: number, end: number): boolean {
    if (end - start > DECIMAL_CHARS_MAX) return this.refuse('number');
    const sign = bytes[start];
    let value = 0;
    let digits = 0;
    let places = -1;
    let at = sign === MINUS || sign === PLUS ? start + 1 : start;
    const first = at;
    for (; at < end; at++) {
      const char = bytes[at] as number;
      const digit = char - DIGIT_0;
      if (digit >= 0 && digit <= 9) {
        if ((digits > 0 || digit > 0) && ++digits > EXACT_DIGITS) return this.readLong(bytes, start, end);
        value = value * 10 + digit;
        if (places >= 0) places++;
      } else if (char === POINT && places < 0) places = 0;
      else return this.readLong(bytes, start, end);
    }
    if (at - first - (places >= 0 ? 1 : 0) < 1) return this.refuse('number');
    const shift = this.scale - Math.max(0, places);
    const power = POWERS[Math.abs(shift)];
    if (power === undefined || digits + shift > EXACT_DIGITS) return this.readLong(bytes, start, end);
    if (shift < 0 && value % power !== 0) return this.refuse('places');
    const scaled = shift < 0 ? value / power : value * power;
    return this.setSafe(sign === MINUS ? -scaled : scaled);
  }

  /** Reads an integer of 64 bits from its words. */
  readInteger(low: number, high: number, sign: Sign): boolean {
    const value = (sign === 'u64' ? high >>> 0 : high) * TWO_32 + (low >>> 0);
    const scaled = value * (POWERS[this.scale] ?? Number.NaN);
    if (Number.isSafeInteger(scaled)) return this.setSafe(scaled);
    this.words[0] = low;
    this.words[1] = high;
    const whole = this.wide[0] as bigint;
    return this.set(sign === 'u64' ? BigInt.asUintN(64, whole) : whole, 0);
  }

  /** Reads an integer in two's complement, big-endian, that is the number times 10^places. */
  readBigEndian(bytes: Uint8Array, start: number, end: number, places: number): boolean {
    if (start >= end) return this.refuse('number');
    const from = firstSignificant(bytes, start, end);
    if (end - from > DECIMAL_BYTES_MAX) return this.refuse('range');
    if (places !== this.scale || end - from > 8)
      return this.set(integerOfBytes(bytes.subarray(from, end)), places);
    let low = (bytes[from] as number) < 0x80 ? 0 : -1;
    let high = low;
    for (let at = from; at < end; at++) {
      high = (high << 8) | (low >>> 24);
      low = (low << 8) | (bytes[at] as number);
    }
    this.low = low;
    this.high = high;
    return true;
  }

  /** The same in little-endian. REQUIRES: at most 32 bytes */
  readLittleEndian(bytes: Uint8Array, start: number, end: number, places: number): boolean {
    const size = end - start;
    for (let at = 0; at < size; at++) this.reversed[at] = bytes[end - 1 - at] as number;
    return this.readBigEndian(this.reversed, 0, size, places);
  }

  /** Reads a text of any form. */
  private readLong(bytes: Uint8Array, start: number, end: number): boolean {
    const text = Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start).toString('latin1');
    const found = Decimal.parse(text);
    return found === undefined ? this.refuse('number') : this.set(found.unscaled, found.scale);
  }

  /** Sets `value` / 10^places. */
  private set(value: bigint, places: number): boolean {
    if (value === 0n) return this.setSafe(0);
    if (Math.abs(places) > DECIMAL_PLACES_MAX) return this.refuse(places > 0 ? 'places' : 'range');
    const shift = this.scale - places;
    const power = powerOfTen(Math.abs(shift));
    if (shift < 0 && value % power !== 0n) return this.refuse('places');
    const scaled = shift < 0 ? value / power : value * power;
    if (BigInt.asIntN(64, scaled) !== scaled) return this.refuse('range');
    this.wide[0] = scaled;
    this.low = this.words[0] as number;
    this.high = this.words[1] as number;
    return true;
  }

  private setSafe(value: number): boolean {
    this.low = value | 0;
    this.high = Math.floor(value / TWO_32) | 0;
    return true;
  }

  private refuse(fault: DecimalFault): false {
    this.fault = fault;
    return false;
  }
}
