/** Connection of the node:net driver: a state machine that handles requests one after the other, in
 *  their order.
 *
 *      head ──► admitting ──► body ──► handling ──► sending ──► head …
 *
 *  State `streaming` is that of an answer without a known end; the connection ends after it. State
 *  `over` follows the last answer. In both nothing is parsed any more.
 *
 *  Invariants: (1) bytes that arrive while a request is in flight are buffered unparsed, up to a
 *  bound; while `admit` decides about its head, the socket is paused; (2) a request is counted from
 *  its head to the last byte of its answer; (3) every state except `admitting` and `handling` has a
 *  deadline, `streaming` while its client takes no bytes; (4) in state `over` no handler is called;
 *  (5) `held` is the memory of this connection for unanswered requests, and every change of it is
 *  counted with the server.
 */
import type { Socket } from 'node:net';
import type { Decision, Front } from '../front.ts';
import type { HttpAdmission, HttpPeer, HttpResponse, HttpServerOptions, HttpStreamSource } from '../port.ts';
import { EMPTY, WholeRequest } from '../request.ts';
import { type DateLine, type WireAnswer, wireAnswer } from './answer.ts';
import { WireBody } from './body.ts';
import { mayBegin, readWireHead, type WireHead } from './head.ts';

const NO_BYTES = Buffer.alloc(0);
const HEAD_END = Buffer.from('\r\n\r\n');
const CR = 13;
const LF = 10;

/** Time, and bytes, for which a connection is read after its last answer: closing over unread bytes
 *  would destroy the answer of a client that is still sending. */
const LINGER_MS = 500;
const LINGER_BYTES_MAX = 1024 * 1024;
/** Size of the pieces of a long answer; progress between pieces distinguishes a slow reader from a
 *  client that does not read. */
const PIECE_BYTES = 64 * 1024;
const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n';
const CLOSE = 'connection: close\r\n';
const KEEP_ALIVE = 'connection: keep-alive\r\n';

/** Server, as its connections see it. */
export interface ConnectionOwner {
  readonly options: HttpServerOptions;
  readonly front: Front;
  readonly date: DateLine;
  /** Most bytes pipelined behind a request in flight. */
  readonly bufferedBytesMax: number;
  /** Requests accepted and not yet answered. */
  accepted: number;
  onClosed(source: Http1Connection): void;
}

/** State of a connection; `admitted` lasts until the body begins. */
type Phase = 'head' | 'admitting' | 'admitted' | 'body' | 'handling' | 'sending' | 'streaming' | 'over';

export class Http1Connection {
  readonly socket: Socket;
  private readonly owner: ConnectionOwner;
  private readonly peer: HttpPeer | undefined;
  private readonly address = (): string => this.socket.remoteAddress ?? '';
  private phase: Phase = 'head';
  private deadlineMs: number;
  /** Unparsed bytes: the beginning of a head, or requests pipelined behind the one in flight. */
  private rest: Buffer | undefined;
  /** Bytes counted with the server. */
  private held = 0;
  /** Bytes of the body that the handler holds. */
  private handledBytes = 0;
  /** Position at which the search for the end of a head resumes. */
  private searched = 0;
  private running = false;
  private startMs = 0;
  private head: WireHead | undefined;
  private decision: Decision | undefined;
  private body: WireBody | undefined;
  private request: WholeRequest | undefined;
  private source: HttpStreamSource | undefined;
  /** Unsent rest of an answer, and whether the connection ends after it. */
  private unsent: Uint8Array = EMPTY;
  private last = false;
  /** True after more bytes arrived than may be pipelined. */
  private isFlooded = false;
  private discarded = 0;

  constructor(owner: ConnectionOwner, socket: Socket, peer: HttpPeer | undefined) {
    this.owner = owner;
    this.socket = socket;
    this.peer = peer;
    this.deadlineMs = performance.now() + owner.options.keepAliveTimeoutMs;
    socket.on('data', (chunk: Buffer) => this.receive(chunk));
    socket.on('drain', () => (this.phase === 'streaming' ? this.resumeStream() : this.resumeSending()));
    socket.on('end', () => this.onEnd());
    // The event `close` follows and handles the end.
    socket.on('error', () => {});
    socket.on('close', () => this.closed());
  }

