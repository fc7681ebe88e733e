/** Timing of one side of a comparison: CPU of passes over all records, and single calls. */
import { invariant } from '../../src/core/errors.ts';

/** Handles all records once. */
export type Pass = () => Promise<void> | void;

/** CPU time of the process so far, all threads, in milliseconds. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Nanoseconds of CPU for one record, garbage collection included: the mean over the passes that
 *  together take `timeMs` of CPU, after a quarter of that as warm-up. CPU time, because other
 *  programs on the machine lengthen the time of a pass by more than most differences between the
 *  sides. */
export async function passNs(pass: Pass, records: number, timeMs: number): Promise<number> {
  const repeat = async (budgetMs: number): Promise<number> => {
    const startMs = cpuMs();
    for (let passes = 1; ; passes++) {
      const running = pass();
      if (running !== undefined) await running;
      const usedMs = cpuMs() - startMs;
      if (usedMs >= budgetMs) return (usedMs * 1e6) / (passes * records);
    }
  };
  await repeat(timeMs / 4);
  return repeat(timeMs);
}

/** Percentiles of single calls, in nanoseconds; the time of reading the clock is part of each. */
export interface CallTimes {
  readonly p50: number;
  readonly p99: number;
}

/** Times `calls` calls, each with the number of the call. */
export function callTimes(call: (index: number) => unknown, calls: number): CallTimes {
  const took = new Float64Array(calls);
  let last: unknown;
  for (let index = 0; index < calls; index++) {
    const startMs = performance.now();
    last = call(index);
    took[index] = (performance.now() - startMs) * 1e6;
  }
  invariant(last !== undefined, 'a timed call has a result');
  took.sort();
  return { p50: took[Math.floor(calls * 0.5)] as number, p99: took[Math.floor(calls * 0.99)] as number };
}
