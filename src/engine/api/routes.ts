/** HTTP interface of the engine: GET /windows/{account_id}, GET /watermark and GET /openapi.json.
 *  64-bit integers are JSON strings, so that no reader rounds them; errors are `{"error","code"}`.
 */
import { MillraceError } from '../../core/errors.ts';
import { DURATION_MS_MAX, EVENT_TS_LIMIT } from '../../core/time.ts';
import type { HttpRequest, HttpResponse, HttpRoute } from '../../io/http/port.ts';
import { engineError } from '../errors.ts';
import type { WindowBounds, WindowPage, WindowQuery } from '../output/fired/lookup.ts';
import type { PartitionProgress } from '../source/admission.ts';
import type { WindowResult } from '../window/accumulator.ts';
import { engineDescription, WINDOWS_LIMIT, WINDOWS_LIMIT_MAX } from './openapi.ts';

const U64_MAX = (1n << 64n) - 1n;
/** Lower bound of every window start. */
const START_MIN = -(EVENT_TS_LIMIT + DURATION_MS_MAX);
const RETRY_AFTER_S = '1';
const JSON_HEADERS = { 'content-type': 'application/json' };

export interface WatermarkReport {
  /** Null until every partition has had an event. */
  readonly watermark_ms: number | null;
  readonly lag_ms: number | null;
  readonly dropped_late: number;
}

export interface OpenWindows {
  readonly rows: readonly WindowResult[];
  readonly isCut: boolean;
}

/** Interface of the engine that the routes use. */
export interface EngineAnswers {
  /** False while the engine restores the state of an earlier run. */
  readonly restored: boolean;
  /** Rule by which partitions share event time. */
  readonly watermarkMode: string;
  /** Watermark up to which every window has fired; -Infinity before the first firing. */
  readonly firedTo: number;
  watermark(): WatermarkReport;
  progress(): readonly PartitionProgress[];
  windows(query: WindowQuery): Promise<WindowPage>;
  /** Windows of the account that `windows` does not return yet and that end after `after`,
   *  ascending by end; at most a limited number, with a flag when there are more. */
  openWindows(accountId: bigint, after: number): Promise<OpenWindows>;
}

const answer = (
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): HttpResponse => ({
  status,
  headers: { ...JSON_HEADERS, ...headers },
  body: JSON.stringify(body),
});

const shown = (text: string): string => JSON.stringify(text.slice(0, 40));

function readAccount(text: string): bigint {
  if (/^\d{1,20}$/.test(text)) {
    const id = BigInt(text);
    if (id <= U64_MAX) return id;
  }
  throw engineError('bad_account', `account_id is not an unsigned 64-bit number: ${shown(text)}`);
}

/** Reads a time: milliseconds since the epoch, or ISO 8601 with a zone. */
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
    `${name} is neither ms since the epoch nor an ISO 8601 time with a zone: ${shown(text)}`,
  );
}

function readLimit(text: string | null): number {
  if (text === null) return WINDOWS_LIMIT;
  const limit = /^\d{1,6}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= WINDOWS_LIMIT_MAX) return limit;
  throw engineError('bad_range', `limit is not a number from 1 to ${WINDOWS_LIMIT_MAX}: ${shown(text)}`);
}

function readFlag(name: string, text: string | null): boolean {
  if (text === null || text === 'false') return false;
  if (text === 'true') return true;
  throw engineError('bad_range', `${name} is neither true nor false: ${shown(text)}`);
}

const cursorOf = ({ windowStart, windowEnd }: WindowBounds): string => `${windowStart}_${windowEnd}`;

