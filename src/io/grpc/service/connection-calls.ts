/** Calls of one connection: their begin, their messages and their answers. */

import type { ClosedStreams } from '../http2/abuse-limiter.ts';
import {
  CANCEL,
  ENHANCE_YOUR_CALM,
  NO_ERROR,
  numberFrame,
  PROTOCOL_ERROR,
  REFUSED_STREAM,
  RST_STREAM,
  WINDOW_INITIAL,
} from '../http2/frames.ts';
import { encodingOf, type HeadRefusal, readHead } from '../http2/head.ts';
import { HEADER_BYTES_MAX, type HeaderList } from '../http2/hpack.ts';
import type { WireOut } from '../http2/out.ts';
import type { GrpcCallEnd, GrpcCode, GrpcReply, GrpcServerOptions } from '../port.ts';
import {
  BEGINNING,
  compressedBlock,
  endingOf,
  failureBlock,
  failureEnding,
  framedMessage,
  httpBlock,
} from './answer.ts';
import { type Account, WireCall, type WireClient } from './call.ts';
import { ANSWER_BYTES_A_BYTE, END_TEXTS, FAILED, floodText, LATE, LONG_CALL_BYTES_MAX } from './common.ts';
import { PREFIX_BYTES, type ReadResult } from './message.ts';
import type { Routes, StreamSide, UnaryRoute } from './methods.ts';

const NO_BYTES = Buffer.alloc(0);

/** Server, as its connections see it. */
export interface Http2Owner {
  readonly options: GrpcServerOptions;
  readonly routes: Routes;
  readonly account: Account;
  /** Number of calls whose handler runs. */
  inFlightCalls: number;
  /** Requests a check of deadlines at this time. */
  deadlineAt(ms: number): void;
}

/** Connection, as its calls see it. */
export interface CallsConnection {
  readonly owner: Http2Owner;
  readonly client: WireClient;
  readonly out: WireOut<WireCall>;
  readonly closed: ClosedStreams;
  /** Ends the connection. */
  fail(code: number, why: string): void;
  /** Counts an action that an honest client does not repeat. */
  countAbuse(): void;
  /** Called when the last call is over. */
  onIdle(): void;
}

/** Flow-control window of a call: room for one whole message. */
export const callWindow = (messageBytesMax: number): number =>
  Math.max(WINDOW_INITIAL, messageBytesMax + PREFIX_BYTES);

const HEAD_TEXTS: Readonly<Record<'te' | 'timeout', string>> = {
  te: 'te: trailers is missing: a proxy between client and server may drop the trailers of answers',
  timeout: 'grpc-timeout is no number of up to eight digits and a unit',
};

export class Http2Calls {
  private readonly connection: CallsConnection;
  private readonly open = new Map<number, WireCall>();
  /** Number of running handlers whose call is over. */
  private orphans = 0;

  constructor(connection: CallsConnection) {
    this.connection = connection;
  }

  get size(): number {
    return this.open.size;
  }

  get(id: number): WireCall | undefined {
    return this.open.get(id);
  }

  all(): Iterable<WireCall> {
    return this.open.values();
  }

