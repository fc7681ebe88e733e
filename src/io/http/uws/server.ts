/** HTTP driver over uWebSockets.js.
 *
 *  Its C++ aborts the process when a callback throws or returns with neither an answer nor an abort
 *  handler, and reuses borrowed memory as soon as a callback returns. So: (1) a request is copied
 *  before other code runs; (2) no callback throws; (3) each `Exchange` is answered once, or
 *  aborted, and is not used afterwards.
 */
import { lookup } from 'node:dns/promises';
import { STATUS_CODES } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { coreError } from '../../../core/errors.ts';
import { BYTES, busyPort, type Decision, Front, TEXT } from '../front.ts';
import type {
  HttpAdmission,
  HttpDriver,
  HttpResponse,
  HttpServer,
  HttpServerOptions,
  HttpStreamSource,
  HttpTls,
} from '../port.ts';
import { EMPTY, WholeRequest } from '../request.ts';
import { addressText, checkedHeader, readHead, type UwsHead } from './head.ts';
import { loadUws, type Uws, type UwsApp, type UwsRequest, type UwsResponse } from './load.ts';

/** Time, and bytes, for which a refused upload is read before its answer: closing over unread bytes
 *  would destroy the answer of a client that is still sending. */
const LINGER_MS = 500;
const LINGER_BYTES_MAX = 1024 * 1024;
/** Largest answer that may remain in the memory of a closing connection. */
const SMALL_BYTES = 64 * 1024;
const SWEEP_MS_MAX = 250;

class Exchange {
  readonly response: UwsResponse;
  readonly head: UwsHead;
  readonly startMs = performance.now();
  /** Pattern of the route, for metrics; empty when no route matched. */
  route = '';
  request: WholeRequest | undefined;
  chunks: Uint8Array[] = [];
  bodyBytes = 0;
  /** True when the whole body has arrived. */
  whole = false;
  /** Bytes of the body that the server counts as held. */
  heldBytes = 0;
  /** Client address whose connections count this exchange. */
  address: string | undefined;
  /** Decision about the request; undefined until `admit` has decided. */
  decision: Decision | undefined;
  /** Answer to a refused upload, while its bytes are read and dropped. */
  refusal: HttpResponse | undefined;
  /** Unsent rest of an answer. */
  rest: Uint8Array | undefined;
  /** Ends the stream of the answer. */
  endStream: ((isAborted: boolean) => void) | undefined;
  /** Deadline of the wait for the client. */
  deadlineMs = 0;
  /** True while the handler runs with the body. */
  handling = false;
  /** True inside a callback of this response, where writes are combined. */
  corked = false;
  /** `answered`: the answer is decided. `done`: it was sent, or the client disconnected. */
  answered = false;
  done = false;

  constructor(response: UwsResponse, head: UwsHead) {
    this.response = response;
    this.head = head;
  }
}

/** Validated answer. */
interface Prepared {
  readonly line: string;
  readonly headers: ReadonlyArray<readonly [string, string | Uint8Array]>;
  readonly body: string | Uint8Array;
}

/** Validates an answer. @throws internal for an answer that HTTP cannot express */
function prepare(response: HttpResponse): Prepared {
  const { status, body = EMPTY } = response;
  if (!Number.isInteger(status) || status < 200 || status > 999)
    throw coreError('internal', `the handler answered with the invalid status ${status}`);
  const headers: Array<readonly [string, string | Uint8Array]> = [];
  let typed = body.length === 0 || status === 204 || status === 304;
  for (const name in response.headers) {
    const lower = name.toLowerCase();
    if (lower === 'content-length' || lower === 'date') continue;
    if (lower === 'content-type') typed = true;
    headers.push([name, checkedHeader(name, response.headers[name] as string)]);
  }
  if (!typed) headers.push(['content-type', typeof body === 'string' ? TEXT : BYTES]);
  return { line: `${status} ${STATUS_CODES[status] ?? ''}`, headers, body };
}

class UwsServer implements HttpServer {
  readonly host: string;
  port = 0;
  private readonly uws: Uws;
  private readonly app: UwsApp;
  private readonly options: HttpServerOptions;
  private readonly front: Front;
  private token: object | undefined;
  private accepted = 0;
  /** Exchanges that wait for their client. */
  private readonly waiting = new Set<Exchange>();
  private sweeper: NodeJS.Timeout | undefined;
  private onIdle = (): void => {};
  private drained: Promise<void> | undefined;

