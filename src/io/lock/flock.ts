/** Folder locks by flock(2) on the file `lock` in the folder.
 *
 *  A lock of flock(2) belongs to the open file description. The addon acquires it by a system call.
 *  Without the addon a child process `flock -n FD` acquires it: the child inherits the descriptor,
 *  so it locks this process's own open file description, and ends. In both cases only this process
 *  holds the description afterwards. Node opens files close-on-exec, so a child that outlives this
 *  process does not keep the lock.
 *
 *  The lock file is never removed: a process that opened it just before would lock a file that no
 *  later process sees. Its content (pid and host of the owner) is only used in messages.
 */
import { spawn } from 'node:child_process';
import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  statSync,
  writeSync,
} from 'node:fs';
import { hostname, constants as os } from 'node:os';
import { join } from 'node:path';
import { getSystemErrorName } from 'node:util';
import { buildCommand, loadAddon, type NativeMode } from '../../addon/load.ts';
import { coreError } from '../../core/errors.ts';
import type { FolderLock, LockDriver, LockOutcome } from './port.ts';

const LOCK_FILE = 'lock';
/** Most bytes of a lock file, or of the error output of flock(1), that are read. */
const HOLDER_BYTES_MAX = 1024;
/** Attempts when the lock file is replaced meanwhile, which happens only by hand or with its
 *  folder. */
const ATTEMPTS_MAX = 10;
/** Exit code of flock(1) when another process holds the lock. Errors of flock(1) have other codes
 *  or an error output. */
const FLOCK_BUSY = 1;

/** Acquires the lock of an open file without waiting. @returns false when another open file
 *  description holds it
 *  @throws lock_unavailable */
type AcquireLock = (fd: number, path: string) => Promise<boolean>;

function unavailable(path: string, why: string, next: string): Error {
  return coreError('lock_unavailable', `cannot lock ${path}: ${why}`, { next });
}

const LOCAL_FOLDER = 'use a folder on a file system that supports flock(2)';

const lockByAddon: AcquireLock = async (fd, path) => {
  const errno = loadAddon().tryLockFile(fd);
  if (errno === 0) return true;
  if (errno === os.errno.EWOULDBLOCK) return false;
  throw unavailable(path, getSystemErrorName(-errno), LOCAL_FOLDER);
};

/** @param program flock(1) of util-linux or BusyBox */
function lockByCommand(program: string): AcquireLock {
  return (fd, path) =>
    new Promise((resolve, reject) => {
      // Descriptor 3 of the child is this process's open file description.
      const child = spawn(program, ['-n', '-x', '3'], { stdio: ['ignore', 'ignore', 'pipe', fd] });
      let errorOutput = '';
      child.stderr?.setEncoding('utf8').on('data', (text: string) => {
        if (errorOutput.length < HOLDER_BYTES_MAX) errorOutput += text;
      });
      child.once('error', (thrown: NodeJS.ErrnoException) => {
        const why = `the program ${program} does not start: ${thrown.code ?? thrown.message}`;
        reject(unavailable(path, why, `install util-linux, or build the addon: ${buildCommand()}`));
      });
      child.once('close', (code, signal) => {
        if (code === 0) resolve(true);
        else if (code === FLOCK_BUSY && errorOutput === '') resolve(false);
        else
          reject(
            unavailable(path, `${program} ended with ${code ?? signal}: ${errorOutput.trim()}`, LOCAL_FOLDER),
          );
      });
    });
}

/** Describes the owner by the content of the lock file, which is bounded and not trusted. */
function holderOf(fd: number): string {
  const bytes = Buffer.alloc(HOLDER_BYTES_MAX);
  try {
    const text = bytes.toString('utf8', 0, readSync(fd, bytes, 0, bytes.length, 0));
    const { pid, host } = JSON.parse(text) as { readonly pid?: unknown; readonly host?: unknown };
    if (Number.isSafeInteger(pid) && typeof host === 'string' && /^[\w.-]{1,253}$/.test(host))
      return `process ${pid as number} on ${host}`;
  } catch {
    // The owner has not written the file yet, or an earlier version wrote it.
  }
  return 'another process';
}

/** True when the path still names the open file. */
function isNamed(fd: number, path: string): boolean {
  const open = fstatSync(fd);
  const named = statSync(path, { throwIfNoEntry: false });
  return named?.ino === open.ino && named.dev === open.dev;
}

function owned(fd: number): FolderLock {
  try {
    ftruncateSync(fd, 0);
    writeSync(fd, `${JSON.stringify({ pid: process.pid, host: hostname() })}\n`, 0);
  } catch {
    // Without the content, as on a full disk, messages of other processes do not name this owner;
    // the lock is held.
  }
  let isHeld = true;
  return {
    release() {
      if (!isHeld) return;
      isHeld = false;
      try {
        ftruncateSync(fd, 0);
      } finally {
        closeSync(fd);
      }
    },
  };
}

function openLockFile(path: string): number {
  try {
    return openSync(path, constants.O_RDWR | constants.O_CREAT, 0o644);
  } catch (thrown) {
    throw coreError(
      'not_writable',
      `cannot open ${path}: ${(thrown as NodeJS.ErrnoException).code ?? thrown}`,
      {
        next: 'check the folder and its owner',
        cause: thrown,
      },
    );
  }
}

class FlockDriver implements LockDriver {
  private readonly acquire: AcquireLock;

  constructor(acquire: AcquireLock) {
    this.acquire = acquire;
  }

  async tryLock(folder: string): Promise<LockOutcome> {
    const path = join(folder, LOCK_FILE);
    for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
      const fd = openLockFile(path);
      let isKept = false;
      try {
        if (!(await this.acquire(fd, path))) return { holder: holderOf(fd) };
        // False when the folder was removed and made again after the file was opened.
        isKept = isNamed(fd, path);
        if (isKept) return { lock: owned(fd) };
      } finally {
        if (!isKept) closeSync(fd);
      }
    }
    return { holder: 'several processes that remove and make the folder' };
  }
}

/** Locks through the addon, or through flock(1).
 *  @param program path of flock(1) when PATH does not contain it under its name */
export function flockDriver(mode: NativeMode, program = 'flock'): LockDriver {
  return new FlockDriver(mode === 'native' ? lockByAddon : lockByCommand(program));
}
