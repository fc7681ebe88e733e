/** Every call that is open: what it holds in memory, and until when it may wait for its client.
 *
 *      begun ──► whole ──► with its handler ──► answered ──► closed
 *
 *  Invariants: (1) what the calls of all connections are counted to hold stays below heldBytesMax, but for those that are
 *  being refused, and they end their connection a quarter above it; (2) every state has a deadline but `with its handler`,
 *  which is the product's to bound; (3) calls that a client may keep open, reflection and Watch, hold a part of the bytes, so
 *  that they take no room from the methods.
 *
 *  Counted are a fixed price a call, its metadata, and its message: while that is not whole by the buffers that its pieces
 *  keep alive, which are as large as what the socket gave with them.
 */
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import { status } from '@grpc/grpc-js';
import type { GrpcCallEnd, GrpcServerOptions } from '../port.ts';
import {
  ANSWER_BYTES_A_BYTE,
  CALL_BYTES,
  END_TEXTS,
  floodText,
  LONG_CALL_BYTES_MAX,
  LONG_CALL_MS_MAX,
  LONG_SHARE,
  REFUSED_SHARE,
} from './common.ts';
import { HEALTH_WATCH } from './health.ts';

/** What a refused or answered call is read on before it is cut off, so that its answer arrives. */
const DISCARDED_BYTES_MAX = 1024 * 1024;
const LONG_PATHS: ReadonlySet<string> = new Set([
  HEALTH_WATCH,
  '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
  '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo',
]);

/** HTTP/2's error codes. */
const CANCEL = 8;
const ENHANCE_YOUR_CALM = 11;

export class OpenCall {
  readonly stream: ServerHttp2Stream;
  readonly long: boolean;
  untilMs: number;
  /** Bytes it is counted with. */
  held = 0;
  /** Of these, what does not become less when its message is whole. */
  readonly price: number;
  /** Bytes of its message, or messages. */
  received = 0;
  /** What the socket gave last, of which several pieces may be. */
  buffer: ArrayBufferLike | undefined;
  answered = false;
  /** By us, before its time. */
  ended = false;

  constructor(stream: ServerHttp2Stream, long: boolean, untilMs: number, price: number) {
    this.stream = stream;
    this.long = long;
    this.untilMs = untilMs;
    this.price = price;
  }
}

function metadataBytes(headers: IncomingHttpHeaders): number {
  let bytes = 0;
  for (const name in headers) {
    const value = headers[name];
    bytes += name.length;
    if (typeof value === 'string') bytes += value.length;
    else if (value !== undefined) for (const one of value) bytes += one.length;
  }
  return bytes;
}

const ignore = (): void => {};

type CallsOptions = Pick<
  GrpcServerOptions,
  'heldBytesMax' | 'messageBytesMax' | 'requestTimeoutMs' | 'onEnd'
>;

export class Calls {
  private readonly open = new Set<OpenCall>();
  private readonly options: CallsOptions;
  private held = 0;
  private heldLong = 0;

  constructor(options: CallsOptions) {
    this.options = options;
  }

  heldBytes(): number {
    return this.held;
  }

  /** Undefined: there was no room for it, and it is refused. */
  begin(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): OpenCall | undefined {
    const long = LONG_PATHS.has(headers[':path'] ?? '');
    const patienceMs = long ? LONG_CALL_MS_MAX : this.options.requestTimeoutMs;
    const price = CALL_BYTES + metadataBytes(headers);
    const call = new OpenCall(stream, long, performance.now() + patienceMs, price);
    this.open.add(call);
    stream.once('close', () => this.gone(call));
    return this.hold(call, price) ? call : undefined;
  }

  /** Counts what comes of a call that has its handler; those answered at once need no more. */
  follow(call: OpenCall): void {
    const { stream } = call;
    if (stream.headersSent || stream.closed) return;
    stream.on('data', (chunk: Buffer) => this.receive(call, chunk));
    if (!call.long) stream.once('end', () => this.whole(call));
  }

  /** grpc-js has put the pieces together: they are not kept alive any more. */
  private whole(call: OpenCall): void {
    call.buffer = undefined;
    this.release(call, Math.max(0, call.held - call.price - call.received));
  }

