/** Parser of the streaming replication protocol: splits a server's bytes into messages, whatever
 *  the chunks, and distinguishes the two kinds of CopyData.
 *
 *    message    type u8, length u32 (itself included), body
 *    CopyData   'w' start i64, end i64, sent at i64, then one message of the output plugin
 *               'k' end of the log i64, sent at i64, reply wanted u8
 *
 *  Invariants: (1) a length is used only after its bound was checked; (2) at most one message is
 *  buffered, within the bound; (3) a message that lies whole in a chunk is not copied.
 *  Source: PostgreSQL 18 documentation, 54.4 "Streaming Replication Protocol" and 54.7 "Message
 *  Formats".
 */
import { replicationError } from './port.ts';

const HEAD_BYTES = 5;
const LENGTH_BYTES = 4;
const XLOG_HEAD_BYTES = 25;
const KEEPALIVE_BYTES = 18;
/** Bound of messages other than CopyData: status lines, errors and notices. */
const PLAIN_BYTES_MAX = 1 << 20;

const COPY_DATA = 0x64;
const XLOG_DATA = 0x77;
const KEEPALIVE = 0x6b;

export interface FrameHandlers {
  readonly messageBytesMax: number;
  readonly onMessage: (bytes: Buffer, start: number, end: number) => void;
  readonly onKeepalive: (walEnd: bigint, replyWanted: boolean) => void;
  readonly onOversize: (byteCount: number) => void;
  /** Handles every message other than CopyData. */
  readonly onPlain: (type: number, bytes: Buffer, start: number, end: number) => void;
}

const broken = (what: string): Error =>
  replicationError('replication_protocol', `the server sent ${what}`, {
    next: 'check that -postgres is a PostgreSQL server of version 15 or later, not a proxy',
  });

export class ReplicationFrameReader {
  private readonly handlers: FrameHandlers;
  /** First `filled` bytes of the head of a message whose rest has not arrived. */
  private readonly head = Buffer.alloc(HEAD_BYTES);
  private body: Buffer | undefined;
  private filled = 0;
  /** Bytes of a dropped message that have not arrived. */
  private skipping = 0;

  constructor(handlers: FrameHandlers) {
    this.handlers = handlers;
  }

  /** Parses a chunk. @throws replication_protocol, and errors of a handler */
  push(chunk: Buffer): void {
    const size = chunk.length;
    let at = 0;
    while (at < size) {
      if (this.skipping > 0) {
        const skipped = Math.min(this.skipping, size - at);
        this.skipping -= skipped;
        at += skipped;
      } else if (this.body !== undefined) {
        at += this.complete(chunk, at);
      } else if (this.filled > 0 || size - at < HEAD_BYTES) {
        const taken = Math.min(HEAD_BYTES - this.filled, size - at);
        chunk.copy(this.head, this.filled, at, at + taken);
        this.filled += taken;
        at += taken;
        if (this.filled === HEAD_BYTES) {
          this.filled = 0;
          this.open(this.head[0] as number, this.bodyBytes(this.head, 0));
        }
      } else {
        const type = chunk[at] as number;
        const bytes = this.bodyBytes(chunk, at);
        const start = at + HEAD_BYTES;
        if (bytes <= size - start) {
          at = start + bytes;
          if (type === COPY_DATA && bytes > this.handlers.messageBytesMax) this.handlers.onOversize(bytes);
          else this.handle(type, chunk, start, at);
        } else {
          at = start;
          this.open(type, bytes);
        }
      }
    }
  }

  private bodyBytes(bytes: Buffer, at: number): number {
    const type = bytes[at] as number;
    const length = bytes.readUInt32BE(at + 1);
    if (length < LENGTH_BYTES)
      throw broken(`a message of ${length} bytes, which is shorter than its own length`);
    if (type !== COPY_DATA && length > PLAIN_BYTES_MAX)
      throw broken(`a message of type 0x${type.toString(16)} and ${length} bytes`);
    return length - LENGTH_BYTES;
  }

