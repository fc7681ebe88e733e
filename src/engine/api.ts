/** The engine over HTTP: GET /windows/{account_id} and GET /watermark. 64-bit integers are JSON strings, so that no
 *  reader rounds them; errors are `{"error","code"}`. */
import { MillraceError } from '../core/errors.ts';
import { EVENT_TS_LIMIT } from '../core/time.ts';
import type { HttpRequest, HttpResponse, HttpRoute } from '../io/http/port.ts';
import type { WindowResult } from './accumulator.ts';
import type { Engine } from './engine.ts';
import { engineError } from './errors.ts';

/** Windows in one answer; a `Link` header with rel="next" goes on. */
const WINDOWS_LIMIT_MAX = 10_000;
const WINDOWS_LIMIT = 1_000;
const U64_MAX = (1n << 64n) - 1n;

const JSON_HEADERS = { 'content-type': 'application/json' };

const answer = (
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): HttpResponse => ({
  status,
  headers: { ...JSON_HEADERS, ...headers },
  body: JSON.stringify(body),
});

function readAccount(text: string): bigint {
  if (/^\d{1,20}$/.test(text)) {
    const id = BigInt(text);
    if (id <= U64_MAX) return id;
  }
  throw engineError(
    'bad_account',
    `account_id is not an unsigned 64-bit number: ${JSON.stringify(text.slice(0, 40))}`,
  );
}

/** Milliseconds since the epoch, or an ISO 8601 time with a zone. */
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
    `${name} is neither ms since the epoch nor an ISO 8601 time: ${JSON.stringify(text.slice(0, 40))}`,
  );
}

function readLimit(text: string | null): number {
  if (text === null) return WINDOWS_LIMIT;
  const limit = /^\d{1,6}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= WINDOWS_LIMIT_MAX) return limit;
  throw engineError(
    'bad_range',
    `limit is not a number from 1 to ${WINDOWS_LIMIT_MAX}: ${JSON.stringify(text.slice(0, 40))}`,
  );
}

const toJson = (result: WindowResult) => ({
  account_id: String(result.accountId),
  window_start: String(result.windowStart),
  window_end: String(result.windowEnd),
  count: String(result.count),
  sum: String(result.sum),
  min: String(result.min),
  max: String(result.max),
  last_update_ts: String(result.lastUpdateTs),
  overflow: result.overflow,
});

function windows(engine: Engine, request: HttpRequest): HttpResponse {
  const accountId = readAccount(request.params['account_id'] ?? '');
  const from = readTime('from', request.query.get('from'), -EVENT_TS_LIMIT);
  const to = readTime('to', request.query.get('to'), EVENT_TS_LIMIT);
  if (from > to) throw engineError('bad_range', `from ${from} lies after to ${to}`);
  const limit = readLimit(request.query.get('limit'));
  const found = engine.windows({ accountId, from, to, limit });
  const last = found.at(-1);
  const more = last !== undefined && found.length === limit;
  const next = more
    ? `/windows/${accountId}?from=${last.windowStart + 1}&to=${to}&limit=${limit}`
    : undefined;
  return answer(200, found.map(toJson), next === undefined ? {} : { link: `<${next}>; rel="next"` });
}

function watermark(engine: Engine): HttpResponse {
  return answer(200, {
    ...engine.watermark(),
    mode: 'partition',
    partitions: engine.progress().map((one) => ({
      partition: one.partition,
      offset: String(one.offset),
      max_seen_ms: Number.isFinite(one.maxSeenTs) ? one.maxSeenTs : null,
      consumed: one.consumed,
      dropped_late: one.droppedLate,
      invalid_events: one.invalid,
    })),
  });
}

/** `engine` answers undefined until there is one. */
export function engineRoutes(engine: () => Engine | undefined): readonly HttpRoute[] {
  const guarded =
    (handle: (engine: Engine, request: HttpRequest) => HttpResponse) =>
    (request: HttpRequest): HttpResponse => {
      try {
        const running = engine();
        if (running === undefined || !running.restored)
          throw engineError('restoring', 'the engine is taking up its checkpoint');
        return handle(running, request);
      } catch (thrown) {
        if (!(thrown instanceof MillraceError)) throw thrown;
        const { http } = thrown.row;
        return answer(
          http,
          { error: thrown.message, code: thrown.code },
          http === 503 ? { 'retry-after': '1' } : {},
        );
      }
    };
  return [
    { method: 'GET', path: '/windows/{account_id}', handler: guarded(windows) },
    { method: 'GET', path: '/watermark', handler: guarded(watermark) },
  ];
}
