/** Open sessions outside the live table: runs in memory and pieces on disk. A session may be
 *  divided among them. */

import type { RowRun } from '../../addon/window-surface.ts';
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import { type PieceStore, type SpilledRun, StoredPiece } from '../durability/spill/pieces.ts';
import { HeldRun, type HeldStream } from './run.ts';

/** Sessions ascending by account_id (unsigned) and start. */
export interface SessionPart extends HeldStream {
  /** Bytes of memory. */
  readonly bytes: number;
  /** Least end of a session with a row in this part. */
  readonly leastEnd: number;
  /** Frontier at or after which all rows arrived that are neither in this part nor in an earlier
   *  part. */
  readonly cut: number;
  hold(): this;
  /** Returns the rows of a key, in their order. */
  ofKey(accountId: bigint): Promise<Uint8Array>;
}

export class SessionRun extends HeldRun<RowRun> implements SessionPart {
  readonly leastEnd: number;
  readonly cut: number;

  constructor(
    run: Promise<RowRun>,
    rowBytes: number,
    rowCount: number,
    bytes: number,
    { leastEnd, cut }: Pick<SessionPart, 'leastEnd' | 'cut'>,
    onFreed: () => void,
  ) {
    super(run, rowBytes, rowCount, bytes, onFreed);
    this.leastEnd = leastEnd;
    this.cut = cut;
  }

  async ofKey(accountId: bigint): Promise<Uint8Array> {
    this.hold();
    try {
      const run = await this.run;
      const row = new Uint8Array(this.rowBytes);
      const key = new DataView(row.buffer);
      const accountOf = (at: number): bigint => {
        run.read(at, row);
        return key.getBigUint64(ACCUMULATOR.ACCOUNT_ID, true);
      };
      let [low, high] = [0, run.rowCount];
      while (low < high) {
        const middle = Math.floor((low + high) / 2);
        if (accountOf(middle) < accountId) low = middle + 1;
        else high = middle;
      }
      let end = low;
      while (end < run.rowCount && accountOf(end) === accountId) end++;
      const rows = new Uint8Array((end - low) * this.rowBytes);
      run.read(low, rows);
      return rows;
    } finally {
      this.release();
    }
  }
}

/** Part on disk. */
export class SessionPiece extends StoredPiece implements SessionPart {
  readonly leastEnd: number;
  readonly cut: number;

  /** @param leastEnd tighter bound than the piece itself gives, if known */
  constructor(store: PieceStore, piece: SpilledRun, gapMs: number, cut: number, leastEnd?: number) {
    super(store, piece);
    this.leastEnd = leastEnd ?? piece.leastLast + gapMs;
    this.cut = cut;
  }

  /** Least start of a session with a row in this part. */
  get leastStart(): number {
    return this.piece.leastFirst;
  }

  ofKey(accountId: bigint): Promise<Uint8Array> {
    return this.store.ofKey(this.piece, accountId);
  }
}
