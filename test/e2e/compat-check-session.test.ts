/** Verifies docs/tutorials/compat-check.md: runs its commands and compares their output with the
 *  page. With MILLRACE_RECORD=1 this run's output replaces the output in the page; read the diff
 *  before a commit. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { launcher } from '../fixtures/process.ts';
import { replay, stepsOf, withOutputs } from './session-page.ts';

const PAGE = join(packageRoot(), 'docs', 'tutorials', 'compat-check.md');
const own = launcher();

it('every command of docs/tutorials/compat-check.md gives the output that the page shows', async () => {
  const page = readFileSync(PAGE, 'utf8');
  const steps = stepsOf(page);
  expect(steps.length).toBeGreaterThan(30);
  const dir = join(own.dir, 'session');
  mkdirSync(dir, { recursive: true });
  const outputs = await replay(steps, {
    dir,
    path: join(packageRoot(), 'bin'),
    substitutions: [{ page: '127.0.0.1:8081', real: `127.0.0.1:${await freePort()}` }],
    placeholders: [],
  });
  if (process.env['MILLRACE_RECORD'] === '1') writeFileSync(PAGE, withOutputs(page, outputs));
  else
    expect(steps.map(({ command }, at) => ({ command, output: outputs[at] }))).toEqual(
      steps.map(({ command, output }) => ({ command, output })),
    );
});
