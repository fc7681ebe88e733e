import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MillraceError } from '../../../../src/core/errors.ts';
import { LATENCY_BUCKETS_S, Metrics, SERIES_MAX } from '../../../../src/core/metrics.ts';

describe('counters and gauges', () => {
  test('each series has its own count, and a metric without labels exists from the start', () => {
    const metrics = new Metrics();
    const plain = metrics.counter('a_total', 'A.');
    plain.add();
    plain.add(4);
    const labelled = metrics.counter('b_total', 'B.', ['topic', 'reason']);
    const x = labelled.series('x', 'late');
    const y = labelled.series('y', 'late');
    labelled.add(2, x);
    labelled.add(3, y);
    expect(labelled.series('x', 'late')).toBe(x);
    expect([plain.value(), labelled.value(x), labelled.value(y)]).toEqual([5, 2, 3]);
    expect(metrics.snapshot()).toEqual([
      {
        name: 'a_total',
        help: 'A.',
        kind: 'counter',
        labelNames: [],
        bounds: [],
        samples: [{ labels: {}, value: 5 }],
      },
      {
        name: 'b_total',
        help: 'B.',
        kind: 'counter',
        labelNames: ['topic', 'reason'],
        bounds: [],
        samples: [
          { labels: { topic: 'x', reason: 'late' }, value: 2 },
          { labels: { topic: 'y', reason: 'late' }, value: 3 },
        ],
      },
    ]);
  });

  test('label values that would concatenate to the same text stay separate', () => {
    const counter = new Metrics().counter('c_total', 'C.', ['a', 'b']);
    expect(counter.series('x', 'yz')).not.toBe(counter.series('xy', 'z'));
  });

  test('values survive the growth of the array', () => {
    const gauge = new Metrics().gauge('g', 'G.', ['n']);
    const series = Array.from({ length: 300 }, (_, n) => gauge.series(String(n)));
    for (const [n, one] of series.entries()) gauge.set(n * 1.5, one);
    expect(series.map((one) => gauge.value(one))).toEqual(series.map((_, n) => n * 1.5));
  });

  test('a dropped series is omitted, and its slot is reused from zero', () => {
    const gauge = new Metrics().gauge('g', 'G.', ['id']);
    gauge.set(5, gauge.series('a'));
    gauge.set(6, gauge.series('b'));
    gauge.drop('a');
    gauge.drop('never set');
    const values = () => gauge.snapshot().samples.map(({ labels, value }) => [labels['id'], value]);
    expect(values()).toEqual([['b', 6]]);
    gauge.series('c');
    expect(values()).toEqual([
      ['c', 0],
      ['b', 6],
    ]);
  });

  test('a total kept elsewhere never decreases', () => {
    const counter = new Metrics().counter('t_total', 'T.');
    for (const total of [5, 3, 9, 9, 0]) counter.setTotal(total);
    expect(counter.value()).toBe(9);
  });

  test('the number of series is limited, and further series are counted as other without loss', () => {
    const counter = new Metrics().counter('many_total', 'Many.', ['id']);
    const total = SERIES_MAX * 2;
    for (let i = 0; i < total; i++) counter.add(1, counter.series(`id-${i}`));
    const { samples } = counter.snapshot();
    expect(samples.length).toBe(SERIES_MAX);
    expect(samples.reduce((sum, sample) => sum + (sample.value ?? 0), 0)).toBe(total);
    expect(samples.find((sample) => sample.labels['id'] === 'other')?.value).toBe(total - SERIES_MAX + 1);
  });
});

