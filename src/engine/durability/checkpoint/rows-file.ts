/** File of accumulator rows in consecutive blocks, used for bases and runs. A block has a head of
 *  32 bytes.
 *
 *      0 magic u32 | 4 form u32 | 8 range u32 | 12 rows u32 | 16 part f64 | 24 covered f64
 *     32 rows of the form
 *
 *  Rows that may have sketches are packed: their length u32 and 4 zero bytes, the packed rows, and
 *  zeros up to a multiple of 8 bytes.
 *
 *  All numbers are little-endian. `range` is the range of the keys, or ALL_RANGES; `part` the start
 *  of a slice, 0 for sessions; `covered` the last record of the changelog that is in the rows.
 *  Heads have no checksum: the manifest has the CRC-32 of the whole file.
 */
import { crc32 } from 'node:zlib';
import { COVER_RANGES } from '../../../addon/window-surface.ts';
import { findMillraceError } from '../../../core/errors.ts';
import { isWide } from '../../../core/layout/row-form.ts';
import type { Disk } from '../../../io/disk/port.ts';
import { ROW_BYTES } from '../../window/accumulator.ts';
import { packedBytesMax, packRows, unpackRows } from './packed-rows.ts';
import type { FileRole, StepHook } from './steps.ts';
import { type FileEntry, WholeFile } from './whole-file.ts';

/** Value of `range` for a block with keys of all ranges. */
export const ALL_RANGES = COVER_RANGES;

const MAGIC = 0x3153524d;
/** Rows with only a head have form 1, as in all files of earlier versions. */
const FORM = 1;
/** Form of wider rows: this plus their lines of 64 bytes. */
const FORM_WIDE = 0x100;
/** Form of packed rows: this plus their lines. */
const FORM_PACKED = 0x10000;
/** Bytes before packed rows. */
const LENGTH_BYTES = 8;
/** Greatest number of bytes of the rows of a packed block, before they are packed. */
const PACKED_BYTES_MAX = 512 * 1024;
const HEAD_BYTES = 32;
/** Size of a buffer; a block does not cross buffers. */
const CHUNK_BYTES = 1024 * 1024;
const CHUNK_BYTES_MAX = 4 * 1024 * 1024;
const LINE_BYTES = 64;
/** Bytes of one read. */
const READ_BYTES = 8 * 1024 * 1024;
/** Least room for a new block, in rows: a smaller rest of a buffer stays unused. */
const BLOCK_ROWS_MIN = 16;

const formOf = (rowBytes: number): number =>
  rowBytes === ROW_BYTES ? FORM : (isWide(rowBytes) ? FORM_PACKED : FORM_WIDE) + rowBytes / LINE_BYTES;

/** Writer of blocks. The caller never waits; it bounds `pendingBytes` instead. */
export class RowsFile {
  private readonly chunkBytes: number;
  private readonly rowBytes: number;
  private readonly opened: Promise<WholeFile>;
  private chunk: Uint8Array<ArrayBuffer>;
  private at = 0;
  /** Rows before they are packed; empty if they are not. */
  private readonly loose: Uint8Array;
  private queue: Uint8Array<ArrayBuffer>[] = [];
  private readonly spare: Uint8Array<ArrayBuffer>[] = [];
  private working: Promise<void> | undefined;
  private waiting = 0;
  private failure: unknown;

  constructor(
    disk: Disk,
    role: FileRole,
    name: string,
    hook: StepHook,
    rowBytes: number = ROW_BYTES,
    chunkBytes = CHUNK_BYTES,
  ) {
    this.rowBytes = rowBytes;
    this.chunkBytes = chunkBytes;
    this.chunk = new Uint8Array(chunkBytes);
    const rows = Math.max(1, Math.floor(Math.min(PACKED_BYTES_MAX, chunkBytes / 2) / rowBytes));
    this.loose = new Uint8Array(isWide(rowBytes) ? rows * rowBytes : 0);
    this.opened = WholeFile.create(disk, role, name, hook);
    // The next write reports the failure.
    this.opened.catch(() => {});
  }

