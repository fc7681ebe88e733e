/** The launcher and the shell as real processes: pipes, signals, exit codes. Needs the compiled
 *  project. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { appendFileSync, closeSync, cpSync, mkdtempSync, openSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { packageRoot, packageVersion } from '../../../src/shell/package.ts';
import { until } from '../../wait.ts';

const VERSION_LINE = new RegExp(`^${packageVersion()} build [0-9a-f]{16}\\n$`);
const LAUNCHER = join(packageRoot(), 'bin', 'millrace');
const PROBE = join(packageRoot(), 'test', 'unit', 'shell', 'fixtures', 'probe.mjs');

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

function probe(...args: readonly string[]) {
  const child = spawn(process.execPath, [PROBE, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    err += chunk.toString();
  });
  const ended = new Promise<{ code: number | null; signal: string | null }>((resolve) => {
    child.on('close', (code, signal) => resolve({ code, signal }));
  });
  const listening = (): Promise<unknown> =>
    expect.poll(() => err, { timeout: 60_000 }).toContain('listening on http://127.0.0.1:');
  return { child, ended, listening, out: () => out, err: () => err };
}

const millrace = (...args: readonly string[]) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [LAUNCHER, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
};

describe('launcher', () => {
  test('the launcher lists the commands with a sentence each', () => {
    for (const args of [[], ['-help'], ['--help'], ['help']]) {
      const { status, stdout, stderr } = millrace(...args);
      expect([status, stderr]).toEqual([0, '']);
      expect(stdout).toMatch(/^ {2}topic +Create, list and delete topics$/m);
    }
  });

  test('the launcher prints its version and the digest of its code, the same each time', () => {
    const first = millrace('-version');
    expect(first).toEqual({ status: 0, stdout: expect.stringMatching(VERSION_LINE), stderr: '' });
    expect(millrace('version')).toEqual(first);
  });

  test('the version command prints another digest if one line of the running code differs', () => {
    const root = mkdtempSync(join(tmpdir(), 'millrace-digest-'));
    for (const part of ['bin', join('dist', 'src'), 'native', 'package.json'])
      cpSync(join(packageRoot(), part), join(root, part), { recursive: true });
    symlinkSync(join(packageRoot(), 'node_modules'), join(root, 'node_modules'));
    const version = (): string =>
      spawnSync(process.execPath, [join(root, 'bin', 'millrace'), 'version'], { encoding: 'utf8' }).stdout;
    const same = version();
    appendFileSync(join(root, 'dist', 'src', 'bin', 'down.js'), '// changed\n');
    const other = version();
    rmSync(root, { recursive: true });
    expect(same).toBe(millrace('version').stdout);
    expect(other).toMatch(VERSION_LINE);
    expect(other).not.toBe(same);
  });

  test('an unknown command exits with 2 and names the nearest, also for names of object properties', () => {
    expect(millrace('topc')).toEqual({
      status: 2,
      stdout: '',
      stderr: 'error: unknown command "topc"; did you mean topic? (millrace -help lists all) [usage]\n',
    });
    for (const name of ['constructor', '__proto__', '-unknown']) expect(millrace(name).status).toBe(2);
  });

  test('usage errors of a command are one line and exit code 2', () => {
    for (const args of [
      ['topic', 'make', '-brokers=a:1'],
      ['topic', 'list'],
      ['topic', 'create', '-brokers=a:1'],
      ['topic', 'create', '-brokers=a:1', '-topic=a b'],
      ['topic', 'create', '-brokers=a:1', '-topic=a', '-config-entry=x'],
    ]) {
      const { status, stderr } = millrace(...args);
      expect([args, status, stderr.trim().split('\n').length]).toEqual([args, 2, 1]);
    }
  });

  test('an unreachable broker gives exit code 3 within seconds', () => {
    const { status, stdout, stderr } = millrace(
      'topic',
      'list',
      '-brokers=127.0.0.1:1',
      '-timeout=1s',
      '-native=off',
      '-json',
    );
    expect(status).toBe(3);
    expect(stderr).toContain('127.0.0.1:1');
    expect(JSON.parse(stdout)).toMatchObject({ error: { kind: 'unavailable' } });
  });

  test.each([
    ['a clone', ['tsconfig.json'], /; run \/.*bin\/bootstrap$/],
    [
      'an installed package',
      [],
      /; in a clone of Millrace run bin\/bootstrap and then npm pack, and install/,
    ],
  ])('the launcher of %s without a build states what to run', (_, files, next) => {
    const root = mkdtempSync(join(tmpdir(), 'millrace-launcher-'));
    for (const file of ['bin/millrace', 'package.json', ...files])
      cpSync(join(packageRoot(), file), join(root, file));
    const { status, stderr } = spawnSync(process.execPath, [join(root, 'bin', 'millrace')], {
      encoding: 'utf8',
    });
    rmSync(root, { recursive: true });
    expect(status).toBe(2);
    expect(stderr).toMatch(
      /^error: millrace is not built yet \(.*dist\/src\/bin\/main\.js is missing\); .*\n$/,
    );
    expect(stderr.trim()).toMatch(next);
  });
});

describe('command process', () => {
  test('SIGTERM during work lets the work in flight finish, and the process exits with 0', async () => {
    const { child, ended, listening, out } = probe('-mode=work');
    await listening();
    child.kill('SIGTERM');
    expect(await ended).toEqual({ code: 0, signal: null });
    expect(out()).toBe('finished\n');
  });

  test('a single SIGINT lets the work in flight finish, and the process exits with 130', async () => {
    const { child, ended, listening, out } = probe('-mode=work');
    await listening();
    child.kill('SIGINT');
    expect(await ended).toEqual({ code: 130, signal: null });
    expect(out()).toBe('finished\n');
  });

  test('SIGINT twice ends a process that hangs', async () => {
    const { child, ended, listening, err } = probe('-mode=hang');
    await listening();
    child.kill('SIGINT');
    await expect.poll(err).toContain('"drain"');
    child.kill('SIGINT');
    expect(await ended).toEqual({ code: 130, signal: null });
  });

  test('a wait that can never end gives exit code 70 and one line', async () => {
    const { ended, out, err } = probe('-mode=stall');
    expect(await ended).toEqual({ code: 70, signal: null });
    expect([out(), err()]).toEqual([
      '',
      'error: probe: the event loop drained before the command finished; this is a bug of millrace [internal]\n',
    ]);
  });

  test('a drain longer than -drain-timeout gives exit code 70', async () => {
    const { child, ended, listening, err } = probe('-mode=hang', '-drain-timeout=50ms');
    await listening();
    child.kill('SIGTERM');
    expect(await ended).toEqual({ code: 70, signal: null });
    expect(err()).toContain('error: work in flight did not finish within 50 ms of SIGTERM');
  });

  test('a closed reader of stdout ends the process with 0 and no message', async () => {
    const { child, ended, err } = probe('-mode=flood', '-log-level=error');
    await new Promise((resolve) => child.stdout.once('data', resolve));
    child.stdout.destroy();
    expect(await ended).toEqual({ code: 0, signal: null });
    expect(err()).not.toContain('error');
  });

  test('a full disk under stdout is reported in one line', () => {
    const full = openSync('/dev/full', 'w');
    try {
      const { status, stderr } = spawnSync(process.execPath, [LAUNCHER, 'help'], {
        stdio: ['ignore', full, 'pipe'],
        encoding: 'utf8',
      });
      expect([status, stderr]).toEqual([
        2,
        'error: cannot write stdout: ENOSPC; free space there, or send the output elsewhere [not_writable]\n',
      ]);
    } finally {
      closeSync(full);
    }
  });

  test('all of stdout is written before the process exits', async () => {
    const { child, ended, out } = probe('-mode=large');
    child.stdout.pause();
    await until('output that is not read', () => child.stdout.readableLength > 0);
    child.stdout.resume();
    expect((await ended).code).toBe(1);
    expect(out().length).toBe(1_000_001 + 4);
  });

  test.each([
    ['late', 'out of the blue'],
    ['reject', 'no handler waited'],
  ])('an uncaught error (%s) gives one line and exit code 70', async (mode, message) => {
    const { ended, err } = probe(`-mode=${mode}`, '-log-level=silent');
    expect((await ended).code).toBe(70);
    expect(err()).toMatch(new RegExp(`^listening on \\S+\\nerror: ${message}; this is a bug[^\\n]*\\n$`));
  });
});
