/** Cost of lateness: drop rate and error of the results for each watermark setting of the
 *  requirements, against the batch result of the true order. Drops and firings depend only on skew
 *  + lateness, so each pair represents its sum.
 *
 *  Nothing is timed: the results are those of the oracle, which the engine equals, and identical on
 *  every machine. */

import { loadGenKernels } from '../src/addon/gen.ts';
import { chooseNative } from '../src/addon/load.ts';
import { DEFAULT_EVENTS, delayMaxMs, type EventOptions } from '../src/gen/event-options.ts';
import { type LateTailStream, lateTailOf, trueRows } from './engine/late-tail.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';
import { type LateTail, lateTailText } from './peers/oracle/late-tail.ts';
import type { OracleRow, OracleRules } from './peers/oracle/rules.ts';

const PARTITIONS = 8;
const SECOND = 1000n;
const MINUTE = 60n * SECOND;
const SKEWS = [SECOND, 5n * SECOND, 30n * SECOND, 2n * MINUTE];
const LATENESSES = [0n, 10n * SECOND, MINUTE, 5n * MINUTE];

interface Windows {
  readonly name: string;
  readonly of: (skewMs: bigint, latenessMs: bigint) => OracleRules;
  /** Measured pairs of skew and lateness. */
  readonly pairs: readonly (readonly [bigint, bigint])[];
}

const everyPair = SKEWS.flatMap((skew) => LATENESSES.map((lateness) => [skew, lateness] as const));
const diagonal = SKEWS.map((skew, i) => [skew, LATENESSES[i] as bigint] as const);

const WINDOWS: readonly Windows[] = [
  {
    name: 'tumbling 1m',
    of: (skewMs, latenessMs) => ({ skewMs, latenessMs, sizeMs: MINUTE }),
    pairs: everyPair,
  },
  {
    name: 'sliding 5m/1m',
    of: (skewMs, latenessMs) => ({
      skewMs,
      latenessMs,
      window: 'sliding',
      sizeMs: 5n * MINUTE,
      slideMs: MINUTE,
    }),
    pairs: diagonal,
  },
  {
    name: 'session 30s',
    of: (skewMs, latenessMs) => ({ skewMs, latenessMs, window: 'session', gapMs: 30n * SECOND }),
    pairs: diagonal,
  },
];

/** Options of a stream that spans hours of event time, so that events delayed by hours can be
 *  late. */
const optionsOf = (smoke: boolean): Omit<EventOptions, 'order'> => ({
  ...DEFAULT_EVENTS,
  count: smoke ? 4000 : 1_000_000,
  accounts: smoke ? 200 : 10_000,
  perMs: smoke ? 0.0004 : 0.1,
});

const text = (ms: bigint): string => (ms >= MINUTE ? `${ms / MINUTE}m` : ms === 0n ? '0' : `${ms / SECOND}s`);

function resultsOf(name: string, report: LateTail, isExact: boolean): BenchResult[] {
  const share = (what: string, value: number): BenchResult =>
    result({
      metric: `${what}, ${name}`,
      unit: '%',
      ours: seriesOf([100 * value]),
      better: 'less',
      ...(isExact ? { goal: { valueAtMost: 0 } } : {}),
    });
  return [
    share('dropped late', report.dropRate),
    share('results that differ', report.windowsDifferingShare),
    share('error of their counts', report.countErrorShare),
    ...(name.startsWith('session')
      ? [share('time not covered alike (1 - Jaccard)', 1 - report.jaccardOfTime)]
      : []),
  ];
}

function measure(context: BenchContext, stream: LateTailStream, windows: Windows): BenchResult[] {
  const truth: readonly OracleRow[] = trueRows(stream, windows.of(0n, 0n));
  // Above the longest delay no event is late, so every result must be exact.
  const longest = BigInt(delayMaxMs(stream.options.delays));
  const pairs = context.smoke ? diagonal : windows.pairs;
  return [...pairs, [longest, 0n] as const].flatMap(([skew, lateness]) => {
    if (context.drain.aborted) return [];
    const name = `${windows.name}, skew ${text(skew)}, lateness ${text(lateness)}`;
    const report = lateTailOf(stream, windows.of(skew, lateness), truth);
    context.say(`${name}: ${lateTailText(report)}`);
    return resultsOf(name, report, skew === longest);
  });
}

export const bench: Bench = {
  name: 'lateness',
  summary: 'Drop rate and error of results at each watermark, against the batch result of the true order.',
  async run(context) {
    const { mode } = chooseNative(context.settings.native);
    const kernels = loadGenKernels(mode);
    const stream = { options: optionsOf(context.smoke), partitions: PARTITIONS, kernels };
    return WINDOWS.flatMap((windows) => measure(context, stream, windows));
  },
};
