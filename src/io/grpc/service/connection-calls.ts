/** The calls of one connection: what begins them, what becomes of them, and what they are answered. */

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
import { PREFIX_BYTES, type Taken } from './message.ts';
import type { Routes, StreamSide, UnaryRoute } from './methods.ts';

const NO_BYTES = Buffer.alloc(0);

/** What connections need of their server. */
export interface LineOwner {
  readonly options: GrpcServerOptions;
  readonly routes: Routes;
  readonly account: Account;
  /** Calls with their handler. */
  underWay: number;
  /** A call waits whose client does so until then. */
  deadlineAt(ms: number): void;
}

/** What the calls of a connection need of it. */
export interface CallsLine {
  readonly owner: LineOwner;
  readonly client: WireClient;
  readonly out: WireOut<WireCall>;
  readonly closed: ClosedStreams;
  /** Ends the connection. */
  fail(code: number, why: string): void;
  /** Counts what an honest client does not do on and on. */
  strain(): void;
  /** The last call is over. */
  atRest(): void;
}

/** What a client may send of one call before we let it send more: a whole message needs no more. */
export const callWindow = (messageBytesMax: number): number =>
  Math.max(WINDOW_INITIAL, messageBytesMax + PREFIX_BYTES);

const HEAD_TEXTS: Readonly<Record<'te' | 'timeout', string>> = {
  te: 'te: trailers is missing: something between client and server may drop the end of answers',
  timeout: 'grpc-timeout is no number of up to eight digits and a unit',
};

export class LineCalls {
  private readonly line: CallsLine;
  private readonly open = new Map<number, WireCall>();
  /** Handlers at work whose call is over. */
  private orphans = 0;

