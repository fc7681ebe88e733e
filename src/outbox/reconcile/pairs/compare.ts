/** Complete comparison of a pair: digests of both sides by hash bucket, then a merge of the rows of
 *  the buckets that differ.
 *
 *  A bucket is the low bits of the hash of the id, so buckets have equal sizes whatever the ids
 *  are, and both databases agree on them. One statement a side computes all digests. Each side is
 *  read in one REPEATABLE READ snapshot; that of the left side is older, so every effect of a left
 *  row that has settled is in the right snapshot. Memory: BUCKETS digests a side, and that of a
 *  merge.
 */
import type { SqlSession } from '../../../io/postgres/sql/port.ts';
import { uuidAt } from '../../inbox/names.ts';
import { maybeLateSql } from '../late.ts';
import { type Judge, type PairFinding, PairFindings } from './findings.ts';
import { cursorRows, merged, rowsSql } from './merge.ts';
import { mayRepeat, type Pair, type PairPools } from './pair.ts';
import { idHash, isTimelessSql, type PairSide, rowHash, serverVersionOf } from './side.ts';

const BUCKETS = 4096;
/** Ids without an effect that are looked up together. */
const UNPLACED_MAX = 1000;
/** work_mem of PostgreSQL for the sort of a merge, and for the digests. */
const WORK_MEM = '256MB';

/** Judged rows by their own time, ms; undefined: unbounded. */
export interface RangeMs {
  readonly fromMs: number | undefined;
  readonly toMs: number | undefined;
}

const EVERY_TIME: RangeMs = { fromMs: undefined, toMs: undefined };

export interface CompareOptions {
  readonly range: RangeMs;
  /** Ids of left rows whose time is after the range although they are judged, because the clock
   *  that dated them is ahead. Where there are any, the times in ids do not divide both sides
   *  alike, so that all rows are merged. */
  readonly ahead?: ReadonlySet<string>;
  /** True if the times in ids may be after the range although the rows are dated in it: digests
   *  then include such rows. */
  readonly hasIdsAhead?: boolean;
  /** Maximum number of ids listed for each class. */
  readonly idsMax: number;
  /** Bound of class `late`, ms; undefined: lateness is not judged. */
  readonly lateAfterMs?: number | undefined;
  /** Further rules, beside the range: false for a row that is excused. A left row that is excused
   *  may miss its effect, but is pending or late as any other. */
  readonly excuses?: Partial<Pick<Judge, 'left' | 'right'>> | undefined;
  /** Returns those of the ids without an effect whose message the right side has set aside. */
  readonly setAside?:
    | ((session: SqlSession, ids: readonly string[]) => Promise<ReadonlySet<string>>)
    | undefined;
}

export interface PairResult {
  readonly pair: string;
  readonly holds: boolean;
  /** Rows in range. */
  readonly left: number;
  readonly right: number;
  /** Left ids in range that have a right row. */
  readonly matched: number;
  /** Right ids in range without a left row. */
  readonly extra: number;
  readonly buckets: { readonly compared: number; readonly differing: number };
  readonly deltas: readonly PairFinding[];
  /** Effects that came late; they break nothing. */
  readonly late: PairFinding;
}

interface Digest {
  readonly n: number;
  readonly sum: string;
  /** Rows that a merge must judge: pending or perhaps late. */
  readonly suspects: number;
}

const EMPTY: Digest = { n: 0, sum: '0', suspects: 0 };

const bucketSql = (side: PairSide): string => `(${idHash(side)} & ${BUCKETS - 1})`;

/** Condition on the rows of a digest. The time in a UUIDv7 is the same on both sides, so it divides
 *  both sets alike; by their own times, an intent may be in range and its effect not. Ids without a
 *  time are all taken. */
function inRange(side: PairSide, { fromMs, toMs }: RangeMs, version: number, hasIdsAhead = false): string {
  const of = (column: string, literal: (ms: number) => string): string[] => [
    ...(fromMs === undefined ? [] : [`${column} >= ${literal(fromMs)}`]),
    ...(toMs === undefined ? [] : [`${column} < ${literal(toMs)}`]),
  ];
  const byTime = (): string => of(side.time, (ms) => `to_timestamp(${ms}::float8 / 1000)`).join(' AND ');
  if (fromMs === undefined && toMs === undefined) return 'true';
  if (side.idKind === 'uuid') {
    const ids = of(side.id, (ms) => `'${uuidAt(ms)}'`).join(' AND ');
    const dated = hasIdsAhead ? ` OR (${byTime()})` : '';
    return `((${ids})${dated} OR ${isTimelessSql(side.id, version)})`;
  }
  return byTime();
}

/** Condition that a right row may be late. Without a time in the id, that is every row. */
export const maybeLate = (side: PairSide, lateAfterMs: number, serverVersion: number): string =>
  side.idKind === 'uuid' ? maybeLateSql(side.id, side.time, lateAfterMs, serverVersion) : 'true';

async function digests(
  session: SqlSession,
  side: PairSide,
  where: string,
  suspect: string,
): Promise<ReadonlyMap<number, Digest>> {
  const { rows } = await session.query<{ bucket: bigint; n: bigint; sum: string; suspects: bigint }>(
    `SELECT ${bucketSql(side)} AS bucket, count(*) AS n, sum(${rowHash(side)})::text AS sum,
       count(*) FILTER (WHERE ${suspect}) AS suspects
     FROM ${side.table.sql} WHERE ${where} GROUP BY 1`,
  );
  return new Map(
    rows.map(({ bucket, n, sum, suspects }) => [
      Number(bucket),
      { n: Number(n), sum, suspects: Number(suspects) },
    ]),
  );
}