  private open(type: number, bytes: number): void {
    if (bytes > this.handlers.messageBytesMax && type === COPY_DATA) {
      this.skipping = bytes;
      this.handlers.onOversize(bytes);
      return;
    }
    if (bytes === 0) {
      this.handle(type, this.head, HEAD_BYTES, HEAD_BYTES);
      return;
    }
    this.head[0] = type;
    this.body = Buffer.allocUnsafeSlow(bytes);
  }

  /** Copies bytes of the chunk into the buffered message; returns their number. */
  private complete(chunk: Buffer, at: number): number {
    const body = this.body as Buffer;
    const taken = Math.min(body.length - this.filled, chunk.length - at);
    chunk.copy(body, this.filled, at, at + taken);
    this.filled += taken;
    if (this.filled === body.length) {
      this.body = undefined;
      this.filled = 0;
      this.handle(this.head[0] as number, body, 0, body.length);
    }
    return taken;
  }

  private handle(type: number, bytes: Buffer, start: number, end: number): void {
    if (type !== COPY_DATA) {
      this.handlers.onPlain(type, bytes, start, end);
      return;
    }
    const kind = bytes[start];
    if (kind === XLOG_DATA && end - start > XLOG_HEAD_BYTES) {
      this.handlers.onMessage(bytes, start + XLOG_HEAD_BYTES, end);
    } else if (kind === KEEPALIVE && end - start === KEEPALIVE_BYTES) {
      this.handlers.onKeepalive(bytes.readBigUInt64BE(start + 1), bytes[end - 1] === 1);
    } else {
      throw broken(`${end - start} bytes of copy data that are neither log data nor a keepalive`);
    }
  }
}

/** Milliseconds from 1970 to 2000, the epoch of the protocol's times. */
const EPOCH_2000_MS = 946_684_800_000;
const STATUS_BODY_BYTES = 34;

/** Standby status update: everything below `lsn` is written, flushed and applied. */
export function statusUpdate(lsn: bigint, wallNowMs: number, replyWanted: boolean): Buffer {
  const frame = Buffer.allocUnsafeSlow(HEAD_BYTES + STATUS_BODY_BYTES);
  frame[0] = COPY_DATA;
  frame.writeUInt32BE(LENGTH_BYTES + STATUS_BODY_BYTES, 1);
  frame[5] = 0x72;
  frame.writeBigUInt64BE(lsn, 6);
  frame.writeBigUInt64BE(lsn, 14);
  frame.writeBigUInt64BE(lsn, 22);
  frame.writeBigInt64BE(BigInt(Math.round(wallNowMs - EPOCH_2000_MS)) * 1000n, 30);
  frame[38] = replyWanted ? 1 : 0;
  return frame;
}

/** A simple query. */
export function queryMessage(text: string): Buffer {
  const bytes = Buffer.byteLength(text);
  const frame = Buffer.alloc(HEAD_BYTES + bytes + 1);
  frame[0] = 0x51;
  frame.writeUInt32BE(LENGTH_BYTES + bytes + 1, 1);
  frame.write(text, HEAD_BYTES);
  return frame;
}

/** Ends the session. */
export const TERMINATE = Buffer.from([0x58, 0, 0, 0, LENGTH_BYTES]);

export interface ServerFailure {
  readonly sqlstate: string;
  readonly message: string;
}

/** Reads code and message of an ErrorResponse. */
export function readFailure(bytes: Buffer, start: number, end: number): ServerFailure {
  let sqlstate = '';
  let message = '';
  for (let at = start; at < end && bytes[at] !== 0; ) {
    const zero = bytes.indexOf(0, at + 1);
    const stop = zero < 0 || zero > end ? end : zero;
    const text = bytes.toString('utf8', at + 1, stop);
    if (bytes[at] === 0x43) sqlstate = text;
    else if (bytes[at] === 0x4d) message = text;
    at = stop + 1;
  }
  return { sqlstate, message };
}
