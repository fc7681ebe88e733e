/** Merges the metrics of the threads of a process into the metrics of the process.
 *
 *  Each thread counts in its own Metrics and sends snapshots. Counters and histograms of the
 *  process grow by what each thread's grew since its previous snapshot. Gauges are combined over
 *  the latest snapshots of the threads, as each gauge's `combine` says, before each exposition.
 *  Invariants: (1) a snapshot that is applied twice adds nothing; (2) the process serves each
 *  metric of its threads, also a metric without a sample. */
import type { Gauge, GaugeCombination, MetricSnapshot, Metrics } from '../../core/metrics.ts';

type Sample = MetricSnapshot['samples'][number];

interface GaugeOfThreads {
  readonly gauge: Gauge;
  readonly combine: Exclude<GaugeCombination, 'own'>;
  /** Values by label values and thread. */
  readonly byLabels: Map<string, Map<number, number>>;
  readonly labelsOf: Map<string, readonly string[]>;
}

const valuesOf = (sample: Sample): readonly string[] => Object.values(sample.labels);
const keyOf = (labels: readonly string[]): string => labels.join('\u0000');

export class ThreadMetrics {
  private readonly metrics: Metrics;
  /** Latest count of each counter, and counts of each histogram, by thread and series. */
  private readonly counted = new Map<string, readonly number[]>();
  private readonly gauges = new Map<string, GaugeOfThreads>();

  /** @param metrics metrics of the process; collectors that read merged counters are registered
   *  before */
  constructor(metrics: Metrics) {
    this.metrics = metrics;
    metrics.onCollect(() => this.combineGauges());
  }

  /** @param thread number of the thread */
  apply(thread: number, snapshots: readonly MetricSnapshot[]): void {
    for (const snapshot of snapshots) {
      switch (snapshot.kind) {
        case 'counter':
          this.addCounter(thread, snapshot);
          break;
        case 'histogram':
          this.addHistogram(thread, snapshot);
          break;
        case 'gauge':
          this.keepGauge(thread, snapshot);
      }
    }
  }

  /** Removes the gauges of a thread that has ended. Its counts stay. */
  end(thread: number): void {
    for (const { byLabels } of this.gauges.values())
      for (const byThread of byLabels.values()) byThread.delete(thread);
  }

  private addCounter(thread: number, { name, help, labelNames, samples }: MetricSnapshot): void {
    const counter = this.metrics.counter(name, help, labelNames);
    for (const sample of samples) {
      const labels = valuesOf(sample);
      const [grown = 0] = this.grownBy(`${thread} ${name} ${keyOf(labels)}`, [sample.value ?? 0]);
      if (grown > 0) counter.add(grown, counter.series(...labels));
    }
  }

  private addHistogram(thread: number, { name, help, labelNames, bounds, samples }: MetricSnapshot): void {
    const histogram = this.metrics.histogram(name, help, labelNames, bounds);
    for (const sample of samples) {
      const labels = valuesOf(sample);
      const cumulative = sample.buckets ?? [];
      const counts = cumulative.map((count, index) => count - (cumulative[index - 1] ?? 0));
      const grown = this.grownBy(`${thread} ${name} ${keyOf(labels)}`, [...counts, sample.sum ?? 0]);
      const sum = grown.at(-1) as number;
      if (grown.some((more) => more !== 0))
        histogram.addCounts(grown.slice(0, -1), sum, histogram.series(...labels));
    }
  }

  private grownBy(key: string, now: readonly number[]): readonly number[] {
    const before = this.counted.get(key);
    this.counted.set(key, now);
    return before === undefined ? now : now.map((value, index) => value - (before[index] as number));
  }

  private keepGauge(thread: number, snapshot: MetricSnapshot): void {
    const { name, help, labelNames, samples, combine = 'max' } = snapshot;
    const known = this.gauges.get(name);
    for (const byThread of known?.byLabels.values() ?? []) byThread.delete(thread);
    if (combine === 'own') return;
    const made: GaugeOfThreads = known ?? {
      gauge: this.metrics.gauge(name, help, labelNames, combine),
      combine,
      byLabels: new Map(),
      labelsOf: new Map(),
    };
    this.gauges.set(name, made);
    for (const sample of samples) {
      const labels = valuesOf(sample);
      const key = keyOf(labels);
      made.labelsOf.set(key, labels);
      const byThread = made.byLabels.get(key) ?? new Map<number, number>();
      made.byLabels.set(key, byThread.set(thread, sample.value ?? 0));
    }
  }

  private combineGauges(): void {
    for (const { gauge, combine, byLabels, labelsOf } of this.gauges.values())
      for (const [key, byThread] of byLabels) {
        const labels = labelsOf.get(key) as readonly string[];
        if (byThread.size > 0) {
          const values = [...byThread.values()];
          const sum = values.reduce((total, value) => total + value, 0);
          gauge.set(combine === 'sum' ? sum : Math.max(...values), gauge.series(...labels));
          continue;
        }
        byLabels.delete(key);
        labelsOf.delete(key);
        if (labels.length > 0) gauge.drop(...labels);
      }
  }
}