function readCursor(text: string | null): WindowBounds | undefined {
  if (text === null) return undefined;
  const [, start, end] = /^(-?\d{1,16})_(-?\d{1,16})$/.exec(text) ?? [];
  const bounds = { windowStart: Number(start), windowEnd: Number(end) };
  const isTime = (ms: number): boolean => Math.abs(ms) <= EVENT_TS_LIMIT + DURATION_MS_MAX;
  if (isTime(bounds.windowStart) && isTime(bounds.windowEnd)) return bounds;
  throw engineError('bad_range', `cursor is none of ours: ${shown(text)}`, {
    next: 'take it from the Link of the page before',
  });
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

/** Returns fired windows, then open ones; every open window ends after every fired one. */
async function withOpen(engine: EngineAnswers, query: WindowQuery) {
  const { from, to, limit, after } = query;
  // Reads the open windows first: a window stored meanwhile is then found as fired, and a window
  // that has fired and is not yet stored as open.
  const { firedTo } = engine;
  const open = await engine.openWindows(query.accountId, after?.windowEnd ?? Number.NEGATIVE_INFINITY);
  const page = await engine.windows(query);
  // A window that ends later was stored by a run that fired all open windows at its end; it is open
  // again.
  const fired = page.rows.findIndex((row) => row.windowEnd > firedTo);
  const { rows, next } = fired < 0 ? page : { rows: page.rows.slice(0, fired), next: undefined };
  const known = new Set(rows.map(cursorOf));
  const found = rows.map((row) => ({ ...toJson(row), final: true }));
  if (next !== undefined) return { found, next };
  const wanted = open.rows.filter(
    (row) => row.windowStart >= from && row.windowStart < to && !known.has(cursorOf(row)),
  );
  const taken = wanted.slice(0, limit - rows.length);
  found.push(...taken.map((row) => ({ ...toJson(row), final: false })));
  if (taken.length < wanted.length) return { found, next: taken.at(-1) ?? rows.at(-1) };
  return { found, next: open.isCut ? open.rows.at(-1) : undefined };
}

async function windows(engine: EngineAnswers, request: HttpRequest): Promise<HttpResponse> {
  const asked = request.query;
  const accountId = readAccount(request.params['account_id'] ?? '');
  const from = readTime('from', asked.get('from'), START_MIN);
  const to = readTime('to', asked.get('to'), EVENT_TS_LIMIT);
  if (from > to) throw engineError('bad_range', `from ${from} lies after to ${to}`);
  const limit = readLimit(asked.get('limit'));
  const after = readCursor(asked.get('cursor'));
  const isOpen = readFlag('open', asked.get('open'));
  const query = { accountId, from, to, limit, ...(after === undefined ? {} : { after }) };
  const page = isOpen ? await withOpen(engine, query) : await firedOnly(engine, query);
  if (page.next === undefined) return answer(200, page.found);
  const next = new URLSearchParams(asked);
  next.set('cursor', cursorOf(page.next));
  return answer(200, page.found, { link: `</windows/${accountId}?${next}>; rel="next"` });
}

async function firedOnly(engine: EngineAnswers, query: WindowQuery) {
  const { rows, next } = await engine.windows(query);
  return { found: rows.map(toJson), next };
}

function watermark(engine: EngineAnswers, request: HttpRequest): HttpResponse {
  const isDetailed = readFlag('partitions', request.query.get('partitions'));
  return answer(200, {
    ...engine.watermark(),
    mode: engine.watermarkMode,
    ...(isDetailed ? { partitions: engine.progress().map(partitionJson) } : {}),
  });
}

const partitionJson = (one: PartitionProgress) => ({
  partition: one.partition,
  offset: String(one.offset),
  max_seen_ms: Number.isFinite(one.maxSeenTs) ? one.maxSeenTs : null,
  consumed: one.consumed,
  accepted: one.accepted,
  dropped_late: one.droppedLate,
  invalid_events: one.invalid,
  dropped_after_idle: one.droppedAfterIdle,
  future_clamped: one.futureClamped,
  idle: one.idle,
});

/** Returns the routes of the engine's HTTP interface: windows of a key, offsets, watermarks, lag
 *  and health.
 *  @param engine returns undefined until an engine exists; its routes then answer 503
 *  @param version version of the package, for the OpenAPI description
 *  @example
 *  const routes = engineRoutes(() => engine, '0.1.0');
 */
export function engineRoutes(engine: () => EngineAnswers | undefined, version: string): readonly HttpRoute[] {
  const guarded =
    (handle: (engine: EngineAnswers, request: HttpRequest) => HttpResponse | Promise<HttpResponse>) =>
    async (request: HttpRequest): Promise<HttpResponse> => {
      try {
        const running = engine();
        if (running === undefined || !running.restored)
          throw engineError('restoring', 'the engine is restoring its checkpoint');
        return await handle(running, request);
      } catch (thrown) {
        if (!(thrown instanceof MillraceError)) throw thrown;
        const { http } = thrown.row;
        const body = { error: thrown.message, code: thrown.code };
        return answer(http, body, http === 503 ? { 'retry-after': RETRY_AFTER_S } : {});
      }
    };
  const description = answer(200, engineDescription(version));
  return [
    { method: 'GET', path: '/windows/{account_id}', handler: guarded(windows) },
    { method: 'GET', path: '/watermark', handler: guarded(watermark) },
    { method: 'GET', path: '/openapi.json', handler: () => description },
  ];
}
