/** ISO 8601 times with a zone, such as `2026-01-31T12:00:00.123456Z` or `2026-01-31 13:00+01:00`.
 *
 *  A time without a zone is refused: its meaning would depend on the machine. Fractions of a
 *  second are rounded down to ms. */

const DIGIT_0 = 0x30;
const DAY_MS = 86_400_000;
const [MINUTE_MS, HOUR_MS] = [60_000, 3_600_000];
/** Most digits of a fraction of a second. */
const FRACTION_DIGITS_MAX = 18;
const DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] as const;

/** Reads a time from ASCII bytes. @returns ms since the epoch; NaN for any other text */
export function isoMs(bytes: Uint8Array, start: number, end: number): number {
  const is = (at: number, ...chars: readonly string[]): boolean =>
    at < end && chars.some((char) => bytes[at] === char.charCodeAt(0));
  const number = (at: number, digits: number): number => {
    if (at + digits > end) return Number.NaN;
    let value = 0;
    for (let i = at; i < at + digits; i++) {
      const digit = (bytes[i] as number) - DIGIT_0;
      if (digit < 0 || digit > 9) return Number.NaN;
      value = value * 10 + digit;
    }
    return value;
  };
  if (!is(start + 4, '-') || !is(start + 7, '-') || !is(start + 10, 'T', 't', ' ') || !is(start + 13, ':'))
    return Number.NaN;
  const day = dayOf(number(start, 4), number(start + 5, 2), number(start + 8, 2));
  const [hour, minute] = [number(start + 11, 2), number(start + 14, 2)];
  let at = start + 16;
  let second = 0;
  let fraction = 0;
  if (is(at, ':')) {
    second = number(at + 1, 2);
    at += 3;
    if (is(at, '.', ',')) {
      const first = ++at;
      while (at < end && !Number.isNaN(number(at, 1))) at++;
      if (at === first || at - first > FRACTION_DIGITS_MAX) return Number.NaN;
      for (let i = 0; i < 3; i++) fraction = fraction * 10 + (first + i < at ? number(first + i, 1) : 0);
    }
  }
  if (!(hour <= 23 && minute <= 59 && second <= 59)) return Number.NaN;
  const zone = zoneMs(at);
  return day * DAY_MS + hour * HOUR_MS + minute * MINUTE_MS + second * 1000 + fraction - zone;

  /** Offset of the zone that must fill the rest of the text; NaN for none. */
  function zoneMs(from: number): number {
    if (is(from, 'Z', 'z')) return from + 1 === end ? 0 : Number.NaN;
    if (!is(from, '+', '-')) return Number.NaN;
    const minutesAt = is(from + 3, ':') ? from + 4 : from + 3;
    if (minutesAt + 2 !== end) return Number.NaN;
    const [hours, minutes] = [number(from + 1, 2), number(minutesAt, 2)];
    if (!(hours <= 23 && minutes <= 59)) return Number.NaN;
    return (is(from, '-') ? -1 : 1) * (hours * HOUR_MS + minutes * MINUTE_MS);
  }
}

/** Day number of a date of the Gregorian calendar; NaN for a date that does not exist. */
function dayOf(year: number, month: number, day: number): number {
  const isLeap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  const days = month === 2 && isLeap ? 29 : (DAYS[month - 1] ?? 0);
  if (!(day >= 1 && day <= days)) return Number.NaN;
  // Years that begin with March put the leap day last. Source: Howard Hinnant, "chrono-compatible
  // low-level date algorithms", days_from_civil.
  const shifted = month <= 2 ? year - 1 : year;
  const era = Math.floor(shifted / 400);
  const ofEra = shifted - era * 400;
  const ofYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
  const dayOfEra = ofEra * 365 + Math.floor(ofEra / 4) - Math.floor(ofEra / 100) + ofYear;
  return era * 146_097 + dayOfEra - 719_468;
}
