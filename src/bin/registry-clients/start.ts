/** Position at which a command starts to read a topic: the setting `-start` of every command. */
import { coreError } from '../../core/errors.ts';

export type StartPosition =
  | { readonly kind: 'earliest' }
  | { readonly kind: 'latest' }
  /** The first record with this timestamp or a later one, ms since the epoch. */
  | { readonly kind: 'timestamp'; readonly ms: number }
  /** The same offset in every partition. */
  | { readonly kind: 'offset'; readonly offset: bigint }
  /** The last records of every partition. */
  | { readonly kind: 'last'; readonly count: bigint };

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)$/;
const MILLIS = /^@(\d{1,15})$/;
const OFFSET = /^(-?)(\d{1,18})$/;

export const START_HELP =
  'where to start: earliest, latest, a time such as 2026-01-31T12:00:00Z or @1769860800000 (ms), an offset, or -N for the last N records of each partition';

/** Parses the value of `-start`. @throws bad_value */
export function parseStart(text: string): StartPosition {
  if (text === 'earliest' || text === 'latest') return { kind: text };
  const time = timeOf(text);
  if (time !== undefined) return { kind: 'timestamp', ms: time };
  const [, minus, digits] = OFFSET.exec(text) ?? [];
  if (digits !== undefined)
    return minus === '-'
      ? { kind: 'last', count: BigInt(digits) }
      : { kind: 'offset', offset: BigInt(digits) };
  throw coreError('bad_value', `-start=${text} is not a position`, {
    next: 'give earliest, latest, a time with its zone such as 2026-01-31T12:00:00Z, @MILLISECONDS, an offset, or -N for the last N records',
  });
}

/** Parses a time, ms since the epoch: ISO 8601 with its zone, or @MILLISECONDS. */
function timeOf(text: string): number | undefined {
  const millis = MILLIS.exec(text);
  if (millis !== null) return Number(millis[1]);
  const ms = ISO.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(ms) ? undefined : ms;
}

/** Parses the value of a flag that is a time. @throws bad_value */
export function parseTime(flag: string, text: string): number {
  const ms = timeOf(text);
  if (ms !== undefined) return ms;
  throw coreError('bad_value', `${flag}=${text} is not a time`, {
    next: 'give a time with its zone such as 2026-01-31T12:00:00Z, or @MILLISECONDS',
  });
}
