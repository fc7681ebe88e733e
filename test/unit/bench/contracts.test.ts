/** Parts of the contracts bench that need no broker: flat rates, their search, costs and the page.
 */
import { describe, expect, it } from 'vitest';
import { codecSeconds } from '../../../bench/contracts/codec.ts';
import { flatnessOf, type LagSample, RateSearch, slopeOf } from '../../../bench/contracts/flat.ts';
import { type ContractsReport, contractsPage } from '../../../bench/contracts/page.ts';
import { Counts } from '../../../bench/contracts/pages.ts';
import { planOf } from '../../../bench/contracts/plan.ts';
import { type FormatRun, minutesOf, resultsOf } from '../../../bench/contracts/results.ts';
import { carriedBy, coresFor, guessedRate, stageCosts } from '../../../bench/contracts/stages.ts';
import { machine } from '../../../bench/harness.ts';
import { smokeContext } from './context.ts';

/** Samples every two seconds of a load whose groups read at these rates. */
function samplesOf(seconds: number, written: number, read: readonly number[]): readonly LagSample[] {
  return Array.from({ length: seconds / 2 + 1 }, (_, index) => ({
    atMs: index * 2000,
    written: written * 2 * index,
    // A commit of the last half second is not visible at every other sample.
    read: read.map((rate) => Math.max(0, rate * 2 * index - (index % 2) * rate * 0.5)),
  }));
}

describe('flat rates', () => {
  it('the slope of a line is found whatever is added to it evenly', () => {
    expect(slopeOf([])).toEqual({ slope: 0, error: 0 });
    expect(slopeOf([[1, 5]])).toEqual({ slope: 0, error: 0 });
    const points = Array.from({ length: 20 }, (_, x) => [x, 3 * x + 7] as const);
    expect(slopeOf(points).slope).toBeCloseTo(3, 10);
    expect(slopeOf(points).error).toBeCloseTo(0, 10);
    // Each deviation has its opposite on the other side of the middle.
    const bent = slopeOf(points.map(([x, y]) => [x, y + Math.abs(x - 9.5)] as const));
    expect(bent.slope).toBeCloseTo(3, 10);
    expect(bent.error).toBeGreaterThan(0.05);
  });

  it('the standard error of a slope is that of the textbook example', () => {
    // Slope 0.6, residuals -0.8, 0.6, 1, -0.6, -0.2: sqrt(2.4 / 3 / 10).
    const { slope, error } = slopeOf([
      [1, 2],
      [2, 4],
      [3, 5],
      [4, 4],
      [5, 5],
    ]);
    expect(slope).toBeCloseTo(0.6, 10);
    expect(error).toBeCloseTo(Math.sqrt(2.4 / 3 / 10), 10);
  });

  it('a short run is steep only by growth beyond the noise of irregular commits', () => {
    let state = 7;
    const random = (): number => {
      state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
      return state / 2 ** 31;
    };
    const runs = (grows: number): number =>
      Array.from({ length: 200 }, () => {
        const samples = Array.from({ length: 31 }, (_, index) => ({
          atMs: index * 2000,
          written: 2000 * index,
          read: [2000 * index * (1 - grows) - random() * 1000],
        }));
        return flatnessOf(1000, samples).isFlat ? 1 : 0;
      }).reduce<number>((sum, one) => sum + one, 0);
    expect(runs(0)).toBeGreaterThan(195);
    expect(runs(0.03)).toBe(0);
  });

  it('a load is flat if all groups keep up and the producers keep their rate', () => {
    const flat = flatnessOf(1000, samplesOf(60, 1000, [1000, 1000]));
    expect(flat).toMatchObject({ isFlat: true, writtenPerSecond: 1000, readPerSecond: 1000, seconds: 60 });
    const behind = flatnessOf(1000, samplesOf(60, 1000, [1000, 980]));
    expect(behind.isFlat).toBe(false);
    expect(behind.lagSlope).toBeGreaterThan(19);
    expect(behind.readPerSecond).toBe(980);
    expect(flatnessOf(1100, samplesOf(60, 1000, [1000])).isFlat).toBe(false);
    expect(flatnessOf(1000, samplesOf(0, 1000, [1000])).isFlat).toBe(false);
  });

  it.each([
    [10_000, 10_000],
    [10_000, 63_000],
    [200_000, 31_000],
    [5000, 210_000],
    [100, 101],
  ])('the search from %d finds the limit %d to within a twentieth', (guess, limit) => {
    const search = new RateSearch(guess, 20);
    const tried: number[] = [];
    for (let rate = search.next(); rate !== undefined; rate = search.next()) {
      tried.push(rate);
      search.report(rate <= limit);
    }
    expect(tried.length).toBeLessThan(18);
    expect(search.best).toBeLessThanOrEqual(limit);
    expect(search.best).toBeGreaterThan(limit / 1.06);
  });

  it('a search without a flat rate ends after its trials with a lower rate than all', () => {
    const search = new RateSearch(900, 3);
    while (search.next() !== undefined) search.report(false);
    expect(search.best).toBe(Math.round(900 / 2 ** 3));
  });
});

