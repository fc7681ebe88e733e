/** Frame of a changelog record: a header of 32 bytes, then the body, padded to a multiple of 8.
 *
 *      0 magic u32 | 4 crc32 of all bytes after it, u32 | 8 bytes of the body u32 | 12 kind u32
 *     16 seq u64 | 24 durable u64: records up to this one were durable when this one was appended
 *     32 body
 *
 *  All numbers are little-endian. `durable` distinguishes a tail that a crash tore, because appends
 *  do not wait, from damage to durable records. */
import { crc32 } from 'node:zlib';

export const FRAME_HEADER_BYTES = 32;
/** Greatest length of a body, in bytes. A batch has at most a few million deltas. */
const FRAME_BODY_BYTES_MAX = 256 * 1024 * 1024;

const MAGIC = 0x4c43524d;
const CRC_FROM = 8;
const TWO_32 = 4_294_967_296;
const SEQ_LIMIT = 2 ** 53;

export interface Frame {
  readonly seq: number;
  readonly kind: number;
  readonly durable: number;
  /** Borrowed: valid until the next frame is read. */
  readonly body: Uint8Array;
}

/** Bytes of a frame with its padding. */
export const frameBytes = (bodyBytes: number): number => FRAME_HEADER_BYTES + Math.ceil(bodyBytes / 8) * 8;

/** Writes a frame to `into` at `at`, which has room for frameBytes. Returns the end of the frame.
 */
export function writeFrame(
  into: Uint8Array,
  at: number,
  kind: number,
  seq: number,
  durable: number,
  parts: readonly Uint8Array[],
): number {
  let end = at + FRAME_HEADER_BYTES;
  for (const part of parts) {
    into.set(part, end);
    end += part.length;
  }
  const bodyBytes = end - at - FRAME_HEADER_BYTES;
  const padded = at + frameBytes(bodyBytes);
  into.fill(0, end, padded);
  const view = new DataView(into.buffer, into.byteOffset + at, FRAME_HEADER_BYTES);
  view.setUint32(0, MAGIC, true);
  view.setUint32(8, bodyBytes, true);
  view.setUint32(12, kind, true);
  setU64(view, 16, seq);
  setU64(view, 24, durable);
  view.setUint32(4, crc32(into.subarray(at + CRC_FROM, padded)), true);
  return padded;
}

/** Reads the frame at `at`. Returns the frame and its end, the number of bytes that an incomplete
 *  frame needs, or the reason why there is no frame. Accepts any bytes. */
export function readFrame(
  bytes: Uint8Array,
  at: number,
): { readonly frame: Frame; readonly end: number } | { readonly needs: number } | { readonly fault: string } {
  if (bytes.length - at < FRAME_HEADER_BYTES) return { needs: FRAME_HEADER_BYTES };
  const view = new DataView(bytes.buffer, bytes.byteOffset + at, FRAME_HEADER_BYTES);
  if (view.getUint32(0, true) !== MAGIC) return { fault: 'has no record' };
  const bodyBytes = view.getUint32(8, true);
  if (bodyBytes > FRAME_BODY_BYTES_MAX) return { fault: `has a record of ${bodyBytes} bytes` };
  const needs = frameBytes(bodyBytes);
  if (bytes.length - at < needs) return { needs };
  if (crc32(bytes.subarray(at + CRC_FROM, at + needs)) !== view.getUint32(4, true))
    return { fault: 'has a record whose checksum does not match' };
  const seq = getU64(view, 16);
  const durable = getU64(view, 24);
  if (seq >= SEQ_LIMIT || durable >= SEQ_LIMIT) return { fault: 'has a record with an impossible number' };
  const from = at + FRAME_HEADER_BYTES;
  const frame = {
    seq,
    durable,
    kind: view.getUint32(12, true),
    body: bytes.subarray(from, from + bodyBytes),
  };
  return { frame, end: at + needs };
}

function setU64(view: DataView, at: number, value: number): void {
  view.setUint32(at, value % TWO_32, true);
  view.setUint32(at + 4, Math.floor(value / TWO_32), true);
}

const getU64 = (view: DataView, at: number): number =>
  view.getUint32(at + 4, true) * TWO_32 + view.getUint32(at, true);