/** Buckets with an id that occurs twice. */
async function repeatedBuckets(
  session: SqlSession,
  side: PairSide,
  where: string,
): Promise<ReadonlySet<number>> {
  const { rows } = await session.query<{ bucket: bigint }>(
    `SELECT DISTINCT ${bucketSql(side)} AS bucket FROM (
       SELECT ${side.id} FROM ${side.table.sql} WHERE ${where} GROUP BY ${side.id} HAVING count(*) > 1
     ) AS repeated`,
  );
  return new Set(rows.map(({ bucket }) => Number(bucket)));
}

/** Opens a snapshot for a comparison of whole tables. */
async function openSnapshot(session: SqlSession): Promise<void> {
  await session.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY');
  await session.query(`SET LOCAL work_mem = '${WORK_MEM}'`);
  // The first statement that reads takes the snapshot.
  await session.query('SELECT 1');
}

/** Runs `work` with one snapshot a side, that of the left side first. */
export function withSnapshots<T>(
  pools: PairPools,
  work: (left: SqlSession, right: SqlSession) => Promise<T>,
): Promise<T> {
  return pools.left.transaction(async (left) => {
    await openSnapshot(left);
    return pools.right.transaction(async (right) => {
      await openSnapshot(right);
      return work(left, right);
    });
  });
}

/** Compares a pair completely. Pools that are the same need two connections.
 *  @throws sql_failed, unreachable */
export function comparePair(pair: Pair, pools: PairPools, options: CompareOptions): Promise<PairResult> {
  const { lateAfterMs, ahead, hasIdsAhead } = options;
  const range = ahead === undefined ? options.range : EVERY_TIME;
  return withSnapshots(pools, async (left, right) => {
    const [leftVersion, version] = [await serverVersionOf(left), await serverVersionOf(right)];
    const pending = pair.left.state === undefined ? 'false' : `${pair.left.state} IS NULL`;
    const late =
      pair.judgesLate && lateAfterMs !== undefined ? maybeLate(pair.right, lateAfterMs, version) : 'false';
    const [ours, theirs] = await Promise.all([
      digests(left, pair.left, inRange(pair.left, range, leftVersion, hasIdsAhead), pending),
      digests(right, pair.right, inRange(pair.right, range, version, hasIdsAhead), late),
    ]);
    // An id that occurs twice on the right does so on the left where the digests are equal.
    const repeated = mayRepeat(pair)
      ? await repeatedBuckets(left, pair.left, inRange(pair.left, range, leftVersion, hasIdsAhead))
      : new Set<number>();
    const differing: number[] = [];
    let [equalRows, leftRows, rightRows] = [0, 0, 0];
    for (const bucket of new Set([...ours.keys(), ...theirs.keys()])) {
      const [a, b] = [ours.get(bucket) ?? EMPTY, theirs.get(bucket) ?? EMPTY];
      leftRows += a.n;
      rightRows += b.n;
      const isSame = a.n === b.n && a.sum === b.sum;
      const equal =
        ahead === undefined && isSame && a.suspects === 0 && b.suspects === 0 && !repeated.has(bucket);
      if (equal) equalRows += a.n;
      else differing.push(bucket);
    }
    const found = await mergeBuckets(pair, left, right, differing, options);
    const deltas = found.list();
    return {
      pair: pair.name,
      holds: deltas.length === 0,
      left: leftRows,
      right: rightRows,
      matched: equalRows + found.matched,
      extra: deltas.find((one) => one.class === pair.classes.extra?.name)?.count ?? 0,
      buckets: { compared: BUCKETS, differing: differing.length },
      deltas,
      late: found.late,
    };
  });
}

/** Merges the rows of these buckets. Rows out of range take part: they are the counterparts of rows
 *  in range. */
async function mergeBuckets(
  pair: Pair,
  left: SqlSession,
  right: SqlSession,
  buckets: readonly number[],
  { idsMax, range, ahead, lateAfterMs, excuses, setAside }: CompareOptions,
): Promise<PairFindings> {
  const found = new PairFindings(pair.classes, idsMax, setAside !== undefined);
  if (buckets.length === 0) return found;
  const where = (side: PairSide): string =>
    buckets.length === BUCKETS ? 'true' : `${bucketSql(side)} = ANY ('{${buckets.join(',')}}'::bigint[])`;
  const { fromMs = Number.NEGATIVE_INFINITY, toMs = Number.POSITIVE_INFINITY } = range;
  const judge: Judge = {
    inRange: ({ id, ms }) => (ms >= fromMs && ms <= toMs) || ahead?.has(id) === true,
    left: (row) => excuses?.left?.(row) ?? true,
    right: (row) => excuses?.right?.(row) ?? true,
    lateAfterMs: pair.judgesLate ? lateAfterMs : undefined,
  };
  const rows = merged(
    pair.left.idKind,
    cursorRows(left, 'millrace_left', rowsSql(pair.left, where(pair.left))),
    cursorRows(right, 'millrace_right', rowsSql(pair.right, where(pair.right))),
  );
  const place = async (): Promise<void> => {
    const ids = found.unplaced();
    if (ids.length > 0 && setAside !== undefined) found.place(ids, await setAside(right, ids));
  };
  for await (const one of rows) {
    found.judge(one, judge);
    if (found.unplaced().length >= UNPLACED_MAX) await place();
  }
  await place();
  return found;
}
