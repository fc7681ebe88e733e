/** HTTP/2 connection: handles frames by the rules of RFC 9113, and ends when it is drained or a
 *  rule is broken.
 *
 *      open ──► leaving ──► last ──► over
 *      open ──► over
 *
 *  `leaving`: GOAWAY was sent, and every stream is still accepted. `last`: a second GOAWAY was
 *  sent; new streams are ignored. `over` follows the end of the last call, or an error of the
 *  connection: GOAWAY with its code was sent, and received bytes are dropped.
 *
 *  An error of a stream resets only that stream. For a client that does not read, nothing more is
 *  done: while bytes wait to be written, the socket is not read. Source: RFC 9113.
 */
import type { Socket } from 'node:net';
import type { WireCall, WireClient } from '../service/call.ts';
import { DRAIN_PATIENCE_MS } from '../service/common.ts';
import {
  type CallsConnection,
  callWindow,
  Http2Calls,
  type Http2Owner,
} from '../service/connection-calls.ts';
import { AbuseLimiter, ClosedStreams } from './abuse-limiter.ts';
import { ALIVE, goAway, LEAVING, localSettings, SETTING_BYTES, SETTINGS_ACK } from './control.ts';
import {
  ACK,
  COMPRESSION_ERROR,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  ENHANCE_YOUR_CALM,
  FLOW_CONTROL_ERROR,
  FRAME_SIZE_ERROR,
  type FrameSink,
  frame,
  GOAWAY,
  HEADERS,
  Http2FrameReader,
  NO_ERROR,
  numberFrame,
  PADDED,
  PING,
  PRIORITY,
  PROTOCOL_ERROR,
  PUSH_PROMISE,
  RST_STREAM,
  SETTINGS,
  SETTINGS_ENABLE_PUSH,
  SETTINGS_HEADER_TABLE_SIZE,
  SETTINGS_INITIAL_WINDOW_SIZE,
  SETTINGS_MAX_FRAME_SIZE,
  STREAM_CLOSED,
  STREAM_MAX,
  WINDOW_INITIAL,
  WINDOW_MAX,
  WINDOW_UPDATE,
  WITH_PRIORITY,
} from './frames.ts';
import { areTrailers } from './head.ts';
import { HEADER_BYTES_MAX, HeaderList, HpackDecoder } from './hpack.ts';
import { type OutOwner, WireOut } from './out.ts';
import { peerOf } from './socket.ts';

/** Flow-control window of the connection: bytes that a client may send on all calls before an
 *  update. */
const CONNECTION_WINDOW = 2 ** 20;
const SETTINGS_IN_A_FRAME_MAX = 32;
const FRAME_BYTES_LIMIT = 2 ** 24 - 1;
const CONTINUATIONS_MAX = 64;
/** Time, and bytes, for which a connection in state `over` is read, so that its last frames arrive.
 */
const LINGER_MS = 1000;
const LINGER_BYTES_MAX = 1024 * 1024;

/** Header block whose end has not arrived. */
interface Block {
  readonly stream: number;
  readonly ended: boolean;
  readonly parts: Buffer[];
  bytes: number;
  readonly sinceMs: number;
}

export class Http2Connection implements FrameSink, CallsConnection, OutOwner<WireCall> {
  readonly socket: Socket;
  readonly owner: Http2Owner;
  readonly client: WireClient;
  readonly out: WireOut<WireCall>;
  readonly closed = new ClosedStreams();
  readonly calls: Http2Calls;
  private readonly onClosed: (source: Http2Connection) => void;
  private readonly reader = new Http2FrameReader(this);
  private readonly decoder = new HpackDecoder();
  private readonly abuse = new AbuseLimiter();
  private phase: 'open' | 'leaving' | 'last' | 'over' = 'open';
  /** True after the client's first SETTINGS. */
  private hasSettings = false;
  private block: Block | undefined;
  /** Highest stream that began. */
  private lastId = 0;
  /** Highest stream at the last PING. */
  private pingAtStream = 0;
  private receiveLeft = CONNECTION_WINDOW;
  /** Bytes counted with the account. */
  private held = 0;
  private discarded = 0;
  private readonly openedMs = performance.now();
  private receivedMs = this.openedMs;
  /** Time of an unanswered keepalive PING; 0: none. */
  private pingSentMs = 0;
  /** Time of the end of the last call. */
  private idleSinceMs = this.openedMs;
  /** Time since which the client does not read; 0: it reads. */
  private blockedSinceMs = 0;
  /** Deadline of the states `leaving` and `over`. */
  private untilMs = 0;

