import { spawnSync } from 'node:child_process';

/** Runs a program to its end.
 *  @param what names the step in the error
 *  @param next tells the reader of the error what to do
 *  @returns what it wrote to stdout
 *  @throws with the end of its output where it does not exit with 0 */
export function run(what, command, args, options, next) {
  const result = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 26, ...options });
  if (result.status === 0) return result.stdout;
  const output = (result.error?.message ?? `${result.stdout ?? ''}${result.stderr ?? ''}`).trim();
  throw new Error(`${what} failed: ${output.slice(-2000)}\nnext: ${next}`);
}
