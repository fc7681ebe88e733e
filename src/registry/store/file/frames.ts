/** Format of the registry's file: 8 bytes that name the format, then frames. A frame holds the
 *  records of one append, all or none.
 *
 *    frame   = 46 | sequence number u48le | payload length u32le | CRC-32 of the payload u32le
 *              | chain u32le | CRC-32 of the 19 bytes before u32le | 0a | payload
 *    payload = record, record, … | 0a
 *    record  = key length u32le | value length u32le, all ones for null
 *              | write time f64le, ms since 1970 | key | value
 *
 *  Sequence numbers count from 1. The chain is the CRC-32 of the frame's first 15 bytes, continued
 *  from the chain of the previous frame (0 for the first frame). So a frame is valid only after the
 *  frames that it was written after.
 *
 *  Zeros may follow the last frame: room for the next frames. The first and last byte of a header
 *  and the last byte of a payload have at least two bits set, so one flipped bit never makes a part
 *  of a frame look unwritten.
 *
 *  Format 2, of earlier releases, has a header of payload length u32le, CRC-32 of the payload u32le
 *  and CRC-32 of those 8 bytes u32le. It is read, and no longer written.
 */
import { crc32 } from 'node:zlib';
import { registryError } from '../../errors.ts';
import type { LogRecord } from '../log.ts';

/** Maximum payload of one append; a greater length is damage. */
const FRAME_BYTES_MAX = 256 << 20;
const RECORD_HEADER_BYTES = 16;
const NULL_LENGTH = 0xffff_ffff;
/** Last byte of a header and of a payload: it shows that a write was completed. */
const END = 0x0a;
/** Bytes that a disk writes atomically. */
const SECTOR_BYTES = 512;

const START = 0x46;
const CHAINED_BYTES = 15;
const CHECKED_BYTES = 19;
const OLD_CHECKED_BYTES = 8;

/** Position between two frames: the number of frames before it, and the chain of the last of them.
 */
export interface ChainPlace {
  readonly frames: number;
  readonly chain: number;
}

export const CHAIN_START: ChainPlace = { frames: 0, chain: 0 };

export interface FrameFormat {
  /** First bytes of the file. */
  readonly magic: Buffer;
  readonly headerBytes: number;
  /** Length of the payload by a valid header at `at`, or undefined. */
  payloadBytesAt(bytes: Buffer, at: number): number | undefined;
  /** Payload of the complete, valid frame at `at`, or undefined. */
  payloadAt(bytes: Buffer, at: number): Buffer | undefined;
  /** Position after the valid frame at `at`, which follows the position `before`; undefined where
   *  the frame does not belong there.
   */
  next(bytes: Buffer, at: number, before: ChainPlace): ChainPlace | undefined;
  /** Sequence number of the valid frame at `at`, where the format has one. */
  sequenceAt(bytes: Buffer, at: number): number | undefined;
}

const isLength = (length: number): boolean => length > 0 && length <= FRAME_BYTES_MAX;

function payloadBehind(
  bytes: Buffer,
  from: number,
  length: number | undefined,
  crc: number,
): Buffer | undefined {
  if (length === undefined || from + length > bytes.length) return undefined;
  const payload = bytes.subarray(from, from + length);
  return crc32(payload) === crc ? payload : undefined;
}

export const FRAMES: FrameFormat = {
  magic: Buffer.from('MRREGLG3', 'latin1'),
  headerBytes: 24,
  payloadBytesAt(bytes, at) {
    if (bytes[at] !== START || bytes[at + 23] !== END) return undefined;
    const length = bytes.readUInt32LE(at + 7);
    if (!isLength(length)) return undefined;
    return crc32(bytes.subarray(at, at + CHECKED_BYTES)) === bytes.readUInt32LE(at + CHECKED_BYTES)
      ? length
      : undefined;
  },
  payloadAt(bytes, at) {
    const length = this.payloadBytesAt(bytes, at);
    return payloadBehind(
      bytes,
      at + this.headerBytes,
      length,
      length === undefined ? 0 : bytes.readUInt32LE(at + 11),
    );
  },
  next(bytes, at, { frames, chain }) {
    const after = crc32(bytes.subarray(at, at + CHAINED_BYTES), chain);
    return bytes.readUIntLE(at + 1, 6) === frames + 1 && bytes.readUInt32LE(at + CHAINED_BYTES) === after
      ? { frames: frames + 1, chain: after }
      : undefined;
  },
  sequenceAt: (bytes, at) => bytes.readUIntLE(at + 1, 6),
};

/** Format 2, without sequence numbers and chain. */
export const OLD_FRAMES: FrameFormat = {
  magic: Buffer.from('MRREGLG2', 'latin1'),
  headerBytes: 12,
  payloadBytesAt(bytes, at) {
    if (at + this.headerBytes > bytes.length) return undefined;
    const length = bytes.readUInt32LE(at);
    if (!isLength(length)) return undefined;
    const sum = crc32(bytes.subarray(at, at + OLD_CHECKED_BYTES));
    return sum === bytes.readUInt32LE(at + OLD_CHECKED_BYTES) ? length : undefined;
  },
  payloadAt(bytes, at) {
    const length = this.payloadBytesAt(bytes, at);
    return payloadBehind(
      bytes,
      at + this.headerBytes,
      length,
      length === undefined ? 0 : bytes.readUInt32LE(at + 4),
    );
  },
  next: (_bytes, _at, { frames }) => ({ frames: frames + 1, chain: 0 }),
  sequenceAt: () => undefined,
};

