/** Effect of lateness: compares a result at a chosen watermark with the batch result of the true
 *  order. */
import { rowText } from './difference.ts';
import type { OracleRow, PartitionCounters } from './rules.ts';

export interface LateTail {
  readonly consumed: bigint;
  readonly dropped: bigint;
  /** dropped / consumed. */
  readonly dropRate: number;
  /** Results (key and window) of the true order. */
  readonly windows: number;
  /** Results that differ from the true order: other values, missing, or surplus. */
  readonly windowsDiffering: number;
  /** windowsDiffering / (results in either). */
  readonly windowsDifferingShare: number;
  /** Sum of |count difference| over the results in either. */
  readonly countError: bigint;
  /** countError / (events in the true order's results). */
  readonly countErrorShare: number;
  /** Jaccard index of the windows (key, start, end): windows in both / windows in either. For
   *  sessions, the share that kept its bounds. */
  readonly jaccard: number;
  /** Jaccard index of the time that windows cover, by key: time in both / time in either. For
   *  sessions, the share of their extent that is kept. */
  readonly jaccardOfTime: number;
}

const keyOf = (row: OracleRow): string => `${row.accountId},${row.windowStart},${row.windowEnd}`;
const ratio = (part: bigint | number, whole: bigint | number): number =>
  Number(whole) === 0 ? 0 : Number(part) / Number(whole);
/** Jaccard index; two empty sets are equal. */
const jaccardIndex = (both: bigint | number, either: bigint | number): number =>
  Number(either) === 0 ? 1 : Number(both) / Number(either);

export function lateTail(
  observed: Iterable<OracleRow>,
  truth: Iterable<OracleRow>,
  counters: readonly PartitionCounters[],
): LateTail {
  const seen = new Map<string, OracleRow>();
  for (const row of observed) seen.set(keyOf(row), row);
  let windows = 0;
  let same = 0;
  let differing = 0;
  let countError = 0n;
  let events = 0n;
  const coverage = new Coverage();
  for (const row of seen.values()) coverage.add('observed', row);
  const rest = new Map(seen);
  for (const row of truth) {
    windows++;
    events += row.count;
    coverage.add('truth', row);
    const key = keyOf(row);
    const found = seen.get(key);
    rest.delete(key);
    if (found === undefined || rowText(found) !== rowText(row)) differing++;
    if (found !== undefined) same++;
    const difference = row.count - (found?.count ?? 0n);
    countError += difference < 0n ? -difference : difference;
  }
  for (const row of rest.values()) {
    differing++;
    countError += row.count;
  }
  const either = windows + rest.size;
  const sum = (of: (one: PartitionCounters) => bigint): bigint =>
    counters.reduce((total, one) => total + of(one), 0n);
  const consumed = sum((one) => one.consumed);
  const dropped = sum((one) => one.droppedLate);
  return {
    consumed,
    dropped,
    dropRate: ratio(dropped, consumed),
    windows,
    windowsDiffering: differing,
    windowsDifferingShare: ratio(differing, either),
    countError,
    countErrorShare: ratio(countError, events),
    jaccard: jaccardIndex(same, either),
    jaccardOfTime: coverage.jaccardIndex(),
  };
}

const percent = (share: number): string => `${(100 * share).toFixed(4)}%`;

export const lateTailText = (one: LateTail): string =>
  `dropped ${one.dropped} of ${one.consumed} (${percent(one.dropRate)}); ` +
  `${one.windowsDiffering} results differ from the ${one.windows} true ones (${percent(one.windowsDifferingShare)} of all), ` +
  `by ${one.countError} in their counts (${percent(one.countErrorShare)} of the events); ` +
  `Jaccard ${one.jaccard.toFixed(6)} of windows, ${one.jaccardOfTime.toFixed(6)} of time`;

type Side = 'observed' | 'truth';

/** Measures by a sweep over window edges how long the windows of both sides cover a key's time. */
class Coverage {
  private readonly edges = new Map<bigint, { at: bigint; side: Side; step: 1 | -1 }[]>();

  add(side: Side, row: OracleRow): void {
    let edges = this.edges.get(row.accountId);
    if (edges === undefined) {
      edges = [];
      this.edges.set(row.accountId, edges);
    }
    edges.push({ at: row.windowStart, side, step: 1 }, { at: row.windowEnd, side, step: -1 });
  }

  jaccardIndex(): number {
    let both = 0n;
    let either = 0n;
    for (const edges of this.edges.values()) {
      const depth = { observed: 0, truth: 0 };
      let from = 0n;
      for (const { at, side, step } of edges.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))) {
        if (depth.observed > 0 && depth.truth > 0) both += at - from;
        if (depth.observed > 0 || depth.truth > 0) either += at - from;
        depth[side] += step;
        from = at;
      }
    }
    return jaccardIndex(both, either);
  }
}
