/** Values in paths and queries of the engine's HTTP interface. */
import { EVENT_TS_LIMIT } from '../../core/time.ts';
import { engineError } from '../errors.ts';

/** Shows a value of a request in a message. */
export const quoted = (text: string): string => JSON.stringify(text.slice(0, 40));

/** Accepts milliseconds since the epoch, or an ISO 8601 time with a zone. @throws bad_range */
function readTime(name: string, text: string | null, absent: number): number {
  if (text === null) return absent;
  const ms = /^-?\d{1,16}$/.test(text)
    ? Number(text)
    : /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:?\d\d)$/.test(text)
      ? Date.parse(text)
      : Number.NaN;
  if (Number.isFinite(ms) && Math.abs(ms) <= EVENT_TS_LIMIT) return ms;
  throw engineError(
    'bad_range',
    `${name} is neither ms since the epoch nor an ISO 8601 time with a zone: ${quoted(text)}`,
  );
}

/** Reads the bounds of a range of time. @throws bad_range */
export function readTimes(
  params: URLSearchParams,
  least: number,
): { readonly from: number; readonly to: number } {
  const from = readTime('from', params.get('from'), least);
  const to = readTime('to', params.get('to'), EVENT_TS_LIMIT);
  if (from > to) throw engineError('bad_range', `from ${from} lies after to ${to}`);
  return { from, to };
}

/** @throws bad_range */
export function readLimit(text: string | null, absent: number, most: number, name = 'limit'): number {
  if (text === null) return absent;
  const limit = /^\d{1,6}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= most) return limit;
  throw engineError('bad_range', `${name} is not a number from 1 to ${most}: ${quoted(text)}`);
}

/** @throws bad_range */
export function readFlag(name: string, text: string | null): boolean {
  if (text === null || text === 'false') return false;
  if (text === 'true') return true;
  throw engineError('bad_range', `${name} is neither true nor false: ${quoted(text)}`);
}

/** Error of a cursor that no page has given. */
export const badCursor = (text: string): Error =>
  engineError('bad_range', `cursor is invalid: ${quoted(text)}`, {
    next: 'use the cursor from the Link header of the previous page',
  });

/** Header with the address of the next page. */
export function nextLink(path: string, params: URLSearchParams, cursor: string): Record<string, string> {
  const next = new URLSearchParams(params);
  next.set('cursor', cursor);
  return { link: `<${path}?${next}>; rel="next"` };
}
