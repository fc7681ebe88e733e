/** Smoke run of the volume bench: a leg of each part, stored, and continued from the stored one. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type VolumeReport, volumePage } from '../../bench/volume/page.ts';
import { bench } from '../../bench/volume.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it('the volume bench charges and reconciles a leg of each part, and continues from the stored legs', async () => {
  const out = mkdtempSync(join(tmpdir(), 'millrace-bench-'));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  const results = await smoke(bench, { out });
  expect(goalsOf(results)).toEqual([
    ['order events of all legs', 'value >= 2000'],
    ['distinct keys through the API', 'value >= 1'],
    ['deltas', 'value <= 0'],
  ]);
  expect(results.filter(({ met }) => met === false)).toEqual([]);
  const path = join(out, 'volume.json');
  const report = JSON.parse(readFileSync(path, 'utf8')) as VolumeReport;
  const [api, prepared] = report.legs;
  expect([api?.part, api?.relay, api?.preloaded, api?.holds]).toEqual(['api', 'poll', 1000, true]);
  expect([prepared?.part, prepared?.orders, prepared?.charges, prepared?.holds]).toEqual([
    ...['prepared', 2000, 2000, true],
  ]);
  expect(readFileSync(join(out, 'volume.md'), 'utf8')).toBe(volumePage(report));
  // As after a stop, by another build: the next leg reads the log.
  const earlier = report.legs.map((leg) => ({ ...leg, build: 'earlier', orders: leg.orders >> 1 }));
  writeFileSync(path, JSON.stringify({ ...report, legs: earlier }));
  await smoke(bench, { out });
  const { legs } = JSON.parse(readFileSync(path, 'utf8')) as VolumeReport;
  expect(legs.slice(0, 2).map(({ build }) => build)).toEqual(['earlier', 'earlier']);
  expect(legs.slice(2).map(({ part, number, relay, holds }) => [part, number, relay, holds])).toEqual([
    ['prepared', 2, 'wal', true],
  ]);
}, 900_000);
