/** Mutual exclusion on a stack's folder: one process at a time starts or stops the stack. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { FolderLock, LockDriver } from '../io/lock/port.ts';
import { stackError } from './errors.ts';

const POLL_MS = 50;

/** Waits for the lock of a folder.
 *  @throws stack_locked after `boundMs`; not_writable, lock_unavailable */
export async function lockFolder(locks: LockDriver, folder: string, boundMs: number): Promise<FolderLock> {
  const deadline = performance.now() + boundMs;
  for (;;) {
    const outcome = await locks.tryLock(folder);
    if ('lock' in outcome) return outcome.lock;
    if (performance.now() > deadline) {
      throw stackError('stack_locked', `${outcome.holder} is starting or stopping the stack in ${folder}`, {
        next: 'wait for it, or use another folder with -dir',
      });
    }
    await sleep(POLL_MS);
  }
}
