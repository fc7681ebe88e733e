/** Parked keys: keys whose first pending row the broker refuses while it accepts other rows. Their
 *  rows stay pending in the table, so nothing is lost when the slot moves on. The lowest row of
 *  each key is retried by id; once it is published, the later rows are read from the table.
 *
 *  Invariants: (1) memory grows with the number of keys, not of their rows; (2) a row is delivered
 *  only when no lower row of its key waits. The rows behind the first are read in one snapshot, and
 *  only once every row that the stream delivered is visible; (3) one turn at a time.
 */
import type { Logger } from '../../../core/log.ts';
import type { Pipeline } from '../pipeline/contract.ts';
import type { OutboxRow } from '../store.ts';
import type { WalMetrics } from './metrics.ts';
import {
  deliverPending,
  type IdRange,
  PAGE_ROWS,
  ROUND_IDS_MAX,
  type RoundLimits,
  widened,
} from './round.ts';
import type { OutboxRows } from './rows.ts';
import { ID_MIN } from './slot.ts';

/** Ids in one log line; the line also has the number of keys. */
const NAMED_KEYS_MAX = 20;

export interface ParkingLimits extends RoundLimits {
  /** Limits above which the stream is not read: parked keys, and rows of them that the stream
   *  delivered and no statement has seen in the table. */
  readonly keysMax: number;
  readonly unseenMax: number;
  /** Keys whose first row is tried in one turn; the next turn tries the next keys. */
  readonly keysATurn: number;
}

export const PARKING_LIMITS: Omit<ParkingLimits, 'pageBytes'> = {
  keysMax: 100_000,
  unseenMax: 100_000,
  keysATurn: 1000,
  idsMax: ROUND_IDS_MAX,
  pageRows: PAGE_ROWS,
};

export interface WalParkingOptions {
  readonly pipeline: Pipeline;
  readonly metrics: WalMetrics;
  readonly log: Logger;
  readonly limits: ParkingLimits;
}

/** Row that the stream delivered and no statement has seen in the table. A commit can be decoded
 *  before it is visible: usually shortly, but as long as a synchronous standby does not answer. */
interface Unseen {
  readonly key: string;
  /** Transaction number above that of the row. Once all transactions below it have ended, an unseen
   *  row is deleted. Undefined before the first look-up. */
  below: bigint | undefined;
}

export class WalParking {
  private readonly options: WalParkingOptions;
  /** Lowest waiting id and highest known id of each parked key, in the order of the retries. */
  private readonly waiting = new Map<string, IdRange>();
  private readonly unseen = new Map<bigint, Unseen>();
  private turning: Promise<void> | undefined;

  constructor(options: WalParkingOptions) {
    this.options = options;
  }

  /** Number of parked keys. */
  get size(): number {
    return this.waiting.size;
  }

  get isFull(): boolean {
    const { keysMax, unseenMax } = this.options.limits;
    return this.waiting.size >= keysMax || this.unseen.size >= unseenMax;
  }

  /** Highest known id of all parked keys. */
  highest(): bigint | null {
    let highest: bigint | null = null;
    for (const { to } of this.waiting.values()) if (highest === null || to > highest) highest = to;
    return highest;
  }

  keys(): ReadonlySet<string> {
    return new Set(this.waiting.keys());
  }

  holds(key: string): boolean {
    return this.waiting.has(key);
  }

  /** Parks a row of the stream if its key is parked; true when it did. */
  add(row: OutboxRow): boolean {
    if (!this.waiting.has(row.aggregateId)) return false;
    this.track(row);
    return true;
  }

  /** Parks the keys of rows that the stream delivered and the broker refused. */
  park(rows: readonly OutboxRow[]): void {
    const firsts: bigint[] = [];
    for (const row of rows) {
      if (this.add(row)) continue;
      this.waiting.set(row.aggregateId, { from: row.id, to: row.id });
      this.track(row);
      firsts.push(row.id);
    }
    if (firsts.length > 0) this.logParked(firsts);
    this.updateGauge();
  }

  /** Parks the keys of rows that were read from the table and refused. */
  parkKeys(refused: ReadonlyMap<string, IdRange>): void {
    const firsts: bigint[] = [];
    for (const [key, { from, to }] of refused) {
      const known = this.waiting.get(key);
      if (known === undefined) firsts.push(from);
      this.waiting.set(key, {
        from: known !== undefined && known.from < from ? known.from : from,
        to: known !== undefined && known.to > to ? known.to : to,
      });
    }
    if (firsts.length > 0) this.logParked(firsts);
    this.updateGauge();
  }

  /** Drops all parked keys: another relay owns them, or a sweep will find them. */
  clear(): void {
    this.waiting.clear();
    this.unseen.clear();
    this.updateGauge();
  }

  /** Retries parked rows, of a limited number of keys; joins the turn in progress. */
  redeliver(table: OutboxRows): Promise<void> {
    this.turning ??= this.turn(table).finally(() => {
      this.turning = undefined;
      this.updateGauge();
    });
    return this.turning;
  }

