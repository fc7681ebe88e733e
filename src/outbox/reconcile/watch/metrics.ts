/** Metrics of `reconcile -watch`. */
import type { Metrics } from '../../../core/metrics.ts';

export class WatchMetrics {
  private readonly parts;

  constructor(metrics: Metrics) {
    this.parts = {
      deltas: metrics.gauge(
        'reconcile_watch_deltas',
        'Ids in each class of delta in the buckets that differ now.',
        ['pair', 'class'],
      ),
      late: metrics.counter(
        'reconcile_late_total',
        'Effects that came later after their intent than -late-after, in buckets that settled since the start.',
        ['pair'],
      ),
      lag: metrics.gauge(
        'reconcile_lag_seconds',
        'Age of the youngest intents that were compared; at least the settle window.',
        ['pair'],
      ),
      lastPass: metrics.gauge(
        'reconcile_last_complete_pass_timestamp_seconds',
        'Time when every retained bucket had been compared, seconds since the epoch; 0: not yet.',
        ['pair'],
      ),
      buckets: metrics.counter('reconcile_buckets_total', 'Comparisons of a bucket by their result.', [
        'pair',
        'result',
      ]),
      open: metrics.gauge('reconcile_differing_buckets', 'Buckets that differ and are compared again.', [
        'pair',
      ]),
      rows: metrics.counter('reconcile_rows_total', 'Rows in the compared buckets.', ['pair', 'side']),
      errors: metrics.counter(
        'reconcile_watch_errors_total',
        'Comparisons that failed and are tried again, mostly because a database does not answer.',
        ['pair'],
      ),
    };
  }

  /** Metrics of one pair; creates their series, so that a scrape sees zeros. */
  of(pair: string, classes: readonly string[]) {
    const { deltas, late, lag, lastPass, buckets, open, rows, errors } = this.parts;
    const deltaSeries = new Map(classes.map((name) => [name, deltas.series(pair, name)]));
    const series = {
      late: late.series(pair),
      lag: lag.series(pair),
      lastPass: lastPass.series(pair),
      equal: buckets.series(pair, 'equal'),
      differs: buckets.series(pair, 'differs'),
      open: open.series(pair),
      left: rows.series(pair, 'left'),
      right: rows.series(pair, 'right'),
      errors: errors.series(pair),
    };
    return {
      setDeltas(counts: ReadonlyMap<string, number>): void {
        for (const [name, at] of deltaSeries) deltas.set(counts.get(name) ?? 0, at);
      },
      addLate: (count: number): void => late.add(count, series.late),
      setLag: (ms: number): void => lag.set(ms / 1000, series.lag),
      setLastPass: (ms: number): void => lastPass.set(ms / 1000, series.lastPass),
      setOpen: (count: number): void => open.set(count, series.open),
      addError: (): void => errors.add(1, series.errors),
      addCompared(result: { readonly left: number; readonly right: number; readonly equal: boolean }): void {
        buckets.add(1, result.equal ? series.equal : series.differs);
        rows.add(result.left, series.left);
        rows.add(result.right, series.right);
      },
    };
  }
}

export type PairMetrics = ReturnType<WatchMetrics['of']>;