  constructor(owner: Http2Owner, socket: Socket, onClosed: (source: Http2Connection) => void) {
    this.owner = owner;
    this.socket = socket;
    this.client = { remoteAddress: socket.remoteAddress ?? '', peer: peerOf(socket) };
    this.onClosed = onClosed;
    this.out = new WireOut<WireCall>(socket, this);
    this.calls = new Http2Calls(this);
    const { streamsMax, messageBytesMax } = owner.options;
    this.out.push(localSettings(streamsMax, callWindow(messageBytesMax)));
    this.out.push(numberFrame(WINDOW_UPDATE, 0, CONNECTION_WINDOW - WINDOW_INITIAL));
    socket.on('data', (chunk: Buffer) => this.receive(chunk));
    socket.on('drain', () => this.resumeReading());
    // The event `close` follows and handles the end.
    socket.on('error', () => {});
    socket.on('close', () => this.onClose());
  }

  private receive(chunk: Buffer): void {
    if (this.phase === 'over') {
      this.discarded += chunk.length;
      if (this.discarded > LINGER_BYTES_MAX) this.socket.destroy();
      return;
    }
    this.receivedMs = performance.now();
    this.pingSentMs = 0;
    this.out.hold();
    this.reader.read(chunk);
    this.out.release();
    this.count();
  }

  onSent(call: WireCall): void {
    this.calls.onSent(call);
  }

  onBackpressure(): void {
    if (this.phase === 'over') return;
    if (this.blockedSinceMs === 0) this.blockedSinceMs = performance.now();
    this.socket.pause();
    this.count();
  }

  private resumeReading(): void {
    this.blockedSinceMs = 0;
    this.count();
    this.socket.resume();
  }

  /** Updates the count of bytes that wait to be complete or to be written. */
  private count(): void {
    const { account } = this.owner;
    const unread = this.blockedSinceMs === 0 ? 0 : this.socket.writableLength;
    const held = this.phase === 'over' ? 0 : this.reader.heldBytes + (this.block?.bytes ?? 0) + unread;
    const more = held - this.held;
    if (more === 0) return;
    this.held = held;
    account.hold(more, false);
    if (more > 0 && account.isOverfull)
      this.fail(ENHANCE_YOUR_CALM, 'the server has reached its memory limit');
  }

  onFrame(type: number, flags: number, stream: number, bytes: Buffer, from: number, to: number): boolean {
    if (!this.hasSettings) {
      if (type !== SETTINGS || (flags & ACK) !== 0) return this.fail(PROTOCOL_ERROR, 'SETTINGS come first');
      this.hasSettings = true;
    }
    if (this.block !== undefined && (type !== CONTINUATION || stream !== this.block.stream))
      return this.fail(PROTOCOL_ERROR, 'a header block is not finished');
    switch (type) {
      case DATA:
        this.onData(flags, stream, bytes, from, to);
        break;
      case HEADERS:
        this.onHeaders(flags, stream, bytes, from, to);
        break;
      case PRIORITY:
        this.onPriority(stream, to - from);
        break;
      case RST_STREAM:
        this.onReset(stream, to - from);
        break;
      case SETTINGS:
        this.onSettings(flags, stream, bytes, from, to);
        break;
      case PUSH_PROMISE:
        this.fail(PROTOCOL_ERROR, 'a client may not push');
        break;
      case PING:
        this.onPing(flags, stream, bytes, from, to);
        break;
      case GOAWAY:
        this.onGoAway(stream, to - from);
        break;
      case WINDOW_UPDATE:
        this.onWindowUpdate(stream, bytes, from, to);
        break;
      case CONTINUATION:
        this.onContinuation(flags, bytes, from, to);
        break;
      // Frames of unknown types are ignored (RFC 9113, 4.1).
    }
    return this.phase !== 'over';
  }

  onBadBytes(code: number, why: string): void {
    this.fail(code, why);
  }

  /** True for a stream that never began. */
  private isIdle(stream: number): boolean {
    return stream % 2 === 0 || (stream > this.lastId && this.phase !== 'last');
  }

