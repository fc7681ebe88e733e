/** What every HTTP driver decides the same way: which route a head means, what it answers where no handler does, and
 *  what an answer looks like in bytes. */
import { STATUS_CODES } from 'node:http';
import { coreError, type MillraceError } from '../../core/errors.ts';
import type { HttpFallbacks, HttpResponse, HttpRoute, HttpServerOptions } from './port.ts';
import { headerLines, type Target, targetOf } from './request.ts';
import { RouteTable } from './route.ts';

export const EMPTY = new Uint8Array(0);
export const TEXT = 'text/plain; charset=utf-8';
export const BYTES = 'application/octet-stream';

const plainFallbacks: HttpFallbacks = {
  error: (status) => ({
    status,
    headers: { 'content-type': TEXT },
    body: `${STATUS_CODES[status] ?? 'error'}\n`,
  }),
};

const BEHIND_BYTES_MIN = 64 * 1024;

/** Bytes of pipelined requests that may wait behind one under way: those of one largest request. */
export const behindBytesMax = (options: Pick<HttpServerOptions, 'headerBytesMax' | 'bodyBytesMax'>): number =>
  Math.max(BEHIND_BYTES_MIN, options.headerBytesMax + options.bodyBytesMax);

export const bytesOf = (response: HttpResponse): Uint8Array =>
  typeof response.body === 'string' ? Buffer.from(response.body, 'utf8') : (response.body ?? EMPTY);

/** What a request gets before its handler is asked. */
export type Decision =
  | { readonly kind: 'answer'; readonly response: HttpResponse }
  | {
      readonly kind: 'handle';
      readonly route: HttpRoute;
      readonly target: Target;
      readonly params: Readonly<Record<string, string>>;
    };

export class Front {
  draining = false;
  private readonly options: HttpServerOptions;
  private readonly routes: RouteTable;
  private readonly fallbacks: HttpFallbacks;
  /** What a target that is a route's path, letter by letter, means: nothing needs to be made for it. */
  private readonly usual = new Map<string, Map<string, Decision>>();

  constructor(options: HttpServerOptions) {
    this.options = options;
    this.routes = new RouteTable(options.routes);
    this.fallbacks = options.fallbacks ?? plainFallbacks;
    for (const { method, path } of options.routes) {
      const match = this.routes.match(method, path);
      if (path.includes('{') || path.includes('%') || match.kind !== 'found') continue;
      const target = { path, query: '' };
      const byMethod = this.usual.get(path) ?? new Map<string, Decision>();
      byMethod.set(method, { kind: 'handle', route: match.route, target, params: match.params });
      this.usual.set(path, byMethod);
    }
  }

  /** `hostsMin`: how many Host lines there must be; there is never more than one. */
  decide(method: string, url: string, rawHeaders: readonly string[], hostsMin: 0 | 1): Decision {
    const hosts = headerLines(rawHeaders, 'host');
    if (!this.draining && hosts <= 1 && hosts >= hostsMin) {
      const usual = this.usual.get(url)?.get(method);
      if (usual !== undefined) return usual;
    }
    const answer = (response: HttpResponse): Decision => ({ kind: 'answer', response });
    const target = targetOf(url);
    if (target === undefined || hosts < hostsMin || hosts > 1) return answer(this.refusal(400, method, url));
    const { path } = target;
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

  refusal(status: number, method: string, path: string): HttpResponse {
    try {
      return this.fallbacks.error(status, { method, path });
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'http fallback failed');
      return plainFallbacks.error(status, { method, path });
    }
  }

  tooLarge(method: string, url: string): HttpResponse {
    return this.refusal(413, method, targetOf(url)?.path ?? '');
  }

  /** What a handler that threw is answered with; the cause is for the log alone. */
  failed(method: string, path: string, thrown: unknown): HttpResponse {
    const error = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
    this.options.log.error({ method, path, error }, 'http handler failed');
    return this.refusal(500, method, path);
  }

  /** @param nowMs where the driver has just asked for it */
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

/** Why a server cannot listen. */
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
    EACCES: [`${where} may not be opened by this user`, 'give a port above 1023 with -listen'],
  };
  const [why, next] = reasons[error.code ?? ''] ?? [
    `cannot listen on ${where}: ${error.message}`,
    'give an address of this machine with -listen',
  ];
  return coreError('busy_port', why, { next, cause: error });
}
