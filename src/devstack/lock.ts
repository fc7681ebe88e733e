/** One process at a time works on a stack's folder. The lock is a file that names its holder; a holder that died is
 *  no holder. */
import { linkSync, readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { stackError } from './errors.ts';
import { randomName } from './files.ts';
import { identify, isAlive, type ProcessId } from './process.ts';

const POLL_MS = 50;

function readOrNothing(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

function holderOf(text: string): ProcessId | undefined {
  const [pid, start] = text.trim().split(' ');
  return start === undefined || !/^\d+$/.test(pid ?? '') ? undefined : { pid: Number(pid), start };
}

/** Takes the lock by linking a finished file to its name, so that nobody ever reads half a lock. */
function tryLock(path: string, text: string): boolean {
  const mine = `${path}.${randomName()}`;
  writeFileSync(mine, text);
  try {
    linkSync(mine, path);
    return true;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'EEXIST') throw thrown;
    return false;
  } finally {
    unlinkSync(mine);
  }
}

/** Moves a dead holder's lock away. When another waiter did so first and a live lock was caught, it is put back. */
function removeStale(path: string, stale: string): void {
  const aside = `${path}.${randomName()}`;
  try {
    renameSync(path, aside);
  } catch {
    return;
  }
  if (readOrNothing(aside) !== stale) {
    try {
      linkSync(aside, path);
    } catch {
      // Someone took the free name; the caught holder releases a lock that is not its own, which is checked there.
    }
  }
  unlinkSync(aside);
}

/** Waits for the lock of a folder and returns its release.
 *  @throws stack_locked after the bound */
export async function lockFolder(folder: string, boundMs: number): Promise<() => void> {
  const path = join(folder, 'lock');
  const self = identify(process.pid);
  const text = `${process.pid} ${self?.start ?? 'unknown'} ${randomName()}\n`;
  const deadline = performance.now() + boundMs;
  while (!tryLock(path, text)) {
    const found = readOrNothing(path);
    if (found === undefined) continue;
    const holder = holderOf(found);
    if (holder === undefined || !isAlive(holder)) {
      removeStale(path, found);
      continue;
    }
    if (performance.now() > deadline) {
      throw stackError(
        'stack_locked',
        `process ${holder.pid} is starting or stopping the stack in ${folder}`,
        {
          next: 'wait for it, or use another folder with -dir',
        },
      );
    }
    await sleep(POLL_MS);
  }
  return () => {
    if (readOrNothing(path) === text) unlinkSync(path);
  };
}