  private onData(flags: number, stream: number, bytes: Buffer, from: number, to: number): void {
    const length = to - from;
    this.receiveLeft -= length;
    // Received bytes are consumed immediately, so the window never fills; the memory of calls has
    // its own bounds.
    if (this.receiveLeft < CONNECTION_WINDOW / 2) {
      this.out.push(numberFrame(WINDOW_UPDATE, 0, CONNECTION_WINDOW - this.receiveLeft));
      this.receiveLeft = CONNECTION_WINDOW;
    }
    let at = from;
    let end = to;
    if ((flags & PADDED) !== 0) {
      end -= length === 0 ? 0 : (bytes[at++] as number);
      if (at > end || length === 0) {
        this.fail(PROTOCOL_ERROR, 'the padding is longer than its frame');
        return;
      }
    }
    const call = this.calls.get(stream);
    if (call === undefined) this.onUnknownStream(stream);
    else if (call.remoteEnded) this.calls.reset(call, STREAM_CLOSED);
    else {
      call.receiveLeft -= length;
      const ended = (flags & END_STREAM) !== 0;
      // An empty frame is work without effect.
      if (at === end && !ended) this.countAbuse();
      this.calls.accept(call, bytes, at, end);
      if (call.over) return;
      if (ended) this.calls.ended(call);
      else this.openCallWindow(call);
    }
  }

  /** Refills the window of a stream, which padding and messages consume. */
  private openCallWindow(call: WireCall): void {
    const window = callWindow(this.owner.options.messageBytesMax);
    if (call.receiveLeft >= window / 2) return;
    this.out.push(numberFrame(WINDOW_UPDATE, call.id, window - call.receiveLeft));
    call.receiveLeft = window;
  }

  /** Handles DATA without a call. */
  private onUnknownStream(stream: number): void {
    if (this.isIdle(stream)) this.fail(PROTOCOL_ERROR, `DATA on stream ${stream}, which has not begun`);
    else if (stream <= this.lastId && !this.closed.wasReset(stream)) {
      this.out.push(numberFrame(RST_STREAM, stream, STREAM_CLOSED));
      this.countAbuse();
    }
  }

  private onHeaders(flags: number, stream: number, bytes: Buffer, from: number, to: number): void {
    if (stream % 2 === 0) {
      this.fail(PROTOCOL_ERROR, `stream ${stream} is not a client stream`);
      return;
    }
    let at = from;
    let end = to;
    if ((flags & PADDED) !== 0 && at < to) end -= bytes[at] as number;
    at += ((flags & PADDED) === 0 ? 0 : 1) + ((flags & WITH_PRIORITY) === 0 ? 0 : 5);
    if (at > to) {
      this.fail(FRAME_SIZE_ERROR, 'HEADERS are shorter than their flags require');
      return;
    }
    if (at > end) {
      this.fail(PROTOCOL_ERROR, 'the padding is longer than its frame');
      return;
    }
    const ended = (flags & END_STREAM) !== 0;
    if ((flags & END_HEADERS) !== 0) this.onBlock(stream, ended, bytes, at, end);
    else {
      const parts = [Buffer.from(bytes.subarray(at, end))];
      this.block = { stream, ended, parts, bytes: end - at, sinceMs: performance.now() };
    }
  }

  private onContinuation(flags: number, bytes: Buffer, from: number, to: number): void {
    const { block } = this;
    if (block === undefined) {
      this.fail(PROTOCOL_ERROR, 'CONTINUATION without HEADERS');
      return;
    }
    block.parts.push(Buffer.from(bytes.subarray(from, to)));
    block.bytes += to - from;
    if (block.bytes > HEADER_BYTES_MAX || block.parts.length > CONTINUATIONS_MAX) {
      this.fail(
        ENHANCE_YOUR_CALM,
        `a header block is over ${HEADER_BYTES_MAX} bytes or ${CONTINUATIONS_MAX} frames`,
      );
      return;
    }
    if ((flags & END_HEADERS) === 0) return;
    this.block = undefined;
    this.onBlock(block.stream, block.ended, Buffer.concat(block.parts), 0, block.bytes);
  }

  /** Handles a whole header block. The block is decoded even when it is ignored: later blocks
   *  depend on its table entries. */
  private onBlock(stream: number, ended: boolean, bytes: Buffer, from: number, to: number): void {
    const list = new HeaderList();
    if (!this.decoder.read(bytes, from, to, list)) {
      this.fail(COMPRESSION_ERROR, 'a header block cannot be read');
      return;
    }
    const call = this.calls.get(stream);
    if (call !== undefined) this.onTrailers(call, ended, list);
    else if (stream > this.lastId) {
      // The client has received GOAWAY for this stream.
      if (this.phase === 'last') return;
      this.lastId = stream;
      this.calls.begin(stream, ended, list);
    } else if (!this.closed.wasReset(stream)) {
      const known = this.closed.isKnown(stream);
      this.fail(known ? STREAM_CLOSED : PROTOCOL_ERROR, `HEADERS on stream ${stream}, which is over`);
    }
  }

