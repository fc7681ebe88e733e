/** Position at which a command starts to read a topic: the setting `-start` of every command. */
import { coreError } from '../../core/errors.ts';
import { OFFSET_END } from '../../io/kafka/port.ts';

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
    details: { setting: 'start' },
  });
}

/** First offset to read in a partition that holds the records from `low` up to `high`; an offset
 *  outside is moved to the nearer end.
 *  @param partition its records, and in `time` the first one at the time, OFFSET_END for none */
export function startIn(
  start: StartPosition,
  {
    low,
    high,
    time = OFFSET_END,
  }: { readonly low: bigint; readonly high: bigint; readonly time?: bigint | undefined },
): bigint {
  switch (start.kind) {
    case 'earliest':
      return low;
    case 'latest':
      return high;
    case 'timestamp':
      return time === OFFSET_END ? high : time;
    case 'offset':
      return start.offset < low ? low : start.offset > high ? high : start.offset;
    case 'last':
      return high - start.count < low ? low : high - start.count;
  }
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
