/** Smoke run of the sweep: real engines, killed once each, have the drops and the results that the
 *  arrival order alone gives; a further run keeps the cells. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type SweepReport, sweepPage, sweepPlots } from '../../bench/sweep/page.ts';
import { bench } from '../../bench/sweep.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { smokeContext } from '../unit/bench/context.ts';

it('the sweep has the counted drops and results in a live cell of each kind, through a kill', {
  timeout: 600_000,
}, async () => {
  const { brokers } = await sharedStack();
  const out = mkdtempSync(join(tmpdir(), 'millrace-bench-'));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  const said: string[] = [];
  const run = async () => {
    said.length = 0;
    const closers: Array<() => Promise<void> | void> = [];
    const results = await bench.run(
      smokeContext({
        settings: { native: process.env['MILLRACE_NATIVE'] ?? 'auto' },
        brokers,
        out,
        say: (line) => void said.push(line),
        onClose: (close) => void closers.push(close),
      }),
    );
    for (const close of closers.reverse()) await close();
    return results;
  };
  const results = await run();
  expect(said.filter((line) => line.startsWith('DIFFERS'))).toEqual([]);
  expect(results.slice(0, 3)).toMatchObject([
    { metric: 'cells counted', value: 68 },
    { metric: 'cells run live, each killed once', value: 3 },
    { metric: 'live cells whose results or drops differ from the count', value: 0, met: true },
  ]);
  const report = JSON.parse(readFileSync(join(out, 'sweep.json'), 'utf8')) as SweepReport;
  const live = report.cells.flatMap(({ cell, live: one }) => (one === null ? [] : [{ cell, live: one }]));
  expect(live.map(({ cell }) => cell.kind)).toEqual(['tumbling', 'sliding', 'session']);
  for (const { cell, live: one } of live) {
    expect(one.results.dropped, cell.kind).toBeGreaterThan(0);
    expect(one.recoveryMs, cell.kind).toBeGreaterThan(0);
    expect(one.restoreMs, cell.kind).toBeGreaterThan(0);
    expect(one.accumulateMs, cell.kind).not.toBeNull();
  }
  expect(readFileSync(join(out, 'sweep.md'), 'utf8')).toBe(sweepPage(report));
  for (const [name, text] of Object.entries(sweepPlots(report)))
    expect(readFileSync(join(out, name), 'utf8'), name).toBe(text);
  expect(await run()).toEqual(results);
  expect(said).toEqual(['68 counts and 3 live cells of an earlier run of this build are kept']);
});