  /** Begins a call. */
  begin(id: number, ended: boolean, list: HeaderList): void {
    const { owner, out, client } = this.connection;
    const { options } = owner;
    // A client that resets calls to begin others still occupies streams with their handlers.
    if (this.open.size + this.orphans >= options.streamsMax) {
      this.connection.closed.record(id, true);
      this.connection.countAbuse();
      out.push(numberFrame(RST_STREAM, id, REFUSED_STREAM));
      return;
    }
    if (list.tooLong) {
      this.refuse(
        id,
        ended,
        failureBlock('RESOURCE_EXHAUSTED', `the metadata is over ${HEADER_BYTES_MAX} bytes`),
      );
      return;
    }
    const head = readHead(list);
    if (typeof head === 'string') {
      this.refuseHead(id, ended, head);
      return;
    }
    const route = owner.routes.find(head.path);
    if (route === undefined) {
      this.refuse(id, ended, failureBlock('UNIMPLEMENTED', 'there is no such method'));
      return;
    }
    const { messageBytesMax, requestTimeoutMs } = options;
    const call = new WireCall({
      id,
      route,
      head,
      fields: list.fields,
      client,
      fieldBytes: list.bytes,
      messageBytesMax,
      requestTimeoutMs,
      receiveLeft: callWindow(messageBytesMax),
      sendLeft: out.windowInitial,
    });
    call.remoteEnded = ended;
    this.open.set(id, call);
    if (!this.hold(call, call.price)) return;
    if (Number.isFinite(call.deadlineMs)) owner.deadlineAt(call.deadlineMs);
    if (route.kind === 'stream') call.streaming = route.open(this.sideOf(call));
    if (ended) this.ended(call);
  }

  private refuseHead(id: number, ended: boolean, why: HeadRefusal): void {
    switch (why) {
      case 'malformed':
        this.connection.closed.record(id, true);
        this.connection.countAbuse();
        this.connection.out.push(numberFrame(RST_STREAM, id, PROTOCOL_ERROR));
        break;
      case 'method':
        this.refuse(id, ended, httpBlock(405));
        break;
      case 'content_type':
        this.refuse(id, ended, httpBlock(415));
        break;
      default:
        this.refuse(id, ended, failureBlock('INTERNAL', HEAD_TEXTS[why]));
    }
  }

  /** Answers a request that is no call. */
  private refuse(id: number, ended: boolean, block: Buffer): void {
    const { out, closed } = this.connection;
    out.headers(id, block, true);
    if (!ended) out.push(numberFrame(RST_STREAM, id, NO_ERROR));
    closed.record(id, !ended);
  }

  /** Handles DATA, without its padding. */
  accept(call: WireCall, bytes: Buffer, from: number, to: number): void {
    if (call.lengthLeft >= 0) {
      call.lengthLeft -= to - from;
      if (call.lengthLeft < 0) {
        this.reset(call, PROTOCOL_ERROR);
        return;
      }
    }
    if (from === to) return;
    call.received += to - from;
    if (call.long) this.acceptStream(call, bytes, from, to);
    else this.acceptUnary(call, bytes, from, to);
  }

  private acceptUnary(call: WireCall, bytes: Buffer, from: number, to: number): void {
    const { reader } = call;
    if (!call.hasMessage) {
      const result = reader.accept(bytes, from, to);
      if (result === 'message') {
        call.message = reader.message;
        call.hasMessage = true;
      } else if (result !== 'more') {
        this.refuseMessage(call, result);
        return;
      }
      if (!this.hold(call, call.price + call.messageHeld - call.held)) return;
      if (result === 'more' || reader.at === to) return;
    }
    this.fail(call, 'UNIMPLEMENTED', 'the method takes one message, and there is more than one');
  }

  private acceptStream(call: WireCall, bytes: Buffer, from: number, to: number): void {
    if (call.received > LONG_CALL_BYTES_MAX) {
      this.end(call, 'flood', 'RESOURCE_EXHAUSTED', floodText(LONG_CALL_BYTES_MAX));
      return;
    }
    if (!this.hold(call, ANSWER_BYTES_A_BYTE * (to - from))) return;
    const { reader } = call;
    let at = from;
    while (at < to && !call.over) {
      const result = reader.accept(bytes, at, to);
      at = reader.at;
      if (result === 'message') this.guard(call, () => call.streaming?.accept(reader.message));
      else if (result !== 'more') {
        this.refuseMessage(call, result);
        return;
      }
    }
  }

