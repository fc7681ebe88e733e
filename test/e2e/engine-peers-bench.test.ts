/** Smoke run of the comparison with other engines: Millrace over both clients, both bare loops and
 *  Flink, which its set-up downloads, have the expected results, through a kill; a further run
 *  keeps the runs. The other peers have them for each kind of window and in Avro. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { bench } from '../../bench/engine-peers.ts';
import { peersPage } from '../../bench/side-by-side/page.ts';
import { peersPlots } from '../../bench/side-by-side/plot.ts';
import type { PeersReport } from '../../bench/side-by-side/report.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { smokeContext } from '../unit/bench/context.ts';

const TIMEOUT_MS = 1_200_000;
let brokers = '';

beforeAll(async () => {
  brokers = (await sharedStack()).brokers;
});

function folder(): string {
  const out = mkdtempSync(join(tmpdir(), 'millrace-bench-'));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  return out;
}

async function run(out: string, only: readonly string[]) {
  const said: string[] = [];
  const closers: Array<() => Promise<void> | void> = [];
  const context = smokeContext({
    settings: { native: process.env['MILLRACE_NATIVE'] ?? 'auto' },
    ...{ brokers, out, only },
    say: (line) => void said.push(line),
    onClose: (close) => void closers.push(close),
  });
  const results = await bench.run(context);
  for (const close of closers.reverse()) await close();
  const report = JSON.parse(readFileSync(join(out, 'engine-peers.json'), 'utf8')) as PeersReport;
  return { results, report, said };
}

it('every contestant has the expected results, and the engines have them through a kill', {
  timeout: TIMEOUT_MS,
}, async () => {
  const out = folder();
  const names = ['millrace', 'millrace-direct', 'bare-librdkafka', 'bare-fetch', 'flink-heap'];
  const { results, report, said } = await run(out, ['base', ...names]);
  expect(said.filter((line) => /^(DIFFERS|FAILED)|absent/.test(line))).toEqual([]);
  expect(report.contestants.map(({ name }) => name)).toEqual(names);
  const ofMode = (mode: string) => report.runs.filter((one) => one.mode === mode);
  expect(ofMode('throughput').map(({ contestant }) => contestant)).toEqual(names);
  expect(ofMode('recovery').map(({ contestant }) => contestant)).toEqual([
    ...['millrace', 'millrace-direct', 'flink-heap'],
  ]);
  for (const { contestant, drain } of ofMode('throughput')) {
    expect(drain?.cpuAllUs, contestant).toBeGreaterThan(0);
    expect(drain?.rate, contestant).toBeGreaterThan(0);
    expect(drain?.problems, contestant).toEqual([]);
    if (!contestant.startsWith('bare')) expect(drain?.firstResultMs, contestant).toBeGreaterThan(0);
  }
  for (const { contestant, recovery } of ofMode('recovery')) {
    expect(recovery?.recoveryMs, contestant).toBeGreaterThan(0);
    expect(recovery?.problems, contestant).toEqual([]);
  }
  expect(results[1]).toMatchObject({ value: 0, met: true });
  expect(readFileSync(join(out, 'engine-peers.md'), 'utf8')).toBe(peersPage(report));
  for (const [name, text] of Object.entries(peersPlots(report)))
    expect(readFileSync(join(out, name), 'utf8'), name).toBe(text);
  const again = await run(out, ['base', ...names]);
  expect(again.results).toEqual(results);
  expect(again.said).toContain('8 runs of earlier calls are kept');
  expect(again.said.filter((line) => line.includes(' of 8: '))).toEqual([]);
});

it('the other engines have the expected results through a kill, too', { timeout: TIMEOUT_MS }, async () => {
  const engines = ['flink-rocksdb', 'kafka-streams', 'hazelcast-jet'];
  const { report, said } = await run(folder(), ['base', 'recovery', ...engines]);
  expect(said.filter((line) => /^(DIFFERS|FAILED)|absent/.test(line))).toEqual([]);
  expect(report.runs.map(({ mode, contestant }) => [mode, contestant])).toEqual(
    engines.map((name) => ['recovery', name]),
  );
  for (const { contestant, recovery } of report.runs) {
    expect(recovery?.recoveryMs, contestant).toBeGreaterThan(0);
    expect(recovery?.problems, contestant).toEqual([]);
  }
});

it('each kind of window and Avro have the expected results on every engine', {
  timeout: TIMEOUT_MS,
}, async () => {
  const engines = ['millrace', 'flink-heap', 'flink-rocksdb', 'kafka-streams', 'hazelcast-jet'];
  const { report, said } = await run(folder(), ['window', 'format', 'throughput', ...engines]);
  expect(said.filter((line) => /^(DIFFERS|FAILED)|absent/.test(line))).toEqual([]);
  expect(report.runs).toHaveLength(4 * engines.length);
});
