/** Comparison of one bucket: the rows whose ids have a time in one span.
 *
 *  One statement a side computes the digest. Only a bucket whose digests differ, or that has rows
 *  which are pending, perhaps late or repeated, is read row by row (pairs/merge.ts).
 */
import { type CompareOptions, maybeLate, withSnapshots } from '../pairs/compare.ts';
import { type Judge, type PairFinding, PairFindings } from '../pairs/findings.ts';
import { cursorRows, idsPresent, merged, rowsSql } from '../pairs/merge.ts';
import { mayRepeat, type Pair, type PairPools } from '../pairs/pair.ts';
import { retainedFromMs } from '../pairs/retained-from.ts';
import { type PairSide, rowHash, serverVersionOf } from '../pairs/side.ts';
import { RowsByTime, type TimeSpan } from './rows-by-time.ts';

/** Rows outside of their window that are looked up by id in one bucket. More of them are no edge of
 *  a window but missing rows. */
const VERIFIED_MAX = 2000;
const VERIFIED_CHUNK = 1000;
/** Age at which the bound of expired rows is read again, ms. */
const RETAINED_MS = 600_000;

export interface BucketResult {
  readonly left: number;
  readonly right: number;
  /** Differences; none: the bucket is settled. */
  readonly deltas: readonly PairFinding[];
  readonly late: PairFinding;
}

/** Buckets of a pair; the schedule (schedule.ts) decides which is compared when. */
export interface TimeBuckets {
  /** Time of the database with the intents. */
  nowMs(): Promise<number>;
  compare(span: TimeSpan, nowMs: number): Promise<BucketResult>;
  /** Time from which on missing rows are deltas; undefined: nothing has expired. */
  retainedFromMs(nowMs: number): Promise<number | undefined>;
  /** Earliest time from `ms` on at which a side may have a row; infinite: none has one. */
  nextMs(ms: number): Promise<number>;
}

export interface TimeBucketOptions {
  readonly idsMax: number;
  readonly lateAfterMs: number | undefined;
  readonly setAside?: CompareOptions['setAside'];
  /** Time before which rows have expired, where a rule is known. */
  readonly retainedFromMs?: (nowMs: number) => Promise<number | undefined>;
}

interface Digest {
  readonly n: number;
  readonly sum: string;
  readonly suspects: number;
}

export class SqlBuckets implements TimeBuckets {
  private readonly pair: Pair;
  private readonly pools: PairPools;
  private readonly options: TimeBucketOptions;
  private readonly left: RowsByTime;
  private readonly right: RowsByTime;
  private lateSql = 'false';
  private retained: { readonly atMs: number; readonly ms: number | undefined } | undefined;

  private constructor(pair: Pair, pools: PairPools, options: TimeBucketOptions) {
    this.pair = pair;
    this.pools = pools;
    this.options = options;
    this.left = new RowsByTime(pools.left, pair.left);
    this.right = new RowsByTime(pools.right, pair.right);
  }

  /** @throws table_unusable if the ids of a side have no time */
  static async open(pair: Pair, pools: PairPools, options: TimeBucketOptions): Promise<SqlBuckets> {
    const buckets = new SqlBuckets(pair, pools, options);
    await buckets.left.requireTimedIds();
    await buckets.right.requireTimedIds();
    const { lateAfterMs } = options;
    if (pair.judgesLate && lateAfterMs !== undefined)
      buckets.lateSql = maybeLate(pair.right, lateAfterMs, await serverVersionOf(pools.right));
    return buckets;
  }

  async nowMs(): Promise<number> {
    const { rows } = await this.pools.left.query<{ ms: number }>(
      'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
    );
    return (rows[0] as { ms: number }).ms;
  }

  async nextMs(ms: number): Promise<number> {
    const [left, right] = await Promise.all([this.left.nextMs(ms), this.right.nextMs(ms)]);
    return Math.min(left, right);
  }

  /** The bound is read rarely, because tables without an index on their time are read for it. In
   *  between it advances with the time: rows expire by age. */
  async retainedFromMs(nowMs: number): Promise<number | undefined> {
    const { keepMs } = this.pair;
    if (keepMs !== undefined) return nowMs - keepMs;
    if (this.retained === undefined || nowMs - this.retained.atMs > RETAINED_MS)
      this.retained = { atMs: nowMs, ms: await this.readRetainedFromMs(nowMs) };
    const { atMs, ms } = this.retained;
    return ms === undefined ? undefined : ms + (nowMs - atMs);
  }

