/** HTTP interface of the engine: GET /windows/{key}, /late, /watermark and /openapi.json.
 *  64-bit integers are JSON strings, so that no JSON parser rounds them; errors are
 *  `{"error","code"}`. */
import { refusalHeaders } from '../../access/refusal.ts';
import { openGate, type RequestGate } from '../../access/request.ts';
import { MillraceError } from '../../core/errors.ts';
import { DURATION_MS_MAX, EVENT_TS_LIMIT } from '../../core/time.ts';
import type {
  HttpAdmission,
  HttpRequest,
  HttpRequestHead,
  HttpResponse,
  HttpRoute,
} from '../../io/http/port.ts';
import { engineError } from '../errors.ts';
import type { WindowBounds, WindowPage, WindowQuery } from '../output/fired/lookup.ts';
import type { PartitionProgress } from '../source/admission.ts';
import type { WindowResult } from '../window/accumulator.ts';
import { type AskedKey, keyJson, readKey } from './keys.ts';
import { type LateQueries, latePage } from './late.ts';
import { engineDescription, WINDOWS_LIMIT, WINDOWS_LIMIT_MAX } from './openapi.ts';
import { badCursor, nextLink, readFlag, readLimit, readTimes } from './parameters.ts';

/** Lower bound of every window start. */
const START_MIN = -(EVENT_TS_LIMIT + DURATION_MS_MAX);
const RETRY_AFTER_S = '1';
const JSON_HEADERS = { 'content-type': 'application/json' };

/** Access rules of the engine name one resource. */
const READ_WINDOWS = { operation: 'read', subject: 'windows' } as const;

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

/** Queries that the routes send to an engine. */
export interface EngineQueries extends LateQueries {
  /** False while the engine restores an earlier run. */
  readonly restored: boolean;
  /** Watermark mode: `partition` or `global`. */
  readonly watermarkMode: string;
  /** Every window that ends at or before this time has fired; -Infinity before the first. */
  readonly firedTo: number;
  watermark(): WatermarkReport;
  progress(): readonly PartitionProgress[];
  windows(query: WindowQuery): Promise<WindowPage>;
  /** Windows of the key that `windows` does not return yet and that end after `after`,
   *  ascending by end. `isCut`: there are more than were returned. */
  openWindows(key: bigint | Uint8Array, after: number): Promise<OpenWindows>;
}

const respond = (
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): HttpResponse => ({
  status,
  headers: { ...JSON_HEADERS, ...headers },
  body: JSON.stringify(body),
});

const cursorOf = ({ windowStart, windowEnd }: WindowBounds): string => `${windowStart}_${windowEnd}`;

function readCursor(text: string | null): WindowBounds | undefined {
  if (text === null) return undefined;
  const [, start, end] = /^(-?\d{1,16})_(-?\d{1,16})$/.exec(text) ?? [];
  const bounds = { windowStart: Number(start), windowEnd: Number(end) };
  const isTime = (ms: number): boolean => Math.abs(ms) <= EVENT_TS_LIMIT + DURATION_MS_MAX;
  if (isTime(bounds.windowStart) && isTime(bounds.windowEnd)) return bounds;
  throw badCursor(text);
}

const toJson = (result: WindowResult, engine: EngineQueries, asked: AskedKey) => ({
  ...keyJson({ accountId: result.accountId, key: asked.key }, engine),
  window_start: String(result.windowStart),
  window_end: String(result.windowEnd),
  count: String(result.count),
  sum: String(result.sum),
  min: String(result.min),
  max: String(result.max),
  last_update_ts: String(result.lastUpdateTs),
  overflow: result.overflow,
});

/** Fired windows, then open windows; every open window ends after every fired window. */
async function withOpen(engine: EngineQueries, query: WindowQuery) {
  const { from, to, limit, after } = query;
  // Open windows are read first: a window that is stored between the two reads is then found as
  // fired, and a window that has fired but is not stored yet is found as open.
  const { firedTo } = engine;
  const open = await engine.openWindows(
    query.key ?? query.accountId,
    after?.windowEnd ?? Number.NEGATIVE_INFINITY,
  );
  const page = await engine.windows(query);
  // Rows that end later were stored by an earlier run that fired open windows at its end; they are
  // open again.
  const fired = page.rows.findIndex((row) => row.windowEnd > firedTo);
  const { rows, next } = fired < 0 ? page : { rows: page.rows.slice(0, fired), next: undefined };
  const known = new Set(rows.map(cursorOf));
  const found = rows.map((row) => ({ ...toJson(row, engine, query), final: true }));
  if (next !== undefined) return { found, next };
  const wanted = open.rows.filter(
    (row) => row.windowStart >= from && row.windowStart < to && !known.has(cursorOf(row)),
  );
  const included = wanted.slice(0, limit - rows.length);
  found.push(...included.map((row) => ({ ...toJson(row, engine, query), final: false })));
  if (included.length < wanted.length) return { found, next: included.at(-1) ?? rows.at(-1) };
  return { found, next: open.isCut ? open.rows.at(-1) : undefined };
}

