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
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { BYTES, behindBytesMax, busyPort, bytesOf, type Decision, Front, TEXT } from '../front.ts';
import { isTarget, readWireHead } from '../http1/head.ts';
import type {
  HttpAdmission,
  HttpDriver,
  HttpPeer,
  HttpResponse,
  HttpServer,
  HttpServerOptions,
  HttpTls,
} from '../port.ts';
import { ConnectionRefuser } from '../refuse-connection.ts';
import { EMPTY, headerValues, WholeRequest } from '../request.ts';
import { isUnverifiedClient, peerOf, reloadTls, tlsServerOptions } from './tls.ts';

/** Pipelined requests that may wait on one connection, beside what their bytes allow, and on all connections together; one more
 *  closes its connection after the answers before. */
const PIPELINE_MAX = 1024;
const WAITING_MAX = 65_536;
/** A connection is closed this long after its last answer: closing over unread bytes at once would take the answer
 *  away from a client that is still sending. */
const LINGER_MS = 500;

/** More digits are no length of anything. */
const LENGTH_DIGITS_MAX = 19;
/** Method, version, blanks and line ends. */
const REQUEST_LINE_BYTES = 20;

/** Texts longer than this are written as bytes beside their head. */
const JOINED_LENGTH = 16 * 1024;
const NOT_ASCII = /[^\t\x20-\x7e]/;

interface Pending {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly method: string;
  /** What it takes on the wire, about. */
  readonly byteCount: number;
  readonly expectsContinue: boolean;
  readonly startMs: number;
  /** Pattern of the route, for metrics; empty where none matched. */
  route: string;
  /** Bytes of the body that the server counts as held. */
  heldBytes: number;
}

/** What another parser could read as another request, or as two, though node's takes it: RFC 9112 lets a server refuse it. */
function isDoubtful({ httpVersion, url = '', rawHeaders }: IncomingMessage): boolean {
  if ((httpVersion !== '1.1' && httpVersion !== '1.0') || !isTarget(url)) return true;
  const [length = ''] = headerValues(rawHeaders, 'content-length');
  if (length.length > LENGTH_DIGITS_MAX) return true;
  const encodings = headerValues(rawHeaders, 'transfer-encoding');
  if (encodings.length === 0) return false;
  return encodings.length > 1 || encodings[0]?.toLowerCase() !== 'chunked' || httpVersion === '1.0';
}

/** It expects something beside `100-continue`, which nobody here can promise. */
const expectsMore = ({ rawHeaders }: IncomingMessage): boolean =>
  headerValues(rawHeaders, 'expect').some((value) => value.toLowerCase() !== '100-continue');

/** Head and body as they were sent, but for blanks; of a body in chunks what a stream holds of it. */
function bytesOnTheWire({ url = '', rawHeaders, headers, readableHighWaterMark }: IncomingMessage): number {
  let count = url.length + REQUEST_LINE_BYTES;
  for (const text of rawHeaders) count += text.length + 2;
  if (headers['transfer-encoding'] !== undefined) return count + readableHighWaterMark;
  return count + Number(headers['content-length'] ?? 0);
}

/** What the driver keeps of one connection. */
interface Line {
  readonly socket: Socket;
  /** Who the client's certificate names. */
  readonly peer: HttpPeer | undefined;
  /** Requests that wait for the one under way, and their bytes. */
  waiting: Pending[];
  waitingBytes: number;
  current: Pending | undefined;
  /** Set from the head of `current` to its answer, where a handler gets it. */
  request: WholeRequest | undefined;
  /** Set once: the last answer this connection gives. */
  failed: HttpResponse | undefined;
}

/** What `clientError` gives. */
type ParserError = NodeJS.ErrnoException & { readonly rawPacket?: Buffer };

const nameOf = (socket: Socket): string => `${socket.remoteAddress} ${socket.remotePort}`;

class NodeServer implements HttpServer {
  readonly host: string;
  readonly port: number;
  private readonly server: Server;
  private readonly options: HttpServerOptions;
  private readonly front: Front;
  private readonly lines = new Map<Socket, Line>();
  /** Connections whose TLS does not stand yet. */
  private readonly pendingTls = new Map<string, Socket>();
  private accepted = 0;
  private waiting = 0;
  private readonly behindBytesMax: number;
  private readonly refuser = new ConnectionRefuser();

