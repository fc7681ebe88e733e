/** Rows in order that several hold: they go when the last one has let go. */

import type { RowRun, SortedRun } from '../../addon/window-surface.ts';
import { invariant } from '../../core/errors.ts';
import { ROW_BYTES } from '../window/accumulator.ts';
import { type RowStream, rowsOfRun } from './rows.ts';

/** Rows that a firing reads, wherever they stand. */
export interface HeldStream {
  readonly rowCount: number;
  release(): void;
  /** From the first on. */
  rows(): Promise<RowStream>;
}

/** Rows of a slice, ascending by account_id (unsigned), no key twice. */
export interface HeldRows extends HeldStream {
  /** Memory held. */
  readonly bytes: number;
  hold(): this;
  /** Copies the row of a key; whether there is one. */
  find(accountId: bigint, into: Uint8Array): Promise<boolean>;
}

const nothing = (): void => {};

/** A sorted run in memory. */
export class HeldRun<R extends RowRun = RowRun> implements HeldStream {
  readonly rowCount: number;
  /** Settles when the rows are in order. */
  readonly run: Promise<R>;
  private readonly onGone: () => void;
  private holds = 1;
  private size: number;

  /** `bytes`: what it takes until its rows are in order. */
  constructor(run: Promise<R>, rowCount: number, bytes = rowCount * ROW_BYTES, onGone = nothing) {
    this.run = run;
    this.rowCount = rowCount;
    this.size = bytes;
    this.onGone = onGone;
    // A failure is met by whoever reads the run; until then it is nobody's.
    run.then((sorted) => {
      this.size = sorted.bytes;
    }, nothing);
  }

  get bytes(): number {
    return this.holds > 0 ? this.size : 0;
  }

  hold(): this {
    invariant(this.holds > 0, 'a run that was let go is not held again');
    this.holds++;
    return this;
  }

  release(): void {
    this.holds--;
    if (this.holds > 0) return;
    this.run.then((run) => run.close(), nothing);
    this.onGone();
  }

  async rows(): Promise<RowStream> {
    return rowsOfRun(await this.run);
  }
}

export class HeldSlice extends HeldRun<SortedRun> implements HeldRows {
  async find(accountId: bigint, into: Uint8Array): Promise<boolean> {
    return (await this.run).find(accountId, into) === 1;
  }
}