  private async readRetainedFromMs(nowMs: number): Promise<number | undefined> {
    if (this.options.retainedFromMs !== undefined) return this.options.retainedFromMs(nowMs);
    const [left, right] = await Promise.all([this.left.oldestMs(), this.right.oldestMs()]);
    return retainedFromMs(left, right);
  }

  async compare(span: TimeSpan, nowMs: number): Promise<BucketResult> {
    const { pair, pools } = this;
    // Integer ids have their time in the table of the intents.
    const range = { from: await this.left.idAt(span.fromMs), to: await this.left.idAt(span.toMs) };
    const where = async (rows: RowsByTime): Promise<string> => {
      const type = rows.side.idKind === 'uuid' ? '::uuid' : '';
      const text = (id: string): string => (type === '' ? id : `'${id}'${type}`);
      const { id } = rows.side;
      return `${id} >= ${text(range.from)} AND ${id} < ${text(range.to)}${await rows.window(span, nowMs)}`;
    };
    const [ofLeft, ofRight] = await Promise.all([where(this.left), where(this.right)]);
    const pending = pair.left.state === undefined ? 'false' : `${pair.left.state} IS NULL`;
    const [left, right] = await Promise.all([
      this.digest(pools.left, pair.left, ofLeft, pending),
      this.digest(pools.right, pair.right, ofRight, this.lateSql),
    ]);
    const equal = left.n === right.n && left.sum === right.sum && left.suspects === 0 && right.suspects === 0;
    const found = equal ? new PairFindings(pair.classes, 0) : await this.merge(ofLeft, ofRight);
    return { left: left.n, right: right.n, deltas: found.list(), late: found.late };
  }

  private async digest(
    pool: PairPools['left'],
    side: PairSide,
    where: string,
    suspect: string,
  ): Promise<Digest> {
    const repeats = mayRepeat(this.pair) ? ` + count(*) - count(DISTINCT ${side.id})` : '';
    // Bounds are constants of the text, so the planner omits partitions outside of them.
    const { rows } = await pool.query<{ n: bigint; sum: string; suspects: bigint }>(
      `SELECT count(*) AS n, coalesce(sum(${rowHash(side)}), 0)::text AS sum,
         count(*) FILTER (WHERE ${suspect})${repeats} AS suspects
       FROM ${side.table.sql} WHERE ${where}`,
    );
    const { n = 0n, sum = '0', suspects = 0n } = rows[0] ?? {};
    return { n: Number(n), sum, suspects: Number(suspects) };
  }

  private merge(ofLeft: string, ofRight: string): Promise<PairFindings> {
    const { pair, pools, options } = this;
    const { setAside, idsMax, lateAfterMs } = options;
    const judge: Judge = {
      inRange: () => true,
      left: () => true,
      right: () => true,
      lateAfterMs: pair.judgesLate ? lateAfterMs : undefined,
    };
    return withSnapshots(pools, async (left, right) => {
      const found = new PairFindings(pair.classes, idsMax, setAside !== undefined);
      const outside = { missing: [] as string[], extra: [] as string[] };
      const rows = merged(
        pair.left.idKind,
        cursorRows(left, 'millrace_left', rowsSql(pair.left, ofLeft)),
        cursorRows(right, 'millrace_right', rowsSql(pair.right, ofRight)),
      );
      for await (const one of rows) {
        const kind = one.right.length === 0 ? 'missing' : one.left.length === 0 ? 'extra' : undefined;
        const isEdge = kind === 'missing' ? this.right.isWindow : kind === 'extra' && this.left.isWindow;
        if (kind !== undefined && isEdge && outside[kind].length < VERIFIED_MAX) outside[kind].push(one.id);
        else found.judge(one, judge);
        if (found.unplaced().length >= VERIFIED_CHUNK) await place(found);
      }
      for (const [kind, ids, session, side] of [
        ['missing', outside.missing, right, pair.right],
        ['extra', outside.extra, left, pair.left],
      ] as const)
        for (let at = 0; at < ids.length; at += VERIFIED_CHUNK) {
          const chunk = ids.slice(at, at + VERIFIED_CHUNK);
          const present = await idsPresent(session, side, chunk);
          for (const id of chunk) if (!present.has(id)) found.add(kind, id);
        }
      await place(found);
      return found;

      async function place(into: PairFindings): Promise<void> {
        const ids = into.unplaced();
        if (ids.length > 0 && setAside !== undefined) into.place(ids, await setAside(right, ids));
      }
    });
  }
}
