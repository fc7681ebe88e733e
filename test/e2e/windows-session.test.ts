/** Verifies docs/tutorials/windows.md: runs its commands and compares their output with
 *  the page. With MILLRACE_RECORD=1 this run's output replaces the output in the page; read the
 *  diff before a commit. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { replay, stepsOf, withOutputs } from './session-page.ts';

const PAGE = join(packageRoot(), 'docs', 'tutorials', 'windows.md');
const own = launcher();

it('every command of docs/tutorials/windows.md gives the output that the page shows', async () => {
  const page = readFileSync(PAGE, 'utf8');
  const steps = stepsOf(page);
  expect(steps.length).toBeGreaterThan(15);
  const { brokers } = await sharedStack();
  const substitutions = [
    { page: '127.0.0.1:9092', real: brokers },
    { page: 'shop.payments', real: `shop.payments.${own.suffix}` },
  ];
  const taken = new Set<number>();
  for (const address of new Set(page.match(/127\.0\.0\.1:808\d/g))) {
    const port = await freePort(taken);
    taken.add(port);
    substitutions.push({ page: address, real: `127.0.0.1:${port}` });
  }
  const dir = join(own.dir, 'session');
  mkdirSync(dir, { recursive: true });
  const outputs = await replay(steps, {
    dir,
    path: join(packageRoot(), 'bin'),
    substitutions,
    placeholders: [],
  });
  if (process.env['MILLRACE_RECORD'] === '1') writeFileSync(PAGE, withOutputs(page, outputs));
  else
    expect(steps.map(({ command }, at) => ({ command, output: outputs[at] }))).toEqual(
      steps.map(({ command, output }) => ({ command, output })),
    );
});