  constructor(server: Server, options: HttpServerOptions) {
    this.server = server;
    this.options = options;
    this.behindBytesMax = behindBytesMax(options);
    const address = server.address() as AddressInfo;
    this.front = new Front(options, address.address);
    this.host = address.address;
    this.port = address.port;
    server.on('connection', (socket) => this.connect(socket));
    if (options.tls !== undefined) this.onTlsConnect(server);
    server.on('request', (incoming, outgoing) => this.accept(incoming, outgoing, false));
    server.on('checkContinue', (incoming, outgoing) => this.accept(incoming, outgoing, true));
    server.on('checkExpectation', (incoming: IncomingMessage) =>
      this.fail(this.lineOf(incoming.socket), this.front.refusal(417, '', '')),
    );
    server.on('connect', (_incoming: IncomingMessage, socket: Socket) =>
      this.fail(this.lineOf(socket), this.front.refusal(400, '', '')),
    );
    server.on('clientError', (error: NodeJS.ErrnoException, socket) => this.broken(error, socket as Socket));
  }

  inFlight(): number {
    return this.accepted;
  }

  connections(): number {
    return this.front.connections.size;
  }

  heldBytes(): number {
    return this.front.held.used;
  }

  reloadTls(tls: HttpTls): void {
    reloadTls(this.server, this.options, tls);
  }

  private connect(socket: Socket): void {
    const { front, options } = this;
    const address = socket.remoteAddress ?? '';
    const refusal = front.connect(address);
    if (refusal === undefined) {
      socket.once('close', () => front.connections.close(address));
      if (options.tls === undefined) this.lineOf(socket);
      else this.pendTls(socket);
    } else if (options.tls === undefined) {
      // Its requests are parsed and get no handler.
      this.lineOf(socket).failed = refusal;
      this.refuser.refuse(socket, refusal);
    } else socket.destroy();
  }

  private pendTls(socket: Socket): void {
    const known = nameOf(socket);
    this.pendingTls.set(known, socket);
    socket.on('close', () => this.pendingTls.delete(known));
  }

  /** A connection is a line when its TLS stands; until then it is only counted, for the drain. */
  private onTlsConnect(server: Server): void {
    server.on('secureConnection', (socket: TLSSocket) => {
      this.pendingTls.delete(nameOf(socket));
      if (this.options.tls?.clientCa !== undefined && isUnverifiedClient(socket)) socket.destroy();
      else this.lineOf(socket, peerOf(socket));
    });
  }

  private lineOf(socket: Socket, peer?: HttpPeer): Line {
    const known = this.lines.get(socket);
    if (known !== undefined) return known;
    const line: Line = {
      socket,
      peer,
      waiting: [],
      waitingBytes: 0,
      current: undefined,
      request: undefined,
      failed: undefined,
    };
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
    const kept: Pending[] = [];
    for (const pending of line.waiting) {
      if (which(pending)) this.unqueue(line, pending);
      else kept.push(pending);
    }
    line.waiting = kept;
    if (line.current !== undefined && which(line.current)) {
      line.current = undefined;
      this.accepted--;
    }
  }

  private release(pending: Pending): void {
    this.front.held.hold(-pending.heldBytes);
    pending.heldBytes = 0;
  }

  private accept(incoming: IncomingMessage, outgoing: ServerResponse, expectsContinue: boolean): void {
    const line = this.lineOf(incoming.socket);
    if (line.failed !== undefined || line.socket.destroyed) return;
    const refused = isDoubtful(incoming) ? 400 : expectsContinue && expectsMore(incoming) ? 417 : undefined;
    if (refused !== undefined) {
      this.fail(line, this.front.refusal(refused, '', ''));
      return;
    }
    const method = incoming.method ?? '';
    const startMs = performance.now();
    const isFirst = line.current === undefined;
    const byteCount = isFirst ? 0 : bytesOnTheWire(incoming);
    const more = { byteCount, expectsContinue, startMs, route: '', heldBytes: 0 };
    const pending: Pending = { incoming, outgoing, method, ...more };
    if (isFirst) this.begin(line, pending);
    else this.queue(line, pending);
  }

  private queue(line: Line, pending: Pending): void {
    const { byteCount } = pending;
    const hasRoom = line.waiting.length < PIPELINE_MAX && this.waiting < WAITING_MAX;
    if (!hasRoom || line.waitingBytes + byteCount > this.behindBytesMax) {
      this.fail(line, this.front.refusal(503, '', ''));
      return;
    }
    if (!this.front.held.hold(byteCount)) {
      this.front.held.hold(-byteCount);
      this.fail(line, this.front.overfull('', ''));
      return;
    }
    line.waiting.push(pending);
    line.waitingBytes += byteCount;
    this.waiting++;
  }

  private unqueue(line: Line, pending: Pending): void {
    this.front.held.hold(-pending.byteCount);
    line.waitingBytes -= pending.byteCount;
    this.waiting--;
  }

  private begin(line: Line, pending: Pending): void {
    line.current = pending;
    this.accepted++;
    void this.serve(line, pending);
  }

  /** Begins the next request of a connection, or gives the last answer of a failed one. */
  private next(line: Line): void {
    const pending = line.waiting.shift();
    if (pending !== undefined) {
      this.unqueue(line, pending);
      this.begin(line, pending);
      return;
    }
    if (line.failed !== undefined) this.lastAnswer(line, line.failed, '');
  }

