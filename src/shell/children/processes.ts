/** Starts real Millrace processes with the launcher that users run, and observes them
 *  only from outside.
 *
 *  Invariants: (1) a child never outlives its owner, even on SIGKILL, unless `stay` is set; (2) its
 *  stderr goes to a file, so that an error can quote it; (3) only processes started here are ever
 *  signalled. */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../core/errors.ts';
import { packageRoot } from '../package.ts';
import type { StartedCommand } from './started-command.ts';

const LAUNCHER = join(packageRoot(), 'bin', 'millrace');
const SETPRIV = '/usr/bin/setpriv';
/** Time limit until a process prints its listen address. */
const ADDRESS_TIMEOUT_MS = 60_000;
const POLL_MS = 20;
const LISTENING = /listening on http:\/\/(\S+)/;
/** Number of log lines that an error quotes. */
const QUOTED_LINES = 5;

export interface ProcessesOptions {
  readonly dir: string;
  /** Leave the children running when the owner ends. */
  readonly stay: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
}

export class Processes {
  private readonly options: ProcessesOptions;
  private readonly running = new Map<string, ChildProcess>();
  private count = 0;

  constructor(options: ProcessesOptions) {
    this.options = options;
  }

  /** Starts `bin/millrace ARGS`. @param env further variables of this child */
  spawn(name: string, args: readonly string[], env: ProcessesOptions['env'] = {}): StartedCommand {
    const logPath = join(this.options.dir, `${String(this.count++).padStart(2, '0')}-${name}.log`);
    const log = openSync(logPath, 'a');
    // The kernel kills the child with its owner; without setpriv only the owner's exit handler
    // does.
    const owned = !this.options.stay && existsSync(SETPRIV);
    const command = owned ? SETPRIV : process.execPath;
    const prefix = owned ? ['--pdeathsig', 'KILL', process.execPath] : [];
    const child = spawn(command, [...prefix, LAUNCHER, ...args], {
      stdio: ['ignore', 'pipe', log],
      env: { ...this.options.env, ...env },
      detached: this.options.stay,
    });
    closeSync(log);
    const key = `${name}#${child.pid}`;
    this.running.set(key, child);
    let out = '';
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      out += chunk;
    });
    let over = false;
    const ended = new Promise<{ code: number | null; signal: string | null }>((resolve) => {
      const finish = (code: number | null, signal: string | null): void => {
        over = true;
        this.running.delete(key);
        resolve({ code, signal });
      };
      child.once('close', finish);
      child.once('error', () => finish(null, 'not started'));
    });
    const logText = (): string => readFileSync(logPath, 'utf8');
    return {
      pid: child.pid ?? -1,
      logPath,
      ended,
      stdout: () => out,
      kill: (signal) => {
        if (!over) child.kill(signal);
      },
      address: async () => {
        for (let waited = 0; waited < ADDRESS_TIMEOUT_MS; waited += POLL_MS) {
          const match = LISTENING.exec(logText());
          if (match !== null) return match[1] as string;
          if (over) break;
          await sleep(POLL_MS);
        }
        const tail = logText().trim().split('\n').slice(-QUOTED_LINES).join(' | ');
        throw coreError('unreachable', `${name} did not start: ${tail}`, { next: `see ${logPath}` });
      },
    };
  }

  /** Names and pids of the running processes. */
  alive(): ReadonlyArray<{ readonly name: string; readonly pid: number }> {
    return [...this.running].map(([key, child]) => ({
      name: key.split('#')[0] as string,
      pid: child.pid ?? -1,
    }));
  }

  /** Ends the running processes: SIGTERM, then SIGKILL after the grace. */
  async end(graceMs: number): Promise<void> {
    const children = [...this.running.values()];
    // A stopped process handles no SIGTERM before it is continued.
    for (const child of children) for (const signal of ['SIGTERM', 'SIGCONT'] as const) child.kill(signal);
    const deadline = performance.now() + graceMs;
    while (this.running.size > 0 && performance.now() < deadline) await sleep(POLL_MS);
    for (const child of this.running.values()) child.kill('SIGKILL');
  }

  /** Kills all children immediately, for exit handlers, which cannot wait. */
  killNow(): void {
    if (this.options.stay) return;
    for (const child of this.running.values()) child.kill('SIGKILL');
  }

  /** Lets the owner exit while its children continue to run. */
  release(): void {
    for (const child of this.running.values()) {
      child.unref();
      child.stdout?.destroy();
    }
  }
}
