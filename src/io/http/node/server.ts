/** HTTP driver over node:http.
 *
 *  node:http parses and frames; this file adds the further guarantees of the port. Requests of a
 *  `Connection` are handled one after the other in their order. An error of the connection itself
 *  (malformed bytes, a body over the limit, slowness) is answered after the earlier answers; then
 *  the connection closes.
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
import { BYTES, bufferedBytesMax, busyPort, bytesOf, type Decision, Front, TEXT } from '../front.ts';
import { isTarget, readWireHead } from '../http1/head.ts';
import type {
  HttpAdmission,
  HttpDriver,
  HttpPeer,
  HttpResponse,
  HttpServer,
  HttpServerOptions,
  HttpStreamSource,
  HttpTls,
} from '../port.ts';
import { ConnectionRefuser } from '../refuse-connection.ts';
import { EMPTY, headerValues, WholeRequest } from '../request.ts';
import { isUnverifiedClient, peerOf, reloadTls, tlsServerOptions } from './tls.ts';

/** Most pipelined requests on one connection (their bytes are limited too), and on all connections.
 *  A further request closes its connection after the earlier answers. */
const PIPELINE_MAX = 1024;
const WAITING_MAX = 65_536;
/** Time from the last answer to the close: closing immediately over unread bytes would destroy the
 *  answer of a client that is still sending. */
const LINGER_MS = 500;

/** Most digits of a Content-Length. */
const LENGTH_DIGITS_MAX = 19;
/** Bytes of the request line beside the target: method, version, blanks and line ends. */
const REQUEST_LINE_BYTES = 20;

/** Longest text that is written together with its head. */
const JOINED_LENGTH = 16 * 1024;
const NOT_ASCII = /[^\t\x20-\x7e]/;

interface Pending {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly method: string;
  /** Approximate size of the request on the wire. */
  readonly byteCount: number;
  readonly expectsContinue: boolean;
  readonly startMs: number;
  /** Pattern of the route, for metrics; empty when no route matched. */
  route: string;
  /** Bytes of the body that the server counts as held. */
  heldBytes: number;
}

/** True for a request that another parser could interpret as another request or as two, although
 *  Node's parser accepts it. RFC 9112 permits the refusal. */
function isDoubtful({ httpVersion, url = '', rawHeaders }: IncomingMessage): boolean {
  if ((httpVersion !== '1.1' && httpVersion !== '1.0') || !isTarget(url)) return true;
  const [length = ''] = headerValues(rawHeaders, 'content-length');
  if (length.length > LENGTH_DIGITS_MAX) return true;
  const encodings = headerValues(rawHeaders, 'transfer-encoding');
  if (encodings.length === 0) return false;
  return encodings.length > 1 || encodings[0]?.toLowerCase() !== 'chunked' || httpVersion === '1.0';
}

/** True for an expectation other than `100-continue`, which is refused. */
const expectsMore = ({ rawHeaders }: IncomingMessage): boolean =>
  headerValues(rawHeaders, 'expect').some((value) => value.toLowerCase() !== '100-continue');

/** Approximate bytes of head and body on the wire; for a chunked body the buffer size of its
 *  stream. */
function bytesOnTheWire({ url = '', rawHeaders, headers, readableHighWaterMark }: IncomingMessage): number {
  let count = url.length + REQUEST_LINE_BYTES;
  for (const text of rawHeaders) count += text.length + 2;
  if (headers['transfer-encoding'] !== undefined) return count + readableHighWaterMark;
  return count + Number(headers['content-length'] ?? 0);
}

/** State of a connection. */
interface Connection {
  readonly socket: Socket;
  /** Identity from the client's certificate. */
  readonly peer: HttpPeer | undefined;
  /** Requests that wait for the one in flight, and their bytes. */
  waiting: Pending[];
  waitingBytes: number;
  current: Pending | undefined;
  /** Request of `current` from its head to its answer, when a handler gets it. */
  request: WholeRequest | undefined;
  /** Last answer of the connection, set once. */
  failed: HttpResponse | undefined;
}

/** Error of the event `clientError`. */
type ParserError = NodeJS.ErrnoException & { readonly rawPacket?: Buffer };

const nameOf = (socket: Socket): string => `${socket.remoteAddress} ${socket.remotePort}`;

class NodeServer implements HttpServer {
  readonly host: string;
  readonly port: number;
  private readonly server: Server;
  private readonly options: HttpServerOptions;
  private readonly front: Front;
  private readonly bySocket = new Map<Socket, Connection>();
  /** Connections during the TLS handshake. */
  private readonly pendingTls = new Map<string, Socket>();
  private accepted = 0;
  private waiting = 0;
  private readonly bufferedBytesMax: number;
  private readonly refuser = new ConnectionRefuser();