  private onTrailers(call: WireCall, ended: boolean, list: HeaderList): void {
    if (call.remoteEnded) this.calls.reset(call, STREAM_CLOSED);
    else if (!ended || !areTrailers(list)) this.calls.reset(call, PROTOCOL_ERROR);
    else this.calls.ended(call);
  }

  /** Validates PRIORITY and ignores its content (RFC 9113, section 5.3.2). */
  private onPriority(stream: number, length: number): void {
    if (stream === 0) this.fail(PROTOCOL_ERROR, 'PRIORITY on no stream');
    else if (length !== 5) this.fail(FRAME_SIZE_ERROR, `PRIORITY of ${length} bytes`);
  }

  private onReset(stream: number, length: number): void {
    if (length !== 4) this.fail(FRAME_SIZE_ERROR, `RST_STREAM of ${length} bytes`);
    else if (this.isIdle(stream))
      this.fail(PROTOCOL_ERROR, `RST_STREAM on stream ${stream}, which has not begun`);
    else {
      const call = this.calls.get(stream);
      if (call !== undefined) this.calls.cancelled(call);
    }
  }

  private onSettings(flags: number, stream: number, bytes: Buffer, from: number, to: number): void {
    const length = to - from;
    if (stream !== 0) this.fail(PROTOCOL_ERROR, 'SETTINGS on a stream');
    else if ((flags & ACK) !== 0) {
      if (length !== 0) this.fail(FRAME_SIZE_ERROR, 'SETTINGS that acknowledge and set');
      else this.countAbuse();
    } else if (length % SETTING_BYTES !== 0) this.fail(FRAME_SIZE_ERROR, `SETTINGS of ${length} bytes`);
    else if (length > SETTING_BYTES * SETTINGS_IN_A_FRAME_MAX)
      this.fail(ENHANCE_YOUR_CALM, `more than ${SETTINGS_IN_A_FRAME_MAX} settings in a frame`);
    else {
      this.countAbuse();
      for (let at = from; at < to && this.phase !== 'over'; at += SETTING_BYTES)
        this.onSetting(bytes.readUInt16BE(at), bytes.readUInt32BE(at + 2));
      this.out.push(SETTINGS_ACK);
    }
  }

  private onSetting(id: number, value: number): void {
    switch (id) {
      case SETTINGS_HEADER_TABLE_SIZE:
        this.out.setTableOffer(value);
        break;
      case SETTINGS_ENABLE_PUSH:
        if (value > 1) this.fail(PROTOCOL_ERROR, `ENABLE_PUSH is ${value}`);
        break;
      case SETTINGS_INITIAL_WINDOW_SIZE:
        if (value > WINDOW_MAX || !this.out.setInitial(value, this.calls.all()))
          this.fail(FLOW_CONTROL_ERROR, `INITIAL_WINDOW_SIZE is ${value}`);
        break;
      case SETTINGS_MAX_FRAME_SIZE:
        if (value < 16_384 || value > FRAME_BYTES_LIMIT)
          this.fail(PROTOCOL_ERROR, `MAX_FRAME_SIZE is ${value}`);
        break;
    }
  }

  private onPing(flags: number, stream: number, bytes: Buffer, from: number, to: number): void {
    if (stream !== 0) this.fail(PROTOCOL_ERROR, 'PING on a stream');
    else if (to - from !== 8) this.fail(FRAME_SIZE_ERROR, `PING of ${to - from} bytes`);
    else if ((flags & ACK) === 0) {
      // A client that measures its bandwidth sends at most one PING a call; more PINGs count as
      // abuse.
      if (this.pingAtStream === this.lastId) this.countAbuse();
      this.pingAtStream = this.lastId;
      this.out.push(frame(PING, ACK, 0, bytes.subarray(from, to)));
    } else if (this.phase === 'leaving' && LEAVING.equals(bytes.subarray(from, to))) this.refuseNewCalls();
    else this.countAbuse();
  }

