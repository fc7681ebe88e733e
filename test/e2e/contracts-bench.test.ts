/** Smoke run of the contracts bench: a real fleet under load, counted, and a live rollout. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type ContractsReport, contractsPage } from '../../bench/contracts/page.ts';
import { bench } from '../../bench/contracts.ts';
import type { BenchResult } from '../../bench/harness.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { smokeContext } from '../unit/bench/context.ts';

it('the contracts bench loads a fleet, counts every record, and upgrades a fleet without an unreadable record', {
  timeout: 900_000,
}, async () => {
  const { brokers } = await sharedStack();
  const out = mkdtempSync(join(tmpdir(), 'millrace-bench-'));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  const closers: Array<() => Promise<void> | void> = [];
  const results = await bench.run(
    smokeContext({
      settings: { native: process.env['MILLRACE_NATIVE'] ?? 'auto' },
      brokers,
      out,
      only: ['protobuf'],
      rate: 400,
      liveRolloutMs: 1000,
      onClose: (close) => void closers.push(close),
    }),
  );
  for (const close of closers.reverse()) await close();
  // No goal of a smoke run depends on the speed of the machine.
  expect(results.filter(({ met }) => met === false)).toEqual([]);
  expect(results.map(({ goal }) => goal).filter((goal) => goal !== null)).toHaveLength(7);
  const measuredOf = (metric: string): number =>
    (results.find((one) => one.metric === `protobuf: ${metric}`) as BenchResult).value;
  expect(measuredOf('records acknowledged')).toBeGreaterThan(0);
  expect(measuredOf('live rollout: records written')).toBeGreaterThan(0);
  expect(measuredOf('size of a framed value, mean')).toBeGreaterThan(300);
  // The fleet asked, and asked only at its start.
  expect(measuredOf('requests that the registry answered to 3 processes with 2 schemas')).toBe(5);
  const report = JSON.parse(readFileSync(join(out, 'contracts.json'), 'utf8')) as ContractsReport;
  expect(report.runs).toHaveLength(1);
  expect(report.runs[0]?.rollout).toMatchObject({ verdict: 'upgraded', errors: 0, reason: null });
  expect(readFileSync(join(out, 'contracts.md'), 'utf8')).toBe(contractsPage(report));
});
