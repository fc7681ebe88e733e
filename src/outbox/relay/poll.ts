/** The polling relay: read pending rows, publish, mark what was acknowledged; one cycle is one transaction under the
 *  relay's lock.
 *
 *  Invariants: (1) a row is marked only after the broker acknowledged it, in the transaction that read it; (2) a cycle
 *  that ends anywhere before its commit leaves its rows pending, so they are published again under the same msg_id;
 *  (3) nothing remembers a position: each cycle starts at the lowest pending id.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { SqlPool } from '../../io/sql/port.ts';
import type { Publisher } from './publish.ts';
import { markPublished, readPending, tryLock } from './store.ts';

/** Where a test or a chaos run ends the process: `commit` a committed row was seen and not yet published, `publish`
 *  rows are acknowledged and not yet marked. */
export type RelayCrashPoint = 'commit' | 'publish';

export interface PollRelayOptions {
  readonly pool: SqlPool;
  readonly schema: string;
  readonly publisher: Publisher;
  readonly metrics: Metrics;
  readonly log: Logger;
  /** Rows a cycle. */
  readonly rowsMax: number;
  readonly intervalMs: number;
  /** Longest wait after failures in a row. */
  readonly backoffMaxMs: number;
  /** Resolves after the time, or at once when the drain starts. */
  readonly sleep: (ms: number) => Promise<void>;
  readonly drain: AbortSignal;
  readonly crashPoint?: RelayCrashPoint;
  /** Ends the process; only called with a crash point, once `crashAfter` rows are published by this process. */
  readonly crash?: () => void;
  readonly crashAfter?: number;
}

export type Cycle =
  | { readonly kind: 'standby' }
  | { readonly kind: 'worked'; readonly read: number; readonly acked: number; readonly marked: number };

export class PollRelay {
  private readonly options: PollRelayOptions;
  private readonly counters;
  private published = 0;
  private healthy = false;

  constructor(options: PollRelayOptions) {
    this.options = options;
    const { metrics } = options;
    this.counters = {
      published: metrics.counter(
        'relay_published_total',
        'Outbox rows acknowledged by the broker, repeats included.',
      ),
      marked: metrics.counter('relay_marked_total', 'Outbox rows marked as published.'),
      markBatches: metrics.counter('relay_mark_batches_total', 'Transactions that marked rows.'),
      failed: metrics.counter(
        'relay_publish_failed_total',
        'Rows the broker did not acknowledge; they stay pending.',
      ),
      oversize: metrics.counter(
        'relay_oversize_total',
        'Attempts at rows that are larger than a record may be; they stay pending.',
      ),
      errors: metrics.counter('relay_cycle_errors_total', 'Cycles that ended with an error.'),
      owner: metrics.gauge('relay_owner', '1 while this process holds the lock of the outbox, 0 on standby.'),
    };
  }

  /** The last cycle reached the database and the broker. */
  isHealthy(): boolean {
    return this.healthy;
  }

  /** Runs until the drain starts; the cycle under way is finished. */
  async run(): Promise<void> {
    const { drain, sleep, intervalMs, rowsMax, log } = this.options;
    let failures = 0;
    while (!drain.aborted) {
      try {
        const cycle = await this.cycle();
        if (failures > 0) log.info({ failures }, 'relay works again');
        failures = 0;
        this.healthy = true;
        const full = cycle.kind === 'worked' && cycle.read === rowsMax && cycle.acked > 0;
        if (!full) await sleep(intervalMs);
      } catch (thrown) {
        failures++;
        this.healthy = false;
        this.counters.errors.add();
        const error = findMillraceError(thrown);
        if (error === undefined || error.kind === 'internal' ? error?.code !== 'sql_failed' : false)
          throw thrown;
        log.warn(
          { code: error?.code, error: error?.message, failures },
          'relay cycle failed; the rows stay pending',
        );
        await sleep(Math.min(this.options.backoffMaxMs, intervalMs * 2 ** Math.min(failures, 16)));
      }
    }
    this.counters.owner.set(0);
  }

  async cycle(): Promise<Cycle> {
    const { pool, schema, rowsMax, publisher, log } = this.options;
    return pool.transaction<Cycle>(async (session) => {
      if (!(await tryLock(session, schema))) {
        this.counters.owner.set(0);
        return { kind: 'standby' };
      }
      this.counters.owner.set(1);
      const rows = await readPending(session, rowsMax);
      if (rows.length === 0) return { kind: 'worked', read: 0, acked: 0, marked: 0 };
      this.crashAt('commit');
      const outcome = await publisher.publish(rows);
      this.published += outcome.acked.length;
      this.counters.published.add(outcome.acked.length);
      this.counters.failed.add(outcome.failed);
      for (const event of outcome.events)
        log.warn({ code: event.name, error: event.message }, 'rows were not acknowledged');
      for (const row of outcome.oversize) {
        this.counters.oversize.add();
        log.error(
          { id: row.id.toString(), msg_id: row.msgId, bytes: row.payload.length },
          'an outbox row is larger than a record may be',
        );
      }
      if (outcome.acked.length === 0) return { kind: 'worked', read: rows.length, acked: 0, marked: 0 };
      this.crashAt('publish');
      const marked = await markPublished(session, outcome.acked);
      this.counters.marked.add(marked);
      this.counters.markBatches.add();
      return { kind: 'worked', read: rows.length, acked: outcome.acked.length, marked };
    });
  }

  private crashAt(point: RelayCrashPoint): void {
    const { crashPoint, crash, crashAfter = 0, log } = this.options;
    if (crashPoint !== point || this.published < crashAfter) return;
    log.warn({ point }, 'crash point reached');
    crash?.();
  }
}
