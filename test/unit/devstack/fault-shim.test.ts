/** The preloaded shim: a full disk and a stepped clock of one process. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { FaultShim, shimCompiler } from '../../../src/devstack/fault-shim.ts';

const dir = realpathSync(mkdtempSync(join(tmpdir(), 'millrace-shim-')));
const inside = join(dir, 'data');
mkdirSync(inside);
const shim = new FaultShim(dir, process.env);
afterAll(() => {
  shim.close();
  rmSync(dir, { recursive: true, force: true });
});
let runs = 0;

/** Runs a script in a process with the shim. @returns what it prints as JSON */
function play(
  script: string,
  command: (control: ReturnType<FaultShim['control']>) => void,
): {
  readonly seen: unknown;
  readonly control: ReturnType<FaultShim['control']>;
} {
  const control = shim.control(`run-${runs++}`, inside);
  command(control);
  const env = { ...process.env, ...control.environment };
  const ran = spawnSync(process.execPath, ['-e', script, inside, dir], { env, encoding: 'utf8' });
  expect(ran.status, ran.stderr).toBe(0);
  return { seen: JSON.parse(ran.stdout), control };
}

const WRITES = `
const fs = require('node:fs');
const [, inside, outside] = process.argv;
const code = (work) => { try { work(); return 'done'; } catch (error) { return error.code; } };
const old = inside + '/old';
const fd = fs.openSync(old, fs.existsSync(old) ? 'r+' : 'w+');
if (process.env.FIRST) fs.writeSync(fd, 'abcdef', 0);
console.log(JSON.stringify({
  within: code(() => fs.writeSync(fd, 'XY', 1)),
  beyond: code(() => fs.writeSync(fd, 'XY', 5)),
  appended: code(() => fs.appendFileSync(old, 'Z')),
  vector: code(() => fs.writevSync(fd, [Buffer.from('1'), Buffer.from('2')], 6)),
  created: code(() => fs.writeFileSync(inside + '/new', 'x')),
  outside: code(() => fs.writeFileSync(outside + '/other', 'x')),
}));`;

describe('full disk', () => {
  it('files of the folder cannot grow, and every other write succeeds', () => {
    process.env['FIRST'] = 'yes';
    const free = play(WRITES, () => {});
    delete process.env['FIRST'];
    const done = {
      within: 'done',
      beyond: 'done',
      appended: 'done',
      vector: 'done',
      created: 'done',
      outside: 'done',
    };
    expect(free.seen).toEqual(done);
    expect(free.control.refused).toBe(0);
    rmSync(join(inside, 'new'));
    const before = readFileSync(join(inside, 'old'), 'latin1');
    const full = play(
      WRITES.replaceAll(', 5)', `, ${before.length})`).replaceAll('], 6)', `], ${before.length})`),
      (control) => control.setFull(true),
    );
    const refused = { beyond: 'ENOSPC', appended: 'ENOSPC', vector: 'ENOSPC', created: 'ENOSPC' };
    expect(full.seen).toEqual({ ...done, ...refused });
    expect(full.control.refused).toBe(4);
    expect(readFileSync(join(inside, 'old'), 'latin1')).toBe(before);
    expect(readFileSync(join(inside, 'new'), 'latin1')).toBe('');
  });

  it('a disk that was full accepts writes again, in the same process', () => {
    const script = `
const fs = require('node:fs');
const { spawnSync } = require('node:child_process');
const path = process.argv[1] + '/again';
let first = 'done';
try { fs.writeFileSync(path, 'x'); } catch (error) { first = error.code; }
const page = fs.openSync(process.env.MILLRACE_CHAOS_CONTROL, 'r+');
fs.writeSync(page, Buffer.alloc(4), 0, 4, 0);
fs.writeFileSync(path, 'x');
console.log(JSON.stringify([first, fs.readFileSync(path, 'utf8')]));`;
    const { seen } = play(script, (control) => control.setFull(true));
    expect(seen).toEqual(['ENOSPC', 'x']);
  });
});