  constructor(uws: Uws, host: string, options: HttpServerOptions) {
    this.uws = uws;
    this.host = host;
    this.options = options;
    this.front = new Front(options, host);
    this.app = uws.App().any('/*', (response, request) => this.accept(response, request));
  }

  /** Listens; false when the address could not be bound. */
  listen(): Promise<boolean> {
    return new Promise((resolve) => {
      this.app.listen(this.host, this.options.port, (token) => {
        if (token !== false) {
          this.token = token;
          this.port = this.uws.us_socket_local_port(token);
        }
        resolve(token !== false);
      });
    });
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

  reloadTls(_tls: HttpTls): void {
    throw coreError('bad_value', 'the uWebSockets.js backend serves no TLS');
  }

  private accept(response: UwsResponse, request: UwsRequest): void {
    let head: UwsHead;
    try {
      head = readHead(request, this.options.headerBytesMax);
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'http head could not be read');
      response.close();
      return;
    }
    const exchange = new Exchange(response, head);
    this.accepted++;
    this.runGuarded(exchange, () => this.begin(exchange));
    if (!exchange.done) response.onAborted(() => this.finish(exchange, true));
  }

  /** Runs a step of an exchange inside one of its callbacks; an error costs the connection, not the
   *  process. */
  private runGuarded(exchange: Exchange, part: () => void): void {
    exchange.corked = true;
    try {
      part();
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'http exchange failed');
      if (!exchange.done) {
        this.finish(exchange, true);
        exchange.response.close();
      }
    }
    exchange.corked = false;
  }

  private begin(exchange: Exchange): void {
    const { method, url, rawHeaders, refused, body } = exchange.head;
    if (refused !== undefined) {
      this.answer(exchange, this.front.refusal(refused, '', ''), true);
      return;
    }
    const decision = this.front.decide(method, url, rawHeaders, 1);
    if (decision.kind === 'handle') exchange.route = decision.route.path;
    if (body !== undefined) this.expectBody(exchange, body.bytes ?? 0);
    const admitted = this.decideAdmission(exchange, decision);
    if (!(admitted instanceof Promise)) {
      this.proceed(exchange, admitted);
      return;
    }
    exchange.request?.keepAddress();
    if (body !== undefined) exchange.response.pause();
    void admitted.then((later) => {
      if (exchange.done) return;
      if (body !== undefined) exchange.response.resume();
      if (!exchange.answered)
        exchange.response.cork(() => this.runGuarded(exchange, () => this.proceed(exchange, later)));
    });
  }

  /** Receives the body while the decision about its request is made. */
  private expectBody(exchange: Exchange, bytes: number): void {
    const { head, response } = exchange;
    this.setDeadline(exchange, this.options.requestTimeoutMs);
    const address = addressText(response.getRemoteAddress());
    const refusal = this.front.connect(address);
    if (refusal === undefined) exchange.address = address;
    else this.refuseUpload(exchange, refusal);
    if (bytes > this.options.bodyBytesMax)
      this.refuseUpload(exchange, this.front.tooLarge(head.method, head.url));
    response.onData((chunk, isLast) => {
      if (!exchange.done && !exchange.answered)
        this.runGuarded(exchange, () => this.receive(exchange, chunk, isLast));
    });
  }

  /** Decides about the request by its head. */
  private decideAdmission(exchange: Exchange, decision: Decision): Decision | Promise<Decision> {
    if (decision.kind === 'answer') return decision;
    const { response, head } = exchange;
    const { target, params, route } = decision;
    const { method, rawHeaders } = head;
    const remoteAddress = (): string => (exchange.done ? '' : addressText(response.getRemoteAddress()));
    const request = new WholeRequest({ method, target, rawHeaders, remoteAddress, peer: undefined }, params);
    exchange.request = request;
    if (exchange.refusal !== undefined || route.admit === undefined) return decision;
    const admitted = (answer: HttpAdmission): Decision =>
      answer === undefined ? decision : { kind: 'answer', response: answer, route };
    const admission = this.front.admit(route, request);
    return admission instanceof Promise ? admission.then(admitted) : admitted(admission);
  }

  /** Continues after the decision: acts on a complete body, and discards the body of a request that
   *  no handler gets. */
  private proceed(exchange: Exchange, decision: Decision): void {
    exchange.decision = decision;
    if (decision.kind === 'answer') this.releaseBody(exchange);
    if (exchange.head.body === undefined || exchange.whole) this.act(exchange, decision);
  }

  /** Releases the body and its bytes in memory. */
  private releaseBody(exchange: Exchange): void {
    exchange.chunks = [];
    this.front.held.hold(-exchange.heldBytes);
    exchange.heldBytes = 0;
  }

  private refuseUpload(exchange: Exchange, response: HttpResponse): void {
    exchange.refusal = response;
    this.releaseBody(exchange);
    this.setDeadline(exchange, LINGER_MS);
  }

  private receive(exchange: Exchange, chunk: ArrayBuffer, isLast: boolean): void {
    const { head, decision } = exchange;
    exchange.bodyBytes += chunk.byteLength;
    if (exchange.refusal === undefined && exchange.bodyBytes > this.options.bodyBytesMax)
      this.refuseUpload(exchange, this.front.tooLarge(head.method, head.url));
    else if (exchange.refusal === undefined && decision?.kind !== 'answer') this.keep(exchange, chunk);
    if (exchange.refusal !== undefined) {
      const enough = exchange.bodyBytes > this.options.bodyBytesMax + LINGER_BYTES_MAX;
      if (isLast || enough) this.answer(exchange, exchange.refusal, true);
      return;
    }
    if (!isLast) return;
    this.waiting.delete(exchange);
    exchange.whole = true;
    if (decision !== undefined) this.act(exchange, decision);
  }

  private keep(exchange: Exchange, chunk: ArrayBuffer): void {
    if (chunk.byteLength === 0) return;
    exchange.chunks.push(new Uint8Array(chunk.slice(0)));
    exchange.heldBytes += chunk.byteLength;
    if (!this.front.held.hold(chunk.byteLength))
      this.refuseUpload(exchange, this.front.overfull(exchange.head.method, exchange.head.url));
  }

  private act(exchange: Exchange, decision: Decision): void {
    if (decision.kind === 'answer') {
      this.answer(exchange, decision.response, exchange.head.last);
      return;
    }
    const { target, route } = decision;
    const { method } = exchange.head;
    const request = exchange.request as WholeRequest;
    const { chunks } = exchange;
    if (chunks.length > 0)
      request.body = chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks);
    exchange.chunks = [];
    exchange.handling = true;
    const settle = (response: HttpResponse): void => {
      this.releaseBody(exchange);
      exchange.handling = false;
      this.answer(exchange, response, exchange.head.last);
    };
    const fail = (thrown: unknown): void => settle(this.front.failed(method, target.path, thrown));
    let response: HttpResponse | Promise<HttpResponse>;
    try {
      response = route.handler(request);
    } catch (thrown) {
      fail(thrown);
      return;
    }
    if (response instanceof Promise) {
      request.keepAddress();
      response.then(settle, fail);
    } else settle(response);
  }

  /** Answers the exchange. @param last the connection ends after this answer */
  private answer(exchange: Exchange, response: HttpResponse, last: boolean): void {
    if (exchange.done || exchange.answered) return;
    exchange.answered = true;
    this.waiting.delete(exchange);
    const { method } = exchange.head;
    let status = 500;
    let prepared: Prepared;
    try {
      prepared = prepare(response);
      status = response.status;
    } catch (thrown) {
      this.options.log.error({ method, error: String(thrown) }, 'http answer could not be written');
      prepared = { line: '500 Internal Server Error', headers: [], body: EMPTY };
      try {
        prepared = prepare(this.front.refusal(500, method, ''));
      } catch {
        // A fallback whose answer is invalid leaves the bare status.
      }
    }
    this.front.report(method, exchange.route, status, exchange.startMs);
    // A handler may return nothing, whatever its type says.
    const stream = (response as HttpResponse | undefined)?.stream;
    if (stream !== undefined && status === response.status && method !== 'HEAD') {
      this.beginStream(exchange, prepared, stream);
      return;
    }
    const close = last || (this.front.draining && prepared.body.length <= SMALL_BYTES);
    // While it reads this connection, the backend would deliver pipelined requests before the
    // close. So close in a later turn; a request that arrives while an answer is due closes the
    // connection.
    if (close) setImmediate(() => this.send(exchange, prepared, status, true));
    else this.send(exchange, prepared, status, false);
  }

  private beginStream(exchange: Exchange, { line, headers }: Prepared, source: HttpStreamSource): void {
    const { front } = this;
    const { response } = exchange;
    const end = (): void => exchange.endStream?.(false);
    exchange.endStream = (isAborted) => {
      exchange.endStream = undefined;
      front.streams.delete(end);
      front.runSource(
        () => source.closed(),
        () => {},
      );
      if (isAborted) return;
      this.finish(exchange, false);
      response.cork(() => response.end('', true));
    };
    const write = (text: string): boolean => {
      if (exchange.done || exchange.endStream === undefined) return false;
      let isTaken = false;
      response.cork(() => {
        isTaken = response.write(text);
      });
      if (!isTaken) this.setDeadline(exchange, this.options.requestTimeoutMs);
      return isTaken;
    };
    front.streams.add(end);
    response.cork(() => {
      response.writeStatus(line);
      for (const [name, value] of headers) response.writeHeader(name, value);
      response.writeHeader('connection', 'close');
    });
    response.onWritable(() => {
      this.waiting.delete(exchange);
      if (exchange.endStream !== undefined) front.runSource(() => source.writable(), end);
      return true;
    });
    // Within a callback of the response, its end would be used after it.
    setImmediate(() => {
      if (exchange.endStream === undefined) return;
      front.runSource(() => source.start({ write, end }), end);
      if (front.draining) end();
    });
  }

  /** Sends an answer; never throws. */
  private send(exchange: Exchange, prepared: Prepared, status: number, close: boolean): void {
    if (exchange.done) return;
    const write = (): void => this.write(exchange, prepared, status, close);
    try {
      if (exchange.corked) write();
      else exchange.response.cork(write);
    } catch (thrown) {
      this.options.log.error({ error: String(thrown) }, 'http answer could not be written');
      if (exchange.done) return;
      this.finish(exchange, true);
      exchange.response.close();
    }
  }

  private write(exchange: Exchange, prepared: Prepared, status: number, close: boolean): void {
    const { response, head } = exchange;
    const { body } = prepared;
    const bodiless = status === 204 || status === 304;
    response.writeStatus(prepared.line);
    for (const [name, value] of prepared.headers) response.writeHeader(name, value);
    // The backend sends no `connection: close` for a connection that it closes by itself.
    if (head.closes || (this.front.draining && !close)) response.writeHeader('connection', 'close');
    if ((bodiless || head.method === 'HEAD') && (!close || head.closes)) {
      if (!bodiless) response.writeHeader('content-length', String(Buffer.byteLength(body)));
      response.endWithoutBody();
    } else if (close) {
      response.end(bodiless || head.method === 'HEAD' ? EMPTY : body, true);
    } else {
      const [, complete] = response.tryEnd(body);
      if (!complete) {
        this.sendRest(exchange, typeof body === 'string' ? Buffer.from(body, 'utf8') : body);
        return;
      }
    }
    this.finish(exchange, false);
  }

  /** Sends the rest as the client reads, or closes the connection at its deadline. */
  private sendRest(exchange: Exchange, whole: Uint8Array): void {
    const { response } = exchange;
    exchange.rest = whole;
    this.setDeadline(exchange, this.options.requestTimeoutMs);
    response.onWritable((offset) => {
      this.setDeadline(exchange, this.options.requestTimeoutMs);
      const [taken, complete] = response.tryEnd(whole.subarray(offset), whole.length);
      if (complete) this.finish(exchange, false);
      return taken;
    });
  }

  private finish(exchange: Exchange, aborted: boolean): void {
    if (exchange.done) return;
    exchange.done = true;
    exchange.endStream?.(true);
    this.waiting.delete(exchange);
    this.accepted--;
    if (aborted) exchange.request?.abort();
    exchange.request = undefined;
    if (!exchange.handling) this.releaseBody(exchange);
    if (exchange.address !== undefined) this.front.connections.close(exchange.address);
    exchange.rest = undefined;
    if (this.accepted === 0) this.onIdle();
  }

  private setDeadline(exchange: Exchange, forMs: number): void {
    exchange.deadlineMs = performance.now() + forMs;
    this.waiting.add(exchange);
    if (this.sweeper !== undefined) return;
    const everyMs = Math.min(SWEEP_MS_MAX, Math.max(20, this.options.requestTimeoutMs / 4));
    this.sweeper = setInterval(() => this.sweep(), everyMs);
  }

  private sweep(): void {
    const nowMs = performance.now();
    for (const exchange of this.waiting) {
      if (nowMs < exchange.deadlineMs) continue;
      if (exchange.rest !== undefined || exchange.endStream !== undefined) exchange.response.close();
      else {
        const { method, url } = exchange.head;
        this.answer(exchange, exchange.refusal ?? this.front.refusal(408, method, url), true);
      }
    }
    if (this.waiting.size > 0) return;
    clearInterval(this.sweeper);
    this.sweeper = undefined;
  }

  drain(timeoutMs: number): Promise<void> {
    this.drained ??= this.end(timeoutMs);
    return this.drained;
  }

  private async end(timeoutMs: number): Promise<void> {
    this.front.beginDrain();
    if (this.token !== undefined) this.uws.us_listen_socket_close(this.token);
    this.token = undefined;
    if (this.accepted > 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        this.onIdle = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    // In a later turn: `close` must not run inside a callback of a connection that it closes.
    await new Promise((resolve) => setImmediate(resolve));
    this.app.close();
    clearInterval(this.sweeper);
  }
}

