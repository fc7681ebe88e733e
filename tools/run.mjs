import { spawnSync } from 'node:child_process';

/** Runs a program to its end.
 *  @param what name of the step, for the error
 *  @param next next step for the reader of the error
 *  @returns its stdout
 *  @throws with the end of its output unless it exits with 0 */
export function run(what, command, args, options, next) {
  const result = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 26, ...options });
  if (result.status === 0) return result.stdout;
  const output = (result.error?.message ?? `${result.stdout ?? ''}${result.stderr ?? ''}`).trim();
  throw new Error(`${what} failed: ${output.slice(-2000)}\nnext: ${next}`);
}
