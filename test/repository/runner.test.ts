/** The test runner fails skipped, empty and broken runs, as CI does, and ends with a summary
 *  line. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { projectRoot } from './root.ts';

function runnerOn(filter: string): {
  readonly status: number | null;
  readonly lastLine: string;
  readonly all: string;
} {
  const result = spawnSync(
    process.execPath,
    [
      join(projectRoot, 'tools/test.mjs'),
      '-pass=reference',
      '-report=runner-test',
      '--',
      '--config',
      'test/repository/fixtures/vitest.config.ts',
      filter,
    ],
    {
      cwd: projectRoot,
      encoding: 'utf8',
      env: { ...process.env, VITEST: '', VITEST_POOL_ID: '', VITEST_WORKER_ID: '' },
    },
  );
  return {
    status: result.status,
    lastLine: result.stdout.trim().split('\n').at(-1) as string,
    all: result.stderr,
  };
}

describe('tools/test.mjs', () => {
  it('the runner passes a run that passes, names its tier, and ends with the plain line', () => {
    const run = runnerOn('passes.fixture');
    expect(run).toMatchObject({ status: 0, lastLine: '1 passed, 0 failed' });
    expect(run.all).toMatch(/== fast tier, reference pass/);
  });

  it('the runner fails a run that skipped a test', () => {
    const run = runnerOn('skips.fixture');
    expect(run).toMatchObject({ status: 1, lastLine: '1 passed, 1 failed' });
    expect(run.all).toContain('1 tests were skipped');
  });

  it('the runner fails a run without any test', () => {
    const run = runnerOn('no-such-fixture');
    expect(run).toMatchObject({ status: 1, lastLine: '0 passed, 1 failed' });
    expect(run.all).toContain('no test ran');
  });

  it('the runner fails a run with a file that does not load', () => {
    expect(runnerOn('breaks.fixture').status).toBe(1);
  });

  it('the runner fails a run with a failing test', () => {
    expect(runnerOn('fails.fixture')).toMatchObject({ status: 1, lastLine: '0 passed, 1 failed' });
  });

  it('a test process that crashes is named with its signal and its test', () => {
    const run = runnerOn('crashes.fixture');
    // The result of the first test may be lost with the process.
    expect(run).toMatchObject({ status: 1, lastLine: expect.stringMatching(/^[01] passed, 1 failed$/) });
    expect(run.all).toMatch(
      /test process \d+ ended with SIGKILL in .*crashes\.fixture\.ts > the second test/,
    );
  });
});
