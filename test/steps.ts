/** Steps of a computation: the calls and the blocks of code that V8 counted, which the load of the
 *  machine does not change.
 *
 *  Loops inside V8 itself (a regular expression, a copy of a string) do not count. V8 counts the
 *  blocks of functions whose first call follows the load of this module, and only the calls of
 *  other functions. Optimized code may omit calls: compare with a generous bound, never for
 *  equality.
 */
import { Session } from 'node:inspector';

interface Coverage {
  readonly result: ReadonlyArray<{
    readonly url: string;
    readonly functions: ReadonlyArray<{ readonly ranges: ReadonlyArray<{ readonly count: number }> }>;
  }>;
}

const session = new Session();
session.connect();

/** The session answers before `post` returns. */
function ask(method: string, parameters: object = {}): unknown {
  let answer: unknown;
  session.post(method, parameters, (error, result) => {
    if (error !== null) throw error;
    answer = result;
  });
  return answer;
}
ask('Profiler.enable');
ask('Profiler.startPreciseCoverage', { callCount: true, detailed: true });

/** Each read of the counts resets them to zero. */
function take(): number {
  let steps = 0;
  for (const { url, functions } of (ask('Profiler.takePreciseCoverage') as Coverage).result)
    if (url.includes('/src/'))
      for (const { ranges } of functions) for (const { count } of ranges) steps += count;
  return steps;
}

/** Number of steps of `work` in the code under src. */
export function stepsOf(work: () => void): number {
  take();
  work();
  return take();
}
