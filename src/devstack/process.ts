/** Processes by identity: after a crash or a reboot a pid alone may belong to another process.
 *
 *  Invariant: a signal is sent only to a process whose start is the recorded one. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Identity of a process that the stack started. `start` differs for another process with the same
 *  pid, also after a reboot. */
export interface ProcessId {
  readonly pid: number;
  readonly start: string;
}

const POLL_MS = 20;

let bootId: string | undefined;

function linuxStart(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The command name may hold spaces and parentheses; the fields after it do not.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const state = fields[0];
    // The main thread may have exited while other threads still hold files and ports.
    const threads = Number(fields[17]);
    if (state === 'X' || (state === 'Z' && threads <= 1)) return undefined;
    bootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
    return `${bootId}/${fields[19]}`;
  } catch {
    return undefined;
  }
}

function portableStart(pid: number): string | undefined {
  try {
    const line = execFileSync('ps', ['-o', 'stat=,lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim();
    return line === '' || line.startsWith('Z') ? undefined : line.replace(/^\S+\s+/, '');
  } catch {
    return undefined;
  }
}

/** Start identifier of a process; undefined if it does not exist (a zombie counts as ended). */
export function startOf(pid: number): string | undefined {
  return process.platform === 'linux' ? linuxStart(pid) : portableStart(pid);
}

export function identify(pid: number): ProcessId | undefined {
  const start = startOf(pid);
  return start === undefined ? undefined : { pid, start };
}

export function isAlive(id: ProcessId): boolean {
  return startOf(id.pid) === id.start;
}

/** Sends a signal; does nothing if the process has ended. */
export function signalProcess(id: ProcessId, signal: NodeJS.Signals): void {
  if (!isAlive(id)) return;
  try {
    process.kill(id.pid, signal);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'ESRCH') throw thrown;
  }
}

/** Returns true if all processes ended within the bound. */
export async function waitForEnd(ids: readonly ProcessId[], boundMs: number): Promise<boolean> {
  const deadline = performance.now() + boundMs;
  for (;;) {
    if (!ids.some(isAlive)) return true;
    if (performance.now() > deadline) return false;
    await sleep(POLL_MS);
  }
}

/** Working folder of a process, if the system reports it. */
export function folderOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return undefined;
  }
}

/** True if a program exits with 0 for these arguments. */
export function runs(program: string, args: readonly string[]): boolean {
  return spawnSync(program, args, { stdio: 'ignore' }).status === 0;
}
