/** Batch of broker records: columns and an arena in one ArrayBuffer, allocated once and reused.
 *  Invariants: (1) rowCount <= rowCapacity and arenaUsed <= arenaCapacity. (2) Every span lies
 *  inside the arena. (3) Views borrow the batch: they are valid until it is filled or cleared. The
 *  class has no state outside the buffer, so a batch can cross threads as its buffer alone. */
import { coreError, invariant } from '../errors.ts';
import {
  BATCH,
  BATCH_HEADER,
  RECORD_BATCH_ID,
  RECORD_FLAG,
  RECORD_HEADER,
  type RecordBatchViews,
  recordBatchBytes,
  recordBatchViews,
  SPAN,
  TIMESTAMP_TYPE,
} from './layouts.gen.ts';

const ROW_COUNT = BATCH_HEADER.ROW_COUNT / 4;
const ROW_CAPACITY = BATCH_HEADER.ROW_CAPACITY / 4;
const ARENA_USED = BATCH_HEADER.ARENA_USED / 4;
const ARENA_CAPACITY = BATCH_HEADER.ARENA_CAPACITY / 4;

/** Spans are u32 offsets and i32 lengths, so an arena stays below 2 GiB. */
const ARENA_BYTES_MAX = 0x7fff_ffff - 64;
export const BATCH_ROWS_MAX = 1 << 24;

export type RecordHeader = readonly [name: string, value: Uint8Array | null];

export interface RecordInput {
  readonly topicIndex?: number;
  /** -1: the partitioner decides. */
  readonly partition?: number;
  readonly offset?: bigint;
  /** Milliseconds; 0n: now, at the broker client. */
  readonly timestamp?: bigint;
  readonly timestampType?: number;
  readonly key?: Uint8Array | null;
  readonly value?: Uint8Array | null;
  readonly headers?: readonly RecordHeader[];
}

const NO_OFFSET = BigInt(SPAN.NO_OFFSET);

const utf8 = new TextEncoder();
const utf8Decoder = new TextDecoder();

/** Limits of the cache of header names, in names and characters. A program uses few names; other
 *  names are encoded each time. */
const NAMES_CACHED_MAX = 256;
const NAME_CHARS_CACHED_MAX = 128;
const encodedNames = new Map<string, Uint8Array>();

function encodedName(name: string): Uint8Array {
  const known = encodedNames.get(name);
  if (known !== undefined) return known;
  const bytes = utf8.encode(name);
  if (encodedNames.size < NAMES_CACHED_MAX && name.length <= NAME_CHARS_CACHED_MAX)
    encodedNames.set(name, bytes);
  return bytes;
}

/** Columns of Kafka records in one preallocated buffer: keys, values and headers lie in an arena,
 *  and each row has their places. Views are valid until `clear`.
 */
export class RecordBatch {
  readonly buffer: ArrayBufferLike;
  readonly columns: RecordBatchViews;
  readonly rowCapacity: number;
  readonly arenaCapacity: number;
  private readonly words: Int32Array;
  /** The arena, for the lengths in header blocks. */
  private readonly cells: DataView;

  private constructor(buffer: ArrayBufferLike, rowCapacity: number, arenaCapacity: number) {
    this.buffer = buffer;
    this.columns = recordBatchViews(buffer, rowCapacity, arenaCapacity);
    this.words = this.columns.header;
    const { arena } = this.columns;
    this.cells = new DataView(buffer, arena.byteOffset, arena.byteLength);
    this.rowCapacity = rowCapacity;
    this.arenaCapacity = arenaCapacity;
  }

