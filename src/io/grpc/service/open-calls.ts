/** Open calls of the grpc-js driver: their memory, and the deadlines of their waits for the client.
 *
 *  begun ──► whole ──► with its handler ──► answered ──► closed
 *
 *  Invariants: (1) the counted memory of the calls of all connections is at most heldBytesMax,
 *  except for calls that are being refused, which end their connection a quarter above it; (2)
 *  every state has a deadline except `with its handler`, which the product bounds; (3) calls that a
 *  client may keep open, reflection and Watch, use at most a share of the bytes, so that the
 *  methods keep theirs.
 *
 *  A call counts with a fixed price, its metadata and its message. An incomplete message counts
 *  with the socket's chunks that its pieces keep in memory.
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

/** Bytes of a refused or answered call that are read and dropped, so that its answer arrives. */
const DISCARDED_BYTES_MAX = 1024 * 1024;
const LONG_PATHS: ReadonlySet<string> = new Set([
  HEALTH_WATCH,
  '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
  '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo',
]);

/** Error codes of HTTP/2. */
const CANCEL = 8;
const ENHANCE_YOUR_CALM = 11;

export class OpenCall {
  readonly stream: ServerHttp2Stream;
  readonly long: boolean;
  untilMs: number;
  /** Counted bytes. */
  held = 0;
  /** Part of `held` that remains when the message is complete. */
  readonly price: number;
  /** Received bytes of its messages. */
  received = 0;
  /** Last chunk of the socket; several pieces may be views of it. */
  buffer: ArrayBufferLike | undefined;
  answered = false;
  /** True when the server ended the call early. */
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
    else if (value !== undefined) for (const line of value) bytes += line.length;
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

  /** Begins a call; undefined when it is refused for lack of memory. */
  begin(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): OpenCall | undefined {
    const long = LONG_PATHS.has(headers[':path'] ?? '');
    const patienceMs = long ? LONG_CALL_MS_MAX : this.options.requestTimeoutMs;
    const price = CALL_BYTES + metadataBytes(headers);
    const call = new OpenCall(stream, long, performance.now() + patienceMs, price);
    this.open.add(call);
    stream.once('close', () => this.onClosed(call));
    return this.hold(call, price) ? call : undefined;
  }

  /** Counts the bytes of a call whose handler runs; calls that are already answered need no count.
   */
  follow(call: OpenCall): void {
    const { stream } = call;
    if (stream.headersSent || stream.closed) return;
    stream.on('data', (chunk: Buffer) => this.receive(call, chunk));
    if (!call.long) stream.once('end', () => this.whole(call));
  }

  /** grpc-js has joined the pieces, so their chunks are free. */
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
    // Bytes after the answer are dropped.
    else if (!call.stream.headersSent) this.hold(call, pinned);
  }

  /** Counts memory. False: a limit is exceeded, and the call is refused or its connection ended. */
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

  private onClosed(call: OpenCall): void {
    if (this.open.delete(call)) this.release(call, call.held);
  }

  /** Ends calls that waited too long for their client. */
  sweep(nowMs: number): void {
    for (const call of this.open) {
      const { stream } = call;
      if (stream.destroyed) {
        this.onClosed(call);
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
    // The client does not even react to the end of its call.
    if (ended) stream.session?.destroy();
    else if (answered) this.end(call, 'unread', 'DEADLINE_EXCEEDED', END_TEXTS.unread);
    else if (long) this.end(call, 'kept_open', 'DEADLINE_EXCEEDED', END_TEXTS.kept_open);
    else if (!stream.readableEnded) this.end(call, 'incomplete', 'DEADLINE_EXCEEDED', END_TEXTS.incomplete);
  }

  /** Ends calls that wait for their client, during a drain. Answers that are being sent continue
   *  until the drain's end. */
  endWaiting(): void {
    for (const { stream, long } of this.open) if (long || !stream.readableEnded) stream.close(CANCEL);
  }

  /** Ends a call with a status, or with a reset when a status was already sent. */
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
      // Clients map these codes to RESOURCE_EXHAUSTED and CANCELLED.
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
    // The rest of the message is dropped; the answer is sent first.
    stream.close();
    stream.resume();
  }
}
