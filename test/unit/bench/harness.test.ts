import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type BenchReport,
  figure,
  machine,
  median,
  microTurns,
  renderTable,
  result,
  seriesOf,
  takeTurns,
} from '../../../bench/harness.ts';

describe('medians', () => {
  test('a median has half of the values on each side, in any order', () => {
    fc.assert(
      fc.property(fc.array(fc.double({ noNaN: true, min: -1e9, max: 1e9 }), { minLength: 1 }), (values) => {
        const middle = median(values);
        const half = values.length / 2;
        expect(values.filter((one) => one <= middle).length).toBeGreaterThanOrEqual(half);
        expect(values.filter((one) => one >= middle).length).toBeGreaterThanOrEqual(half);
        expect(median([...values].reverse())).toBe(middle);
      }),
    );
  });

  test('a series reports its spread', () => {
    expect(seriesOf([10, 12, 8])).toEqual({ values: [10, 12, 8], median: 10, spread: 0.4 });
    expect(seriesOf([0, 0]).spread).toBe(0);
    expect(() => seriesOf([])).toThrow('a median needs a value');
  });
});

describe('alternating sides', () => {
  test('the sides of a bench alternate, and the order is reversed each round', async () => {
    const order: string[] = [];
    let n = 0;
    const side = (name: string) => () => {
      order.push(name);
      return Promise.resolve(++n);
    };
    const series = await takeTurns({ ours: side('a'), raw: side('b') }, 3);
    expect(order.join('')).toBe('abbaab');
    expect(series.ours.values).toEqual([1, 4, 5]);
    expect(series.raw.median).toBe(3);
  });

  test('a side that fails also fails the bench', async () => {
    await expect(takeTurns({ a: () => Promise.reject(new Error('broker gone')) }, 2)).rejects.toThrow(
      'broker gone',
    );
  });

  test('micro turns measure nanoseconds per row, so ten times the work takes clearly longer', async () => {
    const spin = (times: number) => () => {
      let sum = 0;
      for (let i = 0; i < times; i++) sum = (sum * 31 + i) | 0;
      return sum;
    };
    const series = await microTurns(
      { small: spin(20_000), large: spin(200_000) },
      { rows: 100, smoke: true, repeats: 3 },
    );
    expect(series.small.median).toBeGreaterThan(0);
    expect(series.large.median / series.small.median).toBeGreaterThan(3);
  });

  test('an error of a micro side is rethrown', async () => {
    const broken = (): never => {
      throw new Error('wrong answer');
    };
    await expect(microTurns({ broken }, { rows: 1, smoke: true, repeats: 1 })).rejects.toThrow(
      'wrong answer',
    );
  });
});

