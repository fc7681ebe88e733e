/** Encoded rows as frames, one after the other in one growable buffer.
 *
 *  Frame `i` is the bytes from `offsets[i]` to `offsets[i + 1]`: prefix and payload. A row that has
 *  no frame, because the schema refuses one of its values or because it is a tombstone, has no
 *  bytes there, and its reason in `status`. Kernels write within the buffer and never grow it.
 *  Ownership: the frames belong to their creator; a view of a frame is valid until they are cleared
 *  or encoded into. */
import { coreError, invariant } from '../errors.ts';
import { ENCODE_STATUS, FRAMES_STATE } from '../layout/layouts.gen.ts';
import { BATCH_ROWS_MAX } from '../layout/record-batch.ts';

/** Greatest number of bytes of the frames of one buffer, unless its creator chooses fewer. */
const FRAMES_BYTES_MAX = 1 << 30;
/** First bytes of the buffer for each row. */
const FRAME_BYTES_ASSUMED = 64;

export class EncodedFrames {
  readonly rowCapacity: number;
  readonly bytesMax: number;
  /** Memory of the frames; replaced when it grows. */
  buffer: ArrayBuffer;
  /** Start of each frame, and behind them the end of the last one. @shape u32[rows + 1] */
  readonly offsets: Uint32Array;
  /** ENCODE_STATUS.* of each row. */
  readonly status: Uint8Array;
  /** Preorder index of the column whose value was refused; meaningless for other rows. */
  readonly errorColumn: Uint32Array;
  /** FRAMES_STATE words. */
  readonly state = new Uint32Array(FRAMES_STATE.COUNT);

  private constructor(rowCapacity: number, bytesMax: number, bytes: number) {
    this.rowCapacity = rowCapacity;
    this.bytesMax = bytesMax;
    this.buffer = new ArrayBuffer(bytes);
    this.offsets = new Uint32Array(rowCapacity + 1);
    this.status = new Uint8Array(rowCapacity);
    this.errorColumn = new Uint32Array(rowCapacity);
  }

  /** Creates an empty buffer. @param rowCapacity rows, 1 to BATCH_ROWS_MAX; @param bytesMax limit
   *  of the buffer's bytes; @param bytes first bytes of the buffer
   *  @throws out_of_range */
  static create(rowCapacity: number, bytesMax = FRAMES_BYTES_MAX, bytes?: number): EncodedFrames {
    if (!Number.isInteger(rowCapacity) || rowCapacity < 1 || rowCapacity > BATCH_ROWS_MAX)
      throw coreError('out_of_range', `frames have 1 to ${BATCH_ROWS_MAX} rows, not ${rowCapacity}`);
    if (!(bytesMax > 0 && bytesMax <= FRAMES_BYTES_MAX))
      throw coreError('out_of_range', `frames have at most ${FRAMES_BYTES_MAX} bytes, not ${bytesMax}`);
    const first = Math.min(bytesMax, bytes ?? rowCapacity * FRAME_BYTES_ASSUMED);
    return new EncodedFrames(rowCapacity, bytesMax, first);
  }

  get rowCount(): number {
    return this.state[FRAMES_STATE.ROW_COUNT] as number;
  }

  /** Bytes of all frames. */
  get used(): number {
    return this.offsets[this.rowCount] as number;
  }

  /** View of the frame of a row; null for a row that has none. */
  frame(row: number): Buffer | null {
    if (this.status[row] !== ENCODE_STATUS.OK || row >= this.rowCount) return null;
    const start = this.offsets[row] as number;
    return Buffer.from(this.buffer, start, (this.offsets[row + 1] as number) - start);
  }

  /** Removes all rows and keeps the memory. */
  clear(): void {
    this.state[FRAMES_STATE.ROW_COUNT] = 0;
  }

  /** Grows the buffer as the kernel asked. @returns false if it would exceed its limit; then it is
   *  unchanged */
  grow(): boolean {
    const need = this.state[FRAMES_STATE.NEED_BYTES] as number;
    const has = this.buffer.byteLength;
    invariant(need > has, 'a kernel asks for more than the buffer has');
    if (need > this.bytesMax) return false;
    const rows = Math.max(1, this.rowCount);
    const expected = Math.min(has * 8, Math.ceil((this.used / rows) * this.rowCapacity * 1.1));
    const bytes = Math.min(this.bytesMax, Math.max(need, has * 2, expected));
    const grown = new ArrayBuffer(bytes);
    new Uint8Array(grown).set(new Uint8Array(this.buffer, 0, this.used));
    this.buffer = grown;
    return true;
  }
}
