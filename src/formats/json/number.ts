/** Exact values of JSON numbers. A double would round a 64-bit integer, so the digits are read. */

/** Most digits of an integer that is converted; every 64-bit integer has fewer. */
const INTEGER_DIGITS_MAX = 40;
const PLAIN = /^-?[0-9]{1,40}$/;
const PARTS = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/;

/** Exact integer of a JSON number such as `5`, `5.0` or `5e3`. Undefined for a number with a
 *  fraction, and for a number of more than INTEGER_DIGITS_MAX digits. */
export function exactInteger(digits: string): bigint | undefined {
  if (PLAIN.test(digits)) return BigInt(digits);
  const [, sign, whole = '', fraction = '', power = '0'] = PARTS.exec(digits) ?? [];
  if (sign === undefined) return undefined;
  const significant = `${whole}${fraction}`.replace(/^0+/, '');
  const kept = significant.replace(/0+$/, '');
  if (kept === '') return 0n;
  const zeros = Number(power) - fraction.length + (significant.length - kept.length);
  if (!(zeros >= 0 && kept.length + zeros <= INTEGER_DIGITS_MAX)) return undefined;
  return BigInt(`${sign}${kept}${'0'.repeat(zeros)}`);
}

/** Prints a double as JSON: the fewest digits that identify it. NaN and infinity, which JSON lacks,
 *  are strings. */
export function doubleText(value: number): string {
  if (!Number.isFinite(value)) return `"${value}"`;
  return Object.is(value, -0) ? '-0' : String(value);
}

/** Prints a float as JSON: the fewest digits that identify it among the floats. */
export function floatText(value: number): string {
  if (!Number.isFinite(value) || value === 0 || Math.fround(value) !== value) return doubleText(value);
  for (let digits = 1; digits < 9; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return doubleText(Number(text));
  }
  return doubleText(value);
}
