/** Rows that the broker refuses while it takes others. They are pending, so nothing is lost when the slot moves on; they are read and
 *  brought again by id, lowest first, and everything later of their keys is parked behind them. */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { Pipeline } from './pipeline.ts';
import type { OutboxRow } from './store.ts';
import type { WalMetrics } from './wal-metrics.ts';
import type { OutboxRows } from './wal-rows.ts';

/** Keys that wait; the rows behind them are bounded for the memory they take. */
const PARKED_KEYS_MAX = 10_000;
const PARKED_ROWS_MAX = 100_000;
/** A row that cannot be seen for so long was deleted: a commit is decoded before it is visible, but not by that much. */
const INVISIBLE_MS_MAX = 60_000;

interface Parked {
  readonly key: string;
  readonly sinceMs: number;
}

export interface WalParkingOptions {
  readonly pipeline: Pipeline;
  readonly metrics: WalMetrics;
  readonly clock: Clock;
  readonly log: Logger;
}

export class WalParking {
  private readonly options: WalParkingOptions;
  private readonly rows = new Map<bigint, Parked>();
  private keys = new Set<string>();

  constructor(options: WalParkingOptions) {
    this.options = options;
  }

  get size(): number {
    return this.rows.size;
  }

  get isFull(): boolean {
    return this.keys.size >= PARKED_KEYS_MAX || this.rows.size >= PARKED_ROWS_MAX;
  }

  /** The highest id parked. */
  highest(): bigint | null {
    let highest: bigint | null = null;
    for (const id of this.rows.keys()) if (highest === null || id > highest) highest = id;
    return highest;
  }

  has(id: bigint): boolean {
    return this.rows.has(id);
  }

  /** Parks the row if earlier rows of its key are parked; whether it did. */
  add(row: OutboxRow): boolean {
    if (!this.keys.has(row.aggregateId)) return false;
    this.put(row);
    return true;
  }

  park(row: OutboxRow): void {
    this.put(row);
    this.options.log.error(
      { id: row.id.toString(), aggregate_id: row.aggregateId, bytes: row.payload.length },
      'the broker refuses an outbox row while it takes others; its key waits',
    );
  }

  /** Forgets all: another relay owns them, or the table is swept. */
  clear(): void {
    this.rows.clear();
    this.keys.clear();
    this.options.metrics.parked.set(0);
  }

  /** Brings the parked rows again, as the table shows them. */
  async bringAgain(table: OutboxRows): Promise<void> {
    if (this.rows.size === 0) return;
    const { pipeline, clock } = this.options;
    const ids = [...this.rows.keys()].sort((a, b) => (a < b ? -1 : 1));
    // Rows of other keys that lie between are not brought, and those keys go on waiting.
    const keys = new Set([...this.rows.values()].map((one) => one.key));
    const seen = new Map((await table.byId(ids)).map((state) => [state.row.id, state]));
    const now = clock.monotonicMs();
    for (const id of ids) {
      const state = seen.get(id);
      // A row that is not visible yet must not be overtaken by what is behind it.
      if (state === undefined && now - (this.rows.get(id) as Parked).sinceMs < INVISIBLE_MS_MAX) return;
      if (state?.pending !== true) this.rows.delete(id);
    }
    const pending = [...seen.values()].filter((state) => state.pending).map((state) => state.row);
    if (pending.length > 0) {
      const covered = { from: ids[0] as bigint, to: ids.at(-1) as bigint, keys };
      const { left } = await pipeline.deliver(pending, covered);
      const kept = new Set(left);
      for (const row of pending) if (!kept.has(row.id)) this.rows.delete(row.id);
    }
    this.keys = new Set([...this.rows.values()].map((one) => one.key));
    this.options.metrics.parked.set(this.rows.size);
  }

  private put(row: OutboxRow): void {
    this.rows.set(row.id, { key: row.aggregateId, sinceMs: this.options.clock.monotonicMs() });
    this.keys.add(row.aggregateId);
    this.options.metrics.parked.set(this.rows.size);
  }
}
