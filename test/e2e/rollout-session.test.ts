/** Verifies the session in docs/how-to/rollout.md: runs its commands in an empty folder with the
 *  packed package, and compares their output with the page, but for times and numbers of records.
 *  With MILLRACE_RECORD=1 this run's output replaces the output in the page; read the diff before a
 *  commit. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { installPackage } from './package-kit.ts';
import { replay, stepsOf, withOutputs } from './session-page.ts';

const PAGE = join(packageRoot(), 'docs', 'how-to', 'rollout.md');
const own = launcher();

/** The lines of an output without what varies from run to run: times, numbers of records other than
 *  zero, and the place of the alarm, which a sample raises beside the steps. */
function alike(output: string): readonly string[] {
  const lines = output
    .split('\n')
    .map((line) =>
      line
        .replace(/^ +\d+\.\d s {2}/, '')
        .replace(/[1-9]\d*(?= (records could not be read|produced|consumed|unreadable))/g, 'N'),
    );
  const isAlarm = (line: string): boolean => line.startsWith('alarm ');
  return [...lines.filter((line) => !isAlarm(line)), ...lines.filter(isAlarm)];
}

it('every command of docs/how-to/rollout.md gives the output that the page shows, in a folder with the packed package', async () => {
  const page = readFileSync(PAGE, 'utf8');
  const steps = stepsOf(page);
  expect(steps.length).toBeGreaterThan(12);
  const project = mkdtempSync(join(tmpdir(), 'millrace-rollout-page-'));
  onTestFinished(() => rmSync(project, { recursive: true, force: true }));
  installPackage(project);
  const { brokers } = await sharedStack();
  const outputs = await replay(steps, {
    dir: project,
    path: join(project, 'node_modules', '.bin'),
    substitutions: [
      { page: '127.0.0.1:9092', real: brokers },
      { page: '127.0.0.1:8081', real: `127.0.0.1:${await freePort()}` },
      { page: 'shop.parcels', real: `shop.parcels.${own.suffix}` },
      { page: '"billing"', real: `"billing-${own.suffix}"` },
      { page: '"labels"', real: `"labels-${own.suffix}"` },
    ],
    placeholders: [],
  });
  if (process.env['MILLRACE_RECORD'] === '1') writeFileSync(PAGE, withOutputs(page, outputs));
  else
    expect(steps.map(({ command }, at) => ({ command, output: alike(outputs[at] as string) }))).toEqual(
      steps.map(({ command, output }) => ({ command, output: alike(output) })),
    );
}, 900_000);
