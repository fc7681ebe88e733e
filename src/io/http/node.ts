/** The node:http driver.
 *
 *  node:http parses and frames; this file adds what the port promises on top. Every connection is a `Line`: its
 *  requests are handled one after the other in the order they came. What the connection itself gets wrong (malformed
 *  bytes, a body over the limit, slowness) is answered after the answers before it, and then the connection closes.
 */
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { coreError } from '../../core/errors.ts';
import { headerValues, NodeRequest, targetOf } from './node-request.ts';
import type {
  HttpDriver,
  HttpFallbacks,
  HttpResponse,
  HttpRoute,
  HttpServer,
  HttpServerOptions,
} from './port.ts';
import { RouteTable } from './route.ts';

/** Pipelined requests that may wait on one connection; one more closes it after the answers before. */
const PIPELINE_MAX = 64;
/** A connection is closed this long after its last answer: closing over unread bytes at once would take the answer
 *  away from a client that is still sending. */
const LINGER_MS = 500;

const EMPTY = new Uint8Array(0);
const TEXT = 'text/plain; charset=utf-8';

const plainFallbacks: HttpFallbacks = {
  error: (status) => ({
    status,
    headers: { 'content-type': TEXT },
    body: `${STATUS_CODES[status] ?? 'error'}\n`,
  }),
};

interface Pending {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly method: string;
  readonly expectsContinue: boolean;
  readonly startMs: number;
  /** Pattern of the route, for metrics; empty where none matched. */
  route: string;
}

/** What the driver keeps of one connection. */
interface Line {
  readonly socket: Socket;
  /** Requests that wait for the one under way. */
  waiting: Pending[];
  current: Pending | undefined;
  /** Set while the handler of `current` runs. */
  request: NodeRequest | undefined;
  /** Set once: the status of the last answer this connection gives. */
  failed: number | undefined;
}

/** What a request gets before its handler is asked. */
type Decision =
  | { readonly kind: 'answer'; readonly response: HttpResponse }
  | { readonly kind: 'handle'; readonly route: HttpRoute; readonly make: (body: Uint8Array) => NodeRequest };

const bytesOf = (response: HttpResponse): Uint8Array =>
  typeof response.body === 'string' ? Buffer.from(response.body, 'utf8') : (response.body ?? EMPTY);

class NodeServer implements HttpServer {
  readonly host: string;
  readonly port: number;
  private readonly server: Server;
  private readonly options: HttpServerOptions;
  private readonly routes: RouteTable;
  private readonly fallbacks: HttpFallbacks;
  private readonly lines = new Map<Socket, Line>();
  private accepted = 0;
  private draining = false;

  constructor(server: Server, options: HttpServerOptions) {
    this.server = server;
    this.options = options;
    this.routes = new RouteTable(options.routes);
    this.fallbacks = options.fallbacks ?? plainFallbacks;
    const address = server.address() as AddressInfo;
    this.host = address.address;
    this.port = address.port;
    server.on('connection', (socket) => this.lineOf(socket));
    server.on('request', (incoming, outgoing) => this.accept(incoming, outgoing, false));
    server.on('checkContinue', (incoming, outgoing) => this.accept(incoming, outgoing, true));
    server.on('checkExpectation', (incoming: IncomingMessage) =>
      this.fail(this.lineOf(incoming.socket), 417),
    );
    server.on('connect', (_incoming: IncomingMessage, socket: Socket) => this.fail(this.lineOf(socket), 400));
    server.on('clientError', (error: NodeJS.ErrnoException, socket) => this.broken(error, socket as Socket));
  }

  inFlight(): number {
    return this.accepted;
  }

  private lineOf(socket: Socket): Line {
    const known = this.lines.get(socket);
    if (known !== undefined) return known;
    const line: Line = { socket, waiting: [], current: undefined, request: undefined, failed: undefined };
    this.lines.set(socket, line);
    socket.on('close', () => {
      this.lines.delete(socket);
      line.request?.abort();
      this.forget(line, () => true);
    });
    return line;
  }

  /** Takes requests off a connection that will not be answered. */
  private forget(line: Line, which: (pending: Pending) => boolean): void {
    const kept = line.waiting.filter((pending) => !which(pending));
    this.accepted -= line.waiting.length - kept.length;
    line.waiting = kept;
    if (line.current !== undefined && which(line.current)) {
      line.current = undefined;
      this.accepted--;
    }
  }

  private accept(incoming: IncomingMessage, outgoing: ServerResponse, expectsContinue: boolean): void {
    const line = this.lineOf(incoming.socket);
    if (line.failed !== undefined || line.socket.destroyed) return;
    if (line.waiting.length >= PIPELINE_MAX) {
      this.fail(line, 503);
      return;
    }
    const method = incoming.method ?? '';
    line.waiting.push({ incoming, outgoing, method, expectsContinue, startMs: performance.now(), route: '' });
    this.accepted++;
    if (line.current === undefined) this.next(line);
  }

