/** The report about the cost of lateness: its arithmetic on hand-computed streams, and its bounds
 *  on generated streams. */
import { describe, expect, it } from 'vitest';
import { lateTailOf, trueRows } from '../../bench/engine/late-tail.ts';
import { bench } from '../../bench/lateness.ts';
import { lateTail, lateTailText } from '../../bench/peers/oracle/late-tail.ts';
import type { LogEntry, OracleRules } from '../../bench/peers/oracle/rules.ts';
import { Oracle, oracleOf } from '../../bench/peers/oracle/windows.ts';
import { loadGenKernels } from '../../src/addon/gen.ts';
import { DEFAULT_EVENTS } from '../../src/gen/event-options.ts';
import { smokeContext } from '../unit/bench/context.ts';

const at = (eventTs: bigint): LogEntry => ({
  kind: 'event',
  partition: 0,
  accountId: 1n,
  value: 1n,
  eventTs,
});

function reportOf(rules: OracleRules, log: readonly LogEntry[]) {
  const truth = new Oracle(rules, 1, false);
  for (const entry of log) truth.apply(entry);
  const observed = oracleOf(rules, 1, log);
  return lateTail(observed.rows(), truth.rows(), observed.counters);
}

describe('late-tail report', () => {
  it('the late-tail report counts drops, differing results and the events that these results lack', () => {
    const rules = { sizeMs: 10n, skewMs: 0n, latenessMs: 0n };
    expect(reportOf(rules, [at(1n), at(25n), at(2n), at(12n), at(26n)])).toEqual({
      consumed: 5n,
      dropped: 2n,
      dropRate: 0.4,
      windows: 3,
      windowsDiffering: 2,
      windowsDifferingShare: 2 / 3,
      countError: 2n,
      countErrorShare: 0.4,
      jaccard: 2 / 3,
      jaccardOfTime: 2 / 3,
    });
  });

  it('the late-tail report states the share of sessions that survive when a drop splits a session', () => {
    const rules = { window: 'session', gapMs: 10n, skewMs: 5n, latenessMs: 0n } as const;
    // The complete session is [0, 26). Without the late event 8 there are two: [0, 10) and [16,
    // 26).
    const report = reportOf(rules, [at(0n), at(16n), at(8n)]);
    expect(report).toMatchObject({
      dropped: 1n,
      windows: 1,
      windowsDiffering: 3,
      countError: 5n,
      jaccard: 0,
    });
    expect(report.jaccardOfTime).toBeCloseTo(20 / 26, 12);
    expect(lateTailText(report)).toBe(
      'dropped 1 of 3 (33.3333%); 3 results differ from the 1 true ones (100.0000% of all), by 5 in their counts (166.6667% of the events); Jaccard 0.000000 of windows, 0.769231 of time',
    );
  });

  const options = {
    ...DEFAULT_EVENTS,
    count: 4000,
    accounts: 200,
    perMs: 0.05,
    delays: { tail: 0.05, stragglers: 0.002, typicalMaxMs: 3000, tailMaxMs: 30_000, stragglerMaxMs: 120_000 },
  };
  const stream = { options, partitions: 4, kernels: loadGenKernels('reference') };
  const windows: readonly OracleRules[] = [
    { skewMs: 0n, latenessMs: 0n, sizeMs: 10_000n },
    { skewMs: 0n, latenessMs: 0n, window: 'sliding', sizeMs: 15_000n, slideMs: 5000n },
    { skewMs: 0n, latenessMs: 0n, window: 'session', gapMs: 5000n },
  ];

  it.each(windows)(
    'the reported loss falls to zero as the watermark waits longer, on a generated stream: %o',
    (rules) => {
      const truth = trueRows(stream, rules);
      const reports = [1000n, 5000n, 120_000n].map((skewMs) =>
        lateTailOf(stream, { ...rules, skewMs }, truth),
      );
      const [narrow, wide, all] = reports as [
        (typeof reports)[number],
        (typeof reports)[number],
        (typeof reports)[number],
      ];
      expect(narrow.dropRate).toBeGreaterThan(wide.dropRate);
      expect(wide.dropRate).toBeGreaterThan(0);
      expect(narrow.windowsDiffering).toBeGreaterThan(wide.windowsDiffering);
      expect(narrow.jaccardOfTime).toBeLessThan(1);
      expect(all).toMatchObject({
        dropped: 0n,
        windowsDiffering: 0,
        countError: 0n,
        jaccard: 1,
        jaccardOfTime: 1,
      });
      for (const report of reports) {
        expect(report.consumed).toBe(4000n);
        // Windows of fixed length lose exactly the dropped events, each once per window.
        if (rules.window === undefined) expect(report.countError).toBe(report.dropped);
        if (rules.window === 'sliding') expect(report.countError).toBe(report.dropped * 3n);
      }
    },
  );

  it('the late-tail bench covers the required watermarks and is exact if no event is late', async () => {
    const results = await bench.run(smokeContext());
    const value = (metric: string): number =>
      results.find((one) => one.metric === metric)?.value ?? Number.NaN;
    expect(value('dropped late, tumbling 1m, skew 1s, lateness 0')).toBeGreaterThan(
      value('dropped late, tumbling 1m, skew 2m, lateness 5m'),
    );
    expect(value('dropped late, tumbling 1m, skew 2m, lateness 5m')).toBeGreaterThan(0);
    expect(value('time not covered alike (1 - Jaccard), session 30s, skew 1s, lateness 0')).toBeGreaterThan(
      0,
    );
    const exact = results.filter((one) => one.goal !== null);
    expect(exact.map((one) => one.metric)).toContain(
      'results that differ, sliding 5m/1m, skew 120m, lateness 0',
    );
    expect(exact.every((one) => one.met === true)).toBe(true);
  });
});
