/** Repair of the wal mode from the state of the rows in the table.
 *
 *    sweep  publishes every pending row up to an id, before a stream is trusted that may lack some.
 *    audit  runs beside a stream. It notes pending rows and a position of the log. It publishes
 *           those that are still pending when the stream has confirmed that position: the stream
 *           never delivered them.
 */
import type { Logger } from '../../../core/log.ts';
import type { Pipeline } from '../pipeline/contract.ts';
import { parseLsn } from './lsn.ts';
import type { WalMetrics } from './metrics.ts';
import type { WalParking } from './parking.ts';
import { deliverPending, type IdRange, type Round, type RoundLimits, widened } from './round.ts';
import type { OutboxRows, Sighting } from './rows.ts';
import type { SweepReason } from './slot.ts';

const AUDIT_IDS_MAX = 10_000;
const RETRY_MS = 200;
/** Consecutive rounds that refuse a key, after which it is parked so that the stream can start. */
const ROUNDS_MAX = 5;

export interface SweepLimits extends RoundLimits {
  /** Limit of the keys that a sweep parks; lower than the limit of parked keys beside a stream. */
  readonly parkKeysMax: number;
}

export const PARK_KEYS_MAX = 50_000;

export interface WalSweepOptions {
  readonly pipeline: Pipeline;
  readonly metrics: WalMetrics;
  readonly parking: WalParking;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** True while this relay owns the outbox and is not draining. */
  readonly mayContinue: () => boolean;
  readonly limits: SweepLimits;
}

export class WalSweep {
  private readonly options: WalSweepOptions;
  private sighting: Sighting | undefined;

  constructor(options: WalSweepOptions) {
    this.options = options;
  }

  /** Publishes the pending rows up to `to`; true when each is marked or parked, false when the
   *  sweep was interrupted. Its rows count as found by the sweep, except before the first stream,
   *  and those that the stream delivered and the broker refused. */
  async sweep(table: OutboxRows, to: bigint, reason: SweepReason): Promise<boolean> {
    const { metrics, mayContinue, sleep, parking, log, limits } = this.options;
    /** Keys to park: later rounds leave them out, however many rows they have. */
    const aside = new Map<string, IdRange>();
    /** Number of consecutive rounds that refused a key. */
    let refusals = new Map<string, number>();
    let total = 0;
    while (mayContinue()) {
      const { published, refused, whole } = await this.round(table, to, new Set(aside.keys()));
      total += published;
      metrics.swept.add(published, metrics.swept.series(reason));
      if (reason !== 'first_start' && reason !== 'parked') metrics.sweeperFound.add(published);
      if (!mayContinue()) return false;
      if (refused.size === 0) {
        if (!whole) continue;
        if (aside.size > 0) parking.parkKeys(aside);
        if (total > 0) log.warn({ reason, rows: total }, 'pending rows were published from the table');
        return true;
      }
      refusals = new Map([...refused.keys()].map((key) => [key, (refusals.get(key) ?? 0) + 1]));
      const stuck = [...refused].filter(([key]) => (refusals.get(key) as number) > ROUNDS_MAX);
      const most = [...refusals.values()].reduce((a, b) => Math.max(a, b));
      if (aside.size + stuck.length < limits.parkKeysMax) {
        // The round did not read all rows, so more rows of the key may be pending above.
        for (const [key, range] of stuck) aside.set(key, whole ? range : { from: range.from, to });
        if (stuck.length === refused.size) continue;
      } else if (most % ROUNDS_MAX === 1)
        log.error(
          { keys: aside.size + stuck.length, limit: limits.parkKeysMax },
          'the broker refuses rows of more keys than can be parked; the stream does not start',
        );
      await sleep(RETRY_MS * Math.min(most, 10));
    }
    return false;
  }

  private async round(table: OutboxRows, to: bigint, except: ReadonlySet<string>): Promise<Round> {
    const { pipeline, mayContinue, limits } = this.options;
    const round = await deliverPending({ pipeline, table, to, filter: { except }, limits, mayContinue });
    await pipeline.idle();
    return round;
  }

  /** Audits the table; called repeatedly while a stream runs. @param confirmed confirmed position
   *  of the stream */
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
    const idle = before.ids.filter((id) => !pipeline.isInFlight(id));
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
          ({ row, pending }) => pending && !pipeline.isInFlight(row.id) && !parking.holds(row.aggregateId),
        )
        .map(({ row }) => row);
      if (found.length === 0) continue;
      rows += found.length;
      const { published, left } = await pipeline.deliver(found);
      const leftIds = new Set(left);
      const refused = new Map<string, IdRange>();
      for (const { id, aggregateId } of found)
        if (leftIds.has(id)) refused.set(aggregateId, widened(refused.get(aggregateId), id));
      // More rows of these keys may be among the ids of this audit.
      const highest = suspects.at(-1) as bigint;
      for (const [key, { from }] of refused) refused.set(key, { from, to: highest });
      parking.parkKeys(refused);
      metrics.sweeperFound.add(published);
    }
    if (rows === 0) return;
    log.error(
      { rows, first: suspects[0]?.toString() },
      'rows were pending that the stream had not delivered; they were published from the table',
    );
  }

  /** Drops the rows seen by an audit: another stream starts. */
  reset(): void {
    this.sighting = undefined;
  }

  /** True while an audit waits for the stream to reach its position. */
  get waits(): boolean {
    return this.sighting !== undefined;
  }
}
