/** Waits until a process is ready. A listening process may still be loading its state. */
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../core/errors.ts';
import type { StartedCommand } from './started-command.ts';

const READY_MS_MAX = 60_000;
const POLL_MS = 25;

/** Returns the address, host:port. @throws timeout; unreachable if the process ended */
export async function ready(name: string, child: StartedCommand): Promise<string> {
  const address = await child.address();
  const deadline = Date.now() + READY_MS_MAX;
  let over = false;
  void child.ended.then(() => {
    over = true;
  });
  while (Date.now() < deadline && !over) {
    const isReady = await fetch(`http://${address}/ready`).then(
      (answer) => answer.ok,
      () => false,
    );
    if (isReady) return address;
    await sleep(POLL_MS);
  }
  if (over)
    throw coreError('unreachable', `${name} ended before it was ready`, { next: `see ${child.logPath}` });
  throw coreError('timeout', `${name} was not ready within ${READY_MS_MAX} ms`, {
    next: `see ${child.logPath}`,
  });
}
