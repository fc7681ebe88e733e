/** Reader and writer of HTTP/2 frames. Source: RFC 9113, sections 3.4, 4.1, 6 and 7. */

export const DATA = 0;
export const HEADERS = 1;
export const PRIORITY = 2;
export const RST_STREAM = 3;
export const SETTINGS = 4;
export const PUSH_PROMISE = 5;
export const PING = 6;
export const GOAWAY = 7;
export const WINDOW_UPDATE = 8;
export const CONTINUATION = 9;

/** Flag of DATA and HEADERS. */
export const END_STREAM = 0x1;
/** Flag of SETTINGS and PING. */
export const ACK = 0x1;
/** Flag of HEADERS and CONTINUATION. */
export const END_HEADERS = 0x4;
export const PADDED = 0x8;
export const WITH_PRIORITY = 0x20;

export const NO_ERROR = 0;
export const PROTOCOL_ERROR = 1;
export const FLOW_CONTROL_ERROR = 3;
export const STREAM_CLOSED = 5;
export const FRAME_SIZE_ERROR = 6;
export const REFUSED_STREAM = 7;
export const CANCEL = 8;
export const COMPRESSION_ERROR = 9;
export const ENHANCE_YOUR_CALM = 11;

export const SETTINGS_HEADER_TABLE_SIZE = 1;
export const SETTINGS_ENABLE_PUSH = 2;
export const SETTINGS_MAX_CONCURRENT_STREAMS = 3;
export const SETTINGS_INITIAL_WINDOW_SIZE = 4;
export const SETTINGS_MAX_FRAME_SIZE = 5;
export const SETTINGS_MAX_HEADER_LIST_SIZE = 6;

export const HEAD_BYTES = 9;
/** Largest payload of a frame: the default, which the server does not raise. */
export const FRAME_BYTES_MAX = 16_384;
export const WINDOW_INITIAL = 65_535;
export const WINDOW_MAX = 2 ** 31 - 1;
export const STREAM_MAX = 2 ** 31 - 1;
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');
/** Initial size of the buffer of an incomplete frame; it grows by received bytes, never by
 *  announced ones. */
const KEPT_BYTES_MIN = 256;
/** Larger buffers are released when their frame is complete. */
const KEPT_BYTES_IDLE_MAX = 1024;

export function writeHead(
  into: Buffer,
  at: number,
  length: number,
  type: number,
  flags: number,
  stream: number,
): number {
  into[at] = length >>> 16;
  into[at + 1] = (length >>> 8) & 0xff;
  into[at + 2] = length & 0xff;
  into[at + 3] = type;
  into[at + 4] = flags;
  return into.writeUInt32BE(stream, at + 5);
}

export function frame(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + payload.length);
  bytes.set(payload, writeHead(bytes, 0, payload.length, type, flags, stream));
  return bytes;
}

/** Frame whose payload is one 32-bit number: RST_STREAM, WINDOW_UPDATE. */
export function numberFrame(type: number, stream: number, value: number): Buffer {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + 4);
  bytes.writeUInt32BE(value, writeHead(bytes, 0, 4, type, 0, stream));
  return bytes;
}

/** HEADERS frame, followed by CONTINUATION frames when the block is longer than a frame. */
export function headerFrames(stream: number, block: Buffer, endStream: boolean): Buffer {
  const flags = endStream ? END_STREAM : 0;
  if (block.length <= FRAME_BYTES_MAX) return frame(HEADERS, flags | END_HEADERS, stream, block);
  const frames: Buffer[] = [];
  for (let from = 0; from < block.length; from += FRAME_BYTES_MAX) {
    const part = block.subarray(from, from + FRAME_BYTES_MAX);
    const last = from + FRAME_BYTES_MAX >= block.length ? END_HEADERS : 0;
    frames.push(
      from === 0 ? frame(HEADERS, flags | last, stream, part) : frame(CONTINUATION, last, stream, part),
    );
  }
  return Buffer.concat(frames);
}

export interface FrameSink {
  /** Handles a whole frame; its payload from `from` to `to` is borrowed. False: stop reading. */
  onFrame(type: number, flags: number, stream: number, bytes: Buffer, from: number, to: number): boolean;
  /** Handles bytes that are not HTTP/2, with the error code and the reason. */
  onBadBytes(code: number, why: string): void;
}

