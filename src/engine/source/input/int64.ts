/** 64-bit integers as two words, because a BigInt would allocate for every cell. */
import { exactInteger } from '../../../formats/json/number.ts';
import type { Sign, TimeUnit } from './definition.ts';

const TWO_32 = 2 ** 32;
/** Digits of a decimal number that a double holds exactly. */
const EXACT_DIGITS = 15;
const DIGIT_0 = 0x30;
const MINUS = 0x2d;

/** Time in ms of an i64 in a unit, rounded down; beyond 2^52 ms, where no event is valid, it may be
 *  inexact. The division by words is exact: 2^32 = 4294967 * 1000 + 296 = 4294 * 10^6 + 967296. */
export function msOf(low: number, high: number, unit: TimeUnit): number {
  const rest = low >>> 0;
  switch (unit) {
    case 's':
      return (high * TWO_32 + rest) * 1000;
    case 'ms':
      return high * TWO_32 + rest;
    case 'us':
      return high * 4_294_967 + Math.floor((high * 296 + rest) / 1000);
    case 'ns':
      return high * 4294 + Math.floor((high * 967_296 + rest) / 1_000_000);
  }
}

/** Integer of 64 bits that was read last. */
export class Int64 {
  low = 0;
  high = 0;
  private readonly words = new Int32Array(2);
  private readonly wide = new BigInt64Array(this.words.buffer);

  /** Reads decimal digits without a leading zero. False: no such integer, or out of range. */
  parse(bytes: Uint8Array, start: number, end: number, sign: Sign): boolean {
    const isNegative = bytes[start] === MINUS;
    const first = isNegative ? start + 1 : start;
    const digits = end - first;
    if (digits < 1 || digits > 20 || (digits > 1 && bytes[first] === DIGIT_0)) return false;
    let value = 0;
    for (let at = first; at < end; at++) {
      const digit = (bytes[at] as number) - DIGIT_0;
      if (digit < 0 || digit > 9) return false;
      value = value * 10 + digit;
    }
    if (digits > EXACT_DIGITS)
      return this.setWide(BigInt(Buffer.from(bytes.subarray(start, end)).toString('latin1')), sign);
    if (isNegative && value === 0) return false;
    if (isNegative && sign === 'u64') return false;
    this.setSafe(isNegative ? -value : value);
    return true;
  }

  /** Reads a JSON number that is an integer, such as `5`, `5.0` or `5e3`. */
  parseJson(bytes: Uint8Array, start: number, end: number, sign: Sign): boolean {
    if (this.parse(bytes, start, end, sign)) return true;
    const exact = exactInteger(Buffer.from(bytes.subarray(start, end)).toString('latin1'));
    return exact !== undefined && this.setWide(exact, sign);
  }

  /** Identifier of the integer, in the range in which it was read. */
  identifier(sign: Sign): string {
    this.words[0] = this.low;
    this.words[1] = this.high;
    const value = this.wide[0] as bigint;
    return `i${sign === 'u64' ? BigInt.asUintN(64, value) : value}`;
  }

  private setSafe(value: number): void {
    this.low = value | 0;
    this.high = Math.floor(value / TWO_32) | 0;
  }

  private setWide(value: bigint, sign: Sign): boolean {
    if (value !== (sign === 'i64' ? BigInt.asIntN(64, value) : BigInt.asUintN(64, value))) return false;
    this.wide[0] = BigInt.asIntN(64, value);
    this.low = this.words[0] as number;
    this.high = this.words[1] as number;
    return true;
  }
}