  private refuseMessage(call: WireCall, why: Exclude<ReadResult, 'more' | 'message'>): void {
    if (why === 'compressed' && !call.answered) {
      this.refuseOpen(call, compressedBlock(encodingOf(call.fields)));
      return;
    }
    const { messageBytesMax } = this.connection.owner.options;
    if (why === 'too_long')
      this.fail(call, 'RESOURCE_EXHAUSTED', `the message is over ${messageBytesMax} bytes`);
    else this.fail(call, 'INTERNAL', 'the message has an invalid compression flag');
  }

  /** Runs a streaming method on the client's bytes; an error fails the call. */
  private guard(call: WireCall, work: () => void): void {
    try {
      work();
    } catch {
      this.fail(call, 'INTERNAL', 'the message cannot be read');
    }
  }

  /** Handles the client's end of stream. */
  ended(call: WireCall): void {
    call.remoteEnded = true;
    if (call.lengthLeft > 0) this.reset(call, PROTOCOL_ERROR);
    else if (call.reader.isWithin) this.fail(call, 'INTERNAL', 'the message is incomplete');
    else if (call.route.kind === 'stream') this.guard(call, () => call.streaming?.ended());
    else if (!call.hasMessage)
      this.fail(call, 'UNIMPLEMENTED', 'the method takes one message, and there is none');
    else void this.serve(call, call.route);
  }

  private async serve(call: WireCall, route: UnaryRoute): Promise<void> {
    const { owner } = this.connection;
    const startMs = performance.now();
    owner.inFlightCalls++;
    call.handling = true;
    let reply: GrpcReply;
    try {
      reply = call.isLate() ? LATE : await route.handler(call);
    } catch (thrown) {
      owner.options.log.error({ method: route.path, cause: String(thrown) }, 'gRPC call failed');
      reply = FAILED;
    }
    owner.inFlightCalls--;
    call.handling = false;
    let code = reply.code;
    if (call.over) {
      code = call.isLate() ? 'DEADLINE_EXCEEDED' : 'CANCELLED';
      this.orphans--;
      this.release(call);
    } else this.answer(call, reply);
    if (route.name === undefined) return;
    owner.options.onAnswer?.({ method: route.name, code, seconds: (performance.now() - startMs) / 1000 });
  }

  private answer(call: WireCall, reply: GrpcReply): void {
    const { out, owner } = this.connection;
    if (reply.code !== 'OK') {
      out.headers(call.id, failureBlock(reply.code, reply.text ?? reply.code, reply), true);
      this.close(call, false);
      return;
    }
    call.answered = true;
    if (out.answer(call, reply.message, endingOf(reply.trailers))) {
      this.close(call, false);
      return;
    }
    call.untilMs = performance.now() + owner.options.requestTimeoutMs;
    this.hold(call, reply.message.length);
  }

  /** Handles the end of a waiting answer. */
  onSent(call: WireCall): void {
    if (call.ending === undefined) return;
    this.endStream(call);
  }

  /** Ends the stream after the whole answer was sent. */
  private endStream(call: WireCall): void {
    if (!call.remoteEnded) this.connection.out.push(numberFrame(RST_STREAM, call.id, NO_ERROR));
    this.close(call, !call.remoteEnded);
  }

  private sideOf(call: WireCall): StreamSide {
    const { out } = this.connection;
    return {
      write: (message) => {
        if (call.over) return;
        if (!call.answered) out.headers(call.id, BEGINNING, false);
        call.answered = true;
        out.send(call, framedMessage(message));
      },
      end: () => {
        if (call.over) return;
        if (!call.answered) out.headers(call.id, BEGINNING, false);
        call.answered = true;
        if (out.send(call, NO_BYTES, endingOf(undefined))) this.endStream(call);
      },
    };
  }

  /** Fails a call with a status, or with a reset when a status can no longer be sent. */
  private fail(call: WireCall, code: GrpcCode, text: string): void {
    if (!call.answered) {
      this.refuseOpen(call, failureBlock(code, text));
      return;
    }
    // Clients map these codes to RESOURCE_EXHAUSTED and CANCELLED.
    const reset = code === 'RESOURCE_EXHAUSTED' ? ENHANCE_YOUR_CALM : CANCEL;
    this.connection.out.push(numberFrame(RST_STREAM, call.id, reset));
    this.close(call, true);
  }