  constructor(line: CallsLine) {
    this.line = line;
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

  /** A client has begun a call. */
  begin(id: number, ended: boolean, list: HeaderList): void {
    const { owner, out, client } = this.line;
    const { options } = owner;
    // Whoever resets calls to make others waits for their handlers all the same.
    if (this.open.size + this.orphans >= options.streamsMax) {
      this.line.closed.note(id, true);
      this.line.strain();
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
        this.line.closed.note(id, true);
        this.line.strain();
        this.line.out.push(numberFrame(RST_STREAM, id, PROTOCOL_ERROR));
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

  /** Answers what is no call of ours, or none any more. */
  private refuse(id: number, ended: boolean, block: Buffer): void {
    const { out, closed } = this.line;
    out.headers(id, block, true);
    if (!ended) out.push(numberFrame(RST_STREAM, id, NO_ERROR));
    closed.note(id, !ended);
  }

  /** A client has sent DATA, without its padding. */
  take(call: WireCall, bytes: Buffer, from: number, to: number): void {
    if (call.lengthLeft >= 0) {
      call.lengthLeft -= to - from;
      if (call.lengthLeft < 0) {
        this.reset(call, PROTOCOL_ERROR);
        return;
      }
    }
    if (from === to) return;
    call.received += to - from;
    if (call.long) this.takeStream(call, bytes, from, to);
    else this.takeUnary(call, bytes, from, to);
  }

  private takeUnary(call: WireCall, bytes: Buffer, from: number, to: number): void {
    const { reader } = call;
    if (!call.hasMessage) {
      const taken = reader.take(bytes, from, to);
      if (taken === 'message') {
        call.message = reader.message;
        call.hasMessage = true;
      } else if (taken !== 'more') {
        this.refuseMessage(call, taken);
        return;
      }
      if (!this.hold(call, call.price + call.messageHeld - call.held)) return;
      if (taken === 'more' || reader.at === to) return;
    }
    this.fail(call, 'UNIMPLEMENTED', 'the method takes one message, and there is more than one');
  }

  private takeStream(call: WireCall, bytes: Buffer, from: number, to: number): void {
    if (call.received > LONG_CALL_BYTES_MAX) {
      this.end(call, 'flood', 'RESOURCE_EXHAUSTED', floodText(LONG_CALL_BYTES_MAX));
      return;
    }
    if (!this.hold(call, ANSWER_BYTES_A_BYTE * (to - from))) return;
    const { reader } = call;
    let at = from;
    while (at < to && !call.over) {
      const taken = reader.take(bytes, at, to);
      at = reader.at;
      if (taken === 'message') this.guard(call, () => call.streaming?.take(reader.message));
      else if (taken !== 'more') {
        this.refuseMessage(call, taken);
        return;
      }
    }
  }

  private refuseMessage(call: WireCall, why: Exclude<Taken, 'more' | 'message'>): void {
    if (why === 'compressed' && !call.answered) {
      this.refuseOpen(call, compressedBlock(encodingOf(call.fields)));
      return;
    }
    const { messageBytesMax } = this.line.owner.options;
    if (why === 'too_long')
      this.fail(call, 'RESOURCE_EXHAUSTED', `the message is over ${messageBytesMax} bytes`);
    else this.fail(call, 'INTERNAL', 'the message does not begin as one');
  }

  /** What a streaming method makes of its client's bytes. */
  private guard(call: WireCall, work: () => void): void {
    try {
      work();
    } catch {
      this.fail(call, 'INTERNAL', 'the message cannot be read');
    }
  }

  /** The client sends no more of a call. */
  ended(call: WireCall): void {
    call.remoteEnded = true;
    if (call.lengthLeft > 0) this.reset(call, PROTOCOL_ERROR);
    else if (call.reader.isWithin) this.fail(call, 'INTERNAL', 'the message is cut off');
    else if (call.route.kind === 'stream') this.guard(call, () => call.streaming?.ended());
    else if (!call.hasMessage)
      this.fail(call, 'UNIMPLEMENTED', 'the method takes one message, and there is none');
    else void this.serve(call, call.route);
  }

  private async serve(call: WireCall, route: UnaryRoute): Promise<void> {
    const { owner } = this.line;
    const startMs = performance.now();
    owner.underWay++;
    call.handling = true;
    let reply: GrpcReply;
    try {
      reply = call.isLate() ? LATE : await route.handler(call);
    } catch (thrown) {
      owner.options.log.error({ method: route.path, cause: String(thrown) }, 'gRPC call failed');
      reply = FAILED;
    }
    owner.underWay--;
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
    const { out, owner } = this.line;
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

  /** The rest of an answer has left. */
  sent(call: WireCall): void {
    if (call.ending === undefined) return;
    this.endStream(call);
  }

  /** Nothing of the answer is left. */
  private endStream(call: WireCall): void {
    if (!call.remoteEnded) this.line.out.push(numberFrame(RST_STREAM, call.id, NO_ERROR));
    this.close(call, !call.remoteEnded);
  }

  private sideOf(call: WireCall): StreamSide {
    const { out } = this.line;
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

  /** Ends a call of ours with a status, or where one can no more be given by resetting it. */
  private fail(call: WireCall, code: GrpcCode, text: string): void {
    if (!call.answered) {
      this.refuseOpen(call, failureBlock(code, text));
      return;
    }
    // Clients read these codes as RESOURCE_EXHAUSTED and CANCELLED.
    const reset = code === 'RESOURCE_EXHAUSTED' ? ENHANCE_YOUR_CALM : CANCEL;
    this.line.out.push(numberFrame(RST_STREAM, call.id, reset));
    this.close(call, true);
  }

  private refuseOpen(call: WireCall, block: Buffer): void {
    const { out } = this.line;
    out.headers(call.id, block, true);
    this.endStream(call);
  }

  private end(call: WireCall, why: GrpcCallEnd, code: GrpcCode, text: string): void {
    this.line.owner.options.onEnd?.(why);
    this.fail(call, code, text);
  }

  /** The client broke the rules of this stream. */
  reset(call: WireCall, code: number): void {
    this.line.out.push(numberFrame(RST_STREAM, call.id, code));
    this.close(call, true);
    this.line.strain();
  }

  /** The client has reset a call. */
  cancelled(call: WireCall): void {
    this.close(call, false);
    this.line.strain();
  }

  /** False where that is more than all may hold: the call is refused, or its connection ended. */
  private hold(call: WireCall, bytes: number): boolean {
    const { account } = this.line.owner;
    call.held += bytes;
    if (account.hold(bytes, call.long)) return true;
    this.end(call, 'memory', 'RESOURCE_EXHAUSTED', END_TEXTS.memory);
    if (account.isOverfull) this.line.fail(ENHANCE_YOUR_CALM, END_TEXTS.memory);
    return false;
  }

  private release(call: WireCall): void {
    this.line.owner.account.hold(-call.held, call.long);
    call.held = 0;
  }

  private close(call: WireCall, byUs: boolean): void {
    if (call.over) return;
    call.over = true;
    this.open.delete(call.id);
    const { out, closed } = this.line;
    out.forget(call);
    closed.note(call.id, byUs);
    call.streaming?.cancelled();
    // What a handler works with stays counted until it is done.
    if (call.handling) this.orphans++;
    else this.release(call);
    if (this.open.size === 0) this.line.atRest();
  }

  /** The connection is over. */
  abandon(): void {
    for (const call of this.open.values()) this.close(call, false);
  }

  /** Ends what waited for its client for too long. */
  sweep(nowMs: number): void {
    for (const call of this.open.values()) {
      if (call.untilMs > nowMs || call.handling) continue;
      if (call.long) this.end(call, 'kept_open', 'DEADLINE_EXCEEDED', END_TEXTS.kept_open);
      else if (call.answered) this.end(call, 'unread', 'DEADLINE_EXCEEDED', END_TEXTS.unread);
      else this.end(call, 'incomplete', 'DEADLINE_EXCEEDED', END_TEXTS.incomplete);
    }
  }

  /** Ends calls whose client waits no longer; the next time at which one does so. */
  expire(nowMs: number): number {
    let next = Number.POSITIVE_INFINITY;
    for (const call of this.open.values()) {
      if (call.deadlineMs > nowMs) next = Math.min(next, call.deadlineMs);
      else if (!call.answered) this.fail(call, 'DEADLINE_EXCEEDED', LATE.text as string);
      else if (call.long) this.failLate(call);
    }
    return next;
  }

  /** A streaming call that has answered something. */
  private failLate(call: WireCall): void {
    if (call.unsent.length > 0) {
      this.fail(call, 'DEADLINE_EXCEEDED', LATE.text as string);
      return;
    }
    this.line.out.headers(call.id, failureEnding('DEADLINE_EXCEEDED', LATE.text as string), true);
    this.endStream(call);
  }

  /** A drain has waited: ends what waits for its client. Answers that are on their way have until the drain's end. */
  endWaiting(): void {
    for (const call of this.open.values()) {
      if (!call.long && call.remoteEnded) continue;
      this.line.out.push(numberFrame(RST_STREAM, call.id, CANCEL));
      this.close(call, true);
    }
  }
}