  /** Creates an empty batch. `shared` uses a SharedArrayBuffer, for rings between threads.
   *  @throws out_of_range */
  static create(rowCapacity: number, arenaBytes: number, shared = false): RecordBatch {
    if (!Number.isInteger(rowCapacity) || rowCapacity < 1 || rowCapacity > BATCH_ROWS_MAX) {
      throw coreError('out_of_range', `a record batch takes 1 to ${BATCH_ROWS_MAX} rows, not ${rowCapacity}`);
    }
    if (!Number.isInteger(arenaBytes) || arenaBytes < 0 || arenaBytes > ARENA_BYTES_MAX) {
      throw coreError('out_of_range', `an arena takes 0 to ${ARENA_BYTES_MAX} bytes, not ${arenaBytes}`);
    }
    const bytes = recordBatchBytes(rowCapacity, arenaBytes);
    const buffer = shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes);
    const header = new Int32Array(buffer, 0, BATCH_HEADER.BYTES / 4);
    header[BATCH_HEADER.MAGIC / 4] = BATCH.MAGIC;
    header[BATCH_HEADER.LAYOUT_ID / 4] = RECORD_BATCH_ID;
    header[ROW_CAPACITY] = rowCapacity;
    header[ARENA_CAPACITY] = arenaBytes;
    return new RecordBatch(buffer, rowCapacity, arenaBytes);
  }

  /** Wraps a buffer that already is a record batch. @throws layout_mismatch */
  static over(buffer: ArrayBufferLike): RecordBatch {
    const header =
      buffer.byteLength >= BATCH_HEADER.BYTES
        ? new Uint32Array(buffer, 0, BATCH_HEADER.BYTES / 4)
        : undefined;
    const rows = header?.[ROW_CAPACITY] ?? 0;
    const arena = header?.[ARENA_CAPACITY] ?? 0;
    if (
      header?.[BATCH_HEADER.MAGIC / 4] !== BATCH.MAGIC ||
      header[BATCH_HEADER.LAYOUT_ID / 4] !== RECORD_BATCH_ID ||
      rows < 1 ||
      rows > BATCH_ROWS_MAX ||
      arena > ARENA_BYTES_MAX ||
      recordBatchBytes(rows, arena) > buffer.byteLength
    ) {
      throw coreError('layout_mismatch', 'the buffer is not a record batch');
    }
    return new RecordBatch(buffer, rows, arena);
  }

  get rowCount(): number {
    return this.words[ROW_COUNT] as number;
  }
  set rowCount(count: number) {
    this.words[ROW_COUNT] = count;
  }
  get arenaUsed(): number {
    return this.words[ARENA_USED] as number;
  }
  set arenaUsed(bytes: number) {
    this.words[ARENA_USED] = bytes;
  }

  clear(): void {
    this.words[ROW_COUNT] = 0;
    this.words[ARENA_USED] = 0;
  }

  /** Returns a copy with room for the rows of this batch alone. */
  copy(): RecordBatch {
    const rows = this.rowCount;
    const used = this.arenaUsed;
    const copy = RecordBatch.create(Math.max(1, rows), used);
    const into = copy.columns as unknown as Readonly<Record<string, Uint8Array>>;
    // Columns of one name have one type in both batches. The header has the capacities of its own.
    for (const [name, column] of Object.entries(this.columns))
      if (name !== 'header')
        into[name]?.set(column.subarray(0, name === 'arena' ? used : rows) as Uint8Array);
    copy.rowCount = rows;
    copy.arenaUsed = used;
    return copy;
  }

  /** Appends a copy of one record. Returns false, and changes nothing, if a row or its bytes do not
   *  fit. */
  append(record: RecordInput): boolean {
    const key = record.key ?? null;
    const value = record.value ?? null;
    const headers = record.headers ?? [];
    const names = headers.map(([name]) => encodedName(name));
    let headerBytes = 0;
    headers.forEach(([, headerValue], i) => {
      headerBytes += RECORD_HEADER.BYTES + (names[i] as Uint8Array).length + (headerValue?.length ?? 0);
    });
    const row = this.rowCount;
    let at = this.arenaUsed;
    if (
      row >= this.rowCapacity ||
      at + (key?.length ?? 0) + (value?.length ?? 0) + headerBytes > this.arenaCapacity
    )
      return false;
    const c = this.columns;
    c.topicIndex[row] = record.topicIndex ?? 0;
    c.partition[row] = record.partition ?? -1;
    c.offset[row] = record.offset ?? NO_OFFSET;
    c.timestamp[row] = record.timestamp ?? 0n;
    c.timestampType[row] = record.timestampType ?? TIMESTAMP_TYPE.NONE;
    c.flags[row] =
      (key === null ? RECORD_FLAG.KEY_NULL : 0) |
      (value === null ? RECORD_FLAG.VALUE_NULL : 0) |
      (headers.length > 0 ? RECORD_FLAG.HAS_HEADERS : 0);
    c.keyStart[row] = at;
    c.keyLength[row] = key === null ? SPAN.NULL : key.length;
    if (key !== null) c.arena.set(key, at);
    at += key?.length ?? 0;
    c.valueStart[row] = at;
    c.valueLength[row] = value === null ? SPAN.NULL : value.length;
    if (value !== null) c.arena.set(value, at);
    at += value?.length ?? 0;
    c.headersStart[row] = at;
    c.headersLength[row] = headerBytes;
    headers.forEach(([, headerValue], i) => {
      const name = names[i] as Uint8Array;
      const valueLength = headerValue === null ? SPAN.NULL : headerValue.length;
      this.cells.setUint32(at + RECORD_HEADER.NAME_LENGTH, name.length, true);
      this.cells.setInt32(at + RECORD_HEADER.VALUE_LENGTH, valueLength, true);
      at += RECORD_HEADER.BYTES;
      c.arena.set(name, at);
      at += name.length;
      if (headerValue !== null) {
        c.arena.set(headerValue, at);
        at += headerValue.length;
      }
    });
    this.arenaUsed = at;
    this.rowCount = row + 1;
    return true;
  }

  /** Appends a record whose key and value the caller has written into the arena behind `arenaUsed`,
   *  the value directly behind the key; its other fields are the defaults of `append`. */
  appendWritten(keyLength: number, valueLength: number): void {
    const row = this.rowCount;
    const at = this.arenaUsed;
    const end = at + keyLength + valueLength;
    invariant(row < this.rowCapacity && end <= this.arenaCapacity, 'a record is written inside its batch');
    const c = this.columns;
    c.topicIndex[row] = 0;
    c.partition[row] = -1;
    c.offset[row] = NO_OFFSET;
    c.timestamp[row] = 0n;
    c.timestampType[row] = TIMESTAMP_TYPE.NONE;
    c.flags[row] = 0;
    c.keyStart[row] = at;
    c.keyLength[row] = keyLength;
    c.valueStart[row] = at + keyLength;
    c.valueLength[row] = valueLength;
    c.headersStart[row] = end;
    c.headersLength[row] = 0;
    this.arenaUsed = end;
    this.rowCount = row + 1;
  }

  /** Returns the key bytes, borrowed; null if the record has no key. */
  key(row: number): Uint8Array | null {
    return this.span(this.columns.keyStart[row] as number, this.columns.keyLength[row] as number);
  }

  /** Returns the value bytes, borrowed; null for a tombstone. */
  value(row: number): Uint8Array | null {
    return this.span(this.columns.valueStart[row] as number, this.columns.valueLength[row] as number);
  }

  /** Returns the headers in order, with decoded names and borrowed values. */
  headers(row: number): RecordHeader[] {
    const length = this.columns.headersLength[row] as number;
    if (length <= 0) return [];
    const out: Array<[string, Uint8Array | null]> = [];
    let at = this.columns.headersStart[row] as number;
    const end = at + length;
    while (at + RECORD_HEADER.BYTES <= end) {
      const nameLength = this.cells.getUint32(at + RECORD_HEADER.NAME_LENGTH, true);
      const valueLength = this.cells.getInt32(at + RECORD_HEADER.VALUE_LENGTH, true);
      at += RECORD_HEADER.BYTES;
      if (at + nameLength + Math.max(0, valueLength) > end)
        throw coreError('layout_mismatch', 'a header block is cut short');
      // TextDecoder refuses shared memory, hence the copy.
      const name = utf8Decoder.decode(this.columns.arena.slice(at, at + nameLength));
      at += nameLength;
      out.push([name, this.span(at, valueLength)]);
      at += Math.max(0, valueLength);
    }
    return out;
  }

  private span(start: number, length: number): Uint8Array | null {
    return length < 0 ? null : this.columns.arena.subarray(start, start + length);
  }
}
