/** The second eye of the wal mode: the state of the rows is the truth, whatever the stream showed.
 *
 *    sweep  brings every pending row up to an id, before a stream is believed that may have lost some
 *    audit  beside a running stream: rows that were pending at a position which the stream has confirmed, and still are, were
 *           never shown by it
 */
import type { Logger } from '../../core/log.ts';
import type { Delivered, Pipeline } from './pipeline.ts';
import { parseLsn } from './wal-lsn.ts';
import type { WalMetrics } from './wal-metrics.ts';
import type { WalParking } from './wal-parking.ts';
import type { OutboxRows, Sighting } from './wal-rows.ts';
import { ID_MIN, type SweepReason } from './wal-slot.ts';

const PAGE_ROWS = 1000;
const AUDIT_IDS_MAX = 10_000;
const PARK_ROWS_MAX = 5000;
const RETRY_MS = 200;
/** Rounds in which nothing is taken, before the rest is parked so that the stream can begin. */
const ROUNDS_MAX = 5;

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
      const { left, published, refused } = await this.round(table, to);
      total += published;
      metrics.swept.add(published, metrics.swept.series(reason));
      if (reason !== 'first_start' && reason !== 'parked') metrics.sweeperFound.add(published);
      if (!goesOn()) return false;
      if (left === 0) {
        if (total > 0) log.warn({ reason, rows: total }, 'pending rows were published by row');
        return true;
      }
      if (published > 0) round = 1;
      if (round > ROUNDS_MAX && refused.length < PARK_ROWS_MAX) {
        for (const { row } of await table.byId(refused)) parking.park(row);
        return true;
      }
      await sleep(RETRY_MS * Math.min(round, 10));
    }
    return false;
  }

  /** One pass; what was pending and taken, and what was left. */
  private async round(
    table: OutboxRows,
    to: bigint,
  ): Promise<{ readonly left: number; readonly published: number; readonly refused: readonly bigint[] }> {
    const { pipeline, goesOn } = this.options;
    const calls: Array<Promise<Delivered>> = [];
    let after = ID_MIN;
    for (let last = false; !last && goesOn(); ) {
      await pipeline.room();
      const page = await table.pendingAbove(after, PAGE_ROWS);
      const rows = page.filter((row) => row.id <= to);
      last = page.length < PAGE_ROWS || rows.length < page.length;
      const end = last ? to : (page.at(-1)?.id ?? to);
      if (rows.length > 0) calls.push(pipeline.deliver(rows, { from: after + 1n, to: end }));
      after = end;
    }
    const outcomes = await Promise.all(calls);
    await Promise.all(outcomes.map((outcome) => outcome.marked));
    await pipeline.idle();
    const refused = outcomes.flatMap((outcome) => outcome.left);
    return {
      left: refused.length,
      published: outcomes.reduce((sum, outcome) => sum + outcome.published, 0),
      refused,
    };
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