  private receive(call: OpenCall, chunk: Buffer): void {
    if (call.ended) return;
    call.received += chunk.length;
    const bytesMax = call.long ? LONG_CALL_BYTES_MAX : this.options.messageBytesMax + DISCARDED_BYTES_MAX;
    if (call.received > bytesMax) {
      this.end(call, 'flood', 'RESOURCE_EXHAUSTED', floodText(bytesMax));
      return;
    }
    const { buffer } = chunk;
    const pinned = buffer === call.buffer ? 0 : buffer.byteLength;
    call.buffer = buffer;
    if (call.long) this.hold(call, pinned + ANSWER_BYTES_A_BYTE * chunk.length);
    // What comes after the answer is thrown away.
    else if (!call.stream.headersSent) this.hold(call, pinned);
  }

  /** False where that is more than all may hold: the call is refused, or its connection ended. */
  private hold(call: OpenCall, bytes: number): boolean {
    const { heldBytesMax } = this.options;
    call.held += bytes;
    this.held += bytes;
    if (call.long) this.heldLong += bytes;
    if (this.held <= heldBytesMax && (!call.long || this.heldLong <= heldBytesMax * LONG_SHARE)) return true;
    this.end(call, 'memory', 'RESOURCE_EXHAUSTED', END_TEXTS.memory);
    if (this.held > heldBytesMax * (1 + REFUSED_SHARE)) call.stream.session?.destroy();
    return false;
  }

  private release(call: OpenCall, bytes: number): void {
    call.held -= bytes;
    this.held -= bytes;
    if (call.long) this.heldLong -= bytes;
  }

  private gone(call: OpenCall): void {
    if (this.open.delete(call)) this.release(call, call.held);
  }

  /** Ends what waited for its client for too long. */
  sweep(nowMs: number): void {
    for (const call of this.open) {
      const { stream } = call;
      if (stream.destroyed) {
        this.gone(call);
        continue;
      }
      if (!call.long && !call.ended && !call.answered && stream.headersSent) {
        call.answered = true;
        call.untilMs = nowMs + this.options.requestTimeoutMs;
      }
      if (call.untilMs <= nowMs) this.expire(call);
    }
  }

  private expire(call: OpenCall): void {
    const { stream, long, ended, answered } = call;
    // It does not even take note of its end.
    if (ended) stream.session?.destroy();
    else if (answered) this.end(call, 'unread', 'DEADLINE_EXCEEDED', END_TEXTS.unread);
    else if (long) this.end(call, 'kept_open', 'DEADLINE_EXCEEDED', END_TEXTS.kept_open);
    else if (!stream.readableEnded) this.end(call, 'incomplete', 'DEADLINE_EXCEEDED', END_TEXTS.incomplete);
  }

  /** A drain has waited: ends what waits for its client. Answers that are on their way have until the drain's end. */
  endWaiting(): void {
    for (const { stream, long } of this.open) if (long || !stream.readableEnded) stream.close(CANCEL);
  }

  /** With a status where none was sent yet, else by resetting the stream. */
  private end(
    call: OpenCall,
    why: GrpcCallEnd,
    code: 'RESOURCE_EXHAUSTED' | 'DEADLINE_EXCEEDED',
    text: string,
  ): void {
    const { stream } = call;
    call.ended = true;
    call.untilMs = performance.now() + this.options.requestTimeoutMs;
    this.options.onEnd?.(why);
    if (stream.closed || stream.destroyed) return;
    stream.on('error', ignore);
    if (stream.headersSent) {
      // Clients read these codes as RESOURCE_EXHAUSTED and CANCELLED.
      stream.close(code === 'RESOURCE_EXHAUSTED' ? ENHANCE_YOUR_CALM : CANCEL);
      return;
    }
    stream.respond(
      {
        ':status': 200,
        'content-type': 'application/grpc+proto',
        'grpc-status': String(status[code]),
        'grpc-message': text,
      },
      { endStream: true },
    );
    // The rest of the message is not wanted; the answer goes first.
    stream.close();
    stream.resume();
  }
}
