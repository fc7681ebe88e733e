/** Waits until a process says that it is ready: listening alone is not enough, it may still read
 *  its state. */
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../core/errors.ts';
import type { SliceProcess } from './fact.ts';

const READY_MS_MAX = 60_000;
const POLL_MS = 25;

/** Its address, host:port. @throws timeout, unreachable when it ended */
export async function ready(name: string, child: SliceProcess): Promise<string> {
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
