/** HTTP interface of the engine: GET /windows, /windows/{key}, /late, /watermark and /openapi.json,
 *  and /savepoints. 64-bit integers are JSON strings, so that no JSON parser rounds them; errors
 *  are `{"error","code"}`. */
import { refusalHeaders } from '../../access/refusal.ts';
import { type Need, openGate, type RequestGate } from '../../access/request.ts';
import type { Timers } from '../../core/clock.ts';
import { MillraceError } from '../../core/errors.ts';
import type {
  HttpAdmission,
  HttpRequest,
  HttpRequestHead,
  HttpResponse,
  HttpRoute,
} from '../../io/http/port.ts';
import { engineError } from '../errors.ts';
import type { PartitionProgress } from '../source/admission.ts';
import { type LateQueries, latePage } from './late.ts';
import { engineDescription } from './openapi.ts';
import { quoted, readFlag } from './parameters.ts';
import { createSavepoint, readSavepoint, removeSavepoint, type SavepointQueries } from './savepoints.ts';
import { type WindowQueries, windowsOfAll, windowsOfKey } from './windows.ts';

const RETRY_AFTER_S = '1';
const JSON_HEADERS = { 'content-type': 'application/json' };

/** Access rules of the engine name one resource. */
const READ_WINDOWS = { operation: 'read', subject: 'windows' } as const;
/** A savepoint has the whole state, and holds files on the engine's disk. */
const ADMIN_WINDOWS = { operation: 'admin', subject: 'windows' } as const;

export interface WatermarkReport {
  /** Null until every partition has had an event. */
  readonly watermark_ms: number | null;
  readonly lag_ms: number | null;
  readonly dropped_late: number;
}

/** Queries that the routes send to an engine. */
export interface EngineQueries extends LateQueries, WindowQueries {
  /** False while the engine restores an earlier run. */
  readonly restored: boolean;
  /** Watermark mode: `partition` or `global`. */
  readonly watermarkMode: string;
  watermark(): WatermarkReport;
  progress(): readonly PartitionProgress[];
}

/** Engines of a process by the names of their windows; the only key of an engine without a name is
 *  the empty text. */
export type NamedEngines = ReadonlyMap<string, EngineQueries>;

/** Returns the engine that a query names; undefined while there is none.
 *  @throws window_required, unknown_window
 *  @example
 *  engineRoutes((window) => engineOf(engines, window), '0.1.0');
 */
export function engineOf(engines: NamedEngines, window: string | null): EngineQueries | undefined {
  const names = [...engines.keys()].join(', ');
  const only = engines.size === 1 ? [...engines.values()][0] : undefined;
  if (engines.size === 0 || (window === null && only !== undefined)) return only;
  if (window === null)
    throw engineError('window_required', `the engine has several windows: ${names}`, {
      next: 'name one of them with ?window=NAME',
    });
  const found = window === '' ? undefined : engines.get(window);
  if (found !== undefined) return found;
  throw engineError(
    'unknown_window',
    names === ''
      ? 'the window of this engine has no name, so window has no meaning'
      : `the engine has no window ${quoted(window)}, only ${names}`,
  );
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
    ...(http === 503 || http === 429 ? { 'retry-after': RETRY_AFTER_S } : {}),
    ...refusalHeaders(thrown),
  });
}

/** Checks access by the head of a request. */
const admission =
  (gate: RequestGate, need: Need = READ_WINDOWS) =>
  (head: HttpRequestHead): HttpAdmission | Promise<HttpAdmission> => {
    try {
      const access = gate.authorise(head, need);
      return access instanceof Promise ? access.then(() => undefined, refused) : undefined;
    } catch (thrown) {
      return refused(thrown);
    }
  };

const NO_TIMERS: Pick<Timers, 'every'> = { every: () => () => {} };

export interface EngineRouteOptions {
  readonly gate?: RequestGate;
  readonly timers?: Pick<Timers, 'every'>;
  /** Checkpoints for readers; absent: there are no routes for them. Returns undefined until the
   *  engine runs. */
  readonly savepoints?: () => SavepointQueries | undefined;
}

/** Returns the routes of the engine's HTTP interface: windows of a key, offsets, watermarks, lag
 *  and health.
 *  @param engine returns the engine of a window, by the parameter `window`; undefined until an
 *  engine exists: the routes then answer 503
 *  @param version version of the package, for the OpenAPI description
 *  @param options `gate` authorises each request except the one for the description; without a gate
 *  every client may read every window. `timers` keep streams open; without timers they send nothing
 *  while no window fires
 *  @example
 *  const routes = engineRoutes(() => engine, '0.1.0');
 */
export function engineRoutes(
  engine: (window: string | null) => EngineQueries | undefined,
  version: string,
  { gate = openGate, timers = NO_TIMERS, savepoints }: EngineRouteOptions = {},
): readonly HttpRoute[] {
  const guarded =
    (handle: (engine: EngineQueries, request: HttpRequest) => HttpResponse | Promise<HttpResponse>) =>
    async (request: HttpRequest): Promise<HttpResponse> => {
      try {
        const running = engine(request.query.get('window'));
        if (running === undefined || !running.restored)
          throw engineError('restoring', 'the engine is restoring its checkpoint');
        return await handle(running, request);
      } catch (thrown) {
        return refused(thrown);
      }
    };
  const description = respond(200, engineDescription(version, savepoints !== undefined));
  const access = gate === openGate ? {} : { admit: admission(gate) };
  return [
    {
      ...{ method: 'GET', path: '/windows', ...access },
      handler: guarded((running, request) => windowsOfAll(running, request, timers)),
    },
    {
      ...{ method: 'GET', path: '/windows/{key}', ...access },
      handler: guarded((running, request) => windowsOfKey(running, request, timers)),
    },
    { method: 'GET', path: '/late', ...access, handler: guarded(late) },
    { method: 'GET', path: '/watermark', ...access, handler: guarded(watermark) },
    ...(savepoints === undefined ? [] : savepointRoutes(savepoints, gate)),
    { method: 'GET', path: '/openapi.json', handler: () => description },
  ];
}

function savepointRoutes(
  savepoints: () => SavepointQueries | undefined,
  gate: RequestGate,
): readonly HttpRoute[] {
  const access = gate === openGate ? {} : { admit: admission(gate, ADMIN_WINDOWS) };
  const guarded =
    (handle: (savepoints: SavepointQueries, request: HttpRequest) => Promise<HttpResponse>) =>
    async (request: HttpRequest): Promise<HttpResponse> => {
      try {
        const running = savepoints();
        if (running === undefined) throw engineError('restoring', 'the engine is restoring its checkpoint');
        return await handle(running, request);
      } catch (thrown) {
        return refused(thrown);
      }
    };
  return [
    { method: 'POST', path: '/savepoints', ...access, handler: guarded(createSavepoint) },
    { method: 'GET', path: '/savepoints/{id}/{file}', ...access, handler: guarded(readSavepoint) },
    { method: 'DELETE', path: '/savepoints/{id}', ...access, handler: guarded(removeSavepoint) },
  ];
}