  private refuseOpen(call: WireCall, block: Buffer): void {
    const { out } = this.connection;
    out.headers(call.id, block, true);
    this.endStream(call);
  }

  private end(call: WireCall, why: GrpcCallEnd, code: GrpcCode, text: string): void {
    this.connection.owner.options.onEnd?.(why);
    this.fail(call, code, text);
  }

  /** Resets a stream whose client broke the protocol. */
  reset(call: WireCall, code: number): void {
    this.connection.out.push(numberFrame(RST_STREAM, call.id, code));
    this.close(call, true);
    this.connection.countAbuse();
  }

  /** Handles a reset by the client. */
  cancelled(call: WireCall): void {
    this.close(call, false);
    this.connection.countAbuse();
  }

  /** Counts memory. False: a limit is exceeded, and the call is refused or its connection ended. */
  private hold(call: WireCall, bytes: number): boolean {
    const { account } = this.connection.owner;
    call.held += bytes;
    if (account.hold(bytes, call.long)) return true;
    this.end(call, 'memory', 'RESOURCE_EXHAUSTED', END_TEXTS.memory);
    if (account.isOverfull) this.connection.fail(ENHANCE_YOUR_CALM, END_TEXTS.memory);
    return false;
  }

  private release(call: WireCall): void {
    this.connection.owner.account.hold(-call.held, call.long);
    call.held = 0;
  }

  private close(call: WireCall, byServer: boolean): void {
    if (call.over) return;
    call.over = true;
    this.open.delete(call.id);
    const { out, closed } = this.connection;
    out.forget(call);
    closed.record(call.id, byServer);
    call.streaming?.cancelled();
    // The memory of a running handler stays counted until it ends.
    if (call.handling) this.orphans++;
    else this.release(call);
    if (this.open.size === 0) this.connection.onIdle();
  }

  /** Closes all calls: the connection is over. */
  abandon(): void {
    for (const call of this.open.values()) this.close(call, false);
  }

  /** Ends calls that waited too long for their client. */
  sweep(nowMs: number): void {
    for (const call of this.open.values()) {
      if (call.untilMs > nowMs || call.handling) continue;
      if (call.long) this.end(call, 'kept_open', 'DEADLINE_EXCEEDED', END_TEXTS.kept_open);
      else if (call.answered) this.end(call, 'unread', 'DEADLINE_EXCEEDED', END_TEXTS.unread);
      else this.end(call, 'incomplete', 'DEADLINE_EXCEEDED', END_TEXTS.incomplete);
    }
  }

  /** Ends calls whose deadline has passed; returns the next deadline. */
  expire(nowMs: number): number {
    let next = Number.POSITIVE_INFINITY;
    for (const call of this.open.values()) {
      if (call.deadlineMs > nowMs) next = Math.min(next, call.deadlineMs);
      else if (!call.answered) this.fail(call, 'DEADLINE_EXCEEDED', LATE.text as string);
      else if (call.long) this.failLate(call);
    }
    return next;
  }

  /** Fails a late streaming call that has sent messages. */
  private failLate(call: WireCall): void {
    if (call.unsent.length > 0) {
      this.fail(call, 'DEADLINE_EXCEEDED', LATE.text as string);
      return;
    }
    this.connection.out.headers(call.id, failureEnding('DEADLINE_EXCEEDED', LATE.text as string), true);
    this.endStream(call);
  }

  /** Ends calls that wait for their client, during a drain. Answers that are being sent continue
   *  until the drain's end. */
  endWaiting(): void {
    for (const call of this.open.values()) {
      if (!call.long && call.remoteEnded) continue;
      this.connection.out.push(numberFrame(RST_STREAM, call.id, CANCEL));
      this.close(call, true);
    }
  }
}
