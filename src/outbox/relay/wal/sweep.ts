/** The second eye of the wal mode: the state of the rows is the truth, whatever the stream showed.
 *
 *    sweep  brings every pending row up to an id, before a stream is believed that may have lost some
 *    audit  beside a running stream: rows that were pending at a position which the stream has confirmed, and still are, were
 *           never shown by it
 */
import type { Logger } from '../../../core/log.ts';
import type { Pipeline } from '../pipeline/contract.ts';
import { parseLsn } from './lsn.ts';
import type { WalMetrics } from './metrics.ts';
import type { WalParking } from './parking.ts';
import { bringPending, type IdRange, type Round, type RoundLimits, widened } from './round.ts';
import type { OutboxRows, Sighting } from './rows.ts';
import type { SweepReason } from './slot.ts';

const AUDIT_IDS_MAX = 10_000;
const RETRY_MS = 200;
/** Rounds in a row in which a key is refused, before it is parked so that the stream can begin. */
const ROUNDS_MAX = 5;

export interface SweepLimits extends RoundLimits {
  /** Keys that are parked so that the stream can begin; fewer than may wait beside it. */
  readonly parkKeysMax: number;
}

export const PARK_KEYS_MAX = 50_000;

export interface WalSweepOptions {
  readonly pipeline: Pipeline;
  readonly metrics: WalMetrics;
  readonly parking: WalParking;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** Whether this relay still owns the outbox and goes on. */
  readonly goesOn: () => boolean;
  readonly limits: SweepLimits;
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
    const { metrics, goesOn, sleep, parking, log, limits } = this.options;
    /** Keys that wait from now on: the rounds after that go past them, however many rows they have. */
    const aside = new Map<string, IdRange>();
    /** Rounds in a row in which a key was refused. */
    let strikes = new Map<string, number>();
    let total = 0;
    while (goesOn()) {
      const { published, refused, whole } = await this.round(table, to, new Set(aside.keys()));
      total += published;
      metrics.swept.add(published, metrics.swept.series(reason));
      if (reason !== 'first_start' && reason !== 'parked') metrics.sweeperFound.add(published);
      if (!goesOn()) return false;
      if (refused.size === 0) {
        if (!whole) continue;
        if (aside.size > 0) parking.parkKeys(aside);
        if (total > 0) log.warn({ reason, rows: total }, 'pending rows were published by row');
        return true;
      }
      strikes = new Map([...refused.keys()].map((key) => [key, (strikes.get(key) ?? 0) + 1]));
      const stuck = [...refused].filter(([key]) => (strikes.get(key) as number) > ROUNDS_MAX);
      const most = [...strikes.values()].reduce((a, b) => Math.max(a, b));
      if (aside.size + stuck.length < limits.parkKeysMax) {
        // Where the round did not see all, more of the key may be pending above.
        for (const [key, range] of stuck) aside.set(key, whole ? range : { from: range.from, to });
        if (stuck.length === refused.size) continue;
      } else if (most % ROUNDS_MAX === 1)
        log.error(
          { keys: aside.size + stuck.length, limit: limits.parkKeysMax },
          'the broker refuses rows of more keys than may wait beside the stream, which does not begin',
        );
      await sleep(RETRY_MS * Math.min(most, 10));
    }
    return false;
  }

  private async round(table: OutboxRows, to: bigint, except: ReadonlySet<string>): Promise<Round> {
    const { pipeline, goesOn, limits } = this.options;
    const round = await bringPending({ pipeline, table, to, filter: { except }, limits, goesOn });
    await pipeline.idle();
    return round;
  }

  /** Called now and then while a stream runs; `confirmed` is how far it is done. */
  async audit(table: OutboxRows, confirmed: bigint): Promise<void> {
    const { pipeline, metrics, parking, log, limits } = this.options;
    const before = this.sighting;
    if (before === undefined) {
      const sighting = await table.sight(AUDIT_IDS_MAX, parking.keys());
      if (sighting.ids.length > 0) this.sighting = sighting;
      return;
    }
    if (confirmed < (parseLsn(before.lsn) ?? 0n)) return;
    this.sighting = undefined;
    const idle = before.ids.filter((id) => !pipeline.isUnderWay(id));
    const suspects =
      idle.length === 0 ? [] : [...(await table.pendingOf(idle))].sort((a, b) => (a < b ? -1 : 1));
    let rows = 0;
    for (let at = 0; at < suspects.length; ) {
      await pipeline.room();
      const asked = suspects.slice(at, at + limits.pageRows);
      const { states, through } = await table.byId(asked, limits.pageBytes);
      at += asked.filter((id) => id <= through).length;
      const found = states
        .filter(
          ({ row, pending }) => pending && !pipeline.isUnderWay(row.id) && !parking.holds(row.aggregateId),
        )
        .map(({ row }) => row);
      if (found.length === 0) continue;
      rows += found.length;
      const { published, left } = await pipeline.deliver(found);
      const leftIds = new Set(left);
      const refused = new Map<string, IdRange>();
      for (const { id, aggregateId } of found)
        if (leftIds.has(id)) refused.set(aggregateId, widened(refused.get(aggregateId), id));
      // Of these keys more may be among the ids that were seen.
      const highest = suspects.at(-1) as bigint;
      for (const [key, { from }] of refused) refused.set(key, { from, to: highest });
      parking.parkKeys(refused);
      metrics.sweeperFound.add(published);
    }
    if (rows === 0) return;
    log.error(
      { rows, first: suspects[0]?.toString() },
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