describe('stepped clock', () => {
  // The kernel dates a new file by its own clock.
  const TIMES = `
const fs = require('node:fs');
const path = process.argv[1] + '/dated';
fs.writeFileSync(path, 'x');
const aheadMs = new Date().getTime() - fs.statSync(path).mtimeMs;
console.log(JSON.stringify({ aheadMs, uptimeMs: process.uptime() * 1000 }));`;

  it.each([-240_000, 240_000])('a step by %i ms moves the time of day, and monotonic time stays', (ms) => {
    const { seen, control } = play(TIMES, (one) => one.stepClock(ms));
    const { aheadMs, uptimeMs } = seen as { aheadMs: number; uptimeMs: number };
    expect(Math.abs(aheadMs - ms)).toBeLessThan(60_000);
    expect(uptimeMs).toBeGreaterThan(0);
    expect(uptimeMs).toBeLessThan(200_000);
    expect(control.clockReads).toBeGreaterThan(0);
  });

  it('a wait until a stepped time lasts as long as without the step', () => {
    // The condition variable of Python waits by the time of day or by monotonic time.
    const control = shim.control('wait');
    control.stepClock(240_000);
    const script = `
import ctypes, time, os
libc = ctypes.CDLL(None)
class Spec(ctypes.Structure):
    _fields_ = [('s', ctypes.c_long), ('ns', ctypes.c_long)]
now = Spec()
libc.clock_gettime(0, ctypes.byref(now))
until = Spec(now.s + 1, now.ns)
sem = ctypes.create_string_buffer(64)
libc.sem_init(sem, 0, 0)
start = time.monotonic()
libc.sem_timedwait(sem, ctypes.byref(until))
mutex, cond = ctypes.create_string_buffer(128), ctypes.create_string_buffer(128)
libc.pthread_mutex_lock(mutex)
libc.clock_gettime(0, ctypes.byref(now))
libc.pthread_cond_timedwait(cond, mutex, ctypes.byref(Spec(now.s + 1, now.ns)))
mutex, cond = ctypes.create_string_buffer(128), ctypes.create_string_buffer(128)
libc.cnd_init(cond)
libc.mtx_init(mutex, 2)
libc.mtx_lock(mutex)
libc.timespec_get(ctypes.byref(now), 1)
libc.cnd_timedwait(cond, mutex, ctypes.byref(Spec(now.s + 1, now.ns)))
libc.mtx_unlock(mutex)
def hold(held):
    libc.mtx_lock(mutex)
    held.set()
    time.sleep(3)
import threading
held = threading.Event()
threading.Thread(target=hold, args=(held,), daemon=True).start()
while not held.is_set(): pass
libc.timespec_get(ctypes.byref(now), 1)
libc.mtx_timedlock(mutex, ctypes.byref(Spec(now.s + 1, now.ns)))
print(time.monotonic() - start)`;
    const env = { ...process.env, ...control.environment };
    const ran = spawnSync('python3', ['-c', script], { env, encoding: 'utf8', timeout: 120_000 });
    expect(ran.status, ran.stderr).toBe(0);
    expect(Number(ran.stdout)).toBeGreaterThanOrEqual(3.8);
  });
});

it('a machine without a compiler is told what to install', () => {
  const none = { ...process.env, CC: undefined, PATH: dir };
  const before = process.env['PATH'];
  process.env['PATH'] = dir;
  try {
    expect(shimCompiler(none)).toBeUndefined();
    expect(() => new FaultShim(dir, none)).toThrow(/need Linux and a C compiler/);
  } finally {
    process.env['PATH'] = before;
  }
});

it('the shim compiles without a warning', () => {
  const compiler = shimCompiler(process.env) as string;
  const source = join(import.meta.dirname, '../../../native/chaos/fault_shim.c');
  const flags = ['-Wall', '-Wextra', '-Werror', '-O2', '-fPIC', '-shared', '-o', join(dir, 'strict.so')];
  const built = spawnSync(compiler, [...flags, source, '-ldl', '-pthread'], { encoding: 'utf8' });
  expect(built.stderr).toBe('');
  expect(built.status).toBe(0);
});
