/** External merge sort of ended sessions by their end, in bounded memory. Chunks are sorted as they
 *  arrive, a few of them stay in memory, and a read merges all of them.
 *
 *  Rows arrive ascending by account_id (unsigned), so a stable sort of a chunk by end is enough.
 */
import { invariant } from '../../core/errors.ts';
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import { portionRows } from '../../core/layout/row-form.ts';
import { fromWords } from '../../core/time.ts';
import { ROW_BYTES } from '../window/accumulator.ts';
import { pageRowsOf, type RowStream } from './rows.ts';

const KEY = ACCUMULATOR.ACCOUNT_ID / 4;
const LAST = ACCUMULATOR.LAST_UPDATE_TS / 4;
/** 2 MiB. */
const CHUNK_ROWS = 32_768;
const CHUNKS_IN_MEMORY = 4;
const PAGE_ROWS = 4096;
const DIGIT_BITS = 16;
const DIGITS = 2 ** DIGIT_BITS;
/** Chunks with fewer rows are sorted by comparison, which is cheaper than counting digits. */
const COUNTED_ROWS_MIN = 4096;

/** Stored rows of one chunk, in their order. */
export interface StoredRows {
  readonly rowCount: number;
  /** Streams the rows from the first one on. */
  rows(): Promise<RowStream>;
  /** Releases the rows. */
  drop(): void;
}

/** Writer of the rows of one chunk. */
export interface RowsWriter<K extends StoredRows = StoredRows> {
  /** Appends whole rows, which are borrowed until this settles. */
  append(rows: Uint8Array): Promise<void>;
  /** Completes the chunk. At least one row was appended. */
  finish(): Promise<K>;
  /** Abandons an unfinished chunk; after `finish` it does nothing. */
  close(): void;
}

export interface EndOrderOptions {
  /** Opens a writer for a chunk that must not stay in memory. Undefined: all chunks stay in memory.
   */
  readonly spill?: () => RowsWriter;
  readonly chunkRows?: number;
  readonly chunksInMemory?: number;
  /** Bytes of a row; default: rows with only a head. */
  readonly rowBytes?: number;
}

export class EndOrderSorter {
  private readonly spill: (() => RowsWriter) | undefined;
  private readonly chunkRows: number;
  private readonly chunksInMemory: number;
  private readonly rowBytes: number;
  private readonly chunks: StoredRows[] = [];
  private inMemory = 0;
  private filling = new Uint8Array(0);
  private used = 0;
  private rowsIn = 0;
  private isRead = false;
  private isClosed = false;

  constructor({
    spill,
    chunkRows,
    chunksInMemory = CHUNKS_IN_MEMORY,
    rowBytes = ROW_BYTES,
  }: EndOrderOptions = {}) {
    this.rowBytes = rowBytes;
    this.spill = spill;
    this.chunkRows = chunkRows ?? portionRows(CHUNK_ROWS, rowBytes);
    this.chunksInMemory = chunksInMemory;
  }

  get rowCount(): number {
    return this.rowsIn;
  }
  /** Bytes held between two calls, including a reader's page of each chunk. */
  get bytes(): number {
    const { length } = this.chunks;
    const pages = this.isRead && length > 1 ? length * pageRowsOf(length, this.rowBytes) * this.rowBytes : 0;
    return this.filling.length + this.inMemory + pages;
  }

  /** Appends whole rows, ascending by account_id; they are copied before this settles. One call at
   *  a time. */
  async append(rows: Uint8Array): Promise<void> {
    this.rowsIn += rows.length / this.rowBytes;
    for (let from = 0; from < rows.length; ) {
      const room = this.chunkRows * this.rowBytes - this.used;
      const portion = rows.subarray(from, from + room);
      this.makeRoom(this.used + portion.length);
      this.filling.set(portion, this.used);
      this.used += portion.length;
      from += portion.length;
      if (this.used === this.chunkRows * this.rowBytes) await this.storeChunk();
    }
  }

