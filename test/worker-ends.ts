/** Says which test a test process ran when it ended by itself. The runner says only that it ended,
 *  and a crash of native code leaves nothing else. `setup` and `teardown` are called in the process
 *  of the runner. */
import child, { type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Names the folder with a file for each test process: the test that it began last. */
const FOLDER = 'MILLRACE_TEST_RUNNING';

/** Called in a test process as a test begins. */
export function noteTest(name: string): void {
  const folder = process.env[FOLDER];
  if (folder !== undefined) writeFileSync(join(folder, String(process.pid)), name);
}

function lastTest(folder: string, pid: number): string {
  try {
    return readFileSync(join(folder, String(pid)), 'utf8');
  } catch {
    return 'no test yet';
  }
}

const { fork } = child;
const ends: string[] = [];
let running: string | undefined;

export function setup(): void {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-running-'));
  running = folder;
  // Inherited by the test processes.
  process.env[FOLDER] = folder;
  child.fork = (...args: unknown[]): ChildProcess => {
    const worker = (fork as (...all: unknown[]) => ChildProcess)(...args);
    worker.once('exit', (code, signal) => {
      const { pid } = worker;
      // The runner ends a process by SIGTERM.
      if (pid === undefined || code === 0 || signal === 'SIGTERM') return;
      ends.push(`test process ${pid} ended with ${signal ?? `code ${code}`} in ${lastTest(folder, pid)}`);
    });
    return worker;
  };
  syncBuiltinESMExports();
}

export function teardown(): void {
  child.fork = fork;
  syncBuiltinESMExports();
  if (running !== undefined) rmSync(running, { recursive: true, force: true });
  for (const end of ends) process.stderr.write(`${end}\n`);
}