  private receive(chunk: Buffer): void {
    if (this.phase === 'over' || this.phase === 'streaming') {
      this.discarded += chunk.length;
      if (this.discarded > LINGER_BYTES_MAX) this.socket.pause();
      return;
    }
    const bytes = this.rest === undefined ? chunk : Buffer.concat([this.rest, chunk]);
    if (this.phase === 'handling' || this.phase === 'sending' || this.phase === 'admitting')
      this.bufferPipelined(bytes);
    else this.run(bytes);
  }

  /** Buffers bytes that arrive while a request is in flight; too many end the connection. */
  private bufferPipelined(bytes: Buffer): void {
    const held = this.setRest(bytes);
    if (held && bytes.length <= this.owner.bufferedBytesMax) return;
    this.isFlooded = true;
    this.socket.pause();
  }

  /** Sets the unparsed bytes; copies them when they would keep a much larger chunk in memory.
   *  False: the server is over its memory limit. */
  private setRest(bytes: Buffer | undefined): boolean {
    const small = bytes !== undefined && bytes.length * 4 < bytes.buffer.byteLength;
    this.rest = small ? Buffer.from(bytes) : bytes;
    return this.count();
  }

  /** Updates the count of bytes in memory. False: the server is over its memory limit. */
  private count(): boolean {
    const held = (this.rest?.length ?? 0) + (this.body?.heldBytes ?? 0) + this.handledBytes;
    const more = held - this.held;
    this.held = held;
    return more === 0 || this.owner.front.held.hold(more);
  }

  /** Parses and starts requests until one is in flight or all bytes are consumed. */
  private run(bytes: Buffer): void {
    this.running = true;
    this.rest = undefined;
    let at = 0;
    while (
      this.phase === 'admitted' ||
      (at < bytes.length && (this.phase === 'head' || this.phase === 'body'))
    ) {
      if (this.phase === 'admitted') {
        at = this.beginBody(bytes, at);
        continue;
      }
      if (this.phase === 'body') {
        at = this.readBody(bytes, at);
        continue;
      }
      const next = this.readHead(bytes, at);
      if (next < 0) break;
      at = next;
    }
    this.running = false;
    const left = at < bytes.length ? bytes.subarray(at) : undefined;
    if (this.phase === 'over' || this.phase === 'streaming') this.setRest(undefined);
    else if (left !== undefined && this.phase !== 'head') this.bufferPipelined(left);
    else if (!this.setRest(left)) this.refuseFlood();
  }

  /** Refuses the request: the server is over its memory limit. */
  private overfull(): void {
    const { method, url } = this.head ?? { method: '', url: '' };
    this.refuse(503, this.owner.front.overfull(method, url));
  }

  /** Parses a head; returns its end, or -1 for an incomplete or refused head. */
  private readHead(bytes: Buffer, from: number): number {
    let at = from;
    // Empty lines before a request are ignored (RFC 9112, 2.2).
    while (bytes[at] === CR && bytes[at + 1] === LF) at += 2;
    if (at === bytes.length) {
      this.startMs = 0;
      return at;
    }
    const max = this.owner.options.headerBytesMax;
    const end = bytes.indexOf(HEAD_END, at + this.searched);
    if (end < 0 || end + HEAD_END.length - at > max) {
      if (this.startMs === 0) this.begin();
      if (end >= 0 || bytes.length - at > max) this.refuse(431);
      else if (!mayBegin(bytes, at)) this.refuse(400);
      // Relative to the first byte of the head.
      this.searched = Math.max(0, bytes.length - at - HEAD_END.length + 1);
      return -1;
    }
    this.searched = 0;
    if (this.startMs === 0) this.begin();
    const head = readWireHead(bytes.toString('latin1', at, end + 2));
    if (head === undefined) this.refuse(400);
    else if (head.expectsMore) this.refuse(417);
    else return this.accept(head, bytes, end + HEAD_END.length);
    return end + HEAD_END.length;
  }

  /** Starts the deadline of a request. */
  private begin(): void {
    this.startMs = performance.now();
    this.deadlineMs = this.startMs + this.owner.options.requestTimeoutMs;
  }