  constructor(server: Server, options: HttpServerOptions) {
    this.server = server;
    this.options = options;
    this.bufferedBytesMax = bufferedBytesMax(options);
    const address = server.address() as AddressInfo;
    this.front = new Front(options, address.address);
    this.host = address.address;
    this.port = address.port;
    server.on('connection', (socket) => this.connect(socket));
    if (options.tls !== undefined) this.onTlsConnect(server);
    server.on('request', (incoming, outgoing) => this.accept(incoming, outgoing, false));
    server.on('checkContinue', (incoming, outgoing) => this.accept(incoming, outgoing, true));
    server.on('checkExpectation', (incoming: IncomingMessage) =>
      this.fail(this.connectionOf(incoming.socket), this.front.refusal(417, '', '')),
    );
    server.on('connect', (_incoming: IncomingMessage, socket: Socket) =>
      this.fail(this.connectionOf(socket), this.front.refusal(400, '', '')),
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
      if (options.tls === undefined) this.connectionOf(socket);
      else this.pendTls(socket);
    } else if (options.tls === undefined) {
      // Requests of this connection are parsed but reach no handler.
      this.connectionOf(socket).failed = refusal;
      this.refuser.refuse(socket, refusal);
    } else socket.destroy();
  }

  private pendTls(socket: Socket): void {
    const known = nameOf(socket);
    this.pendingTls.set(known, socket);
    socket.on('close', () => this.pendingTls.delete(known));
  }

  /** Adds a connection after its TLS handshake; until then it is only counted, for the drain. */
  private onTlsConnect(server: Server): void {
    server.on('secureConnection', (socket: TLSSocket) => {
      this.pendingTls.delete(nameOf(socket));
      if (this.options.tls?.clientCa !== undefined && isUnverifiedClient(socket)) socket.destroy();
      else this.connectionOf(socket, peerOf(socket));
    });
  }

  private connectionOf(socket: Socket, peer?: HttpPeer): Connection {
    const known = this.bySocket.get(socket);
    if (known !== undefined) return known;
    const connection: Connection = {
      socket,
      peer,
      waiting: [],
      waitingBytes: 0,
      current: undefined,
      request: undefined,
      failed: undefined,
    };
    this.bySocket.set(socket, connection);
    socket.on('close', () => {
      this.bySocket.delete(socket);
      connection.request?.abort();
      this.forget(connection, () => true);
    });
    return connection;
  }

  /** Removes requests that will not be answered. */
  private forget(connection: Connection, which: (pending: Pending) => boolean): void {
    const kept: Pending[] = [];
    for (const pending of connection.waiting) {
      if (which(pending)) this.unqueue(connection, pending);
      else kept.push(pending);
    }
    connection.waiting = kept;
    if (connection.current !== undefined && which(connection.current)) {
      connection.current = undefined;
      this.accepted--;
    }
  }

  private release(pending: Pending): void {
    this.front.held.hold(-pending.heldBytes);
    pending.heldBytes = 0;
  }

  private accept(incoming: IncomingMessage, outgoing: ServerResponse, expectsContinue: boolean): void {
    const connection = this.connectionOf(incoming.socket);
    if (connection.failed !== undefined || connection.socket.destroyed) return;
    const refused = isDoubtful(incoming) ? 400 : expectsContinue && expectsMore(incoming) ? 417 : undefined;
    if (refused !== undefined) {
      this.fail(connection, this.front.refusal(refused, '', ''));
      return;
    }
    const method = incoming.method ?? '';
    const startMs = performance.now();
    const isFirst = connection.current === undefined;
    const byteCount = isFirst ? 0 : bytesOnTheWire(incoming);
    const more = { byteCount, expectsContinue, startMs, route: '', heldBytes: 0 };
    const pending: Pending = { incoming, outgoing, method, ...more };
    if (isFirst) this.begin(connection, pending);
    else this.queue(connection, pending);
  }

  private queue(connection: Connection, pending: Pending): void {
    const { byteCount } = pending;
    const hasRoom = connection.waiting.length < PIPELINE_MAX && this.waiting < WAITING_MAX;
    if (!hasRoom || connection.waitingBytes + byteCount > this.bufferedBytesMax) {
      this.fail(connection, this.front.refusal(503, '', ''));
      return;
    }
    if (!this.front.held.hold(byteCount)) {
      this.front.held.hold(-byteCount);
      this.fail(connection, this.front.overfull('', ''));
      return;
    }
    connection.waiting.push(pending);
    connection.waitingBytes += byteCount;
    this.waiting++;
  }

  private unqueue(connection: Connection, pending: Pending): void {
    this.front.held.hold(-pending.byteCount);
    connection.waitingBytes -= pending.byteCount;
    this.waiting--;
  }

