/** One process a folder: a lock file that names its owner.
 *
 *  The owner is known by its pid and, where the kernel tells, by the moment it started, so that a lock left behind by
 *  a killed process does not hold forever and a pid that was given out again does not count.
 */
import { linkSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import { registryError } from '../errors.ts';

const LOCK_FILE = 'registry.lock';
const ATTEMPTS = 10;

interface Owner {
  readonly pid: number;
  readonly host: string;
  /** Start of the process in kernel ticks; empty where the kernel does not tell. */
  readonly started: string;
}

/** Undefined: no such process. */
function startOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name in parentheses may hold blanks; field 22 counts from behind it.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '';
  } catch {
    try {
      process.kill(pid, 0);
      return '';
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'EPERM' ? '' : undefined;
    }
  }
}

function holds(text: string): boolean {
  let owner: Owner;
  try {
    owner = JSON.parse(text) as Owner;
  } catch {
    return false;
  }
  // A lock of another machine cannot be judged from here.
  if (owner.host !== hostname()) return true;
  const started = startOf(owner.pid);
  return started !== undefined && (started === '' || owner.started === '' || started === owner.started);
}

/** Takes the folder for this process; the result gives it back. @throws store_locked, not_writable */
export function lockDirectory(dir: string): () => void {
  const path = join(dir, LOCK_FILE);
  const mine = JSON.stringify({ pid: process.pid, host: hostname(), started: startOf(process.pid) ?? '' });
  let scratch: string;
  try {
    scratch = mkdtempSync(join(dir, '.lock-'));
  } catch (cause) {
    throw coreError(
      'not_writable',
      `cannot write to the registry store ${dir}: ${(cause as NodeJS.ErrnoException).code ?? cause}`,
      {
        next: 'give -store=file:DIR with a folder that this user may write',
        cause,
      },
    );
  }
  try {
    const prepared = join(scratch, 'mine');
    writeFileSync(prepared, mine);
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      try {
        // The link appears with its whole content or not at all.
        linkSync(prepared, path);
        return () => {
          try {
            if (readFileSync(path, 'utf8') === mine) rmSync(path);
          } catch {
            // Somebody removed it by hand; there is nothing left to give back.
          }
        };
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
      takeAwayStale(path, join(scratch, `stale-${attempt}`), dir);
    }
    throw registryError(
      'store_locked',
      `the registry store ${dir} is being taken by several processes at once`,
      {
        next: 'start one of them again',
      },
    );
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function takeAwayStale(path: string, aside: string, dir: string): void {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    return;
  }
  if (holds(text)) {
    const owner = JSON.parse(text) as Owner;
    throw registryError(
      'store_locked',
      `the registry store ${dir} is in use by process ${owner.pid} on ${owner.host}`,
      {
        next: 'stop that process, or give another -store',
      },
    );
  }
  try {
    renameSync(path, aside);
    // Between the reading and the renaming another process may have taken the folder: its lock goes back.
    if (readFileSync(aside, 'utf8') !== text) linkSync(aside, path);
  } catch {
    // Another process was faster; the next attempt sees its lock.
  }
}