/** Most free ports that are tried. */
const FREE_PORTS_MAX = 8;

/** Finds a port that is free now. The backend shares a given port with other processes of its kind,
 *  so an existing listener must be detected beforehand. A port that the system chose for the
 *  backend cannot be bound after a restart until its old connections have expired, so this function
 *  chooses it. */
function freePort(host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(port, host, () => {
      const taken = (probe.address() as AddressInfo).port;
      probe.close(() => resolve(taken));
    });
  });
}

/** Starts a server. @throws busy_port, bad_value, addon_missing */
async function listen(options: HttpServerOptions): Promise<HttpServer> {
  if (options.tls !== undefined) {
    throw coreError('bad_value', 'the uWebSockets.js backend serves no TLS', { next: 'run with -http=net' });
  }
  const uws = loadUws();
  let host: string;
  try {
    host = (await lookup(options.host)).address;
  } catch (cause) {
    throw busyPort(options, cause as NodeJS.ErrnoException);
  }
  // With port 0, try another port when a connection has occupied the chosen one meanwhile.
  for (let left = options.port === 0 ? FREE_PORTS_MAX : 1; left > 0; left--) {
    let port: number;
    try {
      port = await freePort(host, options.port);
    } catch (cause) {
      throw busyPort(options, cause as NodeJS.ErrnoException);
    }
    const server = new UwsServer(uws, host, { ...options, port });
    if (await server.listen()) return server;
  }
  throw busyPort(options, new Error('the address was busy for a moment'));
}

