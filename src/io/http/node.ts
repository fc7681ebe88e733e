/** The node:http driver.
 *
 *  node:http parses and frames; this file adds what the port promises on top. Every connection has a `Line`: requests
 *  are handled one after the other in the order they came, and a failure of the connection (malformed bytes, a body
 *  over the limit, slowness) is answered after the answers before it, then the connection closes.
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
import type {
  HttpDriver,
  HttpFallbacks,
  HttpRequest,
  HttpResponse,
  HttpServer,
  HttpServerOptions,
} from './port.ts';
import { RouteTable } from './route.ts';

/** Pipelined requests that may wait on one connection; one more closes it after the answers before. */
export const PIPELINE_MAX = 64;
/** How long, and for how many bytes, a refused upload is read and thrown away so that its client sees the answer. */
const LINGER_MS = 500;
const LINGER_BYTES_MAX = 256 * 1024;

const EMPTY = new Uint8Array(0);
const TEXT = 'text/plain; charset=utf-8';

const plainFallbacks: HttpFallbacks = {
  error: (status) => ({
    status,
    headers: { 'content-type': TEXT },
    body: `${STATUS_CODES[status] ?? 'error'}\n`,
  }),
};

interface Target {
  readonly path: string;
  readonly query: string;
}

/** Path and query of a request target: origin form, absolute form or `*`. Undefined for anything else. */
function targetOf(url: string): Target | undefined {
  if (/[^\x21-\x7e]|#/.test(url)) return undefined;
  let rest = url;
  const absolute = /^https?:\/\/[^/?]*/i.exec(url);
  if (absolute !== null) {
    rest = url.slice(absolute[0].length);
    if (!rest.startsWith('/')) rest = `/${rest}`;
  }
  if (rest !== '*' && !rest.startsWith('/')) return undefined;
  const mark = rest.indexOf('?');
  return mark < 0 ? { path: rest, query: '' } : { path: rest.slice(0, mark), query: rest.slice(mark + 1) };
}

/** All lines of one header, in the order sent. */
function headerValues(raw: readonly string[], name: string): string[] {
  const wanted = name.toLowerCase();
  const values: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    if ((raw[i] as string).toLowerCase() === wanted)
      values.push((raw[i + 1] as string).replace(/^[ \t]+|[ \t]+$/g, ''));
  }
  return values;
}

class NodeRequest implements HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly params: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  readonly remoteAddress: string;
  private readonly rawQuery: string;
  private readonly rawHeaders: readonly string[];
  private parsedQuery: URLSearchParams | undefined;
  private controller: AbortController | undefined;
  private gone = false;

  constructor(
    method: string,
    target: Target,
    params: Readonly<Record<string, string>>,
    body: Uint8Array,
    incoming: IncomingMessage,
  ) {
    this.method = method;
    this.path = target.path;
    this.rawQuery = target.query;
    this.params = params;
    this.body = body;
    this.rawHeaders = incoming.rawHeaders;
    this.remoteAddress = incoming.socket.remoteAddress ?? '';
  }

  get query(): URLSearchParams {
    this.parsedQuery ??= new URLSearchParams(this.rawQuery);
    return this.parsedQuery;
  }

  /** Made on first use: most handlers never ask. */
  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      if (this.gone) this.controller.abort();
    }
    return this.controller.signal;
  }

  header(name: string): readonly string[] {
    return headerValues(this.rawHeaders, name);
  }

  abort(): void {
    this.gone = true;
    this.controller?.abort();
  }
}

interface Pending {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly expectsContinue: boolean;
  readonly startMs: number;
}

/** What the driver keeps of one connection. */
class Line {
  readonly socket: Socket;
  /** Requests that wait for the one under way. */
  readonly waiting: Pending[] = [];
  current: Pending | undefined;
  request: NodeRequest | undefined;
  /** Set once: the status of the last answer this connection gives. */
  failed: number | undefined;

