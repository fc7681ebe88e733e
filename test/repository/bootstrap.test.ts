/** bin/bootstrap on a fresh clone compiles with all cores while it downloads, and shows progress.
 *  Programs that only write a trace stand for npm, make and the compilers; each of the two that
 *  must overlap waits for the other. */
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { projectRoot } from './root.ts';

const FIXTURES = join(projectRoot, 'test/repository/fixtures/bootstrap');

let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'millrace-bootstrap-'));
  for (const folder of ['bin', 'src', 'bench', 'tools', 'native', 'trace']) mkdirSync(join(root, folder));
  copyFileSync(join(projectRoot, 'bin/bootstrap'), join(root, 'bin/bootstrap'));
  for (const file of ['package-lock.json', 'tsconfig.json', 'binding.gyp'])
    writeFileSync(join(root, file), '{}');
});
afterEach(() => {
  rmSync(root, { recursive: true, force: true });
});

/** Runs the set-up; its output is in the file that the fake compiler reads. */
function setUp(env: NodeJS.ProcessEnv = {}): {
  readonly status: number | null;
  readonly steps: readonly string[];
  readonly output: string;
} {
  const trace = join(root, 'trace');
  writeFileSync(join(trace, 'steps'), '');
  const output = openSync(join(trace, 'output'), 'w');
  const { status } = spawnSync('bash', [join(root, 'bin/bootstrap')], {
    cwd: root,
    stdio: ['ignore', output, output],
    env: { ...process.env, ...env, PATH: `${FIXTURES}:${process.env.PATH}`, TRACE: trace, FIXTURES },
  });
  const lines = readFileSync(join(trace, 'steps'), 'utf8').trim();
  return { status, steps: lines.split('\n'), output: readFileSync(join(trace, 'output'), 'utf8') };
}

describe('bin/bootstrap', () => {
  it('the set-up of an installed package is refused with one line, and writes nothing', () => {
    rmSync(join(root, 'package-lock.json'));
    const { status, output } = setUp();
    expect(status).toBe(2);
    expect(output).toBe(
      `bootstrap: ${root} is an installed package, and only a clone is set up; docs/how-to/install.md in it names what a machine needs\n`,
    );
    expect(existsSync(join(root, '.millrace'))).toBe(false);
  });

  it('the set-up compiles with all cores while it downloads, shows progress, and is done once', () => {
    const cores = cpus().length;
    const first = setUp();
    expect(first).toMatchObject({ status: 0 });
    expect(first.steps).toEqual(
      expect.arrayContaining([
        `make -j${cores} libs`,
        `node-gyp node-rdkafka JOBS=${cores}`,
        `node-gyp libpq JOBS=${cores}`,
        `addons JOBS=${cores}`,
        'jars',
      ]),
    );
    expect(setUp()).toMatchObject({ status: 0, steps: ['jars'] });
  });

  it('the number of jobs can be set', () => {
    const { status, steps } = setUp({ MILLRACE_JOBS: '3' });
    expect(status).toBe(0);
    expect(steps).toEqual(
      expect.arrayContaining(['make -j3 libs', 'node-gyp libpq JOBS=3', 'addons JOBS=3']),
    );
  });
});