  private onGoAway(stream: number, length: number): void {
    if (stream !== 0) this.fail(PROTOCOL_ERROR, 'GOAWAY on a stream');
    else if (length < 8) this.fail(FRAME_SIZE_ERROR, `GOAWAY of ${length} bytes`);
    // The client begins no further calls.
    else if (this.phase === 'open' || this.phase === 'leaving') this.refuseNewCalls();
  }

  private onWindowUpdate(stream: number, bytes: Buffer, from: number, to: number): void {
    if (to - from !== 4) {
      this.fail(FRAME_SIZE_ERROR, `WINDOW_UPDATE of ${to - from} bytes`);
      return;
    }
    const more = bytes.readUInt32BE(from) & STREAM_MAX;
    if (stream === 0) {
      if (more === 0) this.fail(PROTOCOL_ERROR, 'WINDOW_UPDATE of nothing');
      else if (!this.out.openConnectionWindow(more))
        this.fail(FLOW_CONTROL_ERROR, 'the window of the connection is too large');
      return;
    }
    const call = this.calls.get(stream);
    if (call === undefined) {
      if (this.isIdle(stream))
        this.fail(PROTOCOL_ERROR, `WINDOW_UPDATE on stream ${stream}, which has not begun`);
    } else if (more === 0) this.calls.reset(call, PROTOCOL_ERROR);
    else if (!this.out.openCallWindow(call, more)) this.calls.reset(call, FLOW_CONTROL_ERROR);
  }

  countAbuse(): void {
    if (!this.abuse.add()) this.fail(ENHANCE_YOUR_CALM, 'too many frames without effect');
  }

  /** Ends the connection with GOAWAY and this error code. */
  fail(code: number, why: string): false {
    if (this.phase === 'over') return false;
    this.owner.options.log.debug({ code, why }, 'gRPC connection ended');
    this.out.push(goAway(this.lastId, code, why));
    this.finish();
    return false;
  }

  private finish(): void {
    this.phase = 'over';
    this.untilMs = performance.now() + LINGER_MS;
    this.calls.abandon();
    this.block = undefined;
    this.count();
    this.out.flush();
    this.socket.end();
    this.socket.resume();
  }

  private onClose(): void {
    this.phase = 'over';
    this.calls.abandon();
    this.count();
    this.onClosed(this);
  }

  onIdle(): void {
    this.idleSinceMs = performance.now();
    if (this.phase === 'last') this.finish();
  }

  /** Starts a graceful GOAWAY: first without a limit of streams, because calls may be in flight to
   *  the server. */
  startGoAway(): void {
    if (this.phase !== 'open') return;
    this.phase = 'leaving';
    this.untilMs = performance.now() + DRAIN_PATIENCE_MS;
    this.out.push(goAway(STREAM_MAX, NO_ERROR, ''));
    this.out.push(frame(PING, 0, 0, LEAVING));
  }

  /** Sends the final GOAWAY: later streams are ignored. */
  private refuseNewCalls(): void {
    this.phase = 'last';
    this.out.push(goAway(this.lastId, NO_ERROR, ''));
    if (this.calls.size === 0) this.finish();
  }

  /** Checks the deadlines of the connection and its calls. */
  sweep(nowMs: number): void {
    const { requestTimeoutMs, keepAliveMs, idleTimeoutMs } = this.owner.options;
    if (this.phase === 'over') {
      if (nowMs >= this.untilMs) this.socket.destroy();
      return;
    }
    this.calls.sweep(nowMs);
    const patienceMs = nowMs - requestTimeoutMs;
    const unread = this.blockedSinceMs !== 0 && this.blockedSinceMs <= patienceMs;
    const pingUnanswered = this.pingSentMs !== 0 && this.pingSentMs <= patienceMs;
    const noSettings = !this.hasSettings && this.openedMs <= patienceMs;
    if (unread || pingUnanswered || noSettings) this.socket.destroy();
    else if (this.block !== undefined && this.block.sinceMs <= patienceMs)
      this.fail(ENHANCE_YOUR_CALM, 'a header block does not end');
    else if (this.phase === 'leaving' && nowMs >= this.untilMs) this.refuseNewCalls();
    else if (this.calls.size === 0 && nowMs - this.idleSinceMs >= idleTimeoutMs) this.startGoAway();
    else if (this.pingSentMs === 0 && nowMs - this.receivedMs >= keepAliveMs) {
      this.pingSentMs = nowMs;
      this.out.push(frame(PING, 0, 0, ALIVE));
    }
  }
}