  /** Streams the rows ascending by end, and by account_id (unsigned) within one end. Call it after
   *  the last append; it may be called several times. */
  async rows(): Promise<RowStream> {
    invariant(!this.isClosed, 'released rows are not read');
    if (this.used > 0) await this.storeChunk();
    this.filling = new Uint8Array(0);
    this.isRead = true;
    const streams = await Promise.all(this.chunks.map((chunk) => chunk.rows()));
    const [only] = streams;
    return only !== undefined && streams.length === 1 ? only : new EndOrderMerge(streams, this.rowBytes);
  }

  /** Releases the rows; a second call does nothing. */
  close(): void {
    this.isClosed = true;
    for (const chunk of this.chunks.splice(0)) chunk.drop();
    this.filling = new Uint8Array(0);
    this.inMemory = 0;
  }

  private makeRoom(bytes: number): void {
    if (this.filling.length >= bytes) return;
    const size = Math.min(Math.max(2 * this.filling.length, bytes), this.chunkRows * this.rowBytes);
    const larger = new Uint8Array(size);
    larger.set(this.filling.subarray(0, this.used));
    this.filling = larger;
  }

  private async storeChunk(): Promise<void> {
    const rows = this.filling.subarray(0, this.used);
    const order = orderOfEnds(rows, this.rowBytes);
    const toDisk = this.spill !== undefined && this.chunks.length >= this.chunksInMemory;
    const chunk = toDisk
      ? await writeChunk(this.spill(), rows, order, this.rowBytes)
      : new MemoryRows(permuted(rows, order, this.rowBytes), this.rowBytes);
    if (!toDisk) this.inMemory += rows.length;
    this.used = 0;
    if (this.isClosed) chunk.drop();
    else this.chunks.push(chunk);
  }
}

/** Chunk in memory. */
export class MemoryRows implements StoredRows {
  readonly rowCount: number;
  private readonly rowBytes: number;
  private bytes: Uint8Array;

  constructor(bytes: Uint8Array, rowBytes: number = ROW_BYTES) {
    this.bytes = bytes;
    this.rowBytes = rowBytes;
    this.rowCount = bytes.length / rowBytes;
  }

  async rows(): Promise<RowStream> {
    const { bytes, rowBytes } = this;
    let at = 0;
    return {
      next: async (into) => {
        const portion = bytes.subarray(at, at + into.length - (into.length % rowBytes));
        into.set(portion);
        at += portion.length;
        return portion.length / rowBytes;
      },
      close: () => {},
    };
  }

  drop(): void {
    this.bytes = new Uint8Array(0);
  }
}

const wordsOf = (rows: Uint8Array): Int32Array =>
  new Int32Array(rows.buffer, rows.byteOffset, Math.floor(rows.length / 4));

/** Returns the indexes of the rows in a stable order of their last events. */
function orderOfEnds(rows: Uint8Array, rowBytes: number): Uint32Array {
  const words = wordsOf(rows);
  const times = Float64Array.from({ length: rows.length / rowBytes }, (_, row) => {
    const at = (row * rowBytes) / 4 + LAST;
    return fromWords(words[at] as number, words[at + 1] as number);
  });
  const order = Uint32Array.from(times, (_, row) => row);
  if (times.length < COUNTED_ROWS_MIN)
    return order.sort((a, b) => (times[a] as number) - (times[b] as number) || a - b);
  let least = Number.POSITIVE_INFINITY;
  let most = Number.NEGATIVE_INFINITY;
  for (const time of times) {
    if (time < least) least = time;
    if (time > most) most = time;
  }
  // Radix sort of the differences to the least time, from the lowest digit. Each pass is stable.
  let [from, into] = [order, new Uint32Array(order.length)];
  for (let unit = 1; unit <= most - least; unit *= DIGITS) {
    const digitOf = (row: number): number => Math.floor(((times[row] as number) - least) / unit) % DIGITS;
    const next = new Uint32Array(DIGITS + 1);
    for (const row of from) {
      const digit = digitOf(row) + 1;
      next[digit] = (next[digit] as number) + 1;
    }
    for (let digit = 1; digit < DIGITS; digit++)
      next[digit] = (next[digit] as number) + (next[digit - 1] as number);
    for (const row of from) {
      const digit = digitOf(row);
      into[next[digit] as number] = row;
      next[digit] = (next[digit] as number) + 1;
    }
    [from, into] = [into, from];
  }
  return from;
}

