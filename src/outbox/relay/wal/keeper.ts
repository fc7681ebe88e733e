/** What is done beside a running stream: the slot is moved, looked at and kept warm, one after the other. The table is audited and parked
 *  rows are brought again beside that, because either may wait for the broker, for as long as a partition has no leader. */
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
const LOOK_MS = 1000;
const PARKED_MS = 2000;

export class WalKeeper {
  private readonly options: WalKeeperOptions;
  private readonly due = { confirm: 0, look: 0, heartbeat: 0, parked: 0, audit: 0 };
  private allowed = 0n;
  private commits = 0;
  private parkedTo: bigint | null = null;
  private target: bigint | undefined;
  /** What waits for the broker, by what it is. */
  private readonly errands = new Map<'parked' | 'audit', Promise<void>>();
  private failure: { readonly thrown: unknown } | undefined;

  constructor(options: WalKeeperOptions) {
    this.options = options;
    const now = options.clock.monotonicMs();
    this.due.audit = now + Math.min(LOOK_MS, options.auditMs);
    this.due.heartbeat = now + options.heartbeatMs;
  }

  /** Does what is due, and starts what waits for the broker. @throws what the database answers */
  async keep(): Promise<void> {
    const { slot, rows, metrics, sweeper, parking, feed, heartbeatMs, auditMs } = this.options;
    if (this.failure !== undefined) throw this.failure.thrown;
    // Only transactions of ours move the slot at once: noting that it moved is a write, which moves the log again.
    const beats = this.isDue('heartbeat', heartbeatMs);
    if (beats) {
      await slot.heartbeat();
      metrics.heartbeats.add();
    }
    const busy = feed.progress.commits !== this.commits && this.isDue('confirm', CONFIRM_MS);
    if (beats || busy) await this.confirm();
    if (this.isDue('look', LOOK_MS)) await this.look();
    if (this.isDue('parked', PARKED_MS))
      this.errand('parked', () => parking.bringAgain(rows).then(() => feed.relieve()));
    if (sweeper.waits || this.isDue('audit', auditMs))
      this.errand('audit', () => sweeper.audit(rows, feed.progress.confirmed));
  }

  /** Resolves when nothing waits for the broker. */
  async settled(): Promise<void> {
    await Promise.all(this.errands.values());
  }

  private errand(what: 'parked' | 'audit', run: () => Promise<void>): void {
    if (this.errands.has(what)) return;
    const over = run()
      .catch((thrown: unknown) => {
        this.failure ??= { thrown };
      })
      .finally(() => this.errands.delete(what));
    this.errands.set(what, over);
  }

  /** Moves the slot to where the stream is done. */
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

  /** Whether everything that was pending at the first call is published and marked. */
  async isDrained(): Promise<boolean> {
    const { slot, rows, sweeper, feed } = this.options;
    const { confirmed } = feed.progress;
    if (this.errands.size > 0) return false;
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

  private async look(): Promise<void> {
    const { slot, metrics, onStatus } = this.options;
    const state = await slot.look();
    metrics.show(state);
    onStatus(state?.walStatus ?? 'lost');
    if (await slot.isPublished()) return;
    throw outboxError('wal_not_possible', 'the publication is gone or shows the outbox no more', {
      next: 'nothing: it is made again, and pending rows are published by row',
    });
  }

  private isDue(what: keyof WalKeeper['due'], everyMs: number): boolean {
    const now = this.options.clock.monotonicMs();
    if (now < this.due[what]) return false;
    this.due[what] = now + everyMs;
    return true;
  }
}
