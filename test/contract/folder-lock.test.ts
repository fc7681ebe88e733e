/** Contract of the lock port over its drivers: flock(2) through the addon, and the flock(1)
 *  program. The processes run the compiled code. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import type { NativeMode } from '../../src/addon/load.ts';
import { identify, isAlive } from '../../src/devstack/process.ts';
import { flockDriver } from '../../src/io/lock/flock.ts';
import type { FolderLock, LockOutcome } from '../../src/io/lock/port.ts';
import { projectRoot } from '../repository/root.ts';

const root = mkdtempSync(join(tmpdir(), 'millrace-lock-'));
const started: ChildProcess[] = [];
const children: number[] = [];
afterAll(() => {
  for (const child of started) child.kill('SIGKILL');
  for (const pid of children) process.kill(pid, 'SIGKILL');
  rmSync(root, { recursive: true, force: true });
});
const folder = (): string => mkdtempSync(join(root, 'f-'));

const MODES: readonly NativeMode[] = ['native', 'reference'];
const OTHER: Readonly<Record<NativeMode, NativeMode>> = { native: 'reference', reference: 'native' };

/** Command prefix for a separate PID namespace with the same host name. Where the machine forbids
 *  namespaces it is a plain process; the test of a lock file that names no living process covers
 *  the same decision. */
const namespaced: readonly string[] = (() => {
  const user = process.getuid?.() === 0 ? [] : ['--map-root-user'];
  const prefix = ['unshare', ...user, '--pid', '--fork', '--kill-child', '--mount-proc'];
  const probe = spawnSync(prefix[0] as string, [...prefix.slice(1), 'true']);
  return probe.status === 0 ? prefix : [];
})();

const worker = fileURLToPath(new URL('./folder-lock.worker.mjs', import.meta.url));

/** Starts a process that locks the folder; resolves to its report. */
async function lockElsewhere(
  mode: NativeMode,
  at: string,
  prefix: readonly string[] = [],
): Promise<{ readonly report: string; readonly child: ChildProcess }> {
  const [program, ...args] = [...prefix, process.execPath, worker, join(projectRoot, 'dist'), mode, at];
  const child = spawn(program as string, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  started.push(child);
  const [report] = (await once(
    createInterface({ input: child.stdout as NodeJS.ReadableStream }),
    'line',
  )) as [string];
  const grandchild = /^locked \d+ (\d+)$/.exec(report)?.[1];
  if (grandchild !== undefined && prefix.length === 0) children.push(Number(grandchild));
  return { report, child };
}

function held(outcome: LockOutcome): FolderLock {
  if ('holder' in outcome) throw new Error(`the folder is locked by ${outcome.holder}`);
  return outcome.lock;
}

describe.each(MODES)('folder lock of mode %s', (mode) => {
  const locks = flockDriver(mode);

  it('a held folder lock is refused in the same process and to the other driver, and free after its release', async () => {
    const at = folder();
    const lock = held(await locks.tryLock(at));
    const holder = `process ${process.pid} on ${hostname()}`;
    expect(await locks.tryLock(at)).toEqual({ holder });
    expect(await flockDriver(OTHER[mode]).tryLock(at)).toEqual({ holder });
    lock.release();
    lock.release();
    expect(readFileSync(join(at, 'lock'), 'utf8')).toBe('');
    held(await locks.tryLock(at)).release();
  });

  it('a held folder lock is refused to a process of another PID namespace with the same host name', async () => {
    const at = folder();
    const lock = held(await locks.tryLock(at));
    const { report, child } = await lockElsewhere(mode, at, namespaced);
    expect(report).toBe(`refused: process ${process.pid} on ${hostname()}`);
    await once(child, 'close');
    lock.release();
  });

  it('a held folder lock is refused although the lock file names no living process', async () => {
    const at = folder();
    const lock = held(await locks.tryLock(at));
    writeFileSync(join(at, 'lock'), JSON.stringify({ pid: 2 ** 22 + 1, host: hostname(), start: '1' }));
    expect(await locks.tryLock(at)).toHaveProperty('holder');
    lock.release();
  });

  it('a folder lock is free as soon as its process is killed, although a child of that process still runs', async () => {
    const at = folder();
    const { report, child } = await lockElsewhere(mode, at);
    expect(report).toMatch(/^locked /);
    const ended = once(child, 'exit');
    expect(await locks.tryLock(at)).toEqual({ holder: `process ${child.pid} on ${hostname()}` });
    child.kill('SIGKILL');
    await ended;
    held(await locks.tryLock(at)).release();
    const grandchild = identify(children.at(-1) as number);
    expect(grandchild !== undefined && isAlive(grandchild)).toBe(true);
  });

  it.each([
    ['another host', JSON.stringify({ pid: 1, host: 'another-machine', start: '' })],
    ['an earlier release of the stack', '1 boot/1 abc\n'],
    ['a hostile process', `{"pid":1e9,"host":"${'x'.repeat(5000)}`],
  ])('a folder lock is free if %s left a lock file', async (_who, text) => {
    const at = folder();
    writeFileSync(join(at, 'lock'), text);
    held(await locks.tryLock(at)).release();
  });

  it('a lock file that cannot be opened is an error', async () => {
    const at = folder();
    mkdirSync(join(at, 'lock'));
    await expect(locks.tryLock(at)).rejects.toMatchObject({ code: 'not_writable' });
    await expect(locks.tryLock(join(at, 'missing'))).rejects.toMatchObject({ code: 'not_writable' });
  });
});

describe('folder lock through flock(1)', () => {
  it('a folder lock applies to the file in the folder, although the file was replaced while it was locked', async () => {
    const at = folder();
    const program = join(root, 'late-flock');
    const first = join(root, 'first');
    writeFileSync(program, `#!/bin/sh\n[ -e ${first} ] || rm ${at}/lock\ntouch ${first}\nexec flock "$@"\n`);
    chmodSync(program, 0o755);
    const lock = held(await flockDriver('reference', program).tryLock(at));
    expect(await flockDriver('reference').tryLock(at)).toHaveProperty('holder');
    lock.release();
  });

  it('a missing flock program is an error that names the program', async () => {
    const program = join(root, 'no-flock');
    await expect(flockDriver('reference', program).tryLock(folder())).rejects.toMatchObject({
      code: 'lock_unavailable',
      message: expect.stringContaining(`the program ${program} does not start: ENOENT`),
      next: expect.stringContaining('util-linux'),
      row: { exit: 3 },
    });
  });

  it('a flock program that fails for another reason than a held lock is an error', async () => {
    const program = join(root, 'broken-flock');
    writeFileSync(program, '#!/bin/sh\necho "flock: 3: No locks available" >&2\nexit 1\n');
    chmodSync(program, 0o755);
    await expect(flockDriver('reference', program).tryLock(folder())).rejects.toMatchObject({
      code: 'lock_unavailable',
      message: expect.stringContaining('No locks available'),
    });
  });
});
