/** Registry of metrics. Values are cells of typed arrays, and exposition copies them, so counting
 *  costs an addition.
 *
 *  Invariants: (1) a name is registered once with one kind and one list of labels; (2) a series
 *  (one combination of label values) is resolved once and then is an index; (3) the number of
 *  series per metric is at most SERIES_MAX: further combinations share one series, whose label
 *  values are "other".
 *  Names follow the Prometheus conventions: base units, `_total`, `_seconds`, `_bytes`.
 */
import { invariant } from './errors.ts';

type MetricKind = 'counter' | 'gauge' | 'histogram';

export const SERIES_MAX = 1024;

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
/** Valid label names. Histograms reserve `le`; Prometheus reserves two leading underscores. */
const LABEL = /^(?!__|le$)[a-zA-Z_][a-zA-Z0-9_]*$/;

/** Bucket bounds in seconds, from a produce path in microseconds to a recovery in minutes. */
export const LATENCY_BUCKETS_S: readonly number[] = [
  1e-6, 2.5e-6, 5e-6, 8e-6, 1.5e-5, 3e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1,
  0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

/** Value of a gauge over several threads: the sum or the maximum of theirs; own: each computes it
 *  from other metrics, so theirs are not combined. */
export type GaugeCombination = 'sum' | 'max' | 'own';

interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  /** counter, gauge: the value. histogram: undefined. */
  readonly value?: number;
  /** histogram: cumulative counts per bucket bound, then sum and count. */
  readonly buckets?: readonly number[];
  readonly sum?: number;
  readonly count?: number;
}

export interface MetricSnapshot {
  readonly name: string;
  readonly help: string;
  readonly kind: MetricKind;
  readonly labelNames: readonly string[];
  readonly bounds: readonly number[];
  readonly samples: readonly Sample[];
  /** gauge: its value over several threads. */
  readonly combine?: GaugeCombination;
}

/** Name, help text and kind of a metric. */
export type MetricDescription = Pick<MetricSnapshot, 'name' | 'help' | 'kind'>;

/** One metric with its series; `width` f64 cells a series in one growing Float64Array. */
abstract class Metric {
  protected cells: Float64Array;
  private readonly seriesByKey = new Map<string, number>();
  /** Label values of each series; undefined: dropped, and free for the next combination of labels.
   */
  private readonly seriesLabels: Array<Readonly<Record<string, string>> | undefined> = [];
  private readonly freeSeries: number[] = [];
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly string[];
  protected readonly width: number;

  constructor(name: string, help: string, labelNames: readonly string[], width: number) {
    this.name = name;
    this.help = help;
    this.labelNames = labelNames;
    this.width = width;
    this.cells = new Float64Array(width * 4);
    if (labelNames.length === 0) this.series();
  }

  abstract readonly kind: MetricKind;
  abstract snapshot(): MetricSnapshot;

  /** Returns the index of the series with these label values (in the order of `labelNames`);
   *  creates it at first use. */
  series(...values: readonly string[]): number {
    invariant(
      values.length === this.labelNames.length,
      `metric ${this.name} takes ${this.labelNames.length} labels`,
    );
    const key = values.join('\u0000');
    const known = this.seriesByKey.get(key);
    if (known !== undefined) return known;
    const free = this.freeSeries.pop();
    if (
      free === undefined &&
      this.seriesLabels.length >= SERIES_MAX - 1 &&
      values.some((value) => value !== 'other')
    ) {
      return this.series(...values.map(() => 'other'));
    }
    const index = free ?? this.seriesLabels.length;
    this.seriesByKey.set(key, index);
    this.seriesLabels[index] = Object.fromEntries(
      this.labelNames.map((name, i) => [name, values[i] as string]),
    );
    if ((index + 1) * this.width > this.cells.length) {
      const grown = new Float64Array(this.cells.length * 2);
      grown.set(this.cells);
      this.cells = grown;
    }
    return index;
  }

  /** Leaves the series with these label values out of the exposition until it is resolved again. An
   *  index that was resolved before is invalid afterwards. */
  drop(...values: readonly string[]): void {
    const key = values.join('\u0000');
    const index = this.seriesByKey.get(key);
    if (index === undefined) return;
    this.seriesByKey.delete(key);
    this.seriesLabels[index] = undefined;
    this.cells.fill(0, index * this.width, (index + 1) * this.width);
    this.freeSeries.push(index);
  }

