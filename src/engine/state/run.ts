/** Sorted rows with reference counts: they are freed when the last holder releases them. */

import type { RowRun, SortedRun } from '../../addon/window-surface.ts';
import { invariant } from '../../core/errors.ts';
import { rowsOfRun, type SizedStream } from './rows.ts';

/** Rows that a firing reads, in memory or on disk. */
export interface HeldStream {
  readonly rowCount: number;
  release(): void;
  /** Streams the rows from the first one on. */
  rows(): Promise<SizedStream>;
}

/** Rows of a slice, ascending by account_id (unsigned), each key once. */
export interface HeldRows extends HeldStream {
  /** Bytes of memory. */
  readonly bytes: number;
  hold(): this;
  /** Copies the row of a key. Returns true if the key has a row. */
  find(accountId: bigint, into: Uint8Array): Promise<boolean>;
}

const nothing = (): void => {};

/** Sorted run in memory. */
export class HeldRun<R extends RowRun = RowRun> implements HeldStream {
  readonly rowCount: number;
  /** Settles when the rows are sorted. */
  readonly run: Promise<R>;
  protected readonly rowBytes: number;
  private readonly onFreed: () => void;
  private holds = 1;
  private size: number;

  /** @param rowBytes bytes of a row
   *  @param bytes memory that the run uses until its rows are sorted */
  constructor(run: Promise<R>, rowBytes: number, rowCount: number, bytes: number, onFreed = nothing) {
    this.run = run;
    this.rowBytes = rowBytes;
    this.rowCount = rowCount;
    this.size = bytes;
    this.onFreed = onFreed;
    // Readers of the run report its failure; this handler prevents an unhandled rejection.
    run.then((sorted) => {
      this.size = sorted.bytes;
    }, nothing);
  }

  get bytes(): number {
    return this.holds > 0 ? this.size : 0;
  }

  hold(): this {
    invariant(this.holds > 0, 'a released run is not held again');
    this.holds++;
    return this;
  }

  release(): void {
    this.holds--;
    if (this.holds > 0) return;
    this.run.then((run) => run.close(), nothing);
    this.onFreed();
  }

  async rows(): Promise<SizedStream> {
    return rowsOfRun(await this.run, this.rowBytes);
  }
}

export class HeldSlice extends HeldRun<SortedRun> implements HeldRows {
  async find(accountId: bigint, into: Uint8Array): Promise<boolean> {
    return (await this.run).find(accountId, into) === 1;
  }
}
