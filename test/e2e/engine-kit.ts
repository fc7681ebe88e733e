/** Runs the real launcher for the engine's tests and ends what it started. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, afterEach, beforeEach } from 'vitest';
import type { SliceProcess } from '../../src/demo/fact.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { until } from '../wait.ts';

const LAUNCHER = join(packageRoot(), 'bin', 'millrace');
/** Of each log that a failure is told with. */
const TOLD_LINES = 6;
const TOLD_LINE_CHARS = 300;

export interface Launcher {
  /** A folder of this file's own, gone afterwards. */
  readonly dir: string;
  /** Ends names that must be unique on a shared stack. */
  readonly suffix: string;
  spawn(name: string, args: readonly string[]): SliceProcess;
  /** Runs to the end. */
  run(args: readonly string[]): Promise<{
    readonly code: number | null;
    readonly signal: string | null;
    readonly stdout: string;
    readonly stderr: string;
  }>;
}

export function launcher(): Launcher {
  const dir = mkdtempSync(join(tmpdir(), 'engine-e2e-'));
  const living = new Set<SliceProcess>();
  /** Processes of the test that runs, by their logs. */
  const logs = new Set<string>();
  let count = 0;
  const start = (name: string, args: readonly string[]): SliceProcess => {
    mkdirSync(dir, { recursive: true });
    const logPath = join(dir, `${count++}-${name}.log`);
    const child = spawn(process.execPath, [LAUNCHER, ...args], {
      stdio: ['ignore', 'pipe', openSync(logPath, 'a')],
    });
    logs.add(logPath);
    let out = '';
    let over = false;
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      out += chunk;
    });
    const one: SliceProcess = {
      pid: child.pid as number,
      logPath,
      stdout: () => out,
      kill: (signal) => void child.kill(signal),
      ended: new Promise((resolve) =>
        child.once('close', (code, signal) => {
          over = true;
          living.delete(one);
          resolve({ code, signal });
        }),
      ),
      address: async () => {
        const address = (): string | undefined =>
          /listening on http:\/\/(\S+)/.exec(readFileSync(logPath, 'utf8'))?.[1];
        await until(`the address of ${name}, or its end`, () => over || address() !== undefined);
        const found = address();
        if (found === undefined) throw new Error(`${name} did not start: ${readFileSync(logPath, 'utf8')}`);
        return found;
      },
    };
    living.add(one);
    return one;
  };
  beforeEach(() => {
    const alive = new Set([...living].map((one) => one.logPath));
    for (const path of logs) if (!alive.has(path)) logs.delete(path);
  });
  afterEach(({ task }) => {
    for (const error of task.result?.errors ?? []) error.message += [...logs].map(toldOf).join('');
  });
  afterAll(async () => {
    for (const one of living) {
      one.kill('SIGCONT');
      one.kill('SIGKILL');
    }
    await Promise.all([...living].map((one) => one.ended));
    rmSync(dir, { recursive: true, force: true });
  });
  return {
    dir,
    suffix: randomBytes(4).toString('hex'),
    spawn: start,
    run: async (args) => {
      const one = start(args[0] ?? 'none', args);
      const { code, signal } = await one.ended;
      return { code, signal, stdout: one.stdout(), stderr: readFileSync(one.logPath, 'utf8') };
    },
  };
}

/** The last that a process said. */
function toldOf(logPath: string): string {
  if (!existsSync(logPath)) return '';
  const lines = readFileSync(logPath, 'utf8').trimEnd().split('\n').slice(-TOLD_LINES);
  return `\n${basename(logPath)}:\n${lines.map((line) => `  ${line.slice(0, TOLD_LINE_CHARS)}`).join('\n')}`;
}
