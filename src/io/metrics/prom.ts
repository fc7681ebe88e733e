/** Exposition of the process's metrics in the Prometheus text format, through prom-client.
 *
 *  prom-client keeps no values of Millrace: a scrape copies the typed arrays into the shapes that
 *  its registry writes. Its default collectors add the metrics of the Node.js process. A text is
 *  cached for CACHE_MS, so frequent scrapes cost at most a few copies a second.
 */
import { collectDefaultMetrics, Registry } from 'prom-client';
import type { Clock } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import type { MetricSnapshot, Metrics } from '../../core/metrics.ts';

export const CACHE_MS = 250;

type Labels = Readonly<Record<string, string>>;

interface ExposedValue {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
}

function histogramValues(snapshot: MetricSnapshot, name: string): ExposedValue[] {
  const values: ExposedValue[] = [];
  for (const sample of snapshot.samples) {
    const labels: Labels = sample.labels;
    const buckets = sample.buckets ?? [];
    snapshot.bounds.forEach((bound, index) => {
      values.push({
        value: buckets[index] ?? 0,
        labels: { ...labels, le: bound },
        metricName: `${name}_bucket`,
      });
    });
    values.push({
      value: sample.count ?? 0,
      labels: { ...labels, le: '+Inf' },
      metricName: `${name}_bucket`,
    });
    values.push({ value: sample.sum ?? 0, labels, metricName: `${name}_sum` });
    values.push({ value: sample.count ?? 0, labels, metricName: `${name}_count` });
  }
  return values;
}

/** One metric in the shape that a prom-client registry expects of its members. */
function exposed(snapshot: MetricSnapshot, name = snapshot.name): object {
  const values: ExposedValue[] =
    snapshot.kind === 'histogram'
      ? histogramValues(snapshot, name)
      : snapshot.samples.map((sample) => ({ value: sample.value ?? 0, labels: sample.labels }));
  return { name, help: snapshot.help, type: snapshot.kind, aggregator: 'sum', values };
}

/** Part of a registry of prom-client, of any version since 14. */
export interface PromRegistry {
  // biome-ignore lint/suspicious/noExplicitAny: the metric types of prom-client, of any version
  registerMetric(metric: any): void;
  getSingleMetric(name: string): unknown;
}

/** Adds the metrics, also those that are registered later, to a registry of prom-client. A scrape
 *  reads the values; one snapshot serves all metrics of a scrape.
 *  @param prefix beginning of the names in that registry
 *  @throws bad_value when the registry has another metric of a name, here or when a part registers
 *    a metric */
export function registerIn(metrics: Metrics, registry: PromRegistry, clock: Clock, prefix = ''): void {
  let taken = new Map<string, MetricSnapshot>();
  let takenAtMs = Number.NEGATIVE_INFINITY;
  const read = (name: string): MetricSnapshot => {
    const nowMs = clock.monotonicMs();
    if (nowMs - takenAtMs >= CACHE_MS || !taken.has(name)) {
      takenAtMs = nowMs;
      taken = new Map(metrics.snapshot().map((snapshot) => [snapshot.name, snapshot]));
    }
    return taken.get(name) as MetricSnapshot;
  };
  metrics.onRegister(({ name, help, kind }) => {
    const exposedName = prefix + name;
    if (registry.getSingleMetric(exposedName) !== undefined)
      throw coreError('bad_value', `the registry has another metric ${exposedName}`, {
        next: 'give a prefix to registerMetrics',
      });
    registry.registerMetric({
      name: exposedName,
      help,
      type: kind,
      aggregator: 'sum',
      get: async () => exposed(read(name), exposedName),
      // The values belong to the parts that count.
      reset: () => {},
    });
  });
}

export interface BuildInfo {
  readonly version: string;
  readonly command: string;
  readonly node: string;
}

export interface Exposition {
  readonly contentType: string;
  text(): Promise<string>;
}

export interface ExpositionOptions {
  /** Adds the metric build_info. */
  readonly build?: BuildInfo;
  /** False when another registry of the process serves the metrics of the Node.js process. */
  readonly process?: boolean;
}

export function promExposition(metrics: Metrics, clock: Clock, options: ExpositionOptions = {}): Exposition {
  const processRegistry = new Registry();
  if (options.process !== false) collectDefaultMetrics({ register: processRegistry });
  if (options.build !== undefined) {
    const { version, command, node } = options.build;
    const info = metrics.gauge('build_info', 'Version of this build; the value is 1.', [
      'version',
      'command',
      'node',
    ]);
    info.set(1, info.series(version, command, node));
  }

  let cached: Promise<string> | undefined;
  let cachedAtMs = Number.NEGATIVE_INFINITY;

  const render = async (): Promise<string> => {
    const own = new Registry();
    for (const snapshot of metrics.snapshot()) {
      const shape = exposed(snapshot);
      own.registerMetric({ ...shape, get: () => Promise.resolve(shape) } as unknown as Parameters<
        Registry['registerMetric']
      >[0]);
    }
    return `${await own.metrics()}\n${await processRegistry.metrics()}`;
  };

  return {
    contentType: processRegistry.contentType,
    text: () => {
      const nowMs = clock.monotonicMs();
      if (cached === undefined || nowMs - cachedAtMs >= CACHE_MS) {
        cachedAtMs = nowMs;
        cached = render();
        cached.catch(() => {
          cached = undefined;
        });
      }
      return cached;
    },
  };
}
