/** Maintenance beside a running stream. The slot is moved, checked and kept warm in turn. The audit
 *  of the table and the retries of parked rows run in parallel to that. Either may wait for the
 *  broker as long as a partition has no leader. */
import type { Clock } from '../../../core/clock.ts';
import type { ReplicationStream } from '../../../io/postgres/replication/port.ts';
import { outboxError } from '../../errors.ts';
import type { WalFeed } from './feed.ts';
import { parseLsn } from './lsn.ts';
import type { WalMetrics } from './metrics.ts';
import type { WalParking } from './parking.ts';
import type { OutboxRows } from './rows.ts';
import type { WalSlot } from './slot.ts';
import type { WalSweep } from './sweep.ts';

export interface WalKeeperOptions {
  readonly slot: WalSlot;
  readonly rows: OutboxRows;
  readonly feed: WalFeed;
  readonly stream: ReplicationStream;
  readonly metrics: WalMetrics;
  readonly parking: WalParking;
  readonly sweeper: WalSweep;
  readonly clock: Clock;
  readonly heartbeatMs: number;
  readonly auditMs: number;
  readonly onStatus: (walStatus: string) => void;
}

const CONFIRM_MS = 250;
const STATE_MS = 1000;
const PARKED_MS = 2000;

export class WalKeeper {
  private readonly options: WalKeeperOptions;
  private readonly due = { confirm: 0, readState: 0, heartbeat: 0, parked: 0, audit: 0 };
  private allowed = 0n;
  private commits = 0;
  private parkedTo: bigint | null = null;
  private target: bigint | undefined;
  /** Tasks that wait for the broker. */
  private readonly tasks = new Map<'parked' | 'audit', Promise<void>>();
  private failure: { readonly thrown: unknown } | undefined;

  constructor(options: WalKeeperOptions) {
    this.options = options;
    const now = options.clock.monotonicMs();
    this.due.audit = now + Math.min(STATE_MS, options.auditMs);
    this.due.heartbeat = now + options.heartbeatMs;
  }

  /** Does the work that is due, and starts the tasks that wait for the broker. @throws errors of
   *  the database, and those of the tasks */
  async keep(): Promise<void> {
    const { slot, rows, metrics, sweeper, parking, feed, heartbeatMs, auditMs } = this.options;
    if (this.failure !== undefined) throw this.failure.thrown;
    // Only transactions of the outbox move the slot soon. Recording a position is a write, which
    // itself moves the log.
    const isHeartbeatDue = this.isDue('heartbeat', heartbeatMs);
    if (isHeartbeatDue) {
      await slot.heartbeat();
      metrics.heartbeats.add();
    }
    const busy = feed.progress.commits !== this.commits && this.isDue('confirm', CONFIRM_MS);
    if (isHeartbeatDue || busy) await this.confirm();
    if (this.isDue('readState', STATE_MS)) await this.readState();
    if (this.isDue('parked', PARKED_MS))
      this.startTask('parked', () => parking.redeliver(rows).then(() => feed.resumeIfRoom()));
    if (sweeper.waits || this.isDue('audit', auditMs))
      this.startTask('audit', () => sweeper.audit(rows, feed.progress.confirmed));
  }

  /** Resolves when no task waits for the broker. */
  async settled(): Promise<void> {
    await Promise.all(this.tasks.values());
  }

  private startTask(what: 'parked' | 'audit', run: () => Promise<void>): void {
    if (this.tasks.has(what)) return;
    const over = run()
      .catch((thrown: unknown) => {
        this.failure ??= { thrown };
      })
      .finally(() => this.tasks.delete(what));
    this.tasks.set(what, over);
  }

  /** Moves the slot to the position up to which the stream is done. */
  async confirm(): Promise<void> {
    const { slot, feed, stream, parking } = this.options;
    const { confirmed, commits } = feed.progress;
    const parkedTo = parking.highest();
    if (confirmed > this.allowed || parkedTo !== this.parkedTo) {
      await slot.allow(confirmed, parkedTo);
      this.allowed = confirmed;
      this.parkedTo = parkedTo;
    }
    if (feed.progress.unconfirmed === 0) this.commits = commits;
    stream.confirm(confirmed);
  }

  /** True once all rows that were pending at the first call are published and marked. */
  async isDrained(): Promise<boolean> {
    const { slot, rows, sweeper, feed } = this.options;
    const { confirmed } = feed.progress;
    if (this.tasks.size > 0) return false;
    if (this.target === undefined) {
      sweeper.reset();
      await sweeper.audit(rows, 0n);
      this.target = parseLsn((await rows.sight(0, new Set())).lsn) ?? 0n;
      await slot.heartbeat();
      return false;
    }
    if (confirmed < this.target) return false;
    if (sweeper.waits) await sweeper.audit(rows, confirmed);
    return !sweeper.waits;
  }

  private async readState(): Promise<void> {
    const { slot, metrics, onStatus } = this.options;
    const state = await slot.readState();
    metrics.show(state);
    onStatus(state?.walStatus ?? 'lost');
    if (await slot.isPublished()) return;
    throw outboxError(
      'wal_not_possible',
      'the publication no longer exists or no longer includes the outbox',
      {
        next: 'nothing: the relay creates it again, and publishes pending rows from the table',
      },
    );
  }

  private isDue(what: keyof WalKeeper['due'], everyMs: number): boolean {
    const now = this.options.clock.monotonicMs();
    if (now < this.due[what]) return false;
    this.due[what] = now + everyMs;
    return true;
  }
}
