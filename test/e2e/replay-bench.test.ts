/** Smoke run of the replay bench: small corpora are written, decoded, counted and deleted, and a
 *  further run keeps them. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { BenchResult } from '../../bench/harness.ts';
import { type ReplayReport, replayPage } from '../../bench/replay/page.ts';
import { bench } from '../../bench/replay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { smokeContext } from '../unit/bench/context.ts';

it('the replay bench decodes every record of interleaved versions, and keeps finished corpora', {
  timeout: 600_000,
}, async () => {
  const { brokers } = await sharedStack();
  const out = mkdtempSync(join(tmpdir(), 'millrace-bench-'));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  const said: string[] = [];
  const run = async (only: string): Promise<readonly BenchResult[]> => {
    const closers: Array<() => Promise<void> | void> = [];
    const results = await bench.run(
      smokeContext({
        settings: { native: process.env['MILLRACE_NATIVE'] ?? 'auto' },
        brokers,
        out,
        rows: 3000,
        only: [only],
        say: (line) => void said.push(line),
        onClose: (close) => void closers.push(close),
      }),
    );
    for (const close of closers.reverse()) await close();
    return results;
  };
  const results = await run('protobuf');
  expect(results.filter(({ met }) => met === false)).toEqual([]);
  expect(results[0]).toMatchObject({ value: 6000, metric: 'records decoded with the newest version' });
  const report = JSON.parse(readFileSync(join(out, 'replay.json'), 'utf8')) as ReplayReport;
  expect(report.corpora.map(({ corpus, records }) => [corpus.name, records])).toEqual([
    ['protobuf 1-6', 3000],
    ['protobuf 1,3,6', 3000],
  ]);
  expect(readFileSync(join(out, 'replay.md'), 'utf8')).toBe(replayPage(report));
  said.length = 0;
  expect(await run('protobuf')).toEqual(results);
  expect(said).toEqual(['2 corpora of an earlier run of this build are kept']);
});
