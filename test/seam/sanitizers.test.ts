/** Runs the kernels as a plain program under AddressSanitizer and UndefinedBehaviorSanitizer: unit
 *  checks, every corpus, and mutations of each corpus; those that use threads also under
 *  ThreadSanitizer. Objects are cached, so only a changed kernel
 *  is compiled. */
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { projectRoot } from '../repository/root.ts';

it('the sanitizers find no error in any kernel', () => {
  const run = spawnSync(process.execPath, ['tools/native-test.mjs', '-runs=20000'], {
    cwd: projectRoot,
    encoding: 'utf8',
  });
  expect(run.stderr).toBe('');
  expect(run.status).toBe(0);
  const corpus = join(projectRoot, 'native', 'test', 'corpus');
  for (const name of readdirSync(corpus)) {
    const files = readdirSync(join(corpus, name)).length;
    expect(files).toBeGreaterThan(0);
    expect(run.stdout).toContain(`${name}_fuzz inputs=${files} mutations=20000\n`);
  }
  expect(run.stdout).toMatch(/^kernels_test checks=\d+$/m);
  expect(run.stdout).toContain('kernels_test sanitizers=active\n');
  for (const name of ['workers_test', 'window_test', 'session_test'])
    expect(run.stdout).toContain(`${name} threads=clean\n`);
});
