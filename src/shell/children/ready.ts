/** Waits until a process is ready. A listening process may still be loading its state. */
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../core/errors.ts';
import type { StartedCommand } from './started-command.ts';

const READY_MS_MAX = 60_000;
const POLL_MS = 25;

/** Returns the address, host:port.
 *  @param mostMs time from the address on
 *  @throws timeout; unreachable if the process ended */
export async function ready(name: string, child: StartedCommand, mostMs = READY_MS_MAX): Promise<string> {
  const address = await child.address();
  const deadline = performance.now() + mostMs;
  let over = false;
  void child.ended.then(() => {
    over = true;
  });
  for (let leftMs = mostMs; leftMs > 0 && !over; leftMs = deadline - performance.now()) {
    // A process that is stopped or busy accepts connections and never answers.
    const signal = AbortSignal.timeout(Math.ceil(leftMs));
    const isReady = await fetch(`http://${address}/ready`, { signal }).then(
      (answer) => answer.ok,
      () => false,
    );
    if (isReady) return address;
    await sleep(POLL_MS);
  }
  if (over)
    throw coreError('unreachable', `${name} ended before it was ready`, { next: `see ${child.logPath}` });
  throw coreError('timeout', `${name} was not ready within ${mostMs} ms`, {
    next: `see ${child.logPath}`,
  });
}
