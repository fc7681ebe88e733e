/** Counts the steps of a computation: the calls and code blocks that V8's precise coverage counted.
 *  The count does not depend on the load of the machine.
 *
 *  Loops inside V8 itself (a regular expression, a copy of a string) do not count. V8 counts blocks
 *  only in functions whose first call follows the load of this module; of other functions it counts
 *  only the calls. Optimized code may omit calls: compare with a generous bound, never for
 *  equality. */
import { Session } from 'node:inspector';

interface Coverage {
  readonly result: ReadonlyArray<{
    readonly url: string;
    readonly functions: ReadonlyArray<{ readonly ranges: ReadonlyArray<{ readonly count: number }> }>;
  }>;
}

const session = new Session();
session.connect();

/** Calls the inspector, which answers before `post` returns. */
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

/** Reads the number of steps since the last read; each read resets the counts to zero. */
function readSteps(): number {
  let steps = 0;
  for (const { url, functions } of (ask('Profiler.takePreciseCoverage') as Coverage).result)
    if (url.includes('/src/'))
      for (const { ranges } of functions) for (const { count } of ranges) steps += count;
  return steps;
}

/** Number of steps of `work` in the code under src. */
export function stepsOf(work: () => void): number {
  readSteps();
  work();
  return readSteps();
}