  /** Resolves when no turn is in progress. */
  async settled(): Promise<void> {
    await this.turning?.catch(() => {});
  }

  private track({ id, aggregateId }: OutboxRow): void {
    const known = this.waiting.get(aggregateId) as IdRange;
    // Rows that were left arrive in the order of their portions, so a lower id may follow.
    if (id < known.from || id > known.to) this.waiting.set(aggregateId, widened(known, id));
    if (!this.unseen.has(id)) this.unseen.set(id, { key: aggregateId, below: undefined });
  }

  /** Logs parked keys. @param firsts refused row of each key */
  private logParked(firsts: readonly bigint[]): void {
    this.options.log.error(
      { keys: firsts.length, ids: firsts.slice(0, NAMED_KEYS_MAX).map(String) },
      'the broker refuses outbox rows while it accepts others; their keys are parked',
    );
  }

  private async turn(table: OutboxRows): Promise<void> {
    if (this.waiting.size === 0) return;
    await this.checkUnseen(table);
    const invisible = new Set([...this.unseen.values()].map(({ key }) => key));
    const heads: Array<readonly [string, bigint]> = [];
    for (const [key, { from }] of this.waiting) {
      if (heads.length >= this.options.limits.keysATurn) break;
      // A row that is not visible yet must not be overtaken by a later row of its key.
      if (!invisible.has(key)) heads.push([key, from]);
    }
    const freed = await this.tryHeads(table, heads);
    if (freed.size > 0) await this.deliverRest(table, freed);
  }

  private async checkUnseen(table: OutboxRows): Promise<void> {
    const { limits } = this.options;
    const ids = [...this.unseen.keys()];
    for (let at = 0; at < ids.length; at += limits.pageRows) {
      const page = ids.slice(at, at + limits.pageRows);
      const visible = await table.visibleOf(page);
      for (const id of visible.ids) this.unseen.delete(id);
      const fresh: Unseen[] = [];
      for (const id of page) {
        const row = this.unseen.get(id);
        if (row === undefined) continue;
        if (row.below !== undefined && visible.oldest >= row.below) this.unseen.delete(id);
        else if (row.below === undefined) fresh.push(row);
      }
      if (fresh.length === 0) continue;
      const above = await table.numberAbove();
      for (const row of fresh) row.below = above;
    }
  }

  /** Retries the first row of each key; returns the keys whose first row is published or no longer
   *  pending. */
  private async tryHeads(
    table: OutboxRows,
    heads: ReadonlyArray<readonly [string, bigint]>,
  ): Promise<Set<string>> {
    const { pipeline, limits } = this.options;
    const freed = new Set<string>();
    const sorted = [...heads].sort(([, a], [, b]) => (a < b ? -1 : 1));
    for (let at = 0; at < sorted.length; ) {
      await pipeline.room();
      const asked = sorted.slice(at, at + limits.pageRows);
      const { states, through } = await table.byId(
        asked.map(([, id]) => id),
        limits.pageBytes,
      );
      const seen = new Map(states.map((state) => [state.row.id, state]));
      const checked = asked.filter(([, id]) => id <= through);
      at += checked.length;
      await Promise.all(
        checked.map(async ([key, id]) => {
          const state = seen.get(id);
          if (state?.pending === true) {
            // The row is the first of its key, and this call delivers rows of no other key.
            const covered = { from: ID_MIN, to: id, keys: new Set([key]) };
            const { left, marked } = await pipeline.deliver([state.row], covered);
            if (left.length > 0) return this.moveToEnd(key);
            // The next read looks for pending rows, so the mark must be visible to it.
            await marked;
          }
          freed.add(key);
        }),
      );
    }
    return freed;
  }

  /** Delivers the later rows of keys whose first row is published. */
  private async deliverRest(table: OutboxRows, freed: ReadonlySet<string>): Promise<void> {
    const { pipeline, limits } = this.options;
    const known = new Map<string, bigint>();
    let to = 0n;
    for (const key of freed) {
      const range = this.waiting.get(key);
      if (range === undefined) continue;
      known.set(key, range.to);
      if (range.to > to) to = range.to;
    }
    const { refused, whole } = await deliverPending({
      pipeline,
      table,
      to,
      filter: { only: freed },
      limits,
      mayContinue: () => true,
    });
    const invisible = new Set([...this.unseen.values()].map(({ key }) => key));
    for (const [key, knownTo] of known) {
      const range = this.waiting.get(key);
      if (range === undefined) continue;
      const left = refused.get(key);
      if (left !== undefined) {
        this.waiting.set(key, { from: left.from, to: range.to > left.to ? range.to : left.to });
        this.moveToEnd(key);
      } else if (whole && range.to === knownTo && !invisible.has(key)) this.waiting.delete(key);
    }
  }

  /** Moves a key to the end, behind the keys that were not tried. */
  private moveToEnd(key: string): void {
    const range = this.waiting.get(key);
    if (range === undefined) return;
    this.waiting.delete(key);
    this.waiting.set(key, range);
  }

  private updateGauge(): void {
    this.options.metrics.parked.set(this.waiting.size);
  }
}