  protected eachSeries<T>(make: (labels: Readonly<Record<string, string>>, base: number) => T): T[] {
    return this.seriesLabels.flatMap((labels, index) =>
      labels === undefined ? [] : [make(labels, index * this.width)],
    );
  }
}

export class Counter extends Metric {
  readonly kind = 'counter';
  constructor(name: string, help: string, labelNames: readonly string[]) {
    super(name, help, labelNames, 1);
  }
  add(amount = 1, series = 0): void {
    this.cells[series] = (this.cells[series] as number) + amount;
  }
  value(series = 0): number {
    return this.cells[series] as number;
  }
  /** Replaces the total with a count that is kept elsewhere, such as in a kernel. A lower total is
   *  ignored. */
  setTotal(total: number, series = 0): void {
    if (total > (this.cells[series] as number)) this.cells[series] = total;
  }
  snapshot(): MetricSnapshot {
    const samples = this.eachSeries((labels, base) => ({ labels, value: this.cells[base] as number }));
    const { name, help, kind, labelNames } = this;
    return { name, help, kind, labelNames, bounds: [], samples };
  }
}

export class Gauge extends Metric {
  readonly kind = 'gauge';
  private readonly combine: GaugeCombination;
  constructor(name: string, help: string, labelNames: readonly string[], combine: GaugeCombination) {
    super(name, help, labelNames, 1);
    this.combine = combine;
  }
  set(value: number, series = 0): void {
    this.cells[series] = value;
  }
  value(series = 0): number {
    return this.cells[series] as number;
  }
  snapshot(): MetricSnapshot {
    const samples = this.eachSeries((labels, base) => ({ labels, value: this.cells[base] as number }));
    const { name, help, kind, labelNames, combine } = this;
    return { name, help, kind, labelNames, bounds: [], samples, combine };
  }
}

/** Cells of a series: one count per bound, one for +Inf, then the sum. */
export class Histogram extends Metric {
  readonly kind = 'histogram';
  readonly bounds: readonly number[];
  constructor(name: string, help: string, labelNames: readonly string[], bounds: readonly number[]) {
    super(name, help, labelNames, bounds.length + 2);
    this.bounds = bounds;
  }
  observe(value: number, series = 0): void {
    this.observeMany(value, 1, series);
  }
  /** Counts `times` observations of one value: a batch that finished together is one call. */
  observeMany(value: number, times: number, series = 0): void {
    const base = series * this.width;
    let low = 0;
    let high = this.bounds.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (value <= (this.bounds[middle] as number)) high = middle;
      else low = middle + 1;
    }
    this.cells[base + low] = (this.cells[base + low] as number) + times;
    const sumAt = base + this.bounds.length + 1;
    this.cells[sumAt] = (this.cells[sumAt] as number) + value * times;
  }
  /** Adds observations that were counted elsewhere: their number in each bucket, and their sum. */
  addCounts(counts: readonly number[], sum: number, series = 0): void {
    const base = series * this.width;
    for (let i = 0; i <= this.bounds.length; i++)
      this.cells[base + i] = (this.cells[base + i] as number) + (counts[i] ?? 0);
    const sumAt = base + this.bounds.length + 1;
    this.cells[sumAt] = (this.cells[sumAt] as number) + sum;
  }
  /** Returns the upper bound of the bucket that holds quantile q; NaN without observations. */
  quantile(q: number, series = 0): number {
    const base = series * this.width;
    let total = 0;
    for (let i = 0; i <= this.bounds.length; i++) total += this.cells[base + i] as number;
    if (total === 0) return Number.NaN;
    let seen = 0;
    for (let i = 0; i < this.bounds.length; i++) {
      seen += this.cells[base + i] as number;
      if (seen >= q * total) return this.bounds[i] as number;
    }
    return Number.POSITIVE_INFINITY;
  }
  snapshot(): MetricSnapshot {
    const samples = this.eachSeries((labels, base) => {
      const buckets: number[] = [];
      let count = 0;
      for (let i = 0; i <= this.bounds.length; i++) {
        count += this.cells[base + i] as number;
        buckets.push(count);
      }
      return { labels, buckets, sum: this.cells[base + this.bounds.length + 1] as number, count };
    });
    const { name, help, kind, labelNames, bounds } = this;
    return { name, help, kind, labelNames, bounds, samples };
  }
}