export const uwsDriver: HttpDriver = {
  name: 'uWebSockets.js',
  limits: {
    half_close: 'a client that shuts down its sending side counts as gone',
    parallel_pipeline: 'requests of one connection are handled one after the other',
    pipeline_waits:
      'a request pipelined behind one whose handler waits closes the connection, both unanswered',
    malformed_answered: 'a malformed head gets no answer; its connection closes, after 12 s at the latest',
    header_bytes:
      'a header value with bytes above ASCII is refused with 400; at its ends they are dropped unseen',
    rare_forms:
      'HTTP/1.0, targets in absolute form, "OPTIONS *" and methods beyond those of RFC 9110 and PATCH get no answer, their connection closes',
    long_heads:
      'a head that arrives in parts closes the connection beyond 4 KB, one of 49 header lines or more gets no answer',
    exact_chunks:
      'a body in chunks is the last of its connection: chunk extensions are refused, chunk ends are not checked',
    continue_refused: 'Expect: 100-continue is granted before the request is admitted',
    refusal_arrives: 'an upload that continues far beyond the limit is cut off and may miss its answer',
    own_timeouts: 'idle connections, heads, and bodies slower than 16 KB/s close after 10 to 12 s',
    connection_limits:
      'a connection counts while a request with a body is in flight on it; idle ones close after 10 to 12 s',
    drain_ends_idle: 'idle connections end when the drain does',
    tls: 'no TLS',
  },
  listen,
};
