/** Timestamp, Duration and FieldMask in ProtoJSON: texts instead of objects. Source: protobuf.dev,
 *  "ProtoJSON Format". */

export interface Seconds {
  readonly seconds: bigint;
  readonly nanos: number;
}

const NANOS = 1_000_000_000;
/** 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z, in seconds. */
const TIMESTAMP_LEAST = -62_135_596_800n;
const TIMESTAMP_MOST = 253_402_300_799n;
/** About 10,000 years, in seconds. */
const DURATION_MOST = 315_576_000_000n;

const TIMESTAMP =
  /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))$/;
const DURATION = /^(-?)(\d{1,12})(?:\.(\d{1,9}))?s$/;

/** Fraction of a second with 0, 3, 6 or 9 digits. */
function fractionText(nanos: number): string {
  if (nanos === 0) return '';
  const digits = String(nanos).padStart(9, '0');
  return `.${digits.replace(/(?:000){1,2}$/, '')}`;
}

const nanosOf = (digits: string | undefined): number => Number((digits ?? '').padEnd(9, '0'));

/** Undefined for a value outside the years 1 to 9999, which has no text. */
export function timestampText({ seconds, nanos }: Seconds): string | undefined {
  if (seconds < TIMESTAMP_LEAST || seconds > TIMESTAMP_MOST || nanos < 0 || nanos >= NANOS) return undefined;
  const whole = new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
  return `${whole}${fractionText(nanos)}Z`;
}

/** Undefined for a text that is not a timestamp of RFC 3339 in the years 1 to 9999. */
export function timestampOf(text: string): Seconds | undefined {
  const [, year, month, day, hour, minute, second, fraction, sign, hours, minutes] =
    TIMESTAMP.exec(text) ?? [];
  if (year === undefined) return undefined;
  const whole = `${year}-${month}-${day}T${hour}:${minute}:${second}`;
  const ms = Date.parse(`${whole}Z`);
  // A day that the month lacks would be moved to the next month.
  if (Number.isNaN(ms) || new Date(ms).toISOString().slice(0, 19) !== whole) return undefined;
  if (Number(hours ?? 0) > 23 || Number(minutes ?? 0) > 59) return undefined;
  const offset = (Number(hours ?? 0) * 60 + Number(minutes ?? 0)) * 60 * (sign === '-' ? -1 : 1);
  const seconds = BigInt(ms / 1000 - offset);
  if (seconds < TIMESTAMP_LEAST || seconds > TIMESTAMP_MOST) return undefined;
  return { seconds, nanos: nanosOf(fraction) };
}

/** Undefined for a value of more than about 10,000 years, or with two signs. */
export function durationText({ seconds, nanos }: Seconds): string | undefined {
  if (seconds < -DURATION_MOST || seconds > DURATION_MOST || Math.abs(nanos) >= NANOS) return undefined;
  const isNegative = seconds < 0n || nanos < 0;
  if (isNegative && (seconds > 0n || nanos > 0)) return undefined;
  const whole = seconds < 0n ? -seconds : seconds;
  return `${isNegative ? '-' : ''}${whole}${fractionText(Math.abs(nanos))}s`;
}

/** Undefined for a text such as `1.5s` that is none, or that is too long. */
export function durationOf(text: string): Seconds | undefined {
  const [, sign, whole, fraction] = DURATION.exec(text) ?? [];
  if (whole === undefined || BigInt(whole) > DURATION_MOST) return undefined;
  const nanos = nanosOf(fraction);
  return sign === '-'
    ? { seconds: -BigInt(whole), nanos: nanos === 0 ? 0 : -nanos }
    : { seconds: BigInt(whole), nanos };
}

const MASK_PATH = /^[a-z0-9.]*(?:_[a-z][a-z0-9.]*)*$/;

/** Undefined for a path that does not return from its JSON form. */
export function fieldMaskText(paths: readonly string[]): string | undefined {
  if (!paths.every((path) => path !== '' && MASK_PATH.test(path))) return undefined;
  return paths.map((path) => path.replace(/_([a-z])/g, (_all, next: string) => next.toUpperCase())).join(',');
}

/** Undefined for a text with an underscore. */
export function fieldMaskOf(text: string): readonly string[] | undefined {
  if (text === '') return [];
  if (text.includes('_')) return undefined;
  return text.split(',').map((path) => path.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
}
