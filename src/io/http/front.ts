/** Decisions that all HTTP drivers share: the route of a head, the answers of the server itself,
 *  and the memory limit of requests. */
import { STATUS_CODES } from 'node:http';
import { type ConnectionLimit, ConnectionLimits } from '../../core/connections.ts';
import { coreError, type MillraceError } from '../../core/errors.ts';
import { CrossSiteGuard } from './cross-site.ts';
import type {
  HttpAdmission,
  HttpFallbacks,
  HttpRequestHead,
  HttpResponse,
  HttpRoute,
  HttpServerOptions,
} from './port.ts';
import { EMPTY, headerLines, type Target, targetOf } from './request.ts';
import { RouteTable } from './route.ts';

export const TEXT = 'text/plain; charset=utf-8';
export const BYTES = 'application/octet-stream';

const plainFallbacks: HttpFallbacks = {
  error: (status, _request, detail) => ({
    status,
    headers: { 'content-type': TEXT },
    body: `${STATUS_CODES[status] ?? 'error'}${detail === undefined ? '' : `: ${detail}`}\n`,
  }),
};

/** Default of `heldBytesMax`. */
const HELD_BYTES_MAX = 64 * 1024 * 1024;
/** Retry-After of the server's own 503, in seconds. */
const RETRY_AFTER_S = '1';
const CONNECTIONS_REFUSED: Readonly<Record<ConnectionLimit, string>> = {
  total: 'the server has reached its limit of connections (-connections-max); try again later',
  address:
    'this client address has reached its limit of connections (-connections-per-address); close some, or reuse them',
};
const OVERFULL =
  'the requests in memory have reached their limit of bytes (-held-max); send the request again later';

/** Counter of the bytes of unanswered requests in memory, with the limit of the server. */
export class HeldBytes {
  readonly max: number;
  used = 0;

  constructor({ heldBytesMax = HELD_BYTES_MAX, bodyBytesMax }: HttpServerOptions) {
    this.max = Math.max(heldBytesMax, bodyBytesMax);
  }

  /** Counts bytes, or releases them with a negative number. False: the server is over its limit;
   *  the bytes are counted all the same, until their connection releases them. */
  hold(bytes: number): boolean {
    this.used += bytes;
    return bytes <= 0 || this.used <= this.max;
  }
}

const BUFFERED_BYTES_MIN = 64 * 1024;

/** Most bytes of requests that are pipelined behind a request in flight: the bytes of one largest
 *  request. */
export const bufferedBytesMax = (
  options: Pick<HttpServerOptions, 'headerBytesMax' | 'bodyBytesMax'>,
): number => Math.max(BUFFERED_BYTES_MIN, options.headerBytesMax + options.bodyBytesMax);

export const bytesOf = (response: HttpResponse): Uint8Array =>
  typeof response.body === 'string' ? Buffer.from(response.body, 'utf8') : (response.body ?? EMPTY);

/** Decision about a request before its handler runs. */
export type Decision =
  | {
      readonly kind: 'answer';
      readonly response: HttpResponse;
      /** Route whose `admit` refused the request. */
      readonly route?: HttpRoute;
    }
  | {
      readonly kind: 'handle';
      readonly route: HttpRoute;
      readonly target: Target;
      readonly params: Readonly<Record<string, string>>;
    };

export class Front {
  draining = false;
  /** Functions that end the open streams. */
  readonly streams = new Set<() => void>();
  readonly held: HeldBytes;
  readonly connections: ConnectionLimits;
  private readonly options: HttpServerOptions;
  private readonly routes: RouteTable;
  private readonly fallbacks: HttpFallbacks;
  /** Decisions for targets that equal a route's path, made in advance. */
  private readonly exact = new Map<string, Map<string, Decision>>();
  private readonly guard: CrossSiteGuard | undefined;

  /** @param address address of the listening socket */
  constructor(options: HttpServerOptions, address: string) {
    this.options = options;
    this.held = new HeldBytes(options);
    this.connections = new ConnectionLimits({
      total: options.connectionsMax ?? Number.POSITIVE_INFINITY,
      perAddress: options.connectionsPerAddressMax ?? 0,
    });
    const { allowedOrigins } = options;
    this.guard =
      allowedOrigins === undefined
        ? undefined
        : new CrossSiteGuard({ allowedOrigins, listenHost: options.host, address });
    this.routes = new RouteTable(options.routes);
    this.fallbacks = options.fallbacks ?? plainFallbacks;
    for (const { method, path } of options.routes) {
      const match = this.routes.match(method, path);
      if (path.includes('{') || path.includes('%') || match.kind !== 'found') continue;
      const target = { path, query: '' };
      const byMethod = this.exact.get(path) ?? new Map<string, Decision>();
      byMethod.set(method, { kind: 'handle', route: match.route, target, params: match.params });
      this.exact.set(path, byMethod);
    }
  }

