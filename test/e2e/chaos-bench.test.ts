/** Smoke run of the chaos bench: short runs of both relays, stored and continued. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type ChaosBenchReport, chaosRunsPage } from '../../bench/chaos/page.ts';
import { bench } from '../../bench/chaos.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { smokeContext } from '../unit/bench/context.ts';

it('the chaos bench stores each run with its verdict, and a further call makes only the missing runs', async () => {
  const { brokers, postgres } = await sharedStack();
  const out = mkdtempSync(join(tmpdir(), 'millrace-bench-'));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  const said: string[] = [];
  const run = async (only?: readonly string[]) => {
    said.length = 0;
    const closers: Array<() => Promise<void> | void> = [];
    const settings = { native: process.env['MILLRACE_NATIVE'] ?? 'auto' };
    const onClose = (close: () => Promise<void> | void): void => void closers.push(close);
    const context = smokeContext({
      settings,
      brokers,
      postgres,
      out,
      only,
      onClose,
      say: (line) => void said.push(line),
    });
    const results = await bench.run(context);
    for (const close of closers.reverse()) await close();
    return results;
  };
  const results = await run();
  expect(results.map(({ goal, met }) => [goal, met]).filter(([goal]) => goal !== null)).toEqual([
    ['value <= 0', true],
    ['value <= 0', true],
    ['value <= 0', true],
  ]);
  const path = join(out, 'chaos.json');
  const report = JSON.parse(readFileSync(path, 'utf8')) as ChaosBenchReport;
  expect(report.runs.map(({ cell, holds, kinds }) => [cell.point, cell.relay, holds, kinds])).toEqual([
    ['publish', 'poll', true, { crash: 1 }],
    ['effect', 'wal', true, { crash: 1 }],
  ]);
  for (const { intents, charges } of report.runs) {
    expect(intents).toBeGreaterThan(0);
    expect(charges).toBe(intents);
  }
  expect(readFileSync(join(out, 'chaos.md'), 'utf8')).toBe(chaosRunsPage(report));
  // As after a stop before the second run, with a first run of another build.
  const first = { ...report.runs[0], build: 'earlier' };
  writeFileSync(path, JSON.stringify({ ...report, runs: [first] }));
  // The run of another crash point is kept too.
  await run(['effect']);
  expect(said[0]).toBe('1 runs of earlier calls are kept');
  expect(said.filter((line) => /^\d of 2: /.test(line))).toEqual([
    expect.stringMatching(/^2 of 2: effect wal 30%: .* 0 deltas, holds$/),
  ]);
  const builds = (JSON.parse(readFileSync(path, 'utf8')) as ChaosBenchReport).runs.map(({ build }) => build);
  expect(builds).toEqual(['earlier', report.build]);
}, 900_000);
