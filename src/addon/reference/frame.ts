/** Wire frames in TypeScript; the addon's implementation is native/kernel/frame.cc.
 *
 *  Grammar: 00, schema id (u32 big-endian), for Protobuf the message indexes, payload. Message
 *  indexes are zigzag varints `count, index…`, from the file down to the message; the path [0] is
 *  written as the single byte 00 and read as `02 00` too. A varint is at most five bytes, within 32
 *  bits, and as short as its number allows. Source: wire format of the schema registries, magic
 *  byte 0. */
import { coreError } from '../../core/errors.ts';
import type { FrameBatch } from '../../core/layout/frame-batch.ts';
import {
  FRAME,
  FRAME_STATUS,
  RECORD_FLAG,
  SPAN,
  TIMESTAMP_TYPE,
  WIRE_FRAME,
} from '../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { arenaOf, demandHeader, demandInteger, demandRows, rowsOf } from './check.ts';

const VARINT_BYTES_MAX = 5;

const NO_BYTES: Uint8Array = new Uint8Array(0);

/** Reader of message indexes, with its position and last results. */
export class IndexReader {
  /** Behind the varint that was read last. */
  at = 0;
  /** Start of the varint that was read last. */
  begun = 0;
  /** Index of a path of one; -1 for a longer path. */
  messageIndex = 0;
  /** Number that was read last. */
  private value = 0;
  private end = 0;
  private bytes: Uint8Array = NO_BYTES;

  /** Reads one zigzag varint. Returns FRAME_STATUS.*. */
  private varint(): number {
    let bits = 0;
    this.begun = this.at;
    for (let i = 0; i < VARINT_BYTES_MAX; i++) {
      if (this.at === this.end) return FRAME_STATUS.TRUNCATED;
      const byte = this.bytes[this.at++] as number;
      bits |= (byte & 0x7f) << (7 * i);
      if (byte >= 0x80) continue;
      const past32Bits = i === VARINT_BYTES_MAX - 1 && byte > 0x0f;
      const longerThanNeeded = i > 0 && byte === 0;
      if (past32Bits || longerThanNeeded) return FRAME_STATUS.BAD_MESSAGE_INDEX;
      this.value = (bits >>> 1) ^ -(bits & 1);
      return FRAME_STATUS.OK;
    }
    return FRAME_STATUS.BAD_MESSAGE_INDEX;
  }

  /** Reads a whole path in `bytes[start, end)`. Returns FRAME_STATUS.*. @param into receives the
   *  indexes, unless the path is written as the single byte 00 */
  path(bytes: Uint8Array, start: number, end: number, into?: number[]): number {
    this.bytes = bytes;
    this.at = start;
    this.end = end;
    this.messageIndex = 0;
    let status = this.varint();
    if (status !== FRAME_STATUS.OK) return status;
    const depth = this.value;
    if (depth < 0 || depth > FRAME.MESSAGE_DEPTH_MAX) return FRAME_STATUS.BAD_MESSAGE_INDEX;
    for (let i = 0; i < depth; i++) {
      status = this.varint();
      if (status !== FRAME_STATUS.OK) return status;
      if (this.value < 0) return FRAME_STATUS.BAD_MESSAGE_INDEX;
      this.messageIndex = depth === 1 ? this.value : -1;
      into?.push(this.value);
    }
    return FRAME_STATUS.OK;
  }
}

/** Kernels.scanFrames. A value that leaves the used arena is reported as truncated; all other
 *  columns of rows that are not OK are 0. */
export function scanFrames(records: RecordBatch, protobuf: boolean, into: FrameBatch): number {
  const rows = rowsOf(records, 'records');
  const arenaUsed = arenaOf(records, 'records');
  rowsOf(into, 'into');
  demandRows(into.rowCapacity, rows, 'into');
  const { valueStart, valueLength, arena } = records.columns;
  const bytes = new DataView(records.buffer, arena.byteOffset, arenaUsed);
  const indexes = new IndexReader();
  const { schemaId, payloadStart, payloadLength, messageIndex, indexStart, status } = into.columns;
  let framed = 0;
  for (let row = 0; row < rows; row++) {
    const start = valueStart[row] as number;
    const length = valueLength[row] as number;
    const end = start + length;
    let verdict: number;
    if (length < 0) verdict = FRAME_STATUS.NULL_VALUE;
    else if (length === 0 || end > arenaUsed) verdict = FRAME_STATUS.TRUNCATED;
    else if (arena[start] !== FRAME.MAGIC) verdict = FRAME_STATUS.BAD_MAGIC;
    else if (length < FRAME.HEADER_BYTES) verdict = FRAME_STATUS.TRUNCATED;
    else if (protobuf) verdict = indexes.path(arena, start + FRAME.HEADER_BYTES, end);
    else verdict = FRAME_STATUS.OK;
    status[row] = verdict;
    if (verdict === FRAME_STATUS.OK) {
      const payload = protobuf ? indexes.at : start + FRAME.HEADER_BYTES;
      schemaId[row] = bytes.getUint32(start + WIRE_FRAME.SCHEMA_ID, false);
      payloadStart[row] = payload;
      payloadLength[row] = end - payload;
      messageIndex[row] = protobuf ? indexes.messageIndex : 0;
      indexStart[row] = start + FRAME.HEADER_BYTES;
      framed++;
    } else {
      schemaId[row] = 0;
      payloadStart[row] = 0;
      payloadLength[row] = 0;
      messageIndex[row] = 0;
      indexStart[row] = 0;
    }
  }
  into.rowCount = rows;
  return framed;
}