  /** Decides about a head. @param hostsMin least number of Host lines; more than one is always
   *  refused */
  decide(method: string, url: string, rawHeaders: readonly string[], hostsMin: 0 | 1): Decision {
    const hosts = headerLines(rawHeaders, 'host');
    const crossSite = this.guard?.refusal(rawHeaders);
    if (crossSite === undefined && !this.draining && hosts <= 1 && hosts >= hostsMin) {
      const exact = this.exact.get(url)?.get(method);
      if (exact !== undefined) return exact;
    }
    const answer = (response: HttpResponse): Decision => ({ kind: 'answer', response });
    const target = targetOf(url);
    if (target === undefined || hosts < hostsMin || hosts > 1) return answer(this.refusal(400, method, url));
    const { path } = target;
    if (crossSite !== undefined) return answer(this.refusal(403, method, path, crossSite));
    if (this.draining) return answer(this.refusal(503, method, path));
    if (path === '*') {
      return answer(
        method === 'OPTIONS'
          ? { status: 204, headers: { allow: 'GET, HEAD, OPTIONS' } }
          : this.refusal(400, method, path),
      );
    }
    const match = this.routes.match(method, path);
    if (match.kind === 'malformed') return answer(this.refusal(400, method, path));
    if (match.kind === 'unknown') return answer(this.refusal(404, method, path));
    if (match.kind === 'method') {
      const base = method === 'OPTIONS' ? { status: 204 } : this.refusal(405, method, path);
      return answer({ ...base, headers: { ...base.headers, allow: match.allow.join(', ') } });
    }
    return { kind: 'handle', route: match.route, target, params: match.params };
  }

  refusal(status: number, method: string, path: string, detail?: string): HttpResponse {
    let response: HttpResponse;
    try {
      response = this.fallbacks.error(status, { method, path }, detail);
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'http fallback failed');
      response = plainFallbacks.error(status, { method, path }, detail);
    }
    if (status !== 503) return response;
    return { ...response, headers: { 'retry-after': RETRY_AFTER_S, ...response.headers } };
  }

  /** Answer when the server is over its memory limit. */
  overfull(method: string, url: string): HttpResponse {
    return this.refusal(503, method, targetOf(url)?.path ?? '', OVERFULL);
  }

  /** Counts a connection, or returns the answer that refuses it. */
  connect(address: string): HttpResponse | undefined {
    const limit = this.connections.open(address);
    if (limit === undefined) return undefined;
    this.options.onConnectionRefused?.(limit);
    return this.refusal(503, '', '', CONNECTIONS_REFUSED[limit]);
  }

  /** Runs `admit` of the route; an error becomes the answer. Never throws or rejects. */
  admit(route: Pick<HttpRoute, 'admit'>, head: HttpRequestHead): HttpAdmission | Promise<HttpAdmission> {
    const failed = (thrown: unknown): HttpResponse => this.failed(head.method, head.path, thrown);
    try {
      const admission = route.admit?.(head);
      return admission instanceof Promise ? admission.catch(failed) : admission;
    } catch (thrown) {
      return failed(thrown);
    }
  }

  tooLarge(method: string, url: string): HttpResponse {
    return this.refusal(413, method, targetOf(url)?.path ?? '');
  }

  /** Begins a drain: ends the open streams. */
  beginDrain(): void {
    this.draining = true;
    for (const end of [...this.streams]) end();
  }

  /** Runs a callback of a stream's source; an error is logged, and `end` is called. */
  runSource(callback: () => void, end: () => void): void {
    try {
      callback();
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'http stream failed');
      end();
    }
  }

  /** Answer after a handler threw; the cause is logged only. */
  failed(method: string, path: string, thrown: unknown): HttpResponse {
    const error = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
    this.options.log.error({ method, path, error }, 'http handler failed');
    return this.refusal(500, method, path);
  }

  /** Reports an answer to `onAnswer`. @param nowMs the current time, if the driver has read it */
  report(method: string, route: string, status: number, startMs: number, nowMs = performance.now()): void {
    const { onAnswer } = this.options;
    if (onAnswer === undefined) return;
    try {
      onAnswer({ method, route, status, seconds: (nowMs - startMs) / 1000 });
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'onAnswer failed');
    }
  }
}

/** Error of a server that cannot listen. */
export function busyPort(
  options: Pick<HttpServerOptions, 'host' | 'port'>,
  error: NodeJS.ErrnoException,
): MillraceError {
  const where = `${options.host}:${options.port}`;
  const reasons: Readonly<Record<string, readonly [string, string]>> = {
    EADDRINUSE: [
      `${where} is in use by another process`,
      'give another port with -listen, or port 0 for any free one',
    ],
    EACCES: [`this user may not listen on ${where}`, 'give a port above 1023 with -listen'],
  };
  const [why, next] = reasons[error.code ?? ''] ?? [
    `cannot listen on ${where}: ${error.message}`,
    'give an address of this machine with -listen',
  ];
  return coreError('busy_port', why, { next, cause: error });
}