  private begin(connection: Connection, pending: Pending): void {
    connection.current = pending;
    this.accepted++;
    void this.serve(connection, pending);
  }

  /** Begins the next request of a connection, or gives the last answer of a failed one. */
  private next(connection: Connection): void {
    const pending = connection.waiting.shift();
    if (pending !== undefined) {
      this.unqueue(connection, pending);
      this.begin(connection, pending);
      return;
    }
    if (connection.failed !== undefined) this.lastAnswer(connection, connection.failed, '');
  }

  private async serve(connection: Connection, pending: Pending): Promise<void> {
    const { incoming, outgoing } = pending;
    const byHead = this.decide(pending);
    const declared = Number(incoming.headers['content-length'] ?? Number.NaN);
    if (declared > this.options.bodyBytesMax)
      return this.refuseUpload(
        connection,
        pending,
        this.front.tooLarge(pending.method, pending.incoming.url ?? ''),
      );
    const decision = await this.decideAdmission(connection, pending, byHead);
    if (connection.current !== pending) return;
    if (pending.expectsContinue) {
      if (decision.kind === 'answer') return this.refuseUpload(connection, pending, decision.response);
      outgoing.writeContinue();
    }
    const hasBody = declared > 0 || incoming.headers['transfer-encoding'] !== undefined;
    const body = hasBody ? await this.readBody(connection, pending, decision.kind === 'answer') : EMPTY;
    if (body === undefined || connection.current !== pending) this.release(pending);
    else if (decision.kind === 'answer') this.answer(connection, pending, decision.response);
    else await this.handle(connection, pending, decision, body);
  }

  /** Decides about the request by its head; sets `request` of the connection when a handler gets
   *  it. */
  private decideAdmission(
    connection: Connection,
    pending: Pending,
    decision: Decision,
  ): Decision | Promise<Decision> {
    const { incoming, method } = pending;
    if (decision.kind === 'answer') return decision;
    const { target, params, route } = decision;
    const { rawHeaders } = incoming;
    const remoteAddress = (): string => connection.socket.remoteAddress ?? '';
    const request = new WholeRequest(
      { method, target, rawHeaders, remoteAddress, peer: connection.peer },
      params,
    );
    connection.request = request;
    const toDecision = (response: HttpAdmission): Decision =>
      response === undefined ? decision : { kind: 'answer', response, route };
    const admission = this.front.admit(route, request);
    if (!(admission instanceof Promise)) return toDecision(admission);
    request.keepAddress();
    return admission.then(toDecision);
  }

  private async handle(
    connection: Connection,
    pending: Pending,
    { route, target }: Decision & { kind: 'handle' },
    body: Uint8Array,
  ): Promise<void> {
    const { method } = pending;
    const request = connection.request as WholeRequest;
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
    connection.request = undefined;
    if (connection.current === pending) this.answer(connection, pending, response);
  }

  private decide(pending: Pending): Decision {
    const { incoming, method } = pending;
    const hostsMin = incoming.httpVersion === '1.1' ? 1 : 0;
    const decision = this.front.decide(method, incoming.url ?? '', incoming.rawHeaders, hostsMin);
    if (decision.kind === 'handle') pending.route = decision.route.path;
    return decision;
  }