/** Zigzag varint of a number >= 0. */
function varintBytes(value: number): number[] {
  let bits = value * 2;
  const out: number[] = [];
  while (bits > 0x7f) {
    out.push((bits % 0x80) | 0x80);
    bits = Math.floor(bits / 0x80);
  }
  out.push(bits);
  return out;
}

/** Message indexes as bytes. @throws out_of_range */
export function messageIndexBytes(messageIndexes: Int32Array): readonly number[] {
  const depth = messageIndexes.length;
  if (depth < 1 || depth > FRAME.MESSAGE_DEPTH_MAX || messageIndexes.some((index) => index < 0))
    throw coreError('out_of_range', 'messageIndexes: a number outside its range');
  if (depth === 1 && messageIndexes[0] === 0) return [0];
  return [...varintBytes(depth), ...[...messageIndexes].flatMap(varintBytes)];
}

/** Bytes before a payload: header, and the message indexes unless null. @throws out_of_range */
export function framePrefix(schemaId: number, messageIndexes: Int32Array | null): Uint8Array {
  const header = [FRAME.MAGIC, schemaId >>> 24, schemaId >>> 16, schemaId >>> 8, schemaId];
  if (messageIndexes === null) return Uint8Array.from(header);
  return Uint8Array.from([...header, ...messageIndexBytes(messageIndexes)]);
}

/** Kernels.writeFrames. A payload length of SPAN.NULL appends a null value without a frame.
 *  @throws out_of_range, with nothing written, when a span leaves `payloads`, or there are fewer
 *  spans than `count` */
export function writeFrames(
  payloads: Uint8Array,
  payloadStart: Uint32Array,
  payloadLength: Int32Array,
  count: number,
  schemaId: number,
  messageIndexes: Int32Array | null,
  into: RecordBatch,
): number {
  demandHeader(into, 'into');
  demandInteger(count, 0, 0xffff_ffff, 'count');
  demandInteger(schemaId, 0, 0xffff_ffff, 'schemaId');
  let row = rowsOf(into, 'into');
  let at = arenaOf(into, 'into');
  const prefix = framePrefix(schemaId, messageIndexes);
  const spansFit = (): boolean => {
    if (payloadStart.length < count || payloadLength.length < count) return false;
    for (let i = 0; i < count; i++) {
      const length = payloadLength[i] as number;
      if (length < SPAN.NULL) return false;
      if (length >= 0 && (payloadStart[i] as number) + length > payloads.length) return false;
    }
    return true;
  };
  if (!spansFit()) throw coreError('out_of_range', 'payloads: a span leaves its buffer');
  const c = into.columns;
  let taken = 0;
  for (; taken < count && row < into.rowCapacity; taken++, row++) {
    const start = payloadStart[taken] as number;
    const length = payloadLength[taken] as number;
    const size = length < 0 ? 0 : prefix.length + length;
    if (at + size > into.arenaCapacity) break;
    if (length >= 0) {
      for (let i = 0; i < prefix.length; i++) c.arena[at + i] = prefix[i] as number;
      c.arena.set(payloads.subarray(start, start + length), at + prefix.length);
    }
    c.offset[row] = BigInt(SPAN.NO_OFFSET);
    c.timestamp[row] = 0n;
    c.topicIndex[row] = 0;
    c.partition[row] = -1;
    c.keyStart[row] = at;
    c.keyLength[row] = SPAN.NULL;
    c.valueStart[row] = at;
    c.valueLength[row] = length < 0 ? SPAN.NULL : size;
    c.headersStart[row] = at + size;
    c.headersLength[row] = 0;
    c.timestampType[row] = TIMESTAMP_TYPE.NONE;
    c.flags[row] = RECORD_FLAG.KEY_NULL | (length < 0 ? RECORD_FLAG.VALUE_NULL : 0);
    at += size;
  }
  into.rowCount = row;
  into.arenaUsed = at;
  return taken;
}
