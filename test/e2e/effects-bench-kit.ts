/** What the smoke runs of the benches of the effects share. */
import type { Bench, BenchResult } from '../../bench/harness.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { smokeContext } from '../unit/bench/context.ts';

/** All parts of a bench, once each, on the shared stack. */
export async function smoke(
  bench: Bench,
  more: {
    readonly only?: readonly string[];
    readonly preload?: number;
    readonly peers?: readonly string[];
    readonly killAfterMs?: number;
  } = {},
): Promise<readonly BenchResult[]> {
  const { brokers, postgres } = await sharedStack();
  return bench.run(
    smokeContext({
      ...more,
      settings: { native: process.env['MILLRACE_NATIVE'] ?? 'auto' },
      brokers,
      postgres,
    }),
  );
}

/** Metrics without the numbers that depend on the machine, with their goals. */
export const goalsOf = (results: readonly BenchResult[]): ReadonlyArray<readonly [string, string | null]> =>
  results.filter(({ goal }) => goal !== null).map(({ metric, goal }) => [metric, goal]);
