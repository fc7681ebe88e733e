/** Open sessions beside the live table: runs in memory and pieces on disk, in which a session may
 *  lie in parts. */

import type { RowRun } from '../../addon/window-surface.ts';
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import { type PieceStore, type SpilledRun, StandingPiece } from '../durability/spill/pieces.ts';
import { ROW_BYTES } from '../window/accumulator.ts';
import { HeldRun, type HeldStream } from './run.ts';

/** Sessions ascending by account_id (unsigned) and start. */
export interface SessionPart extends HeldStream {
  /** Memory held. */
  readonly bytes: number;
  /** No session that has a part in it ends before. */
  readonly leastEnd: number;
  /** What is not in it, nor in what was taken out of the table before it, came at this frontier or
   *  behind it. */
  readonly cut: number;
  hold(): this;
  /** Those of a key, in their order. */
  ofKey(accountId: bigint): Promise<Uint8Array>;
}

export class SessionRun extends HeldRun<RowRun> implements SessionPart {
  readonly leastEnd: number;
  readonly cut: number;

  constructor(
    run: Promise<RowRun>,
    rowCount: number,
    bytes: number,
    { leastEnd, cut }: Pick<SessionPart, 'leastEnd' | 'cut'>,
    onGone: () => void,
  ) {
    super(run, rowCount, bytes, onGone);
    this.leastEnd = leastEnd;
    this.cut = cut;
  }

  async ofKey(accountId: bigint): Promise<Uint8Array> {
    this.hold();
    try {
      const run = await this.run;
      const row = new Uint8Array(ROW_BYTES);
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
      const rows = new Uint8Array((end - low) * ROW_BYTES);
      run.read(low, rows);
      return rows;
    } finally {
      this.release();
    }
  }
}

/** Of sessions. */
export class SessionPiece extends StandingPiece implements SessionPart {
  readonly leastEnd: number;
  readonly cut: number;

  /** `leastEnd`: where more is known of it than the piece itself tells. */
  constructor(store: PieceStore, piece: SpilledRun, gapMs: number, cut: number, leastEnd?: number) {
    super(store, piece);
    this.leastEnd = leastEnd ?? piece.leastLast + gapMs;
    this.cut = cut;
  }

  /** No session of it begins before. */
  get leastStart(): number {
    return this.piece.leastFirst;
  }

  ofKey(accountId: bigint): Promise<Uint8Array> {
    return this.store.ofKey(this.piece, accountId);
  }
}
