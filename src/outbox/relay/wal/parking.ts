/** Keys whose first pending row the broker refuses while it takes others. Their rows are pending, so nothing is lost when the slot
 *  moves on: the lowest row of each is tried again by id, and what waits behind it is read from the table once that is taken.
 *
 *  Invariants: (1) memory follows the keys, however many rows wait behind them; (2) a row of a key is brought only when no lower one
 *  waits: what follows the first is brought as one snapshot shows it, and not before every row that the stream showed can be
 *  seen; (3) one turn at a time.
 */
import type { Clock } from '../../../core/clock.ts';
import type { Logger } from '../../../core/log.ts';
import type { Pipeline } from '../pipeline/contract.ts';
import type { OutboxRow } from '../store.ts';
import type { WalMetrics } from './metrics.ts';
import { bringPending, type IdRange, PAGE_ROWS, ROUND_IDS_MAX, type RoundLimits, widened } from './round.ts';
import type { OutboxRows } from './rows.ts';
import { ID_MIN } from './slot.ts';

/** A row that cannot be seen for so long was deleted: a commit is decoded before it is visible, but not by that much. */
const INVISIBLE_MS_MAX = 60_000;
/** Keys named in one line of the log; the rest is a number. */
const NAMED_KEYS_MAX = 20;

export interface ParkingLimits extends RoundLimits {
  /** Keys that wait, and rows of them that the stream showed and no statement has seen in the table: above either the stream is not read. */
  readonly keysMax: number;
  readonly unseenMax: number;
  /** First rows that are tried in one turn; the next turn tries the next ones. */
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
  readonly clock: Clock;
  readonly log: Logger;
  readonly limits: ParkingLimits;
}

interface Unseen {
  readonly key: string;
  readonly sinceMs: number;
}

export class WalParking {
  private readonly options: WalParkingOptions;
  /** By key, the lowest id that waits and the highest that is known; in the order in which they are tried. */
  private readonly waiting = new Map<string, IdRange>();
  private readonly unseen = new Map<bigint, Unseen>();
  private turning: Promise<void> | undefined;

  constructor(options: WalParkingOptions) {
    this.options = options;
  }

  /** Keys. */
  get size(): number {
    return this.waiting.size;
  }

  get isFull(): boolean {
    const { keysMax, unseenMax } = this.options.limits;
    return this.waiting.size >= keysMax || this.unseen.size >= unseenMax;
  }

  /** The highest id that is known to wait. */
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

  /** Parks a row that the stream showed if earlier rows of its key are parked; whether it did. */
  add(row: OutboxRow): boolean {
    if (!this.waiting.has(row.aggregateId)) return false;
    this.note(row);
    return true;
  }

  /** Parks rows that the stream showed and the broker refused. */
  park(rows: readonly OutboxRow[]): void {
    const firsts: bigint[] = [];
    for (const row of rows) {
      if (this.add(row)) continue;
      this.waiting.set(row.aggregateId, { from: row.id, to: row.id });
      this.note(row);
      firsts.push(row.id);
    }
    if (firsts.length > 0) this.tell(firsts);
    this.show();
  }