  /** Begins a request; returns the position after the bytes it consumed. */
  private accept(head: WireHead, bytes: Buffer, at: number): number {
    const { front, options } = this.owner;
    this.owner.accepted++;
    this.head = head;
    const decision = front.decide(head.method, head.url, head.rawHeaders, head.hostsMin);
    this.decision = decision;
    const { length } = head;
    if (length > options.bodyBytesMax) {
      this.refuseUpload(front.tooLarge(head.method, head.url));
      return at;
    }
    if (decision.kind === 'answer') return this.beginBody(bytes, at);
    const { method, rawHeaders } = head;
    const { target, params, route } = decision;
    const request = new WholeRequest(
      { method, target, rawHeaders, remoteAddress: this.address, peer: this.peer },
      params,
    );
    this.request = request;
    if (route.admit === undefined) return this.beginBody(bytes, at);
    const admission = front.admit(route, request);
    if (admission instanceof Promise) {
      request.keepAddress();
      this.phase = 'admitting';
      this.socket.pause();
      void admission.then(this.admitted);
      return at;
    }
    this.applyAdmission(admission);
    return this.beginBody(bytes, at);
  }

  private applyAdmission(admission: HttpAdmission): void {
    if (admission === undefined) return;
    const { route } = this.decision as Decision & { kind: 'handle' };
    this.request = undefined;
    this.decision = { kind: 'answer', response: admission, route };
  }

  private readonly admitted = (admission: HttpAdmission): void => {
    if (this.phase !== 'admitting') return;
    this.applyAdmission(admission);
    this.phase = 'admitted';
    this.deadlineMs = performance.now() + this.owner.options.requestTimeoutMs;
    this.run(this.rest ?? NO_BYTES);
    if (this.isFlooded) this.refuseFlood();
    else this.socket.resume();
  };

  /** Begins the body of a request whose admission is decided. */
  private beginBody(bytes: Buffer, at: number): number {
    const head = this.head as WireHead;
    const { length } = head;
    const decision = this.decision as Decision;
    const isRefused = decision.kind === 'answer';
    if (head.expectsContinue) {
      if (isRefused) {
        this.refuseUpload(decision.response);
        return at;
      }
      if (at === bytes.length && length !== 0) this.socket.write(CONTINUE, 'latin1');
    }
    if (length === 0) {
      this.act(EMPTY);
      return at;
    }
    // Fast path: the whole body arrived with its head.
    if (length > 0 && at + length <= bytes.length) {
      this.act(isRefused ? EMPTY : bytes.subarray(at, at + length));
      return at + length;
    }
    const { bodyBytesMax, headerBytesMax } = this.owner.options;
    this.body = new WireBody(length, bodyBytesMax, headerBytesMax, isRefused);
    this.phase = 'body';
    return at;
  }

  private readBody(bytes: Buffer, from: number): number {
    const body = this.body as WireBody;
    const at = body.consume(bytes, from);
    switch (body.state) {
      case 'more':
        break;
      case 'done':
        this.body = undefined;
        this.act(body.bytes, body.heldBytes);
        break;
      case 'too_large': {
        const { method, url } = this.head as WireHead;
        this.refuseUpload(this.owner.front.tooLarge(method, url));
        break;
      }
      case 'malformed':
        this.refuse(400);
        break;
      case 'overhead_too_large':
        this.refuse(431);
        break;
    }
    return at;
  }

  /** Answers the request, or calls its handler. @param heldBytes memory of the body */
  private act(body: Uint8Array, heldBytes = body.length): void {
    const decision = this.decision as Decision;
    if (decision.kind === 'answer') {
      this.answer(decision.response, decision.route?.path ?? '');
      return;
    }
    if (heldBytes > 0) {
      this.handledBytes = heldBytes;
      if (!this.count()) {
        this.handledBytes = 0;
        this.phase = 'body';
        this.overfull();
        return;
      }
    }
    const request = this.request as WholeRequest;
    request.body = body;
    this.phase = 'handling';
    let given: HttpResponse | Promise<HttpResponse>;
    try {
      given = decision.route.handler(request);
    } catch (thrown) {
      this.failed(thrown);
      return;
    }
    if (given instanceof Promise) {
      request.keepAddress();
      given.then(this.settled, this.failed);
    } else this.settled(given);
  }

  /** Callback of the handler. One request is in flight at a time, so it needs no identity. */
  private readonly settled = (response: HttpResponse): void => {
    if (this.handledBytes > 0) {
      this.handledBytes = 0;
      this.count();
    }
    if (this.phase !== 'handling') return;
    this.request = undefined;
    this.answer(response, (this.decision as Decision & { kind: 'handle' }).route.path);
    this.resumeReading();
  };

