/** The second eye of the wal mode: the state of the rows is the truth, whatever the stream showed.
 *
 *    sweep  brings every pending row up to an id, before a stream is believed that may have lost some
 *    audit  beside a running stream: rows that were pending at a position which the stream has confirmed, and still are, were
 *           never shown by it
 */
import type { Logger } from '../../core/log.ts';
import type { Covered, Delivered, Pipeline } from './pipeline.ts';
import type { OutboxRow } from './store.ts';
import { parseLsn } from './wal-lsn.ts';
import type { WalMetrics } from './wal-metrics.ts';
import type { WalParking } from './wal-parking.ts';
import type { OutboxRows, Sighting } from './wal-rows.ts';
import { ID_MIN, type SweepReason } from './wal-slot.ts';

const PAGE_ROWS = 1000;
const AUDIT_IDS_MAX = 10_000;
/** Ids of one round; the next one takes the rest. */
const ROUND_IDS_MAX = 2_000_000;
/** What is parked so that the stream can begin; half of what WalParking holds. */
const PARK_KEYS_MAX = 5000;
const PARK_ROWS_MAX = 50_000;
const RETRY_MS = 200;
/** Rounds in which nothing is taken, before the rest is parked so that the stream can begin. */
const ROUNDS_MAX = 5;

interface Round {
  readonly published: number;
  readonly refused: readonly bigint[];
  readonly refusedKeys: number;
  /** Whether it had all that was pending. */
  readonly whole: boolean;
}

export interface WalSweepOptions {
  readonly pipeline: Pipeline;
  readonly metrics: WalMetrics;
  readonly parking: WalParking;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** Whether this relay still owns the outbox and goes on. */
  readonly goesOn: () => boolean;
}

export class WalSweep {
  private readonly options: WalSweepOptions;
  private sighting: Sighting | undefined;

  constructor(options: WalSweepOptions) {
    this.options = options;
  }

  /** Publishes what is pending up to `to`; resolves when it is marked or parked. False when it was cut short.
   *  Rows count as found by the sweep unless there was no stream yet, or it showed them and the broker refused. */
  async sweep(table: OutboxRows, to: bigint, reason: SweepReason): Promise<boolean> {
    const { metrics, goesOn, sleep, parking, log } = this.options;
    let total = 0;
    for (let round = 1; goesOn(); round++) {
      const { published, refused, refusedKeys, whole } = await this.round(table, to);
      total += published;
      metrics.swept.add(published, metrics.swept.series(reason));
      if (reason !== 'first_start' && reason !== 'parked') metrics.sweeperFound.add(published);
      if (!goesOn()) return false;
      if (refused.length === 0) {
        if (!whole) continue;
        if (total > 0) log.warn({ reason, rows: total }, 'pending rows were published by row');
        return true;
      }
      if (published > 0) round = 1;
      // Rows behind a refused one of their key are many where their keys are few.
      const isFew = refused.length < PARK_ROWS_MAX && refusedKeys < PARK_KEYS_MAX;
      if (round > ROUNDS_MAX && whole && isFew) {
        for (let at = 0; at < refused.length; at += PAGE_ROWS)
          for (const { row, pending } of await table.byId(refused.slice(at, at + PAGE_ROWS)))
            if (pending && !parking.add(row)) parking.park(row);
        return true;
      }
      await sleep(RETRY_MS * Math.min(round, 10));
    }
    return false;
  }

  /** One pass over what one snapshot shows. A page with a snapshot of its own could show a row whose transaction waited for one that
   *  had drawn a lower id of the key, and which committed after the lower page was read. */
  private async round(table: OutboxRows, to: bigint): Promise<Round> {
    const { pipeline, goesOn } = this.options;
    const calls: Array<Promise<Delivered>> = [];
    const keys = new Set<string>();
    const ids = await table.pendingIds(to, ROUND_IDS_MAX);
    const whole = ids.length < ROUND_IDS_MAX;
    let after = ID_MIN;
    for (let at = 0; at < ids.length && goesOn(); at += PAGE_ROWS) {
      await pipeline.room();
      const page = [...ids.subarray(at, at + PAGE_ROWS)];
      const states = await table.byId(page);
      const rows = states.filter(({ pending }) => pending).map(({ row }) => row);
      const isLast = whole && at + PAGE_ROWS >= ids.length;
      const end = isLast ? to : (page.at(-1) as bigint);
      if (rows.length > 0) calls.push(this.deliver(rows, { from: after + 1n, to: end }, keys));
      after = end;
    }
    const outcomes = await Promise.all(calls);
    await Promise.all(outcomes.map((outcome) => outcome.marked));
    await pipeline.idle();
    return {
      published: outcomes.reduce((sum, outcome) => sum + outcome.published, 0),
      refused: outcomes.flatMap((outcome) => outcome.left).sort((a, b) => (a < b ? -1 : 1)),
      refusedKeys: keys.size,
      whole,
    };
  }

  /** Notes the keys of what is left. */
  private async deliver(rows: readonly OutboxRow[], covered: Covered, keys: Set<string>): Promise<Delivered> {
    const outcome = await this.options.pipeline.deliver(rows, covered);
    if (outcome.left.length > 0) {
      const left = new Set(outcome.left);
      for (const row of rows) if (left.has(row.id)) keys.add(row.aggregateId);
    }
    return outcome;
  }

  /** Called now and then while a stream runs; `confirmed` is how far it is done. */
  async audit(table: OutboxRows, confirmed: bigint): Promise<void> {
    const { pipeline, metrics, parking, log } = this.options;
    const before = this.sighting;
    if (before === undefined) {
      const sighting = await table.sight(AUDIT_IDS_MAX);
      if (sighting.ids.length > 0) this.sighting = sighting;
      return;
    }
    if (confirmed < (parseLsn(before.lsn) ?? 0n)) return;
    this.sighting = undefined;
    const idle = before.ids.filter((id) => !pipeline.isUnderWay(id) && !parking.has(id));
    const suspects = idle.length === 0 ? [] : await table.pendingOf(idle);
    if (suspects.length === 0) return;
    const found = (await table.byId(suspects))
      .filter(({ row, pending }) => pending && !pipeline.isUnderWay(row.id))
      .map(({ row }) => row);
    if (found.length === 0) return;
    const { published, left } = await pipeline.deliver(found);
    const refused = new Set(left);
    for (const row of found) if (refused.has(row.id)) parking.park(row);
    metrics.sweeperFound.add(published);
    log.error(
      { rows: found.length, first: found[0]?.id.toString() },
      'rows were pending that the stream had passed; they were published by row',
    );
  }

  /** Forgets what an audit saw: another stream begins. */
  reset(): void {
    this.sighting = undefined;
  }

  /** Whether an audit waits for the stream to come by. */
  get waits(): boolean {
    return this.sighting !== undefined;
  }
}