  /** Parks what was refused of rows that were read from the table. */
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
    if (firsts.length > 0) this.tell(firsts);
    this.show();
  }

  /** Forgets all: another relay owns them, or the table is swept. */
  clear(): void {
    this.waiting.clear();
    this.unseen.clear();
    this.show();
  }

  /** Brings parked rows again, of some keys a turn; joins the turn in progress. */
  bringAgain(table: OutboxRows): Promise<void> {
    this.turning ??= this.turn(table).finally(() => {
      this.turning = undefined;
      this.show();
    });
    return this.turning;
  }

  /** Resolves when no turn is in progress. */
  async settled(): Promise<void> {
    await this.turning?.catch(() => {});
  }

  private note({ id, aggregateId }: OutboxRow): void {
    const known = this.waiting.get(aggregateId) as IdRange;
    // Rows that were left come in the order of their portions, in which a lower id may follow.
    if (id < known.from || id > known.to) this.waiting.set(aggregateId, widened(known, id));
    if (!this.unseen.has(id))
      this.unseen.set(id, { key: aggregateId, sinceMs: this.options.clock.monotonicMs() });
  }

  /** @param firsts of each key the row that was refused */
  private tell(firsts: readonly bigint[]): void {
    this.options.log.error(
      { keys: firsts.length, ids: firsts.slice(0, NAMED_KEYS_MAX).map(String) },
      'the broker refuses outbox rows while it takes others; their keys wait',
    );
  }

  private async turn(table: OutboxRows): Promise<void> {
    if (this.waiting.size === 0) return;
    await this.lookForUnseen(table);
    const invisible = new Set([...this.unseen.values()].map(({ key }) => key));
    const heads: Array<readonly [string, bigint]> = [];
    for (const [key, { from }] of this.waiting) {
      if (heads.length >= this.options.limits.keysATurn) break;
      // A row that is not visible yet must not be overtaken by what is behind it.
      if (!invisible.has(key)) heads.push([key, from]);
    }
    const freed = await this.tryHeads(table, heads);
    if (freed.size > 0) await this.bringRest(table, freed);
  }

  private async lookForUnseen(table: OutboxRows): Promise<void> {
    const { clock, limits } = this.options;
    const ids = [...this.unseen.keys()];
    for (let at = 0; at < ids.length; at += limits.pageRows) {
      const page = ids.slice(at, at + limits.pageRows);
      for (const id of await table.visibleOf(page)) this.unseen.delete(id);
      const nowMs = clock.monotonicMs();
      for (const id of page)
        if (nowMs - (this.unseen.get(id)?.sinceMs ?? nowMs) >= INVISIBLE_MS_MAX) this.unseen.delete(id);
    }
  }

  /** Tries the first row of each; the keys whose first row is not in the way any more. */
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
      const looked = asked.filter(([, id]) => id <= through);
      at += looked.length;
      await Promise.all(
        looked.map(async ([key, id]) => {
          const state = seen.get(id);
          if (state?.pending === true) {
            // It is the first of its key, and of no other key this call brings anything.
            const covered = { from: ID_MIN, to: id, keys: new Set([key]) };
            const { left, marked } = await pipeline.deliver([state.row], covered);
            if (left.length > 0) return this.putBack(key);
            // What is looked for next is what is still pending.
            await marked;
          }
          freed.add(key);
        }),
      );
    }
    return freed;
  }

  /** Delivers the rows behind first rows that were taken. */
  private async bringRest(table: OutboxRows, freed: ReadonlySet<string>): Promise<void> {
    const { pipeline, limits } = this.options;
    const known = new Map<string, bigint>();
    let to = 0n;
    for (const key of freed) {
      const range = this.waiting.get(key);
      if (range === undefined) continue;
      known.set(key, range.to);
      if (range.to > to) to = range.to;
    }
    const { refused, whole } = await bringPending({
      pipeline,
      table,
      to,
      filter: { only: freed },
      limits,
      goesOn: () => true,
    });
    const invisible = new Set([...this.unseen.values()].map(({ key }) => key));
    for (const [key, knownTo] of known) {
      const range = this.waiting.get(key);
      if (range === undefined) continue;
      const left = refused.get(key);
      if (left !== undefined) {
        this.waiting.set(key, { from: left.from, to: range.to > left.to ? range.to : left.to });
        this.putBack(key);
      } else if (whole && range.to === knownTo && !invisible.has(key)) this.waiting.delete(key);
    }
  }

  /** Behind the keys that were not tried. */
  private putBack(key: string): void {
    const range = this.waiting.get(key);
    if (range === undefined) return;
    this.waiting.delete(key);
    this.waiting.set(key, range);
  }

  private show(): void {
    this.options.metrics.parked.set(this.waiting.size);
  }
}
