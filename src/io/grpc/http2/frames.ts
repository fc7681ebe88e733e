/** HTTP/2 frames as bytes: cut out of what a socket gives, and written. Source: RFC 9113, sections 3.4, 4.1, 6 and 7. */

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

/** Of DATA and HEADERS. */
export const END_STREAM = 0x1;
/** Of SETTINGS and PING. */
export const ACK = 0x1;
/** Of HEADERS and CONTINUATION. */
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
/** Payload of a frame: what every endpoint takes, and we do not ask for more. */
export const FRAME_BYTES_MAX = 16_384;
export const WINDOW_INITIAL = 65_535;
export const WINDOW_MAX = 2 ** 31 - 1;
export const STREAM_MAX = 2 ** 31 - 1;
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');
/** What is kept of a frame grows from here, with what came and never with what was only announced. */
const KEPT_BYTES_MIN = 256;
/** A larger buffer is let go as soon as its frame is read. */
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

/** A frame whose payload is one number of 32 bits: RST_STREAM, WINDOW_UPDATE. */
export function numberFrame(type: number, stream: number, value: number): Buffer {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + 4);
  bytes.writeUInt32BE(value, writeHead(bytes, 0, 4, type, 0, stream));
  return bytes;
}

/** One HEADERS frame, or with CONTINUATION where the block is longer than a frame. */
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

export interface FrameTaker {
  /** A whole frame, its payload from `from` to `to` and only until this returns. False: nothing more is to be read. */
  takeFrame(type: number, flags: number, stream: number, bytes: Buffer, from: number, to: number): boolean;
  /** The bytes are no HTTP/2: the error code, and why. */
  refuseBytes(code: number, why: string): void;
}

/** Cuts frames out of chunks of any size. */
export class FrameReader {
  private readonly taker: FrameTaker;
  /** Bytes of the preface that came. */
  private greeted = 0;
  /** The beginning of a frame. */
  private kept: Buffer | undefined;
  private size = 0;
  private over = false;

  constructor(taker: FrameTaker) {
    this.taker = taker;
  }

  /** Bytes held of a frame that is not whole. */
  get heldBytes(): number {
    return this.size === 0 ? 0 : (this.kept as Buffer).length;
  }

  /** @cost O(chunk) */
  read(chunk: Buffer): void {
    if (this.over) return;
    let at = this.greeted < PREFACE.length ? this.greet(chunk) : 0;
    if (this.size > 0) at = this.fill(chunk, at);
    while (!this.over && chunk.length - at >= HEAD_BYTES) {
      const length = lengthAt(chunk, at);
      const end = at + HEAD_BYTES + length;
      if (length > FRAME_BYTES_MAX) this.refuseSize(length);
      else if (end > chunk.length) break;
      else this.give(chunk, at, end);
      at = end;
    }
    if (!this.over && at < chunk.length) this.keep(chunk, at, chunk.length - at);
  }

  private greet(chunk: Buffer): number {
    let at = 0;
    while (this.greeted < PREFACE.length && at < chunk.length) {
      if (chunk[at++] !== PREFACE[this.greeted++]) {
        this.over = true;
        this.taker.refuseBytes(PROTOCOL_ERROR, 'this port speaks HTTP/2 alone');
        break;
      }
    }
    return at;
  }

  private refuseSize(length: number): void {
    this.over = true;
    this.taker.refuseBytes(FRAME_SIZE_ERROR, `a frame of ${length} bytes is over ${FRAME_BYTES_MAX}`);
  }

  private give(bytes: Buffer, at: number, end: number): void {
    const stream = bytes.readUInt32BE(at + 5) & STREAM_MAX;
    const more = this.taker.takeFrame(
      bytes[at + 3] as number,
      bytes[at + 4] as number,
      stream,
      bytes,
      at + HEAD_BYTES,
      end,
    );
    if (!more) this.over = true;
  }

  /** Goes on with the frame that has begun: first its head, which says how much is to come. */
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
        this.give(kept, 0, end);
      }
    }
    return at;
  }

  /** Bytes to the end of the head, or of the frame. */
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