/** Metrics of one process. Every part gets this object; there is no global registry. */
export class Metrics {
  private readonly byName = new Map<string, Metric>();
  private readonly collectors: Array<() => void> = [];
  private readonly listeners: Array<(metric: MetricDescription) => void> = [];
  private readonly parts: Array<{
    readonly label: string;
    readonly value: string;
    readonly metrics: Metrics;
  }> = [];

  /** Returns metrics of a part of the process. Their samples appear in the snapshot of this object
   *  with one more label. The part and this object do not share a name of a metric. */
  labelled(label: string, value: string): Metrics {
    invariant(LABEL.test(label), `${JSON.stringify(label)} is no label name`);
    const metrics = new Metrics();
    metrics.onRegister((metric) => {
      for (const listener of this.listeners) listener(metric);
    });
    this.parts.push({ label, value, metrics });
    return metrics;
  }

  counter(name: string, help: string, labelNames: readonly string[] = []): Counter {
    return this.register(name, labelNames, () => new Counter(name, help, labelNames), Counter);
  }
  /** @param combine value over several threads of a process */
  gauge(
    name: string,
    help: string,
    labelNames: readonly string[] = [],
    combine: GaugeCombination = 'max',
  ): Gauge {
    return this.register(name, labelNames, () => new Gauge(name, help, labelNames, combine), Gauge);
  }
  histogram(
    name: string,
    help: string,
    labelNames: readonly string[] = [],
    bounds: readonly number[] = LATENCY_BUCKETS_S,
  ): Histogram {
    const histogram = this.register(
      name,
      labelNames,
      () => new Histogram(name, help, labelNames, bounds),
      Histogram,
    );
    invariant(histogram.bounds.join() === bounds.join(), `metric ${name} is registered with other bounds`);
    return histogram;
  }

  /** Adds a function that runs before each snapshot, to copy counts that are kept elsewhere. */
  onCollect(collector: () => void): void {
    this.collectors.push(collector);
  }

  /** Calls a function with every metric, those that exist and those registered later. */
  onRegister(listener: (metric: MetricDescription) => void): void {
    for (const metric of this.byName.values()) listener(metric);
    for (const { metrics } of this.parts) for (const metric of metrics.byName.values()) listener(metric);
    this.listeners.push(listener);
  }

  snapshot(): MetricSnapshot[] {
    for (const collector of this.collectors) collector();
    return [...[...this.byName.values()].map((metric) => metric.snapshot()), ...this.partSnapshots()];
  }

  /** Metrics of the parts: one for each name, with the samples of all parts that have it. */
  private partSnapshots(): MetricSnapshot[] {
    const merged = new Map<string, MetricSnapshot>();
    for (const { label, value, metrics } of this.parts)
      for (const one of metrics.snapshot()) {
        const samples = one.samples.map((sample) => ({
          ...sample,
          labels: { [label]: value, ...sample.labels },
        }));
        const before = merged.get(one.name);
        merged.set(one.name, {
          ...one,
          labelNames: [label, ...one.labelNames],
          samples: [...(before?.samples ?? []), ...samples],
        });
      }
    return [...merged.values()];
  }

  private register<M extends Metric>(
    name: string,
    labelNames: readonly string[],
    make: () => M,
    kind: new (...args: never[]) => M,
  ): M {
    const known = this.byName.get(name);
    if (known !== undefined) {
      invariant(
        known instanceof kind && known.labelNames.join() === labelNames.join(),
        `metric ${name} is registered with another kind or other labels`,
      );
      return known as M;
    }
    invariant(NAME.test(name), `${JSON.stringify(name)} is no metric name`);
    invariant(
      labelNames.every((label) => LABEL.test(label)),
      `metric ${name} has an invalid label name: ${labelNames.join()}`,
    );
    const metric = make();
    for (const listener of this.listeners) listener(metric);
    this.byName.set(name, metric);
    return metric;
  }
}