  /** Begins the next request of a connection, or gives the last answer of a failed one. */
  private next(line: Line): void {
    const pending = line.waiting.shift();
    line.current = pending;
    if (pending !== undefined) void this.serve(line, pending);
    else if (line.failed !== undefined) this.lastAnswer(line, this.refusal(line.failed, '', ''), '');
  }

  private async serve(line: Line, pending: Pending): Promise<void> {
    const { incoming, outgoing, method } = pending;
    const decision = this.decide(pending);
    const declared = Number(incoming.headers['content-length'] ?? Number.NaN);
    if (declared > this.options.bodyBytesMax) return this.refuseUpload(line, pending, this.tooLarge(pending));
    if (pending.expectsContinue) {
      if (decision.kind === 'answer') return this.refuseUpload(line, pending, decision.response);
      outgoing.writeContinue();
    }
    const hasBody = declared > 0 || incoming.headers['transfer-encoding'] !== undefined;
    const body = hasBody ? await this.readBody(line, pending) : EMPTY;
    if (body === undefined || line.current !== pending) return;
    if (decision.kind === 'answer') return this.answer(line, pending, decision.response);
    const request = decision.make(body);
    line.request = request;
    let response: HttpResponse;
    try {
      response = await decision.route.handler(request);
    } catch (thrown) {
      const error = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
      this.options.log.error({ method, path: request.path, error }, 'http handler failed');
      response = this.refusal(500, method, request.path);
    }
    line.request = undefined;
    if (line.current === pending) this.answer(line, pending, response);
  }

  private decide(pending: Pending): Decision {
    const { incoming, method } = pending;
    const target = targetOf(incoming.url ?? '');
    const answer = (response: HttpResponse): Decision => ({ kind: 'answer', response });
    if (target === undefined || !this.hostIsSound(incoming))
      return answer(this.refusal(400, method, incoming.url ?? ''));
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
    pending.route = match.route.path;
    return {
      kind: 'handle',
      route: match.route,
      make: (body) => new NodeRequest(target, match.params, body, incoming),
    };
  }

