/** tools/stall stops processes of a suite, and records each run with its seed and its build. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { arrival, until } from '../wait.ts';
import { projectRoot } from './root.ts';

interface Document {
  readonly command: string;
  readonly suite: string;
  readonly sources: string;
  readonly runs: ReadonlyArray<{
    readonly seed: number;
    readonly passed: number;
    readonly failed: number;
    readonly exit: number;
    readonly build: string | null;
    readonly stops: number;
  }>;
}

const folder = mkdtempSync(join(tmpdir(), 'millrace-stall-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const suite = [process.execPath, join(projectRoot, 'test/repository/fixtures/stalled.mjs')];

function start(file: string, flags: readonly string[], command: readonly string[]): ChildProcess {
  const out = relative(projectRoot, join(folder, file));
  const tool = join(projectRoot, 'tools/stall');
  return spawn(tool, ['-busy=0', `-out=${out}`, ...flags, '--', ...command], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

async function run(
  file: string,
  flags: readonly string[],
  command: readonly string[],
): Promise<{ readonly code: number | null; readonly text: string }> {
  const tool = start(file, flags, command);
  let text = '';
  tool.stdout?.on('data', (chunk) => {
    text += chunk;
  });
  tool.stderr?.on('data', (chunk) => {
    text += chunk;
  });
  const closed = new Promise<number | null>((resolve) => tool.on('close', resolve));
  return { code: await arrival('end of tools/stall', closed, () => text), text };
}

const documentOf = (file: string): Document => JSON.parse(readFileSync(join(folder, file), 'utf8'));
const isAlive = (pid: number): boolean => {
  const stat = `/proc/${pid}/stat`;
  return existsSync(stat) && !/\) Z /.test(readFileSync(stat, 'latin1'));
};

describe('tools/stall', () => {
  it('each seed stops and continues processes, and its run is recorded with the build that it tested', async () => {
    const { code, text } = await run('passes.json', ['-seeds=4,2'], [...suite, '0']);
    expect(text).toContain('2 of 2 seeds without a failure');
    expect(code).toBe(0);
    const version = spawnSync(join(projectRoot, 'bin/millrace'), ['version'], { encoding: 'utf8' }).stdout;
    const { command, runs, sources } = documentOf('passes.json');
    expect(command).toBe('tools/stall -seeds=4,2');
    expect(sources).toMatch(/^[0-9a-f]{16}$/);
    expect(runs.map(({ seed }) => seed)).toEqual([2, 4]);
    for (const one of runs) {
      expect(one).toMatchObject({ passed: 7, failed: 0, exit: 0 });
      expect(one.stops).toBeGreaterThan(0);
      expect(version.trim()).toMatch(new RegExp(` build ${one.build}$`));
    }
  });

  it('a failed run and a run without a closing line fail the series', async () => {
    const failing = await run('fails.json', ['-seeds=1-1'], [...suite, '3']);
    expect(failing.text).toContain('0 of 1 seeds without a failure');
    expect(failing.code).toBe(1);
    expect(documentOf('fails.json').runs).toMatchObject([{ passed: 7, failed: 3, exit: 1 }]);
    const silent = await run('silent.json', ['-seeds=1'], [process.execPath, '-e', '']);
    expect(silent.code).toBe(1);
    expect(documentOf('silent.json').runs).toMatchObject([{ passed: 0, failed: 1, exit: 0 }]);
  });

  it('a resumed series skips the seeds of the same sources, and repeats those of other sources', async () => {
    const silent = [process.execPath, '-e', 'console.log("1 passed, 0 failed")'];
    await run('resumed.json', ['-seeds=1-2'], silent);
    const second = await run('resumed.json', ['-seeds=1-3', '-resume'], silent);
    expect(second.text.match(/stall: seed \d/g)).toEqual(['stall: seed 3']);
    expect(documentOf('resumed.json').runs.map(({ seed }) => seed)).toEqual([1, 2, 3]);
    const other = { ...documentOf('resumed.json'), sources: 'of another tree' };
    writeFileSync(join(folder, 'resumed.json'), JSON.stringify(other));
    const third = await run('resumed.json', ['-seeds=3', '-resume'], silent);
    expect(third.text.match(/stall: seed \d/g)).toEqual(['stall: seed 3']);
    expect(documentOf('resumed.json').runs.map(({ seed }) => seed)).toEqual([3]);
  });

  it('a series that is ended early leaves no process of its run', async () => {
    const pids = join(folder, 'pids');
    const tool = start('ended.json', ['-seeds=1'], [...suite, 'endless', pids]);
    const closed = new Promise<number | null>((resolve) => tool.on('close', resolve));
    const pid = await until('a process of the run', () => Number(readFileSync(pids, 'utf8')) || undefined);
    expect(isAlive(pid)).toBe(true);
    tool.kill('SIGTERM');
    expect(await arrival('end of tools/stall', closed, () => pid)).toBe(143);
    await until('the end of the process', () => !isAlive(pid));
  });

  it.each([
    ['-seeds=x', 'is neither a range nor a list of whole numbers'],
    ['-seeds=', 'is neither a range nor a list of whole numbers'],
    ['-busy=many', 'unknown option -busy=many'],
  ])('a wrong option is refused: %s', async (flag, why) => {
    const { code, text } = await run('wrong.json', [flag], suite);
    expect(text).toContain(why);
    expect(code).toBe(2);
  });
});