  /** Bytes filled and not yet written. */
  get pendingBytes(): number {
    return this.waiting + this.at;
  }

  /** Returns the buffer for the rows of the next block: whole rows, at an offset that is a multiple
   *  of 8. @throws the error of an earlier write */
  room(): Uint8Array {
    if (this.failure !== undefined) throw this.failure;
    const { rowBytes, loose } = this;
    if (loose.length > 0) {
      const rows = loose.length / rowBytes;
      const most = HEAD_BYTES + LENGTH_BYTES + packedBytesMax(rows, rowBytes) + LENGTH_BYTES;
      if (this.chunk.length - this.at < most) this.enqueueChunk();
      return loose;
    }
    if (this.chunk.length - this.at < HEAD_BYTES + BLOCK_ROWS_MIN * rowBytes) this.enqueueChunk();
    const from = this.at + HEAD_BYTES;
    const rows = Math.floor((this.chunk.length - from) / rowBytes);
    return this.chunk.subarray(from, from + rows * rowBytes);
  }

  /** Completes a block with the first `rows` rows of `room()`. Returns its length in bytes. */
  commit(range: number, part: number, covered: number, rows: number): number {
    const view = new DataView(this.chunk.buffer, this.at, HEAD_BYTES);
    view.setUint32(0, MAGIC, true);
    view.setUint32(4, formOf(this.rowBytes), true);
    view.setUint32(8, range, true);
    view.setUint32(12, rows, true);
    view.setFloat64(16, part, true);
    view.setFloat64(24, covered, true);
    const bytes = HEAD_BYTES + (this.loose.length > 0 ? this.pack(rows) : rows * this.rowBytes);
    this.at += bytes;
    return bytes;
  }

  /** Packs rows behind the head of the block, and returns the bytes. */
  private pack(rows: number): number {
    const { chunk, loose, rowBytes } = this;
    const from = this.at + HEAD_BYTES + LENGTH_BYTES;
    const end = packRows(loose, rows, rowBytes, chunk, from);
    const length = new DataView(chunk.buffer, from - LENGTH_BYTES, LENGTH_BYTES);
    length.setUint32(0, end - from, true);
    length.setUint32(4, 0, true);
    const bytes = Math.ceil((LENGTH_BYTES + end - from) / 8) * 8;
    chunk.fill(0, end, from - LENGTH_BYTES + bytes);
    return bytes;
  }

  /** Writes the remaining bytes and gives the file its name. No block may follow. @throws
   *  not_writable */
  async finish(): Promise<FileEntry> {
    this.enqueueChunk();
    while (this.working !== undefined) await this.working;
    if (this.failure !== undefined) throw this.failure;
    return (await this.opened).finish();
  }

  async abandon(): Promise<void> {
    this.queue = [];
    while (this.working !== undefined) await this.working;
    await this.opened.then((file) => file.abandon());
  }

  private enqueueChunk(): void {
    if (this.at === 0) return;
    this.queue.push(this.chunk.subarray(0, this.at));
    this.waiting += this.at;
    this.chunk = this.spare.pop() ?? new Uint8Array(this.chunkBytes);
    this.at = 0;
    this.working ??= this.drain();
  }

  private async drain(): Promise<void> {
    try {
      const file = await this.opened;
      for (let chunk = this.queue.shift(); chunk !== undefined; chunk = this.queue.shift()) {
        await file.write(chunk);
        this.waiting -= chunk.length;
        this.spare.push(new Uint8Array(chunk.buffer));
      }
    } catch (thrown) {
      this.failure = thrown;
    } finally {
      // Cleared in the turn in which the queue was found empty: a chunk that is queued later
      // starts a new drain.
      this.working = undefined;
    }
  }
}

export interface RowBlock {
  /** Range of the keys in [0, COVER_RANGES]; the last value is ALL_RANGES. */
  readonly range: number;
  readonly part: number;
  readonly covered: number;
  readonly rowCount: number;
  /** Borrowed until `take` returns. */
  readonly rows: Uint8Array;
}

/** Passes the blocks of a file to `take`. Returns a reason if the file is not the file that `entry`
 *  names, which may become known only at its end. Accepts any bytes. The file is also invalid if
 *  `take` throws `out_of_range`. */