  constructor(socket: Socket) {
    this.socket = socket;
  }
}

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
    server.on('connection', (socket) => this.open(socket));
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

  private open(socket: Socket): void {
    if (this.lines.has(socket)) return;
    const line = new Line(socket);
    this.lines.set(socket, line);
    socket.on('close', () => {
      this.lines.delete(socket);
      line.request?.abort();
      this.accepted -= line.waiting.length + (line.current === undefined ? 0 : 1);
      line.waiting.length = 0;
      line.current = undefined;
    });
  }

  private lineOf(socket: Socket): Line {
    this.open(socket);
    return this.lines.get(socket) as Line;
  }

  private accept(incoming: IncomingMessage, outgoing: ServerResponse, expectsContinue: boolean): void {
    const line = this.lineOf(incoming.socket);
    if (line.failed !== undefined || line.socket.destroyed) return;
    if (line.waiting.length >= PIPELINE_MAX) {
      this.fail(line, 503);
      return;
    }
    line.waiting.push({ incoming, outgoing, expectsContinue, startMs: performance.now() });
    this.accepted++;
    if (line.current === undefined) this.next(line);
  }

  /** Begins the next request of a connection, or gives the last answer of a failed one. */
  private next(line: Line): void {
    const pending = line.waiting.shift();
    line.current = pending;
    if (pending !== undefined) {
      void this.serve(line, pending);
    } else if (line.failed !== undefined) {
      this.lastAnswer(line, line.failed);
    }
  }

  private async serve(line: Line, pending: Pending): Promise<void> {
    const { incoming } = pending;
    const method = incoming.method ?? 'GET';
    const target = targetOf(incoming.url ?? '');
    let route = '';
    let response: HttpResponse;
    try {
      if (target === undefined || !this.hostIsSound(incoming)) {
        response = this.refusal(400, method, incoming.url ?? '');
      } else if (target.path === '*') {
        response =
          method === 'OPTIONS'
            ? { status: 204, headers: { allow: 'GET, HEAD, OPTIONS, POST, PUT, DELETE' } }
            : this.refusal(400, method, '*');
      } else if (this.draining) {
        response = this.refusal(503, method, target.path);
      } else {
        const match = this.routes.match(method, target.path);
        if (match.kind === 'malformed') response = this.refusal(400, method, target.path);
        else if (match.kind === 'unknown') response = this.refusal(404, method, target.path);
        else if (match.kind === 'method') {
          const allow = { allow: match.allow.join(', ') };
          const base = method === 'OPTIONS' ? { status: 204 } : this.refusal(405, method, target.path);
          response = { ...base, headers: { ...base.headers, ...allow } };
        } else {
          route = match.route.path;
          const body = await this.readBody(line, pending);
          if (body === undefined) return;
          const request = new NodeRequest(method, target, match.params, body, incoming);
          line.request = request;
          if (line.socket.destroyed) request.abort();
          response = await match.route.handler(request);
        }
      }
    } catch (thrown) {
      const path = target?.path ?? '';
      this.options.log.error(
        { method, path, error: thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown) },
        'http handler failed',
      );
      response = this.refusal(500, method, path);
    }
    line.request = undefined;
    if (line.current !== pending) return;
    this.answer(line, pending, response, method);
    this.options.onAnswer?.({
      method,
      route,
      status: response.status,
      seconds: (performance.now() - pending.startMs) / 1000,
    });
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
    const { incoming, outgoing } = pending;
    const max = this.options.bodyBytesMax;
    const declared = Number(incoming.headers['content-length'] ?? Number.NaN);
    if (declared > max) {
      this.refuseUpload(line, pending);
      return Promise.resolve(undefined);
    }
    if (pending.expectsContinue) outgoing.writeContinue();
    if (declared === 0 || (Number.isNaN(declared) && incoming.headers['transfer-encoding'] === undefined))
      return Promise.resolve(EMPTY);
    return new Promise((resolve) => {
      const chunks: Uint8Array[] = [];
      let size = 0;
      const onData = (chunk: Uint8Array): void => {
        size += chunk.length;
        if (size > max) {
          incoming.off('data', onData);
          chunks.length = 0;
          this.refuseUpload(line, pending);
          resolve(undefined);
        } else {
          chunks.push(chunk);
        }
      };
      incoming.on('data', onData);
      incoming.on('end', () =>
        resolve(chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks, size)),
      );
      incoming.on('close', () => resolve(undefined));
      incoming.on('error', () => resolve(undefined));
    });
  }

  /** 413: the answer leaves at once, the rest of the body is not kept, the connection closes. */
  private refuseUpload(line: Line, pending: Pending): void {
    line.failed = 413;
    this.accepted -= line.waiting.length + 1;
    line.waiting.length = 0;
    line.current = undefined;
    const { incoming } = pending;
    let dropped = 0;
    incoming.on('data', (chunk: Uint8Array) => {
      dropped += chunk.length;
      if (dropped > LINGER_BYTES_MAX) line.socket.destroy();
    });
    this.lastAnswer(line, 413, incoming.method ?? '', targetOf(incoming.url ?? '')?.path ?? '');
    this.options.onAnswer?.({
      method: incoming.method ?? '',
      route: '',
      status: 413,
      seconds: (performance.now() - pending.startMs) / 1000,
    });
  }

  private answer(line: Line, pending: Pending, response: HttpResponse, method: string): void {
    const { outgoing } = pending;
    const done = (): void => {
      if (line.current !== pending) return;
      this.accepted--;
      line.current = undefined;
      this.next(line);
    };
    outgoing.on('finish', done);
    outgoing.on('error', () => line.socket.destroy());
    try {
      this.write(outgoing, response, method);
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'http answer could not be written');
      if (outgoing.headersSent) line.socket.destroy();
      else this.write(outgoing, this.refusal(500, method, ''), method);
    }
    // A client that does not read its answer may not hold the connection for ever.
    if (!outgoing.writableFinished)
      line.socket.setTimeout(this.options.requestTimeoutMs, () => line.socket.destroy());
  }

  private write(outgoing: ServerResponse, response: HttpResponse, method: string): void {
    const body =
      typeof response.body === 'string' ? Buffer.from(response.body, 'utf8') : (response.body ?? EMPTY);
    const bodiless = response.status === 204 || response.status === 304 || response.status < 200;
    for (const name of outgoing.getHeaderNames()) outgoing.removeHeader(name);
    if (!bodiless && body.length > 0)
      outgoing.setHeader(
        'content-type',
        typeof response.body === 'string' ? TEXT : 'application/octet-stream',
      );
    for (const [name, value] of Object.entries(response.headers ?? {})) outgoing.setHeader(name, value);
    if (bodiless) outgoing.removeHeader('content-length');
    else outgoing.setHeader('content-length', body.length);
    if (this.draining) outgoing.setHeader('connection', 'close');
    outgoing.writeHead(response.status);
    if (bodiless || method === 'HEAD') outgoing.end();
    else outgoing.end(body);
  }

  /** The connection cannot go on: what was accepted before is answered, then this status, then it closes. */
  private fail(line: Line, status: number): void {
    if (line.failed !== undefined || line.socket.destroyed) return;
    line.failed = status;
    if (line.current === undefined) this.lastAnswer(line, status);
  }

  private broken(error: NodeJS.ErrnoException, socket: Socket): void {
    const line = this.lineOf(socket);
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE' || socket.destroyed || !socket.writable) {
      socket.destroy();
      return;
    }
    const status =
      error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400;
    // The request whose body broke never reaches its handler: it counts as the failure, not as one before it.
    if (line.current !== undefined && line.request === undefined && !line.current.incoming.complete) {
      this.accepted -= line.waiting.length + 1;
      line.waiting.length = 0;
      line.current = undefined;
    }
    this.fail(line, status);
  }

  /** Written past node:http, which could not close gracefully behind an unread body. */
  private lastAnswer(line: Line, status: number, method = '', path = ''): void {
    const { socket } = line;
    if (!socket.writable) {
      socket.destroy();
      return;
    }
    const response = this.refusal(status, method, path);
    const body =
      typeof response.body === 'string' ? Buffer.from(response.body, 'utf8') : (response.body ?? EMPTY);
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
    const timer = setTimeout(() => socket.destroy(), LINGER_MS);
    timer.unref();
    socket.once('close', () => clearTimeout(timer));
    socket.once('end', () => socket.destroy());
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
      const [why, next] = reasons[error.code ?? ''] ?? [
        `cannot listen on ${where}: ${error.message}`,
        'give an address of this machine with -listen',
      ];
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
    'requests of one connection are handled one after the other, also where HTTP would allow two at once',
  ],
  listen,
};