  private readonly failed = (thrown: unknown): void => {
    if (this.phase !== 'handling') return;
    const { method, url } = this.head as WireHead;
    this.settled(this.owner.front.failed(method, url.split('?', 1)[0] as string, thrown));
  };

  private answer(response: HttpResponse, route: string): void {
    const { front, date } = this.owner;
    const head = this.head as WireHead;
    const { method } = head;
    const startMs = this.startMs;
    const nowMs = performance.now();
    // A handler may return nothing, whatever its type says.
    const stream = (response as HttpResponse | undefined)?.stream;
    this.last = head.last || front.draining || stream !== undefined;
    const connection = this.last ? CLOSE : head.needsKeepAliveHeader ? KEEP_ALIVE : '';
    let status = 500;
    let answer: WireAnswer;
    try {
      answer = wireAnswer(response, method, connection, date.at(nowMs));
      status = response.status;
    } catch (thrown) {
      this.owner.options.log.error({ method, error: String(thrown) }, 'http answer could not be written');
      answer = this.bare(500, method, connection, nowMs);
    }
    this.head = undefined;
    this.decision = undefined;
    this.startMs = 0;
    if (stream === undefined || status !== response.status || method === 'HEAD') this.send(answer, nowMs);
    else this.beginStream(answer, stream);
    front.report(method, route, status, startMs, nowMs);
  }

  private beginStream({ first }: WireAnswer, source: HttpStreamSource): void {
    const { front } = this.owner;
    this.phase = 'streaming';
    this.deadlineMs = Number.POSITIVE_INFINITY;
    this.source = source;
    this.setRest(undefined);
    front.streams.add(this.endStream);
    if (typeof first === 'string') this.socket.write(first, 'latin1');
    else this.socket.write(first);
    const write = (text: string): boolean => {
      if (this.source !== source) return false;
      const isTaken = this.socket.write(text);
      if (!isTaken) this.deadlineMs = performance.now() + this.owner.options.requestTimeoutMs;
      return isTaken;
    };
    const end = (): void => {
      if (this.source === source) this.endStream();
    };
    front.runSource(() => source.start({ write, end }), this.endStream);
    if (front.draining) this.endStream();
  }

  private resumeStream(): void {
    const { source } = this;
    if (source === undefined) return;
    this.deadlineMs = Number.POSITIVE_INFINITY;
    this.owner.front.runSource(() => source.writable(), this.endStream);
  }

  private readonly endStream = (): void => {
    if (this.phase !== 'streaming') return;
    this.closeSource();
    this.owner.accepted--;
    this.finish(performance.now());
  };

  private closeSource(): void {
    const { source } = this;
    if (source === undefined) return;
    const { front } = this.owner;
    this.source = undefined;
    front.streams.delete(this.endStream);
    front.runSource(
      () => source.closed(),
      () => {},
    );
  }

  /** Answer of the fallbacks; only the status when the fallback's answer is invalid. */
  private bare(status: number, method: string, connection: string, nowMs: number): WireAnswer {
    const { front, date } = this.owner;
    try {
      return wireAnswer(front.refusal(status, method, ''), method, connection, date.at(nowMs));
    } catch {
      return wireAnswer({ status }, method, connection, date.at(nowMs));
    }
  }

  private send(answer: WireAnswer, nowMs: number): void {
    const { first, rest } = answer;
    const all = typeof first === 'string' ? this.socket.write(first, 'latin1') : this.socket.write(first);
    if (all && rest.length === 0) {
      this.sent(nowMs);
      return;
    }
    this.unsent = rest;
    this.phase = 'sending';
    this.deadlineMs = nowMs + this.owner.options.requestTimeoutMs;
    if (all) this.resumeSending();
  }

  /** Continues an answer after the socket has drained. */
  private resumeSending(): void {
    if (this.phase !== 'sending') return;
    const nowMs = performance.now();
    while (this.unsent.length > 0) {
      const piece = this.unsent.subarray(0, PIECE_BYTES);
      this.unsent = this.unsent.subarray(PIECE_BYTES);
      if (this.socket.write(piece)) continue;
      this.deadlineMs = nowMs + this.owner.options.requestTimeoutMs;
      return;
    }
    this.sent(nowMs);
    this.resumeReading();
  }