function permuted(rows: Uint8Array, order: Uint32Array, rowBytes: number): Uint8Array {
  const into = new Uint8Array(order.length * rowBytes);
  order.forEach((row, i) => {
    into.set(rows.subarray(row * rowBytes, (row + 1) * rowBytes), i * rowBytes);
  });
  return into;
}

async function writeChunk(
  writer: RowsWriter,
  rows: Uint8Array,
  order: Uint32Array,
  rowBytes: number,
): Promise<StoredRows> {
  try {
    const pageRows = portionRows(PAGE_ROWS, rowBytes);
    for (let from = 0; from < order.length; from += pageRows)
      await writer.append(permuted(rows, order.subarray(from, from + pageRows), rowBytes));
    return await writer.finish();
  } finally {
    writer.close();
  }
}

/** Chunk in a merge, at row `at` of its current page. */
interface Head {
  readonly stream: RowStream;
  readonly page: Uint8Array;
  readonly words: Int32Array;
  readonly rowWords: number;
  at: number;
  rows: number;
}

/** k-way merge of chunks in the order of ends, by a binary heap of their heads. */
class EndOrderMerge implements RowStream {
  private readonly streams: readonly RowStream[];
  private readonly rowBytes: number;
  /** Heads in heap order, the least first; undefined until the first read. */
  private heap: Head[] | undefined;

  constructor(streams: readonly RowStream[], rowBytes: number) {
    this.streams = streams;
    this.rowBytes = rowBytes;
  }

  async next(into: Uint8Array): Promise<number> {
    this.heap ??= await this.openHeads();
    const { heap, rowBytes } = this;
    const room = Math.floor(into.length / rowBytes);
    let rows = 0;
    while (rows < room && heap.length > 0) {
      const least = heap[0] as Head;
      into.set(least.page.subarray(least.at * rowBytes, (least.at + 1) * rowBytes), rows * rowBytes);
      rows++;
      least.at++;
      if (least.at === least.rows) await loadPage(least);
      if (least.rows === 0) {
        const last = heap.pop() as Head;
        if (last !== least) heap[0] = last;
      }
      this.siftDown(0);
    }
    return rows;
  }

  close(): void {
    for (const stream of this.streams) stream.close();
  }

  private async openHeads(): Promise<Head[]> {
    const { rowBytes } = this;
    const pageRows = pageRowsOf(this.streams.length, rowBytes);
    const heads = this.streams.map((stream): Head => {
      const page = new Uint8Array(pageRows * rowBytes);
      return { stream, page, words: wordsOf(page), rowWords: rowBytes / 4, at: 0, rows: 0 };
    });
    await Promise.all(heads.map(loadPage));
    // A sorted array is a heap.
    return heads.filter(({ rows }) => rows > 0).sort((a, b) => (isBefore(a, b) ? -1 : 1));
  }

  private siftDown(from: number): void {
    const heap = this.heap as Head[];
    const head = heap[from];
    if (head === undefined) return;
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Head, heap[child] as Head)) child++;
      if (isBefore(head, heap[child] as Head)) break;
      heap[at] = heap[child] as Head;
      at = child;
    }
    heap[at] = head;
  }
}

async function loadPage(head: Head): Promise<void> {
  head.rows = await head.stream.next(head.page);
  head.at = 0;
}

function isBefore(a: Head, b: Head): boolean {
  const [x, y] = [a.at * a.rowWords, b.at * b.rowWords];
  const { words: v } = a;
  const { words: w } = b;
  // Times are signed, accounts are not.
  const time = (v[x + LAST + 1] as number) - (w[y + LAST + 1] as number);
  if (time !== 0) return time < 0;
  for (const word of [LAST, KEY + 1, KEY]) {
    const difference = ((v[x + word] as number) >>> 0) - ((w[y + word] as number) >>> 0);
    if (difference !== 0) return difference < 0;
  }
  return false;
}
