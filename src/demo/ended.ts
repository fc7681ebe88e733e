/** Waits for the end of a process that must succeed. */
import { coreError } from '../core/errors.ts';
import type { StartedCommand } from '../shell/children/started-command.ts';

/** Returns the stdout of the process. @throws internal for another exit code than 0 */
export async function succeed(what: string, child: StartedCommand): Promise<string> {
  const { code, signal } = await child.ended;
  if (code !== 0)
    throw coreError('internal', `${what} ended with ${code ?? signal}`, { next: `see ${child.logPath}` });
  return child.stdout();
}