export async function readBlocks(
  disk: Disk,
  entry: FileEntry,
  take: (block: RowBlock) => void,
  rowBytes: number = ROW_BYTES,
): Promise<string | undefined> {
  const size = await sizeFault(disk, entry);
  if (size !== undefined) return size;
  let offset = 0;
  let crc = 0;
  for (;;) {
    const bytes = await disk.readPiece(entry.name, offset, Math.min(READ_BYTES, entry.bytes - offset));
    if (bytes.length === 0) break;
    let at = 0;
    while (at < bytes.length) {
      const read = blockAt(bytes, at, rowBytes);
      if ('needs' in read) break;
      if ('fault' in read) return `${read.fault} at byte ${offset + at}`;
      try {
        take(read.block);
      } catch (thrown) {
        const code = findMillraceError(thrown)?.code;
        if (code !== 'out_of_range' && code !== 'layout_mismatch') throw thrown;
        return `has invalid rows at byte ${offset + at}: ${(thrown as Error).message}`;
      }
      at = read.end;
    }
    if (at === 0) return `is cut short at byte ${offset}`;
    crc = crc32(bytes.subarray(0, at), crc);
    offset += at;
  }
  return crc === entry.crc32 ? undefined : 'has changed since it was written';
}

/** Returns a reason if the size alone shows that the file is not the named one. The size bounds
 *  every length inside the file. */
export async function sizeFault(disk: Disk, { name, bytes }: FileEntry): Promise<string | undefined> {
  if (!(await disk.list()).includes(name)) return 'is missing';
  if ((await disk.readPiece(name, bytes, 1)).length > 0) return `has more than ${bytes} bytes`;
  const isWhole = bytes === 0 || (await disk.readPiece(name, bytes - 1, 1)).length > 0;
  return isWhole ? undefined : `has fewer than ${bytes} bytes`;
}

function blockAt(
  bytes: Uint8Array,
  at: number,
  rowBytes: number,
):
  | { readonly block: RowBlock; readonly end: number }
  | { readonly needs: true }
  | { readonly fault: string } {
  if (bytes.length - at < HEAD_BYTES) return { needs: true };
  const view = new DataView(bytes.buffer, bytes.byteOffset + at, HEAD_BYTES);
  if (view.getUint32(0, true) !== MAGIC) return { fault: 'has no block' };
  const form = view.getUint32(4, true);
  const expected = formOf(rowBytes);
  if (form !== expected) return { fault: `has form ${form}, this job reads ${expected},` };
  const range = view.getUint32(8, true);
  const rowCount = view.getUint32(12, true);
  const part = view.getFloat64(16, true);
  const covered = view.getFloat64(24, true);
  const isSound =
    range <= ALL_RANGES &&
    rowCount <= CHUNK_BYTES_MAX / rowBytes &&
    Number.isSafeInteger(part) &&
    Number.isSafeInteger(covered) &&
    covered >= 0;
  if (!isSound) return { fault: 'has an invalid block' };
  const from = at + HEAD_BYTES;
  if (isWide(rowBytes)) {
    if (bytes.length - from < LENGTH_BYTES) return { needs: true };
    const length = new DataView(bytes.buffer, bytes.byteOffset + from, LENGTH_BYTES).getUint32(0, true);
    const end = from + Math.ceil((LENGTH_BYTES + length) / 8) * 8;
    if (length > packedBytesMax(rowCount, rowBytes)) return { fault: 'has an invalid block' };
    if (end > bytes.length) return { needs: true };
    const packed = bytes.subarray(from + LENGTH_BYTES, from + LENGTH_BYTES + length);
    const rows = unpackRows(packed, rowCount, rowBytes);
    if (rows === undefined) return { fault: 'has an invalid block' };
    return { block: { range, part, covered, rowCount, rows }, end };
  }
  const end = from + rowCount * rowBytes;
  if (end > bytes.length) return { needs: true };
  return { block: { range, part, covered, rowCount, rows: bytes.subarray(from, end) }, end };
}