  private async serve(line: Line, pending: Pending): Promise<void> {
    const { incoming, outgoing } = pending;
    const byHead = this.decide(pending);
    const declared = Number(incoming.headers['content-length'] ?? Number.NaN);
    if (declared > this.options.bodyBytesMax)
      return this.refuseUpload(
        line,
        pending,
        this.front.tooLarge(pending.method, pending.incoming.url ?? ''),
      );
    const decision = await this.judge(line, pending, byHead);
    if (line.current !== pending) return;
    if (pending.expectsContinue) {
      if (decision.kind === 'answer') return this.refuseUpload(line, pending, decision.response);
      outgoing.writeContinue();
    }
    const hasBody = declared > 0 || incoming.headers['transfer-encoding'] !== undefined;
    const body = hasBody ? await this.readBody(line, pending, decision.kind === 'answer') : EMPTY;
    if (body === undefined || line.current !== pending) this.release(pending);
    else if (decision.kind === 'answer') this.answer(line, pending, decision.response);
    else await this.handle(line, pending, decision, body);
  }

  /** Decides by the head what happens to the request; sets `request` of the line when a handler gets it. */
  private judge(line: Line, pending: Pending, decision: Decision): Decision | Promise<Decision> {
    const { incoming, method } = pending;
    if (decision.kind === 'answer') return decision;
    const { target, params, route } = decision;
    const { rawHeaders } = incoming;
    const remoteAddress = (): string => line.socket.remoteAddress ?? '';
    const request = new WholeRequest({ method, target, rawHeaders, remoteAddress, peer: line.peer }, params);
    line.request = request;
    const judged = (response: HttpAdmission): Decision =>
      response === undefined ? decision : { kind: 'answer', response, route };
    const admission = this.front.admit(route, request);
    if (!(admission instanceof Promise)) return judged(admission);
    request.keepAddress();
    return admission.then(judged);
  }

  private async handle(
    line: Line,
    pending: Pending,
    { route, target }: Decision & { kind: 'handle' },
    body: Uint8Array,
  ): Promise<void> {
    const { method } = pending;
    const request = line.request as WholeRequest;
    request.body = body;
    let response: HttpResponse;
    try {
      const given = route.handler(request);
      if (given instanceof Promise) request.keepAddress();
      response = await given;
    } catch (thrown) {
      response = this.front.failed(method, target.path, thrown);
    }
    this.release(pending);
    line.request = undefined;
    if (line.current === pending) this.answer(line, pending, response);
  }

  private decide(pending: Pending): Decision {
    const { incoming, method } = pending;
    const hostsMin = incoming.httpVersion === '1.1' ? 1 : 0;
    const decision = this.front.decide(method, incoming.url ?? '', incoming.rawHeaders, hostsMin);
    if (decision.kind === 'handle') pending.route = decision.route.path;
    return decision;
  }

