/** Deletes expired keys in batches of PRUNE_ROWS rows. Rows that a transaction has locked are left
 *  for a later batch, so the pruning waits for no request, and a request waits for one batch at
 *  most.
 *
 *  Finished requests start it; it needs no timer of its own, and an idle service has no new rows.
 */
import { sleep, type Timers } from '../../core/clock.ts';
import { openOf, type TransactionSource } from './source.ts';
import { PRUNE_ROWS, type TableSql } from './table.ts';

/** Longest time between two turns of the pruning, ms. */
const PAUSE_MS_MAX = 600_000;
/** Pause between two batches of one turn, ms: the database serves requests meanwhile. */
const BATCH_PAUSE_MS = 50;

export interface PrunerOptions {
  readonly source: TransactionSource<unknown>;
  readonly sql: TableSql;
  readonly ttlMs: number;
  readonly clock: Timers;
  readonly onPruned: (rows: number) => void;
  readonly onError: (error: unknown) => void;
}

export class Pruner {
  private readonly options: PrunerOptions;
  private readonly closed = new AbortController();
  private nextMs = Number.NEGATIVE_INFINITY;
  private turn: Promise<void> | undefined;

  constructor(options: PrunerOptions) {
    this.options = options;
  }

  /** Starts a turn in the background if one is due. */
  tick(): void {
    const { clock, ttlMs, onError } = this.options;
    const nowMs = clock.monotonicMs();
    if (this.turn !== undefined || nowMs < this.nextMs || this.closed.signal.aborted) return;
    this.nextMs = nowMs + Math.min(PAUSE_MS_MAX, ttlMs / 10);
    this.turn = this.prune()
      .then(() => {}, onError)
      .finally(() => {
        this.turn = undefined;
      });
  }

  /** Deletes the expired keys of now, batch by batch. Returns their number. */
  async prune(): Promise<number> {
    const { clock, onPruned } = this.options;
    let total = 0;
    for (;;) {
      const rows = await this.batch();
      onPruned(rows);
      total += rows;
      if (rows < PRUNE_ROWS || this.closed.signal.aborted) return total;
      await sleep(clock, BATCH_PAUSE_MS, this.closed.signal, 'background');
    }
  }

  /** Ends the pruning after its current batch. */
  async close(): Promise<void> {
    this.closed.abort();
    await this.turn;
  }

  private batch(): Promise<number> {
    const { source, sql } = this.options;
    return source.transaction(
      async (tx, open) => (await (await openOf(tx, open)).query(sql.prune, [])).rows.length,
    );
  }
}
