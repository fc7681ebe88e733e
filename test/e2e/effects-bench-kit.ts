/** What the smoke runs of the benches of the effects share. */
import type { Bench, BenchResult } from '../../bench/harness.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { sharedStack } from './stack.ts';

/** All parts of a bench, once each, on the shared stack. */
export async function smoke(
  bench: Bench,
  more: {
    readonly only?: readonly string[];
    readonly preload?: number;
    readonly peers?: readonly string[];
  } = {},
): Promise<readonly BenchResult[]> {
  const { brokers, postgres } = await sharedStack();
  return bench.run({
    ...more,
    smoke: true,
    repeats: 1,
    log: silentLogger,
    metrics: new Metrics(),
    settings: { native: process.env['MILLRACE_NATIVE'] ?? 'auto' },
    brokers,
    postgres,
    drain: new AbortController().signal,
    say: () => {},
    onClose: () => {},
  });
}

/** Metrics without the numbers that depend on the machine, with their goals. */
export const goalsOf = (results: readonly BenchResult[]): ReadonlyArray<readonly [string, string | null]> =>
  results.filter(({ goal }) => goal !== null).map(({ metric, goal }) => [metric, goal]);