describe('registration', () => {
  test('a metric with the same name, kind and labels is the same metric', () => {
    const metrics = new Metrics();
    expect(metrics.counter('a_total', 'A.', ['x'])).toBe(metrics.counter('a_total', 'A.', ['x']));
  });

  test('another kind, other labels or other bounds are an internal error', () => {
    const metrics = new Metrics();
    metrics.counter('a_total', 'A.', ['x']);
    metrics.histogram('h_seconds', 'H.', [], [1, 2]);
    expect(() => metrics.gauge('a_total', 'A.', ['x'])).toThrow(MillraceError);
    expect(() => metrics.counter('a_total', 'A.', ['y'])).toThrow(MillraceError);
    expect(() => metrics.histogram('h_seconds', 'H.', [], [1, 3])).toThrow(MillraceError);
  });

  test('names and labels that Prometheus cannot read are an internal error', () => {
    const metrics = new Metrics();
    for (const name of ['', '1a', 'a-b', 'a b', 'é'])
      expect(() => metrics.counter(name, '')).toThrow(MillraceError);
    for (const label of ['', '1a', 'a-b', '__name', 'le'])
      expect(() => metrics.gauge('ok', '', [label])).toThrow(MillraceError);
  });

  test('the wrong number of label values is an internal error', () => {
    const counter = new Metrics().counter('a_total', 'A.', ['x']);
    expect(() => counter.series()).toThrow(MillraceError);
    expect(() => counter.series('a', 'b')).toThrow(MillraceError);
  });

  test('collectors run before each snapshot', () => {
    const metrics = new Metrics();
    const gauge = metrics.gauge('depth', 'Depth.');
    let depth = 0;
    metrics.onCollect(() => gauge.set(++depth));
    expect([metrics.snapshot()[0]?.samples[0]?.value, metrics.snapshot()[0]?.samples[0]?.value]).toEqual([
      1, 2,
    ]);
  });
});

describe('histograms', () => {
  const bounds = [0.1, 1, 10];
  const value = fc.oneof(
    fc.constantFrom(...bounds, 0, 10.000001),
    fc.double({ min: 0, max: 20, noNaN: true }),
  );

  test('cumulative buckets, sum and count equal those counted by hand', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(value, fc.integer({ min: 1, max: 5 }))), (observations) => {
        const histogram = new Metrics().histogram('h', 'H.', [], bounds);
        for (const [one, times] of observations) histogram.observeMany(one, times);
        const sample = histogram.snapshot().samples[0];
        const upTo = (bound: number): number =>
          observations.reduce((sum, [one, times]) => sum + (one <= bound ? times : 0), 0);
        expect(sample?.buckets).toEqual([...bounds, Number.POSITIVE_INFINITY].map(upTo));
        expect(sample?.count).toBe(upTo(Number.POSITIVE_INFINITY));
        expect(sample?.sum).toBeCloseTo(
          observations.reduce((sum, [one, times]) => sum + one * times, 0),
          6,
        );
      }),
    );
  });

  test('one observation of many values equals many observations', () => {
    const metrics = new Metrics();
    const many = metrics.histogram('a', '', [], bounds);
    const single = metrics.histogram('b', '', [], bounds);
    many.observeMany(0.5, 3);
    for (let i = 0; i < 3; i++) single.observe(0.5);
    expect(many.snapshot().samples).toEqual(single.snapshot().samples);
  });

  test('a quantile is the bound of the bucket that contains it', () => {
    const histogram = new Metrics().histogram('h', '', [], bounds);
    expect(histogram.quantile(0.5)).toBeNaN();
    histogram.observeMany(0.05, 50);
    histogram.observeMany(5, 49);
    histogram.observeMany(50, 1);
    expect([0.5, 0.51, 0.99, 1].map((q) => histogram.quantile(q))).toEqual([
      0.1,
      10,
      10,
      Number.POSITIVE_INFINITY,
    ]);
  });

  test('the latency bucket bounds ascend', () => {
    expect([...LATENCY_BUCKETS_S].sort((a, b) => a - b)).toEqual(LATENCY_BUCKETS_S);
    expect(new Set(LATENCY_BUCKETS_S).size).toBe(LATENCY_BUCKETS_S.length);
  });
});