  /** Reads the whole body; undefined when the connection failed or closed.
   *  @param discards true: bytes are counted, not kept */
  private readBody(
    connection: Connection,
    pending: Pending,
    discards: boolean,
  ): Promise<Uint8Array | undefined> {
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
        this.refuseUpload(connection, pending, response);
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

  /** Answers immediately without reading the rest of the body, and closes the connection. */
  private refuseUpload(connection: Connection, pending: Pending, response: HttpResponse): void {
    connection.failed = response;
    this.forget(connection, () => true);
    this.lastAnswer(connection, response, pending.method);
    this.report(pending, response.status);
  }

  private answer(connection: Connection, pending: Pending, response: HttpResponse): void {
    const { outgoing, method } = pending;
    outgoing.on('error', () => connection.socket.destroy());
    outgoing.on('finish', () => {
      if (connection.current !== pending) return;
      connection.current = undefined;
      this.accepted--;
      // Stops the write timeout; the next answer starts it again.
      if (connection.waiting.length > 0) connection.socket.setTimeout(0);
      this.next(connection);
    });
    // Bounds the time for which a client may leave its answer unread; node:http then destroys the
    // socket.
    connection.socket.setTimeout(this.options.requestTimeoutMs);
    let status = 500;
    try {
      if (response.stream === undefined || method === 'HEAD') this.write(connection, pending, response);
      else this.beginStream(connection, pending, response, response.stream);
      status = response.status;
    } catch (thrown) {
      this.options.log.error({ method, error: String(thrown) }, 'http answer could not be written');
      if (outgoing.headersSent) connection.socket.destroy();
      else this.write(connection, pending, this.front.refusal(500, method, ''));
    }
    this.report(pending, status);
  }

  private write(connection: Connection, pending: Pending, response: HttpResponse): void {
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
    // A short text is sent in one chunk with its head, which node:http then encodes as UTF-8 too.
    const joined = typeof body === 'string' && ascii && body.length <= JOINED_LENGTH;
    const sent = joined ? body : bytesOf(response);
    if (!bodiless) headers['content-length'] = Buffer.byteLength(sent);
    if (this.front.draining && connection.waiting.length === 0) headers['connection'] = 'close';
    outgoing.writeHead(status, headers);
    outgoing.end(bodiless || method === 'HEAD' ? undefined : sent);
  }

  private beginStream(
    { socket }: Connection,
    { outgoing }: Pending,
    { status, headers }: HttpResponse,
    source: HttpStreamSource,
  ): void {
    const { front, options } = this;
    let isOver = false;
    outgoing.writeHead(status, { ...headers, connection: 'close' });
    outgoing.flushHeaders();
    // Silence of the source is no silence of the client.
    socket.setTimeout(0);
    const end = (): void => {
      close();
      outgoing.end();
    };
    const close = (): void => {
      if (isOver) return;
      isOver = true;
      front.streams.delete(end);
      front.runSource(
        () => source.closed(),
        () => {},
      );
    };
    const write = (text: string): boolean => {
      if (isOver) return false;
      const isTaken = outgoing.write(text);
      if (!isTaken) socket.setTimeout(options.requestTimeoutMs);
      return isTaken;
    };
    outgoing.on('close', close);
    outgoing.on('drain', () => {
      if (isOver) return;
      socket.setTimeout(0);
      front.runSource(() => source.writable(), end);
    });
    front.streams.add(end);
    front.runSource(() => source.start({ write, end }), end);
    if (front.draining) end();
  }

  private report(pending: Pending, status: number): void {
    this.front.report(pending.method, pending.route, status, pending.startMs);
  }

  /** Fails the connection: it closes after the answers to accepted requests and this last answer.
   */
  private fail(connection: Connection, response: HttpResponse): void {
    if (connection.failed !== undefined || connection.socket.destroyed) return;
    connection.failed = response;
    if (connection.current === undefined) this.lastAnswer(connection, response, '');
    // node:http resumes the socket after each parsed request, so pause after the last request of
    // this chunk.
    else setImmediate(() => connection.socket.pause());
  }

  private broken(error: ParserError, socket: Socket): void {
    if (this.options.tls !== undefined && !this.bySocket.has(socket)) {
      socket.destroy();
      return;
    }
    const connection = this.connectionOf(socket);
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE' || socket.destroyed || !socket.writable) {
      socket.destroy();
      return;
    }
    // A request with a broken body never reaches its handler: it is part of the failure.
    this.forget(connection, (pending) => !pending.incoming.complete);
    const status =
      error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400;
    this.fail(connection, this.unknownMethod(error) ?? this.front.refusal(status, '', ''));
  }

  /** Answer to a request with a method that Node's parser does not know; undefined for any other
   *  error. */
  private unknownMethod({ code, rawPacket }: ParserError): HttpResponse | undefined {
    if (code !== 'HPE_INVALID_METHOD' || rawPacket === undefined) return undefined;
    const end = rawPacket.indexOf('\r\n\r\n');
    const head = end < 0 ? undefined : readWireHead(rawPacket.toString('latin1', 0, end + 2));
    if (head === undefined) return undefined;
    const decision = this.front.decide(head.method, head.url, head.rawHeaders, head.hostsMin);
    return decision.kind === 'answer' ? decision.response : undefined;
  }

  /** Sends the last answer on the socket itself: node:http cannot close gracefully over an unread
   *  body. */
  private lastAnswer(connection: Connection, response: HttpResponse, method: string): void {
    const { socket } = connection;
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
    this.front.beginDrain();
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => this.server.closeAllConnections(), timeoutMs);
      this.server.close(() => {
        clearTimeout(timer);
        resolve();
      });
      this.server.closeIdleConnections();
      for (const socket of this.pendingTls.values()) socket.destroy();
      // Connections without an accepted request; node:http would wait for the rest of an incomplete
      // head.
      for (const connection of this.bySocket.values()) {
        if (
          connection.current === undefined &&
          connection.waiting.length === 0 &&
          connection.failed === undefined
        )
          connection.socket.destroySoon();
      }
    });
  }
}

/** Starts a server. @throws busy_port, bad_value */
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
  // Header lines are bounded by headerBytesMax; Node's own bound would drop lines silently.
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
