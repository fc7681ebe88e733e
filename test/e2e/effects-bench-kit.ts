/** Shared by the smoke runs of the effects benches. */
import type { Bench, BenchResult } from '../../bench/harness.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { goalOf, smokeContext } from '../unit/bench/context.ts';

/** Runs all parts of a bench once on the shared stack. */
export async function smoke(
  bench: Bench,
  more: {
    readonly only?: readonly string[];
    readonly preload?: number;
    readonly peers?: readonly string[];
    readonly killAfterMs?: number;
    readonly out?: string;
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

/** Metrics that have a goal, with the goal. Leaves out the values, which depend on the machine. */
export const goalsOf = (results: readonly BenchResult[]): ReadonlyArray<readonly [string, string | null]> =>
  results.filter(({ goal }) => goal !== null).map((one) => [one.metric, goalOf(one)]);