const plan = planOf(smokeContext({ smoke: false }), 'avro');
const measured = minutesOf({
  flatness: flatnessOf(50_000, samplesOf(180, 50_000, [50_000, 50_000])),
  samples: samplesOf(180, 50_000, [50_000, 50_000]),
  cpu: { producer: 90, broker: 45, consumer: 180, registry: 0 },
  counts: new Counts([
    { name: 'schema_cache_lookups_total', labels: { result: 'hit' }, value: 999_990 },
    { name: 'schema_cache_lookups_total', labels: { result: 'miss' }, value: 10 },
    { name: 'produced_records_total', labels: {}, value: 1000 },
    { name: 'produced_bytes_total', labels: {}, value: 512_000 },
  ]),
});
const written = 180 * 50_000;
const run: FormatRun = {
  plan,
  trials: [flatnessOf(60_000, samplesOf(30, 60_000, [60_000, 50_000]))],
  codec: { generate: 1, encode: 2, decode: 3 },
  measured,
  ended: { produced: written, written, consumed: [written, written + 5], unreadable: 0, registryCalls: 5 },
  rollout: {
    rate: 50_000,
    durationMs: 900_000,
    verdict: 'upgraded',
    reason: null,
    produced: 45e6,
    consumed: 90e6,
    errors: 0,
    upgraded: ['a', 'b', 'c', 'd', 'e', 'f'],
    lagMax: 1234,
    lagLast: 10,
  },
};
const met = (of: FormatRun, metric: string): boolean | null | undefined =>
  resultsOf(of).find((one) => one.metric.includes(metric))?.met;

describe('costs', () => {
  it('the cost of a stage is its CPU for a million events, and other machines follow from the busy share', () => {
    const costs = stageCosts(measured);
    expect(costs.process).toEqual({ producer: 10, broker: 5, consumer: 20, registry: 0 });
    expect([costs.total, costs.busyCores]).toEqual([35, 1.75]);
    expect(carriedBy(50_000, 2, 8)).toBe(200_000);
    expect(coresFor(200_000, 50_000, 2)).toBe(8);
    expect(guessedRate(costs, 2, 0.875)).toBe(50_000);
  });

  it('the codec is measured in both formats', async () => {
    for (const format of ['avro', 'protobuf'] as const) {
      const { generate, encode, decode } = await codecSeconds(smokeContext(), format);
      for (const cost of [generate, encode, decode]) expect(cost).toBeGreaterThan(0);
    }
  });
});

describe('results', () => {
  it('the goals are those of the requirements', () => {
    const goals = resultsOf(run).filter(({ goal }) => goal !== null);
    expect(goals.map(({ goal, met: isMet }) => [goal, isMet])).toEqual([
      ['value >= 200000', false],
      ['value >= 1200', false],
      ['value <= 0.01', true],
      ['value <= 6', true],
      ['value < 0.0001', true],
      ['value <= 0', true],
      ['value <= 0', true],
      ['value <= 0', true],
      ['value >= 200000', false],
      ['value >= 900', true],
      ['value <= 0', true],
      ['value <= 0', true],
    ]);
  });

  it.each([
    ['not written', { produced: written + 1 }],
    ['written twice', { produced: written - 1 }],
    ['did not read', { consumed: [written, written - 1] }],
    ['records unreadable', { unreadable: 1 }],
    ['registry answered', { registryCalls: 7 }],
  ] as const)('a run with records that were "%s" misses its goal', (metric, ended) => {
    expect(met(run, metric)).toBe(true);
    expect(met({ ...run, ended: { ...run.ended, ...ended } }, metric)).toBe(false);
  });

  it('a rollout with an error or a process left over misses its goal', () => {
    const { rollout } = run;
    if (rollout === undefined) throw new Error('the run has a rollout');
    expect(met({ ...run, rollout: { ...rollout, errors: 1 } }, 'rollout: records unreadable')).toBe(false);
    expect(met({ ...run, rollout: { ...rollout, upgraded: ['a'] } }, 'not upgraded')).toBe(false);
  });

  it('a run is divided into minutes', () => {
    expect(measured.minutes.map(({ fromSeconds, seconds }) => [fromSeconds, seconds])).toEqual([
      [0, 60],
      [60, 60],
      [120, 60],
    ]);
    expect(measured.minutes[0]).toMatchObject({ writtenPerSecond: 50_000, readPerSecond: [50_000, 50_000] });
    expect(measured).toMatchObject({ misses: 10, lookups: 1_000_000, valueBytes: 512 });
  });
});

describe('page', () => {
  const page = (of: FormatRun): string => {
    const report: ContractsReport = {
      bench: 'contracts',
      build: 'digest',
      machine: { ...machine(), cores: 2 },
      flags: ['-live-rollout=15m'],
      results: [],
      runs: [of],
    };
    // The page comes from the stored JSON.
    return contractsPage(JSON.parse(JSON.stringify(report)) as ContractsReport);
  };

  it('the page has the rate, the search, the minutes, the stages and the rollout', () => {
    const text = page(run);
    for (const part of [
      'with -live-rollout=15m, build digest',
      '**50,000 events a second** end to end for 180 s',
      '| 60,000 | 30 s |',
      '| 120 s | 60 s | 50,000 | 50,000, 50,000 |',
      '| broker | 5.00 s | process |',
      '4 cores carry 100,000 and 8 cores carry 200,000 events a second, and 200,000 need 8.0 cores',
      '9,000,000 records acknowledged, 9,000,000 in the topic, 9,000,000 and 9,000,005 read by the groups',
      'upgraded; 45,000,000 records written, 0 unreadable',
    ])
      expect(text).toContain(part);
  });

  it('the page says so where a rate was not flat and a broker was elsewhere', () => {
    const text = page({
      ...run,
      measured: {
        ...measured,
        flatness: { ...measured.flatness, isFlat: false },
        cpu: { ...measured.cpu, broker: Number.NaN },
      },
    });
    expect(text).toContain('**not flat**');
    expect(text).toContain('| broker | not measured | process |');
    expect(text).toContain('The broker is not on this machine');
  });
});
