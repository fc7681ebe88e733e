/** Counts the work of a computation: calls of the functions of src, from V8's precise coverage. The
 *  count is equal on every machine, so a test bounds it where milliseconds would measure the
 *  machine. It works in a process shared with other test files. test/steps.ts, which also counts
 *  loop iterations, does not. */
import { type Profiler, Session } from 'node:inspector';

export interface Worked<T> {
  readonly result: T;
  /** Number of calls of functions under src. Calls of built-in functions and loop iterations do not
   *  count. */
  readonly calls: number;
}

/** Runs a synchronous computation and counts its work. */
export function worked<T>(run: () => T): Worked<T> {
  const session = new Session();
  session.connect();
  const post = <R>(method: string, params?: object): R => {
    let answer: R | undefined;
    let failed: Error | null = null;
    // The session lives in this thread, so it answers before `post` returns.
    session.post(method, params, (error, result) => {
      failed = error;
      answer = result as R;
    });
    if (failed !== null) throw failed;
    return answer as R;
  };
  try {
    post('Profiler.enable');
    // Block counts miss functions that were compiled earlier; call counts are complete.
    post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    const result = run();
    const taken = post<Profiler.TakePreciseCoverageReturnType>('Profiler.takePreciseCoverage');
    const counts = taken.result
      .filter(({ url }) => url.includes('/src/'))
      .flatMap(({ functions }) => functions.flatMap(({ ranges }) => ranges.map(({ count }) => count)));
    return { result, calls: counts.reduce((sum, count) => sum + count, 0) };
  } finally {
    session.disconnect();
  }
}
