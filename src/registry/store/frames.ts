/** The bytes of the registry's file: frames, each the records of one append, whole or not there.
 *
 *    frame   = payload length u32le | CRC-32 of the payload u32le | CRC-32 of those 8 bytes u32le | payload
 *    payload = record, record, … | 0a
 *    record  = key length u32le | value length u32le, all ones for null | written at f64le, ms since 1970 | key | value
 *
 *  Behind the last frame the file may hold zeros: room for the next ones. So the last byte of a payload is not one.
 */
import { crc32 } from 'node:zlib';
import { registryError } from '../errors.ts';
import type { LogRecord } from './log.ts';

export const FRAME_HEADER_BYTES = 12;
/** Payload of one append; anything longer is damage. */
const FRAME_BYTES_MAX = 256 << 20;
const RECORD_HEADER_BYTES = 16;
const NULL_LENGTH = 0xffff_ffff;
/** Shows that a write went to its end. */
const END = 0x0a;
/** What a disk writes whole or not at all. */
const SECTOR_BYTES = 512;

/** @throws store_failed where one append is too large */
export function encodeFrame(records: readonly LogRecord[]): Buffer {
  let bytes = 1;
  for (const { key, value } of records) bytes += RECORD_HEADER_BYTES + key.length + (value?.length ?? 0);
  if (bytes > FRAME_BYTES_MAX)
    throw registryError('store_failed', `one write of ${bytes} bytes is over ${FRAME_BYTES_MAX} bytes`);
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + bytes);
  let at = FRAME_HEADER_BYTES;
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
  const payload = frame.subarray(FRAME_HEADER_BYTES);
  frame.writeUInt32LE(payload.length, 0);
  frame.writeUInt32LE(crc32(payload), 4);
  frame.writeUInt32LE(crc32(frame.subarray(0, 8)), 8);
  return frame;
}

/** Length of the payload by a sound header, or undefined. */
export function payloadBytesAt(bytes: Buffer, at: number): number | undefined {
  if (at + FRAME_HEADER_BYTES > bytes.length) return undefined;
  const length = bytes.readUInt32LE(at);
  if (length === 0 || length > FRAME_BYTES_MAX) return undefined;
  return crc32(bytes.subarray(at, at + 8)) === bytes.readUInt32LE(at + 8) ? length : undefined;
}

/** The payload of the sound and whole frame at `at`, or undefined. */
export function payloadAt(bytes: Buffer, at: number): Buffer | undefined {
  const length = payloadBytesAt(bytes, at);
  if (length === undefined || at + FRAME_HEADER_BYTES + length > bytes.length) return undefined;
  const payload = bytes.subarray(at + FRAME_HEADER_BYTES, at + FRAME_HEADER_BYTES + length);
  return crc32(payload) === bytes.readUInt32LE(at + 4) ? payload : undefined;
}

/** Views into the payload. @throws store_corrupt for a payload that no release has written */
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

/** What stands behind the last sound frame. clean: nothing but room. torn: a write that never finished. damaged:
 *  bytes that were whole once, so that something acknowledged is lost. cut: the file ends inside a frame, which no
 *  crash leaves, because the room of a frame is on disk before the frame is written. */
export type Tail = 'clean' | 'torn' | 'damaged' | 'cut';

/** @param bytes all that follows the last sound frame, up to the end of the file
 *  @param offset where in the file they start, for the borders of sectors */
export function judgeTail(bytes: Buffer, offset: number): Tail {
  let last = bytes.length - 1;
  while (last >= 0 && bytes[last] === 0) last--;
  if (last < 0) return 'clean';
  for (let later = 1; later + FRAME_HEADER_BYTES <= last; later++)
    if (payloadAt(bytes, later) !== undefined) return 'damaged';
  const payload = payloadBytesAt(bytes, 0);
  if (payload === undefined) {
    if (bytes.length <= FRAME_HEADER_BYTES) return 'cut';
    // Fewer bytes than a header, or a header in a sector that never reached the disk.
    if (last < FRAME_HEADER_BYTES) return 'torn';
    return hasUnwrittenSector(bytes, offset, FRAME_HEADER_BYTES) ? 'torn' : 'damaged';
  }
  const end = FRAME_HEADER_BYTES + payload;
  if (bytes.length < end) return 'cut';
  if (last >= end) return 'damaged';
  if (last < end - 1) return 'torn';
  return hasUnwrittenSector(bytes, offset, end) ? 'torn' : 'damaged';
}

/** Whether a sector's share of the first `end` bytes is all zeros. */
function hasUnwrittenSector(bytes: Buffer, offset: number, end: number): boolean {
  for (let at = 0; at < end; ) {
    const next = Math.min(end, at + SECTOR_BYTES - ((offset + at) % SECTOR_BYTES));
    if (bytes.subarray(at, next).every((byte) => byte === 0)) return true;
    at = next;
  }
  return false;
}