async function windows(engine: EngineQueries, request: HttpRequest): Promise<HttpResponse> {
  const params = request.query;
  const text = request.params['key'] ?? '';
  const asked = readKey(text, engine);
  const { from, to } = readTimes(params, START_MIN);
  const limit = readLimit(params.get('limit'), WINDOWS_LIMIT, WINDOWS_LIMIT_MAX);
  const after = readCursor(params.get('cursor'));
  const isOpen = readFlag('open', params.get('open'));
  const query = { ...asked, from, to, limit, ...(after === undefined ? {} : { after }) };
  const page = isOpen ? await withOpen(engine, query) : await firedOnly(engine, query);
  if (page.next === undefined) return respond(200, page.found);
  return respond(
    200,
    page.found,
    nextLink(`/windows/${encodeURIComponent(text)}`, params, cursorOf(page.next)),
  );
}

async function firedOnly(engine: EngineQueries, query: WindowQuery) {
  const { rows, next } = await engine.windows(query);
  return { found: rows.map((row) => toJson(row, engine, query)), next };
}

async function late(engine: EngineQueries, { query }: HttpRequest): Promise<HttpResponse> {
  const { rows, headers } = await latePage(engine, query);
  return respond(200, rows, headers);
}

function watermark(engine: EngineQueries, request: HttpRequest): HttpResponse {
  const isDetailed = readFlag('partitions', request.query.get('partitions'));
  return respond(200, {
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

/** Answer to an error that a client may see. @throws any other error */
function refused(thrown: unknown): HttpResponse {
  if (!(thrown instanceof MillraceError)) throw thrown;
  const { http } = thrown.row;
  const body = { error: thrown.message, code: thrown.code };
  return respond(http, body, {
    ...(http === 503 ? { 'retry-after': RETRY_AFTER_S } : {}),
    ...refusalHeaders(thrown),
  });
}

/** Checks access by the head of a request. */
const admission =
  (gate: RequestGate) =>
  (head: HttpRequestHead): HttpAdmission | Promise<HttpAdmission> => {
    try {
      const access = gate.authorise(head, READ_WINDOWS);
      return access instanceof Promise ? access.then(() => undefined, refused) : undefined;
    } catch (thrown) {
      return refused(thrown);
    }
  };

/** Returns the routes of the engine's HTTP interface: windows of a key, offsets, watermarks, lag
 *  and health.
 *  @param engine returns undefined until an engine exists; its routes then answer 503
 *  @param version version of the package, for the OpenAPI description
 *  @param options `gate` authorises each request except the one for the description; without a gate
 *  every client may read every window
 *  @example
 *  const routes = engineRoutes(() => engine, '0.1.0');
 */
export function engineRoutes(
  engine: () => EngineQueries | undefined,
  version: string,
  { gate = openGate }: { readonly gate?: RequestGate } = {},
): readonly HttpRoute[] {
  const guarded =
    (handle: (engine: EngineQueries, request: HttpRequest) => HttpResponse | Promise<HttpResponse>) =>
    async (request: HttpRequest): Promise<HttpResponse> => {
      try {
        const running = engine();
        if (running === undefined || !running.restored)
          throw engineError('restoring', 'the engine is restoring its checkpoint');
        return await handle(running, request);
      } catch (thrown) {
        return refused(thrown);
      }
    };
  const description = respond(200, engineDescription(version));
  const access = gate === openGate ? {} : { admit: admission(gate) };
  return [
    { method: 'GET', path: '/windows/{key}', ...access, handler: guarded(windows) },
    { method: 'GET', path: '/late', ...access, handler: guarded(late) },
    { method: 'GET', path: '/watermark', ...access, handler: guarded(watermark) },
    { method: 'GET', path: '/openapi.json', handler: () => description },
  ];
}
