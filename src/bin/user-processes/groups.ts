/** Processes of a user, each with a process group of its own, so that a wrapper such as
 *  `npm start` ends with what it started.
 *
 *  Invariants: (1) an ended instance leaves no process of its group; (2) when this process ends,
 *  however it ends, a guard kills the groups that are left; (3) only processes started here are
 *  ever signalled. */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { sleep, type Timers } from '../../core/clock.ts';
import { deathSignalWords } from '../../devstack/guard.ts';

const POLL_MS = 50;
/** Time until a killed group is gone, in ms. A zombie without a parent that reaps it stays. */
const GONE_MS_MAX = 5000;
/** Lines of a log that an error quotes, and the characters of each. */
const QUOTED_LINES = 3;
const QUOTED_CHARS = 200;

/** Kills the noted groups when its stdin closes: only this process holds the other end. */
const GUARD_SCRIPT = `
trap : HUP INT TERM PIPE
groups=' '
while read -r verb group; do
  case $verb in
    add) groups="$groups$group " ;;
    drop) groups="\${groups%% $group *} \${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
`;

/** A started process and its group. */
export interface GroupProcess {
  readonly pid: number;
  readonly logPath: string;
  /** Settles when the process itself has ended. */
  readonly ended: Promise<void>;
  /** Ending of the process; undefined while it runs. */
  ending(): string | undefined;
  /** End of the process itself; both are null before it, and where the process did not start. */
  exit(): { readonly code: number | null; readonly signal: string | null };
  /** Sends a signal to the group. @returns false if the group has no process any more */
  signal(signal: NodeJS.Signals): boolean;
  /** Kills what is left of the group and waits until it is gone, GONE_MS_MAX at most. */
  gone(): Promise<void>;
  /** Sends SIGTERM to the group, and SIGKILL to what is left of it after the grace. */
  stop(graceMs: number): Promise<void>;
  kill(): void;
  /** Last lines of stdout and stderr. */
  tail(): string;
}

export class ProcessGroups {
  private readonly dir: string;
  private readonly clock: Timers;
  private readonly prefix = deathSignalWords();
  private readonly guard: ChildProcess;
  private readonly leaders = new Set<number>();
  private count = 0;

  constructor(dir: string, clock: Timers) {
    this.dir = dir;
    this.clock = clock;
    this.guard = spawn('/bin/sh', ['-c', GUARD_SCRIPT, 'millrace-guard'], {
      stdio: ['pipe', 'ignore', 'ignore'],
      // An interrupt of the terminal must not reach it.
      detached: true,
    });
    this.guard.on('error', () => {});
    this.guard.stdin?.on('error', () => {});
    this.guard.unref();
    (this.guard.stdin as unknown as { unref?(): void } | null)?.unref?.();
  }

  /** @param cwd working folder; absent: that of this process */
  start(name: string, words: readonly string[], env: NodeJS.ProcessEnv, cwd?: string): GroupProcess {
    const logPath = join(this.dir, `${String(this.count++).padStart(2, '0')}-${name}.log`);
    const log = openSync(logPath, 'a');
    const [file, ...args] = [...this.prefix, ...words] as [string, ...string[]];
    // Its output goes to a file, which no process of the group holds open like a pipe.
    const child = spawn(file, args, { stdio: ['ignore', log, log], env, detached: true, cwd });
    closeSync(log);
    const pid = child.pid ?? -1;
    let ending: string | undefined;
    let exit: ReturnType<GroupProcess['exit']> = { code: null, signal: null };
    const ended = new Promise<void>((resolve) => {
      const end = (how: string): void => {
        ending ??= how;
        resolve();
      };
      child.once('exit', (code, signal) => {
        exit = { code, signal };
        end(`ended with ${signal ?? `code ${code}`}`);
      });
      child.once('error', (error: NodeJS.ErrnoException) => end(`does not start (${error.code})`));
    });
    if (pid > 0) {
      this.leaders.add(pid);
      this.guard.stdin?.write(`add ${pid}\n`);
    }
    return {
      pid,
      logPath,
      ended,
      ending: () => ending,
      exit: () => exit,
      signal: (signal) => this.signal(pid, signal),
      gone: () => this.gone(pid),
      stop: (graceMs) => this.stop(pid, graceMs),
      kill: () => this.signal(pid, 'SIGKILL'),
      tail: () => tailOf(logPath),
    };
  }

  /** Stops all groups. */
  async end(graceMs: number): Promise<void> {
    await Promise.all([...this.leaders].map((pid) => this.stop(pid, graceMs)));
    this.guard.stdin?.end();
  }

  /** Kills all groups immediately, for exit handlers, which cannot wait. */
  killNow(): void {
    for (const pid of this.leaders) this.signal(pid, 'SIGKILL');
  }

  private async stop(pid: number, graceMs: number): Promise<void> {
    if (!this.leaders.has(pid)) return;
    const endMs = this.clock.monotonicMs() + graceMs;
    this.signal(pid, 'SIGTERM');
    while (this.signal(pid, 0) && this.clock.monotonicMs() < endMs) await sleep(this.clock, POLL_MS);
    this.signal(pid, 'SIGKILL');
    this.forget(pid);
  }

  private async gone(pid: number): Promise<void> {
    const endMs = this.clock.monotonicMs() + GONE_MS_MAX;
    while (this.signal(pid, 'SIGKILL') && this.clock.monotonicMs() < endMs) await sleep(this.clock, POLL_MS);
    this.forget(pid);
  }

  /** From now on another group may have this id. */
  private forget(pid: number): void {
    if (this.leaders.delete(pid)) this.guard.stdin?.write(`drop ${pid}\n`);
  }

  /** @returns false if the group has no process any more */
  private signal(pid: number, signal: NodeJS.Signals | 0): boolean {
    if (pid <= 0 || !this.leaders.has(pid)) return false;
    try {
      return process.kill(-pid, signal);
    } catch {
      return false;
    }
  }
}

function tailOf(path: string): string {
  const lines = readFileSync(path, 'utf8').trim().split('\n').slice(-QUOTED_LINES);
  return lines.map((line) => line.slice(0, QUOTED_CHARS)).join(' | ');
}