  private sent(nowMs: number): void {
    this.owner.accepted--;
    if (this.last) {
      this.finish(nowMs);
      return;
    }
    this.phase = 'head';
    this.deadlineMs = nowMs + this.owner.options.keepAliveTimeoutMs;
  }

  /** Parses the bytes that were buffered behind the answered request. */
  private resumeReading(): void {
    if (this.running || this.phase !== 'head') return;
    const { rest } = this;
    if (rest !== undefined) {
      this.rest = undefined;
      this.run(rest);
    }
    if (this.isFlooded) this.refuseFlood();
  }

  private refuseFlood(): void {
    if (this.phase === 'head' || this.phase === 'body') this.overfull();
  }

  /** Answers immediately without reading the rest of the body, and closes the connection. */
  private refuseUpload(response: HttpResponse): void {
    const { method } = this.head as WireHead;
    const { startMs } = this;
    const route = this.decision?.route?.path ?? '';
    this.owner.accepted--;
    this.lastAnswer(response, method);
    this.owner.front.report(method, route, response.status, startMs);
  }

  /** Answers with this status and closes the connection. */
  private refuse(status: number, given?: HttpResponse): void {
    if (this.phase === 'body') this.owner.accepted--;
    const { method, url } = this.head ?? { method: '', url: '' };
    const path = url.split('?', 1)[0] as string;
    const { front } = this.owner;
    const { startMs } = this;
    const response = given ?? front.refusal(status, method, path);
    this.lastAnswer(response, method);
    const nowMs = performance.now();
    front.report(method, '', response.status, startMs === 0 ? nowMs : startMs, nowMs);
  }

  private lastAnswer(response: HttpResponse, method: string): void {
    const nowMs = performance.now();
    let answer: WireAnswer;
    try {
      answer = wireAnswer(response, method, CLOSE, this.owner.date.at(nowMs));
    } catch {
      answer = this.bare(response.status, method, CLOSE, nowMs);
    }
    const { first, rest } = answer;
    if (typeof first === 'string') this.socket.write(first, 'latin1');
    else this.socket.write(first);
    if (rest.length > 0) this.socket.write(rest);
    this.finish(nowMs);
  }

  private finish(nowMs: number): void {
    this.phase = 'over';
    this.deadlineMs = nowMs + this.owner.options.requestTimeoutMs;
    this.body = undefined;
    this.head = undefined;
    this.socket.end(() => {
      this.deadlineMs = performance.now() + LINGER_MS;
    });
    // Pipelined bytes are read and dropped within the linger bounds, so that the answer arrives.
    if (this.isFlooded) this.socket.resume();
    if (!this.running) this.setRest(undefined);
  }

  /** Handles the client's end of stream: a request in flight is aborted; an answer that is being
   *  sent is completed. */
  private onEnd(): void {
    if (this.phase === 'sending') {
      this.last = true;
      this.setRest(undefined);
      return;
    }
    this.abandon();
    this.socket.end();
  }

  private closed(): void {
    this.abandon();
    this.setRest(undefined);
    this.owner.onClosed(this);
  }

  /** Aborts the request in flight: its client disconnected. */
  private abandon(): void {
    if (this.phase !== 'head' && this.phase !== 'over') this.owner.accepted--;
    const { request } = this;
    this.phase = 'over';
    this.deadlineMs = performance.now() + this.owner.options.requestTimeoutMs;
    this.body = undefined;
    this.request = undefined;
    this.unsent = EMPTY;
    this.closeSource();
    request?.abort();
  }

  /** Closes or answers the connection after its deadline. */
  sweep(nowMs: number): void {
    if (nowMs < this.deadlineMs) return;
    if (this.phase === 'head' && this.startMs === 0) this.close();
    else if (this.phase === 'head' || this.phase === 'body') this.refuse(408);
    else if (this.phase !== 'handling' && this.phase !== 'admitting') this.socket.destroy();
  }

  /** Closes the connection at the begin of a drain when no request is in flight. */
  drain(): void {
    if (this.phase === 'head') this.close();
  }

  private close(): void {
    this.phase = 'over';
    this.deadlineMs = performance.now() + LINGER_MS;
    this.socket.destroySoon();
  }
}
