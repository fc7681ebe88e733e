/** Periodic maintenance of the orders tables: creates partitions ahead of the ids, drops old ones,
 *  deletes old keys. Every process runs it; an advisory lock lets one work at a time. A failed task
 *  is retried in the next turn, and no task blocks requests for long. */
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Metrics } from '../../../core/metrics.ts';
import type { KeyTtl } from './key-ttl.ts';
import { expireKeys, KEYS_CHUNK_ROWS } from './keys.ts';
import {
  dropMarked,
  makeAhead,
  outboxPartitions,
  type PartitionOptions,
  SWEPT_CHUNK_ROWS,
  sweepDefault,
} from './partitions.ts';

/** Pause after a key expiry that found less than a full chunk. */
const KEYS_PAUSE_MS = 10 * 60_000;
/** Maximum time of the chunks of one task in one turn. */
const CHUNKS_MS = 2000;
/** Pause between turns while work remains. */
const BEHIND_PAUSE_MS = 500;
const LOCK_TIMEOUT = '55P03';

export interface MaintenanceOptions extends PartitionOptions {
  readonly keyTtl: KeyTtl;
  readonly intervalMs: number;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly monotonicMs: () => number;
  /** Resolves after the time, or when the drain starts. */
  readonly sleep: (ms: number) => Promise<void>;
  readonly drain: AbortSignal;
}

/** Reason that a task ended: no work remains, its time was over, or another process maintains the
 *  tables. */
type ChunksEnd = 'done' | 'time' | 'elsewhere';

export class Maintenance {
  private readonly options: MaintenanceOptions;
  private readonly counters;
  private keysAgainMs = 0;

  constructor(options: MaintenanceOptions) {
    this.options = options;
    const { metrics } = options;
    this.counters = {
      partitions: metrics.gauge(
        'orders_outbox_partitions',
        'Partitions of the outbox, the default one included.',
      ),
      made: metrics.counter('orders_outbox_partitions_made_total', 'Partitions created ahead of the ids.'),
      dropped: metrics.counter(
        'orders_outbox_partitions_dropped_total',
        'Partitions dropped: every row marked and older than the retention.',
      ),
      swept: metrics.counter(
        'orders_outbox_default_swept_total',
        'Rows deleted from the default partition: marked and older than the retention.',
      ),
      expired: metrics.counter('orders_keys_expired_total', 'Idempotency keys deleted after their TTL.'),
      errors: metrics.counter('orders_maintenance_errors_total', 'Failed maintenance tasks.', ['task']),
    };
    const keyTtl = metrics.gauge('orders_key_ttl_seconds', 'Time that a key and its answer are kept.');
    metrics.onCollect(() => keyTtl.set(options.keyTtl.ms() / 1000));
  }

  /** Runs until the drain starts; never throws. */
  async run(): Promise<void> {
    const { drain, sleep, intervalMs } = this.options;
    while (!drain.aborted) {
      const behind = await this.turn();
      await sleep(behind ? Math.min(BEHIND_PAUSE_MS, intervalMs) : intervalMs);
    }
  }

  /** Runs all tasks once. Returns true if a task ran out of time with work remaining. */
  async turn(): Promise<boolean> {
    const { options, counters } = this;
    const ends: ChunksEnd[] = [];
    await this.attempt('key_ttl', () => options.keyTtl.refresh());
    await this.attempt('make', async () => {
      await makeAhead(options, (made) => {
        counters.made.add(1);
        options.log.info({ made }, 'outbox partition made');
      });
    });
    await this.attempt('drop', async () => {
      await dropMarked(options, (dropped) => {
        counters.dropped.add(1);
        options.log.info({ dropped }, 'outbox partition dropped');
      });
    });
    await this.attempt('sweep', async () => {
      ends.push(await this.inChunks(() => sweepDefault(options), SWEPT_CHUNK_ROWS, counters.swept));
    });
    await this.attempt('count', async () => {
      counters.partitions.set((await outboxPartitions(options.pool, options.schema)).length);
    });
    if (options.monotonicMs() >= this.keysAgainMs)
      await this.attempt('keys', async () => {
        ends.push(await this.expire());
      });
    return ends.includes('time');
  }

  private async expire(): Promise<ChunksEnd> {
    const { keyTtl, monotonicMs } = this.options;
    const end = await this.inChunks(
      () => expireKeys(this.options, keyTtl.ms()),
      KEYS_CHUNK_ROWS,
      this.counters.expired,
    );
    // If another process does it, the remaining work is unknown.
    if (end === 'done') this.keysAgainMs = monotonicMs() + Math.min(KEYS_PAUSE_MS, keyTtl.ms() / 10);
    return end;
  }

  /** Deletes chunks until one is not full, for CHUNKS_MS at most. */
  private async inChunks(
    chunk: () => Promise<number | undefined>,
    full: number,
    deleted: { add(count: number): void },
  ): Promise<ChunksEnd> {
    const { drain, monotonicMs } = this.options;
    const endMs = monotonicMs() + CHUNKS_MS;
    while (!drain.aborted) {
      const count = await chunk();
      if (count === undefined) return 'elsewhere';
      deleted.add(count);
      if (count < full) return 'done';
      if (monotonicMs() >= endMs) return 'time';
      // Yields to requests.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    return 'time';
  }

  private async attempt(task: string, work: () => Promise<void>): Promise<void> {
    const { errors } = this.counters;
    try {
      await work();
    } catch (thrown) {
      const error = findMillraceError(thrown);
      errors.add(1, errors.series(task));
      // A lock timeout is expected: maintenance yields to requests.
      const level = error?.details['sqlstate'] === LOCK_TIMEOUT ? 'debug' : 'warn';
      this.options.log[level](
        { task, code: error?.code, error: error?.message ?? String(thrown) },
        'maintenance of the orders tables failed; it will be retried',
      );
    }
  }
}