/** Bytes of a record in a payload. */
export const recordBytes = ({ key, value }: LogRecord): number =>
  RECORD_HEADER_BYTES + key.length + (value?.length ?? 0);

/** Encodes a frame that follows `before`. @throws store_failed for an append that is too large */
export function encodeFrame(
  records: readonly LogRecord[],
  before: ChainPlace,
): { readonly frame: Buffer; readonly after: ChainPlace } {
  let bytes = 1;
  for (const record of records) bytes += recordBytes(record);
  if (bytes > FRAME_BYTES_MAX)
    throw registryError('store_failed', `one write of ${bytes} bytes is over ${FRAME_BYTES_MAX} bytes`);
  const frame = Buffer.allocUnsafe(FRAMES.headerBytes + bytes);
  let at = FRAMES.headerBytes;
  for (const { key, value, ts } of records) {
    frame.writeUInt32LE(key.length, at);
    frame.writeUInt32LE(value === null ? NULL_LENGTH : value.length, at + 4);
    frame.writeDoubleLE(ts ?? 0, at + 8);
    at += RECORD_HEADER_BYTES;
    frame.set(key, at);
    at += key.length;
    if (value === null) continue;
    frame.set(value, at);
    at += value.length;
  }
  frame[at] = END;
  frame[0] = START;
  frame.writeUIntLE(before.frames + 1, 1, 6);
  frame.writeUInt32LE(bytes, 7);
  frame.writeUInt32LE(crc32(frame.subarray(FRAMES.headerBytes)), 11);
  const chain = crc32(frame.subarray(0, CHAINED_BYTES), before.chain);
  frame.writeUInt32LE(chain, CHAINED_BYTES);
  frame.writeUInt32LE(crc32(frame.subarray(0, CHECKED_BYTES)), CHECKED_BYTES);
  frame[23] = END;
  return { frame, after: { frames: before.frames + 1, chain } };
}

/** Decodes records, as views into the payload. @throws store_corrupt for a payload that no release
 *  has written
 */
export function recordsOf(payload: Buffer): LogRecord[] {
  const records: LogRecord[] = [];
  const end = payload.length - 1;
  let at = 0;
  while (at < end) {
    const keyBytes = at + RECORD_HEADER_BYTES <= end ? payload.readUInt32LE(at) : NULL_LENGTH;
    const valueBytes = keyBytes === NULL_LENGTH ? 0 : payload.readUInt32LE(at + 4);
    const keyAt = at + RECORD_HEADER_BYTES;
    const valueAt = keyAt + keyBytes;
    const next = valueAt + (valueBytes === NULL_LENGTH ? 0 : valueBytes);
    if (next > end)
      throw registryError('store_corrupt', 'a frame of the registry log holds no whole records');
    records.push({
      key: payload.subarray(keyAt, valueAt),
      value: valueBytes === NULL_LENGTH ? null : payload.subarray(valueAt, next),
      ts: payload.readDoubleLE(at + 8),
    });
    at = next;
  }
  return records;
}

/** State of the bytes after the last valid frame.
 *  - clean: nothing but room.
 *  - torn: a write that never finished.
 *  - damaged: bytes that were complete once, so an acknowledged write is lost.
 *  - cut: the file ends inside a frame. No crash leaves that, because the room of a frame is on
 *    disk before the frame is written.
 */
export type Tail = 'clean' | 'torn' | 'damaged' | 'cut';

/** Classifies the bytes after the last valid frame.
 *  @param bytes all of them, up to the end of the file
 *  @param offset their position in the file, for the borders of sectors
 */
export function judgeTail(bytes: Buffer, offset: number, format: FrameFormat = FRAMES): Tail {
  const { headerBytes } = format;
  let last = bytes.length - 1;
  while (last >= 0 && bytes[last] === 0) last--;
  if (last < 0) return 'clean';
  // A valid frame here belongs at another position.
  for (let later = 0; later + headerBytes <= last; later++)
    if (format.payloadAt(bytes, later) !== undefined) return 'damaged';
  const payload = format.payloadBytesAt(bytes, 0);
  if (payload === undefined) {
    if (bytes.length <= headerBytes) return 'cut';
    // An incomplete header, or a header in a sector that never reached the disk.
    if (last < headerBytes) return 'torn';
    return hasUnwrittenSector(bytes, offset, headerBytes) ? 'torn' : 'damaged';
  }
  const end = headerBytes + payload;
  if (bytes.length < end) return 'cut';
  if (last >= end) return 'damaged';
  if (last < end - 1) return 'torn';
  return hasUnwrittenSector(bytes, offset, end) ? 'torn' : 'damaged';
}

/** True when a sector's part of the first `end` bytes is all zeros. */
function hasUnwrittenSector(bytes: Buffer, offset: number, end: number): boolean {
  for (let at = 0; at < end; ) {
    const next = Math.min(end, at + SECTOR_BYTES - ((offset + at) % SECTOR_BYTES));
    if (bytes.subarray(at, next).every((byte) => byte === 0)) return true;
    at = next;
  }
  return false;
}