  private refusal(status: number, method: string, path: string): HttpResponse {
    try {
      return this.fallbacks.error(status, { method, path });
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'http fallback failed');
      return plainFallbacks.error(status, { method, path });
    }
  }

  /** One Host line in HTTP/1.1, at most one before. */
  private hostIsSound(incoming: IncomingMessage): boolean {
    const hosts = headerValues(incoming.rawHeaders, 'host').length;
    return hosts === 1 || (hosts === 0 && incoming.httpVersion !== '1.1');
  }

  /** The whole body, or undefined when the connection failed or went away. */
  private readBody(line: Line, pending: Pending): Promise<Uint8Array | undefined> {
    const { incoming } = pending;
    const max = this.options.bodyBytesMax;
    return new Promise((resolve) => {
      let chunks: Uint8Array[] = [];
      let size = 0;
      const onData = (chunk: Uint8Array): void => {
        size += chunk.length;
        if (size <= max) {
          chunks.push(chunk);
          return;
        }
        incoming.off('data', onData);
        chunks = [];
        this.refuseUpload(line, pending, this.tooLarge(pending));
        resolve(undefined);
      };
      incoming.on('data', onData);
      incoming.on('end', () =>
        resolve(chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks)),
      );
      incoming.on('close', () => resolve(undefined));
      incoming.on('error', () => resolve(undefined));
    });
  }

  private tooLarge(pending: Pending): HttpResponse {
    return this.refusal(413, pending.method, targetOf(pending.incoming.url ?? '')?.path ?? '');
  }

  /** The answer leaves at once, the rest of the body is not read, the connection closes. */
  private refuseUpload(line: Line, pending: Pending, response: HttpResponse): void {
    line.failed = response.status;
    this.forget(line, () => true);
    this.lastAnswer(line, response, pending.method);
    this.report(pending, response.status);
  }

  private answer(line: Line, pending: Pending, response: HttpResponse): void {
    const { outgoing, method } = pending;
    outgoing.on('error', () => line.socket.destroy());
    outgoing.on('finish', () => {
      if (line.current !== pending) return;
      line.current = undefined;
      this.accepted--;
      // The clock of a client that does not read stops; the next answer starts it again.
      if (line.waiting.length > 0) line.socket.setTimeout(0);
      this.next(line);
    });
    // A client that does not read its answer may not hold the connection for ever; node:http destroys it then.
    line.socket.setTimeout(this.options.requestTimeoutMs);
    let { status } = response;
    try {
      this.write(line, pending, response);
    } catch (thrown) {
      this.options.log.error({ method, error: String(thrown) }, 'http answer could not be written');
      status = 500;
      if (outgoing.headersSent) line.socket.destroy();
      else this.write(line, pending, this.refusal(500, method, ''));
    }
    this.report(pending, status);
  }

  private write(line: Line, pending: Pending, response: HttpResponse): void {
    const { outgoing, method } = pending;
    const body = bytesOf(response);
    const bodiless = response.status === 204 || response.status === 304;
    for (const name of outgoing.getHeaderNames()) outgoing.removeHeader(name);
    if (!bodiless && body.length > 0) {
      outgoing.setHeader(
        'content-type',
        typeof response.body === 'string' ? TEXT : 'application/octet-stream',
      );
    }
    for (const [name, value] of Object.entries(response.headers ?? {})) outgoing.setHeader(name, value);
    if (bodiless) outgoing.removeHeader('content-length');
    else outgoing.setHeader('content-length', body.length);
    if (this.draining && line.waiting.length === 0) outgoing.setHeader('connection', 'close');
    outgoing.writeHead(response.status);
    outgoing.end(bodiless || method === 'HEAD' ? undefined : body);
  }

  private report(pending: Pending, status: number): void {
    const seconds = (performance.now() - pending.startMs) / 1000;
    try {
      this.options.onAnswer?.({ method: pending.method, route: pending.route, status, seconds });
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'onAnswer failed');
    }
  }

  /** The connection cannot go on: what was accepted before is answered, then this status, then it closes. */
  private fail(line: Line, status: number): void {
    if (line.failed !== undefined || line.socket.destroyed) return;
    line.failed = status;
    if (line.current === undefined) this.lastAnswer(line, this.refusal(status, '', ''), '');
    else line.socket.pause();
  }

  private broken(error: NodeJS.ErrnoException, socket: Socket): void {
    const line = this.lineOf(socket);
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE' || socket.destroyed || !socket.writable) {
      socket.destroy();
      return;
    }
    // A request whose body broke never reaches its handler: it is the failure, not one before it.
    this.forget(line, (pending) => !pending.incoming.complete);
    const status =
      error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400;
    this.fail(line, status);
  }

  /** Written past node:http, which cannot close gracefully over an unread body. */
  private lastAnswer(line: Line, response: HttpResponse, method: string): void {
    const { socket } = line;
    if (!socket.writable) {
      socket.destroy();
      return;
    }
    const body = bytesOf(response);
    const head = [`HTTP/1.1 ${response.status} ${STATUS_CODES[response.status] ?? ''}`];
    for (const [name, value] of Object.entries(response.headers ?? {})) head.push(`${name}: ${value}`);
    head.push(
      `content-length: ${body.length}`,
      `date: ${new Date().toUTCString()}`,
      'connection: close',
      '',
      '',
    );
    socket.write(head.join('\r\n'), 'latin1');
    socket.end(method === 'HEAD' ? EMPTY : body);
    socket.pause();
    const timer = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once('close', () => clearTimeout(timer));
  }

  async drain(timeoutMs: number): Promise<void> {
    this.draining = true;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => this.server.closeAllConnections(), timeoutMs);
      this.server.close(() => {
        clearTimeout(timer);
        resolve();
      });
      this.server.closeIdleConnections();
      // Nothing was accepted on these; node:http would wait for the rest of a half-sent head.
      for (const line of this.lines.values()) {
        if (line.current === undefined && line.waiting.length === 0 && line.failed === undefined)
          line.socket.destroySoon();
      }
    });
  }
}

/** @throws busy_port */
async function listen(options: HttpServerOptions): Promise<HttpServer> {
  const server = createServer({
    maxHeaderSize: options.headerBytesMax,
    requestTimeout: options.requestTimeoutMs,
    headersTimeout: options.requestTimeoutMs,
    keepAliveTimeout: options.keepAliveTimeoutMs,
    connectionsCheckingInterval: Math.min(1000, Math.max(20, Math.floor(options.requestTimeoutMs / 4))),
    insecureHTTPParser: false,
    requireHostHeader: false,
    noDelay: true,
  });
  // Bounded by headerBytesMax; node's own count would drop lines in silence.
  server.maxHeadersCount = 0;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const where = `${options.host}:${options.port}`;
      const reasons: Readonly<Record<string, readonly [string, string]>> = {
        EADDRINUSE: [
          `${where} is in use by another process`,
          'give another port with -listen, or port 0 for any free one',
        ],
        EACCES: [`${where} may not be opened by this user`, 'give a port above 1023 with -listen'],
      };
      const otherwise = [
        `cannot listen on ${where}: ${error.message}`,
        'give an address of this machine with -listen',
      ] as const;
      const [why, next] = reasons[error.code ?? ''] ?? otherwise;
      reject(coreError('busy_port', why, { next, cause: error }));
    });
    server.listen(options.port, options.host, resolve);
  });
  server.removeAllListeners('error');
  server.on('error', (error) => options.log.error({ error: error.message }, 'http server error'));
  return new NodeServer(server, options);
}

export const nodeHttpDriver: HttpDriver = {
  name: 'node:http',
  limits: [
    'a client that shuts down its sending side counts as gone',
    'requests of one connection are handled one after the other, also where HTTP would allow two at once',
  ],
  listen,
};