  /** The whole body, or undefined when the connection failed or went away.
   *  @param discards the bytes are counted, not kept */
  private readBody(line: Line, pending: Pending, discards: boolean): Promise<Uint8Array | undefined> {
    const { incoming, method } = pending;
    const { url = '' } = incoming;
    const { front } = this;
    const max = this.options.bodyBytesMax;
    return new Promise((resolve) => {
      let chunks: Uint8Array[] = [];
      let size = 0;
      const refuse = (response: HttpResponse): void => {
        incoming.off('data', onData);
        chunks = [];
        this.refuseUpload(line, pending, response);
        resolve(undefined);
      };
      const onData = (chunk: Uint8Array): void => {
        size += chunk.length;
        if (size > max) refuse(front.tooLarge(method, url));
        if (size > max || discards) return;
        chunks.push(chunk);
        pending.heldBytes += chunk.length;
        if (!front.held.hold(chunk.length)) refuse(front.overfull(method, url));
      };
      incoming.on('data', onData);
      incoming.on('end', () =>
        resolve(chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks)),
      );
      incoming.on('close', () => resolve(undefined));
      incoming.on('error', () => resolve(undefined));
    });
  }

  /** The answer leaves at once, the rest of the body is not read, the connection closes. */
  private refuseUpload(line: Line, pending: Pending, response: HttpResponse): void {
    line.failed = response;
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
    let status = 500;
    try {
      this.write(line, pending, response);
      status = response.status;
    } catch (thrown) {
      this.options.log.error({ method, error: String(thrown) }, 'http answer could not be written');
      if (outgoing.headersSent) line.socket.destroy();
      else this.write(line, pending, this.front.refusal(500, method, ''));
    }
    this.report(pending, status);
  }

  private write(line: Line, pending: Pending, response: HttpResponse): void {
    const { outgoing, method } = pending;
    const { status, body = EMPTY } = response;
    const bodiless = status === 204 || status === 304;
    const headers: Record<string, string | number> = {};
    let typed = bodiless || body.length === 0;
    let ascii = true;
    for (const name in response.headers) {
      const lower = name.toLowerCase();
      if (lower === 'content-length') continue;
      if (lower === 'content-type') typed = true;
      const value = response.headers[name] as string;
      if (NOT_ASCII.test(value)) ascii = false;
      headers[name] = value;
    }
    if (!typed) headers['content-type'] = typeof body === 'string' ? TEXT : BYTES;
    // A short text leaves in one piece with its head, which node:http then writes as UTF-8 too.
    const joined = typeof body === 'string' && ascii && body.length <= JOINED_LENGTH;
    const sent = joined ? body : bytesOf(response);
    if (!bodiless) headers['content-length'] = Buffer.byteLength(sent);
    if (this.front.draining && line.waiting.length === 0) headers['connection'] = 'close';
    outgoing.writeHead(status, headers);
    outgoing.end(bodiless || method === 'HEAD' ? undefined : sent);
  }

  private report(pending: Pending, status: number): void {
    this.front.report(pending.method, pending.route, status, pending.startMs);
  }

  /** The connection cannot go on: what was accepted before is answered, then with this, then it closes. */
  private fail(line: Line, response: HttpResponse): void {
    if (line.failed !== undefined || line.socket.destroyed) return;
    line.failed = response;
    if (line.current === undefined) this.lastAnswer(line, response, '');
    // node:http resumes the socket after each request that it has parsed, so pause behind the last one of this chunk.
    else setImmediate(() => line.socket.pause());
  }

  private broken(error: ParserError, socket: Socket): void {
    if (this.options.tls !== undefined && !this.lines.has(socket)) {
      socket.destroy();
      return;
    }
    const line = this.lineOf(socket);
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE' || socket.destroyed || !socket.writable) {
      socket.destroy();
      return;
    }
    // A request whose body broke never reaches its handler: it is the failure, not one before it.
    this.forget(line, (pending) => !pending.incoming.complete);
    const status =
      error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400;
    this.fail(line, this.unknownMethod(error) ?? this.front.refusal(status, '', ''));
  }

  /** The answer to a request whose method the parser does not list; undefined for any other error. */
  private unknownMethod({ code, rawPacket }: ParserError): HttpResponse | undefined {
    if (code !== 'HPE_INVALID_METHOD' || rawPacket === undefined) return undefined;
    const end = rawPacket.indexOf('\r\n\r\n');
    const head = end < 0 ? undefined : readWireHead(rawPacket.toString('latin1', 0, end + 2));
    if (head === undefined) return undefined;
    const decision = this.front.decide(head.method, head.url, head.rawHeaders, head.hostsMin);
    return decision.kind === 'answer' ? decision.response : undefined;
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
    this.front.draining = true;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => this.server.closeAllConnections(), timeoutMs);
      this.server.close(() => {
        clearTimeout(timer);
        resolve();
      });
      this.server.closeIdleConnections();
      for (const socket of this.pendingTls.values()) socket.destroy();
      // Nothing was accepted on these; node:http would wait for the rest of a half-sent head.
      for (const line of this.lines.values()) {
        if (line.current === undefined && line.waiting.length === 0 && line.failed === undefined)
          line.socket.destroySoon();
      }
    });
  }
}

/** @throws busy_port, bad_value */
async function listen(options: HttpServerOptions): Promise<HttpServer> {
  const { tls } = options;
  const own = {
    maxHeaderSize: options.headerBytesMax,
    requestTimeout: options.requestTimeoutMs,
    headersTimeout: options.requestTimeoutMs,
    keepAliveTimeout: options.keepAliveTimeoutMs,
    connectionsCheckingInterval: Math.min(1000, Math.max(20, Math.floor(options.requestTimeoutMs / 4))),
    insecureHTTPParser: false,
    requireHostHeader: false,
    noDelay: true,
  };
  const server: Server =
    tls === undefined
      ? createServer(own)
      : createTlsServer({ ...own, ...tlsServerOptions(tls, options.requestTimeoutMs) });
  // Bounded by headerBytesMax; node's own count would drop lines in silence.
  server.maxHeadersCount = 0;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(busyPort(options, error));
    });
    server.listen(options.port, options.host, resolve);
  });
  server.removeAllListeners('error');
  server.on('error', (error) => options.log.error({ error: error.message }, 'http server error'));
  return new NodeServer(server, options);
}

export const nodeHttpDriver: HttpDriver = {
  name: 'node:http',
  limits: {
    half_close: 'a client that shuts down its sending side counts as gone',
    parallel_pipeline: 'requests of one connection are handled one after the other',
  },
  listen,
};
