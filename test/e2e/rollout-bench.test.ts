/** Smoke run of the rollout bench: real fleets in a few cells, stored and continued, with their
 *  counters beside live decode. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { cellName } from '../../bench/rollout/cells.ts';
import { type RolloutReport, rolloutPage } from '../../bench/rollout/page.ts';
import { bench } from '../../bench/rollout.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { smokeContext } from '../unit/bench/context.ts';

it('the rollout bench runs real upgrades whose unreadable records are those of live decode, and continues a run', async () => {
  const { brokers } = await sharedStack();
  const out = mkdtempSync(join(tmpdir(), 'millrace-bench-'));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  const said: string[] = [];
  const closers: Array<() => Promise<void> | void> = [];
  const run = async () => {
    said.length = 0;
    const settings = { native: process.env['MILLRACE_NATIVE'] ?? 'auto' };
    const onClose = (close: () => Promise<void> | void): void => void closers.push(close);
    const results = await bench.run(
      smokeContext({ settings, brokers, out, onClose, say: (line) => void said.push(line) }),
    );
    for (const close of closers.splice(0).reverse()) await close();
    return results;
  };
  const results = await run();
  expect(results.map(({ goal, met }) => [goal, met]).filter(([goal]) => goal !== null)).toEqual([
    ['value <= 0', true],
    ['value <= 0', true],
    ['value <= 0', true],
  ]);
  const report = JSON.parse(readFileSync(join(out, 'rollout.json'), 'utf8')) as RolloutReport;
  const errorsOf = (name: string): number | undefined =>
    report.cells.find((cell) => cellName(cell) === name)?.errors;
  expect(report.cells).toHaveLength(3);
  expect(errorsOf('avro 3 to 4 BACKWARD consumers-first')).toBe(0);
  expect(errorsOf('avro 3 to 4 BACKWARD producers-first')).toBeGreaterThan(0);
  expect(errorsOf('protobuf 4 to retype-int-string FULL producers-first')).toBeGreaterThan(0);
  expect(report.damages).toMatchObject([
    { to: 'retype-int-string', misreadings: [{ reader: 1 }, {}, {}, {}] },
  ]);
  expect(readFileSync(join(out, 'rollout.md'), 'utf8')).toBe(rolloutPage(report));
  expect(await run()).toEqual(results);
  expect(said).toContain('3 cells of an earlier run of this build are kept');
  expect(said.filter((line) => /^\d of 3/.test(line))).toEqual([]);
});
