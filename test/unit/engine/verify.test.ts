/** Oracle of `engine verify`: its own arithmetic, and the comparison with a sink. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Aggregates } from '../../../src/engine/aggregate/definition.ts';
import type { Job } from '../../../src/engine/job.ts';
import { Accumulator } from '../../../src/engine/verify/aggregates.ts';
import { DIFFERENCES_MAX, SinkComparison } from '../../../src/engine/verify/compare.ts';
import { type VerifiedRange, WindowOracle } from '../../../src/engine/verify/oracle.ts';
import type { OracleEvent } from '../../../src/engine/verify/records.ts';
import { isoTime, unitTime } from '../../../src/engine/verify/values.ts';
import type { WindowResult } from '../../../src/engine/window/accumulator.ts';

const JOB: Job = {
  ...{ topic: 't', window: 'tumbling', sizeMs: 10, skewMs: 5, latenessMs: 0, watermark: 'partition' },
};
const eventOf = (timeMs: number, value = 1n, key = '7'): OracleEvent => ({
  ...{ timeMs: BigInt(timeMs), key: [key], value, isFiltered: false, id: undefined, cells: [] },
});
const ALL: VerifiedRange = { fromMs: undefined, toMs: undefined };

function oracleOf(events: readonly OracleEvent[], range = ALL, job = JOB, heldMax = 1000): WindowOracle {
  const oracle = new WindowOracle(job, undefined, 1, range, heldMax);
  events.forEach((event, at) => {
    oracle.add([event], { partition: 0, offset: BigInt(at) }, undefined);
  });
  return oracle;
}

const rowOf = (windowStart: number, over: Partial<WindowResult> = {}): WindowResult => ({
  ...{ accountId: 7n, windowStart, windowEnd: windowStart + 10, count: 1n, sum: 1n, min: 1n, max: 1n },
  ...{ lastUpdateTs: BigInt(windowStart), overflow: false },
  ...over,
});

describe('values of the oracle', () => {
  it('times in ISO 8601 are those of the calendar, and other texts are none', () => {
    fc.assert(
      fc.property(fc.date({ min: new Date(0), max: new Date('9999-12-31'), noInvalidDate: true }), (date) => {
        expect(isoTime(date.toISOString())).toBe(BigInt(date.getTime()));
      }),
    );
    expect(isoTime('2026-01-31 13:00:00.1239+01:00')).toBe(BigInt(Date.UTC(2026, 0, 31, 12, 0, 0, 123)));
    for (const text of ['2026-02-30T00:00:00Z', '2026-01-31T12:00:00', '2026-01-31T24:00:00Z', 'now'])
      expect(isoTime(text), text).toBeUndefined();
  });

  it('times before the epoch are rounded down', () => {
    expect(unitTime(-1n, 'us')).toBe(-1n);
    expect(unitTime(-1001n, 'us')).toBe(-2n);
    expect(unitTime(1_999_999n, 'ns')).toBe(1n);
    expect(unitTime(-2n, 's')).toBe(-2000n);
  });

  it('a sum of doubles is the nearest one to the exact sum', () => {
    const sumOf = (values: readonly number[]): string => {
      const accumulator = new Accumulator(Aggregates.of('sum(x:double)'));
      for (const [at, value] of values.entries())
        accumulator.add({ ...eventOf(0), cells: [value] }, { partition: 0, offset: BigInt(at), element: 0 });
      return accumulator.expected()[0]?.expected.text as string;
    };
    expect(sumOf([1e308, 1, -1e308])).toBe('1');
    expect(sumOf([0.1, 0.2, 0.3, -0.6])).toBe(String(2 ** -55));
    expect(sumOf([5e-324, 5e-324])).toBe('1e-323');
    expect(sumOf([2 ** 53, 1, 1])).toBe(String(2 ** 53 + 2));
    expect(sumOf([Number.POSITIVE_INFINITY, 1])).toBe('Infinity');
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
        expect(Number(sumOf([value]))).toBe(value === 0 ? 0 : value);
      }),
    );
  });

  it('sums and averages of decimals are exact texts with all their decimal places', () => {
    const expectedOf = (text: string, cells: readonly (bigint | null)[]): readonly string[] => {
      const accumulator = new Accumulator(Aggregates.of(text));
      for (const [at, cell] of cells.entries())
        accumulator.add({ ...eventOf(at), cells: [cell] }, { partition: 0, offset: BigInt(at), element: 0 });
      return accumulator.expected().map(({ expected }) => expected.text);
    };
    const all =
      'sum(x:decimal2),avg(x:decimal2),min(x:decimal2),max(x:decimal2),first(x:decimal2),last(x:decimal2)';
    expect(expectedOf(all, [5n, null, -1n, 6n])).toEqual([
      ...['0.10', '0.03333333', '-0.01', '0.06', '0.05', '0.06', '3', 'false'],
    ]);
    expect(expectedOf(all, [null])).toEqual([...Array(6).fill('null'), '0', 'false']);
    const greatest = 2n ** 63n - 1n;
    expect(expectedOf('sum(x:decimal18)', [greatest, greatest])).toEqual([
      ...['18.446744073709551614', '1', 'false'],
    ]);
    // Half of 10^-8 goes to the even digit.
    expect(expectedOf('avg(x:decimal0)', [1n, ...Array(63).fill(0n)])).toContain('0.015625');
    expect(expectedOf('avg(x:decimal0)', [1n, ...Array(127).fill(0n)])).toContain('0.007812');
    expect(expectedOf('avg(x:decimal0)', [3n, ...Array(127).fill(0n)])).toContain('0.023438');
    expect(expectedOf('avg(x:decimal0)', [-1n, ...Array(127).fill(0n)])).toContain('-0.007812');
  });

  it('a percentile and a number of distinct values are accepted within their stated error alone', () => {
    const accumulator = new Accumulator(Aggregates.of('p50(x),distinct(id)'));
    for (let at = 1; at <= 100; at++)
      accumulator.add(
        { ...eventOf(0), cells: [BigInt(at), `s${at}`] },
        { partition: 0, offset: BigInt(at), element: 0 },
      );
    const [median, distinct] = accumulator.expected();
    expect(median?.expected.matches(50.3, 0.008)).toBe(true);
    expect(median?.expected.matches(50.5, 0.008)).toBe(false);
    expect(distinct?.expected.matches(100n, 0)).toBe(true);
    expect(distinct?.expected.matches(99n, 0)).toBe(false);
    expect(distinct?.expected.matches(97n, 0.01)).toBe(true);
  });
});

describe('frequent values of the oracle', () => {
  const listOf = (ids: readonly string[]) => {
    const accumulator = new Accumulator(Aggregates.of('topk(id,2)'));
    for (const [at, id] of ids.entries())
      accumulator.add({ ...eventOf(0), cells: [id] }, { partition: 0, offset: BigInt(at), element: 0 });
    return accumulator.expected()[0]?.expected;
  };
  const json = (...items: ReadonlyArray<readonly [string, number]>): string =>
    JSON.stringify(items.map(([value, count]) => ({ value, count })));

  it('an exact list has the greatest numbers, and of equal ones the lesser values', () => {
    const list = listOf(['sb', 'sa', 'sc', 'sc', 's\0', 's\0', 's\0']);
    expect(list?.matches(json(['\ufffd', 3], ['c', 2]), 0)).toBe(true);
    expect(list?.matches(json(['\ufffd', 3], ['a', 2]), 0)).toBe(false);
    expect(listOf(['sb', 'sa', 'sc'])?.matches(json(['a', 1], ['b', 1]), 0)).toBe(true);
    expect(listOf([])?.matches('[]', 0)).toBe(true);
  });

  it('an estimate is never too low, at most four errors too high, and of many values', () => {
    const ids = Array.from({ length: 600 }, (_, at) => (at % 3 === 0 ? 'soften' : `s${at}`));
    const list = listOf(ids);
    expect(list?.matches(json(['often', 207], ['1', 3]), 7)).toBe(true);
    expect(list?.matches(json(['often', 199]), 7)).toBe(false);
    expect(list?.matches(json(['often', 229]), 7)).toBe(false);
    expect(list?.matches(json(['other', 1]), 7)).toBe(false);
    expect(listOf(ids.slice(0, 50))?.matches(json(['often', 17]), 7)).toBe(false);
  });
});

describe('windows of the oracle', () => {
  it('an event behind the watermark by more than the lateness is in no window', () => {
    const oracle = oracleOf([eventOf(20), eventOf(14), eventOf(15), eventOf(21)]);
    expect(oracle.counts).toMatchObject({ read: 4, accepted: 3, late: 1 });
    expect([...oracle.results()].map(({ startMs }) => startMs)).toEqual([20n, 10n]);
    expect(oracle.frontierMs).toBe(16n);
  });

  it('windows outside of the range cost no memory', () => {
    const events = Array.from({ length: 100 }, (_, at) => eventOf(at * 10));
    const range = { fromMs: 50n, toMs: 70n };
    expect([...oracleOf(events, range, JOB, 2).results()]).toHaveLength(2);
    expect(() => oracleOf(events, ALL, JOB, 99)).toThrow('more than 99 windows');
  });

  it('a session that may have begun before the range is not compared', () => {
    const job: Job = {
      topic: 't',
      window: 'session',
      gapMs: 10,
      skewMs: 0,
      latenessMs: 0,
      watermark: 'partition',
    };
    const events = [eventOf(0), eventOf(6), eventOf(12), eventOf(40), eventOf(45)];
    const found = [...oracleOf(events, { fromMs: 5n, toMs: 60n }, job).results()];
    expect(found.map(({ startMs, endMs }) => [startMs, endMs])).toEqual([[40n, 55n]]);
  });
});

describe('comparison with a sink', () => {
  const compare = (rows: readonly WindowResult[], events = [eventOf(0), eventOf(10), eventOf(20)]) => {
    const comparison = new SinkComparison(oracleOf(events).results(), undefined, () => true);
    for (const row of rows) comparison.row(['7'], row);
    comparison.finish();
    return comparison;
  };

  it('equal rows have no difference, in any order, and early ones do not count', () => {
    const early = { ...rowOf(0), count: 9n, isEarly: true as const };
    const { differing, compared } = compare([rowOf(20), early, rowOf(0), rowOf(10)]);
    expect({ differing, compared }).toEqual({ differing: 0, compared: 3 });
  });

  it('a missing, an unexpected, a repeated and a different row are told apart', () => {
    const { differences } = compare([rowOf(0), rowOf(0), rowOf(10, { sum: 2n, max: 2n }), rowOf(90)]);
    expect(differences.map(({ what, window_start }) => [what, window_start])).toEqual([
      ['twice', '0'],
      ['values', '10'],
      ['unexpected', '90'],
      ['missing', '20'],
    ]);
    expect(differences[1]?.columns).toEqual({
      sum: { sink: '2', expected: '1' },
      max: { sink: '2', expected: '1' },
    });
  });

  it('all differences are counted, and a bounded number is kept', () => {
    const events = Array.from({ length: 100 }, (_, at) => eventOf(at * 10));
    const { differing, differences } = compare([], events);
    expect(differing).toBe(100);
    expect(differences).toHaveLength(DIFFERENCES_MAX);
  });
});