/** Splits chunks of any size into frames. */
export class Http2FrameReader {
  private readonly sink: FrameSink;
  /** Bytes of the preface that have arrived. */
  private prefaceRead = 0;
  /** Buffer of an incomplete frame. */
  private kept: Buffer | undefined;
  private size = 0;
  private over = false;

  constructor(sink: FrameSink) {
    this.sink = sink;
  }

  /** Memory of an incomplete frame, in bytes. */
  get heldBytes(): number {
    return this.size === 0 ? 0 : (this.kept as Buffer).length;
  }

  /** Reads a chunk. @cost O(chunk) */
  read(chunk: Buffer): void {
    if (this.over) return;
    let at = this.prefaceRead < PREFACE.length ? this.readPreface(chunk) : 0;
    if (this.size > 0) at = this.fill(chunk, at);
    while (!this.over && chunk.length - at >= HEAD_BYTES) {
      const length = lengthAt(chunk, at);
      const end = at + HEAD_BYTES + length;
      if (length > FRAME_BYTES_MAX) this.refuseSize(length);
      else if (end > chunk.length) break;
      else this.deliver(chunk, at, end);
      at = end;
    }
    if (!this.over && at < chunk.length) this.keep(chunk, at, chunk.length - at);
  }

  private readPreface(chunk: Buffer): number {
    let at = 0;
    while (this.prefaceRead < PREFACE.length && at < chunk.length) {
      if (chunk[at++] !== PREFACE[this.prefaceRead++]) {
        this.over = true;
        this.sink.onBadBytes(PROTOCOL_ERROR, 'this port accepts HTTP/2 only');
        break;
      }
    }
    return at;
  }

  private refuseSize(length: number): void {
    this.over = true;
    this.sink.onBadBytes(FRAME_SIZE_ERROR, `a frame of ${length} bytes is over ${FRAME_BYTES_MAX}`);
  }

  private deliver(bytes: Buffer, at: number, end: number): void {
    const stream = bytes.readUInt32BE(at + 5) & STREAM_MAX;
    const more = this.sink.onFrame(
      bytes[at + 3] as number,
      bytes[at + 4] as number,
      stream,
      bytes,
      at + HEAD_BYTES,
      end,
    );
    if (!more) this.over = true;
  }

  /** Continues an incomplete frame: first its head, which gives the length. */
  private fill(chunk: Buffer, from: number): number {
    let at = from;
    while (!this.over && this.size > 0 && at < chunk.length) {
      const missing = this.missing();
      const count = Math.min(missing, chunk.length - at);
      this.keep(chunk, at, count);
      at += count;
      if (count < missing) break;
      const kept = this.kept as Buffer;
      const length = lengthAt(kept, 0);
      if (length > FRAME_BYTES_MAX) this.refuseSize(length);
      else if (this.size === HEAD_BYTES + length) {
        const end = this.size;
        this.size = 0;
        if (kept.length > KEPT_BYTES_IDLE_MAX) this.kept = undefined;
        this.deliver(kept, 0, end);
      }
    }
    return at;
  }

  /** Bytes missing to the end of the head, or of the frame. */
  private missing(): number {
    const whole = this.size < HEAD_BYTES ? HEAD_BYTES : HEAD_BYTES + lengthAt(this.kept as Buffer, 0);
    return whole - this.size;
  }

  private keep(bytes: Buffer, at: number, count: number): void {
    const size = this.size + count;
    if (this.kept === undefined || size > this.kept.length) {
      const grown = Buffer.allocUnsafeSlow(
        Math.max(KEPT_BYTES_MIN, size, Math.min(2 * size, HEAD_BYTES + FRAME_BYTES_MAX)),
      );
      this.kept?.copy(grown, 0, 0, this.size);
      this.kept = grown;
    }
    bytes.copy(this.kept, this.size, at, at + count);
    this.size = size;
  }
}

const lengthAt = (bytes: Buffer, at: number): number =>
  ((bytes[at] as number) << 16) | ((bytes[at + 1] as number) << 8) | (bytes[at + 2] as number);
