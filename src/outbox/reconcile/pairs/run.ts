/** Complete comparison of configured pairs, with the settle window of a run under load. */
import { isUuidV7, leading48 } from '../../inbox/names.ts';
import { type CompareOptions, comparePair, type PairResult } from './compare.ts';
import type { MergedRow } from './merge.ts';
import { type Pair, type PairConfig, type PairPools, readPair } from './pair.ts';
import { readRetainedFromMs } from './retained-from.ts';
import { timestampOf } from './side.ts';

export interface ComparePairsOptions {
  readonly pools: PairPools;
  readonly pairs: readonly PairConfig[];
  readonly idsMax: number;
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
  readonly lateAfterMs?: number | undefined;
  /** Longest time from an intent to its effect, ms. 0: one comparison, of all rows. */
  readonly settleMs: number;
  /** Waits for the rest of the settle window. */
  readonly wait: (ms: number) => Promise<void>;
  /** Called after a class was compared, with the number of its members. */
  readonly onCompared?: (pair: string, name: string, count: number) => void;
}

export interface PairComparison extends PairResult {
  /** Times of the judged rows, ms since the epoch; null: unbounded. */
  readonly from_ms: number | null;
  readonly to_ms: number | null;
  /** 2 if the first comparison found differences and rows that may have been in flight. */
  readonly comparisons: number;
}

async function nowOf({ left }: PairPools): Promise<number> {
  const { rows } = await left.query<{ ms: number }>(
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
  );
  return (rows[0] as { ms: number }).ms;
}

/** Compares each pair.
 *  @throws bad_value, tables_missing, table_unusable, sql_failed, unreachable */
export async function comparePairs(options: ComparePairsOptions): Promise<readonly PairComparison[]> {
  const { pools } = options;
  // Every pair is checked before the first is compared.
  const pairs: Pair[] = [];
  for (const config of options.pairs) pairs.push(await readPair(config, pools));
  const results: PairComparison[] = [];
  for (const pair of pairs) {
    const result = await compareSettled(pair, options);
    for (const { name } of Object.values(pair.classes))
      options.onCompared?.(pair.name, name, result.deltas.find((one) => one.class === name)?.count ?? 0);
    results.push(result);
  }
  return results;
}

async function compareSettled(pair: Pair, options: ComparePairsOptions): Promise<PairComparison> {
  const { pools, settleMs, fromMs, lateAfterMs, idsMax } = options;
  const startMs = await nowOf(pools);
  const toMs = settleMs > 0 ? Math.min(startMs, options.toMs ?? startMs) : options.toMs;
  const compare = async (comparisons: number): Promise<PairComparison> => {
    const retainedMs = await readRetainedFromMs(pair, pools, await nowOf(pools));
    const lowest = Math.max(fromMs ?? Number.NEGATIVE_INFINITY, retainedMs ?? Number.NEGATIVE_INFINITY);
    const range = { fromMs: Number.isFinite(lowest) ? lowest : undefined, toMs };
    const excuses = retainedMs === undefined ? undefined : excusesOf(retainedMs);
    const result = await comparePair(pair, pools, { range, idsMax, lateAfterMs, excuses });
    return { ...result, from_ms: range.fromMs ?? null, to_ms: toMs ?? null, comparisons };
  };
  const first = await compare(1);
  if (first.holds || settleMs === 0) return first;
  if (!(await hasYoungRows(pair, pools, startMs - settleMs))) return first;
  await options.wait(Math.max(0, startMs + settleMs - (await nowOf(pools))));
  return compare(2);
}

/** The intent of an effect may have expired although the effect, which is younger, has not. */
const excusesOf = (retainedMs: number): CompareOptions['excuses'] => ({
  right: ({ id }: MergedRow) => !(isUuidV7(id) && leading48(id) < retainedMs),
});

async function hasYoungRows({ left }: Pair, pools: PairPools, fromMs: number): Promise<boolean> {
  const { rows } = await pools.left.query<{ young: boolean }>(
    `SELECT EXISTS (SELECT FROM ${left.table.sql} WHERE ${left.time} > ${timestampOf('$1')}) AS young`,
    [fromMs],
  );
  return rows[0]?.young === true;
}
