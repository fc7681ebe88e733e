/** Metrics of threads, merged into the metrics of the process. */
import { describe, expect, it } from 'vitest';
import { Metrics } from '../../../../src/core/metrics.ts';
import { ThreadMetrics } from '../../../../src/shell/threads/metrics.ts';

/** Value of one series of a snapshot. */
function sampleOf(metrics: Metrics, name: string, labels: Readonly<Record<string, string>> = {}): unknown {
  const metric = metrics.snapshot().find((one) => one.name === name);
  return metric?.samples.find((sample) => JSON.stringify(sample.labels) === JSON.stringify(labels))?.value;
}

describe('counters', () => {
  it('a counter of the process is the sum over its threads and its own count', () => {
    const main = new Metrics();
    const merged = new ThreadMetrics(main);
    main.counter('c_total', 'c').add(100);
    const [a, b] = [new Metrics(), new Metrics()];
    a.counter('c_total', 'c').add(3);
    b.counter('c_total', 'c').add(4);
    merged.apply(0, a.snapshot());
    merged.apply(1, b.snapshot());
    a.counter('c_total', 'c').add(5);
    merged.apply(0, a.snapshot());
    expect(sampleOf(main, 'c_total')).toBe(112);
  });

  it('a snapshot that is applied twice adds nothing', () => {
    const main = new Metrics();
    const merged = new ThreadMetrics(main);
    const thread = new Metrics();
    const errors = thread.counter('e_total', 'e', ['subject', 'reason']);
    errors.add(2, errors.series('s', 'bad_magic'));
    thread.histogram('h_seconds', 'h').observe(0.2);
    merged.apply(0, thread.snapshot());
    merged.apply(0, thread.snapshot());
    expect(sampleOf(main, 'e_total', { subject: 's', reason: 'bad_magic' })).toBe(2);
    expect(main.snapshot().find(({ name }) => name === 'h_seconds')?.samples[0]).toMatchObject({ count: 1 });
  });

  it('the process has each metric of its threads with its labels, also one without a sample', () => {
    const main = new Metrics();
    const merged = new ThreadMetrics(main);
    const thread = new Metrics();
    thread.counter('e_total', 'e', ['subject', 'reason']);
    thread.gauge('lag', 'l', ['topic']);
    thread.histogram('h_seconds', 'h', ['stage'], [1, 2]);
    merged.apply(0, thread.snapshot());
    expect(main.snapshot()).toEqual(thread.snapshot());
  });

  it('a ratio that the process computes from merged counters covers all threads', () => {
    const main = new Metrics();
    const lookups = main.counter('lookups_total', 'l', ['result']);
    const ratio = main.gauge('hit_ratio', 'r', [], 'own');
    main.onCollect(() => {
      const hits = lookups.value(lookups.series('hit'));
      ratio.set(hits / (hits + lookups.value(lookups.series('miss'))));
    });
    const merged = new ThreadMetrics(main);
    for (const [number, hits] of [90, 9].entries()) {
      const thread = new Metrics();
      const own = thread.counter('lookups_total', 'l', ['result']);
      own.add(hits, own.series('hit'));
      own.add(1 - number, own.series('miss'));
      thread.gauge('hit_ratio', 'r', [], 'own').set(0.5);
      merged.apply(number, thread.snapshot());
    }
    expect(sampleOf(main, 'hit_ratio')).toBe(0.99);
  });
});

describe('histograms', () => {
  it('a merged histogram has the buckets, the sum and the quantiles of all observations', () => {
    const main = new Metrics();
    const merged = new ThreadMetrics(main);
    const bounds = [1, 10, 100];
    const all = new Metrics().histogram('h', 'h', [], bounds);
    for (const [number, values] of [[0.5, 5, 5], [50], [500, 2]].entries()) {
      const thread = new Metrics();
      const own = thread.histogram('h', 'h', [], bounds);
      for (const value of values) {
        own.observe(value);
        all.observe(value);
        merged.apply(number, thread.snapshot());
      }
    }
    const histogram = main.histogram('h', 'h', [], bounds);
    expect(histogram.snapshot().samples).toEqual(all.snapshot().samples);
    expect(histogram.quantile(0.5)).toBe(all.quantile(0.5));
  });
});

describe('gauges', () => {
  it('a gauge is the maximum over the threads, or the sum where it says so', () => {
    const main = new Metrics();
    const merged = new ThreadMetrics(main);
    for (const [number, value] of [3, 8, 5].entries()) {
      const thread = new Metrics();
      thread.gauge('version', 'v').set(value);
      thread.gauge('held', 'h', [], 'sum').set(value);
      merged.apply(number, thread.snapshot());
    }
    expect(sampleOf(main, 'version')).toBe(8);
    expect(sampleOf(main, 'held')).toBe(16);
  });

  it('a series that moved to another thread has the value of its new thread', () => {
    const main = new Metrics();
    const merged = new ThreadMetrics(main);
    const [a, b] = [new Metrics(), new Metrics()];
    const lagOf = (metrics: Metrics) => metrics.gauge('lag', 'l', ['partition']);
    lagOf(a).set(70, lagOf(a).series('0'));
    merged.apply(0, a.snapshot());
    expect(sampleOf(main, 'lag', { partition: '0' })).toBe(70);
    lagOf(a).drop('0');
    lagOf(b).set(2, lagOf(b).series('0'));
    merged.apply(1, b.snapshot());
    merged.apply(0, a.snapshot());
    expect(sampleOf(main, 'lag', { partition: '0' })).toBe(2);
  });

  it('a series disappears when no thread has it, and when its thread has ended', () => {
    const main = new Metrics();
    const merged = new ThreadMetrics(main);
    const thread = new Metrics();
    const lag = thread.gauge('lag', 'l', ['partition']);
    lag.set(1, lag.series('0'));
    lag.set(2, lag.series('1'));
    merged.apply(0, thread.snapshot());
    lag.drop('0');
    merged.apply(0, thread.snapshot());
    expect(sampleOf(main, 'lag', { partition: '0' })).toBeUndefined();
    expect(sampleOf(main, 'lag', { partition: '1' })).toBe(2);
    merged.end(0);
    expect(sampleOf(main, 'lag', { partition: '1' })).toBeUndefined();
  });
});