describe('bench results', () => {
  const ours = seriesOf([90, 100, 110]);
  const raw = seriesOf([125]);

  test('the ratio of a rate is our rate divided by theirs', () => {
    expect(
      result({
        metric: 'consume',
        unit: 'msg/s',
        ours,
        against: { name: 'raw', series: raw },
        better: 'more',
        goal: { ratioAtLeast: 0.9 },
      }),
    ).toEqual({
      metric: 'consume',
      unit: 'msg/s',
      value: 100,
      spread: 0.2,
      against: 'raw',
      against_value: 125,
      ratio: 0.8,
      goal: 'ratio >= 0.9',
      met: false,
    });
  });

  test('the ratio of a time is their time divided by ours, so above 1 is better', () => {
    const one = result({
      metric: 'hash',
      unit: 'ns/row',
      ours,
      against: { name: 'reference', series: raw },
      better: 'less',
      goal: { ratioAtLeast: 1.25 },
    });
    expect([one.ratio, one.met]).toEqual([1.25, true]);
  });

  test('a result may have a bound on the value itself, or no goal', () => {
    const base = { metric: 'm', unit: 'u', ours, better: 'less' } as const;
    expect(result({ ...base, goal: { valueAtMost: 100 } })).toMatchObject({
      against: null,
      against_value: null,
      ratio: null,
      goal: 'value <= 100',
      met: true,
    });
    expect(result({ ...base, goal: { valueBelow: ours.median } })).toMatchObject({
      goal: `value < ${ours.median}`,
      met: false,
    });
    expect(result({ ...base, goal: { valueBelow: ours.median + 1 } })).toMatchObject({ met: true });
    expect(result({ ...base, goal: { valueAtLeast: 101 } })).toMatchObject({
      goal: 'value >= 101',
      met: false,
    });
    expect(result(base)).toMatchObject({ goal: null, met: null });
    expect(() => result({ ...base, goal: { ratioAtLeast: 1 } })).toThrow('needs a peer');
  });

  test('a bound on the reference machine is scaled by the speed of this one', () => {
    const time = { metric: 'm', unit: 'us', ours, better: 'less' } as const;
    expect(result({ ...time, goal: { onReference: 80, factor: 1.25 } })).toMatchObject({
      goal: 'value <= 80 x 1.25',
      met: true,
    });
    expect(result({ ...time, goal: { onReference: 80, factor: 1.2 } }).met).toBe(false);
    const rate = { metric: 'm', unit: '1/s', ours, better: 'more' } as const;
    expect(result({ ...rate, goal: { onReference: 150, factor: 1.5 } })).toMatchObject({
      goal: 'value >= 150 / 1.50',
      met: true,
    });
    expect(result({ ...rate, goal: { onReference: 150, factor: 1.4 } }).met).toBe(false);
  });

  test('the table has one line per result, all of one width', () => {
    const report: BenchReport = {
      bench: 'hash',
      build: 'abc',
      machine: machine(),
      results: [
        result({
          metric: 'rate',
          unit: 'msg/s',
          ours: seriesOf([1_234_567]),
          against: { name: 'raw', series: raw },
          better: 'more',
          goal: { ratioAtLeast: 0.9 },
        }),
        result({
          metric: 'time',
          unit: 'ns/row',
          ours: seriesOf([3.24159]),
          better: 'less',
          goal: { valueAtMost: 3 },
        }),
      ],
    };
    const lines = renderTable(report).split('\n');
    expect(lines[0]).toContain('hash, build abc, ');
    const table = lines.slice(2);
    expect(new Set(table.map((line) => line.length)).size).toBe(1);
    expect(table).toHaveLength(4);
    expect(table[2]).toMatch(/rate .*1,235,000 .*raw .*9876\.54 .*yes/);
    expect(table[3]).toMatch(/time .*3\.242 .*NO/);
  });

  test('figures keep four significant digits', () => {
    expect([0, 0.000123451, 12.3456, 999.96, 1_234_567, Number.NaN].map(figure)).toEqual([
      '0',
      '0.0001235',
      '12.35',
      '1,000',
      '1,235,000',
      '-',
    ]);
  });
});

test('a report describes the machine', () => {
  const one = machine();
  expect(one.cores).toBeGreaterThan(0);
  expect(one.memory_bytes).toBeGreaterThan(0);
  expect(one.node).toBe(process.version);
});

test('a table lists the runs of a result on request', () => {
  const listed = result({
    metric: 'p99',
    unit: 'ms',
    ours: seriesOf([12, 9, 10.5]),
    better: 'less',
    list: true,
    goal: { valueAtMost: 11 },
  });
  expect(listed).toMatchObject({ value: 10.5, runs: [12, 9, 10.5], met: true });
  const single = result({ metric: 'bytes', unit: 'B', ours: seriesOf([5]), better: 'less' });
  expect(single).not.toHaveProperty('runs');
  const report = { bench: 'probe', build: 'c', machine: machine(), results: [listed, single] };
  const [, , head, , first, second] = renderTable(report).split('\n');
  expect(head).toMatch(/\| met \| runs +\|$/);
  expect(first).toMatch(/\| yes \| 12 9 10\.5 \|$/);
  expect(second).toMatch(/\| +\|$/);
  expect(renderTable({ ...report, results: [single] })).not.toContain('runs');
});
