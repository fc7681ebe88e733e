/** Large schemas on the checker thread: the limits that end a check, and /health of a registry
 *  meanwhile. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, expect, it } from 'vitest';
import { bench, hostileSchemas } from '../../bench/hostile.ts';
import type { SchemaSource } from '../../src/registry/worker/judge.ts';
import type * as thread from '../../src/registry/worker/thread.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { smokeContext } from '../unit/bench/context.ts';
import { realClock } from '../wait.ts';

// The thread runs a compiled file.
const compiled = pathToFileURL(join(packageRoot(), 'dist/src/registry/worker/thread.js')).href;
const { CheckThread } = (await import(compiled)) as typeof thread;

const open: thread.CheckThread[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});
function openThread(timeoutMs = 60_000): thread.CheckThread {
  const one = new CheckThread(timeoutMs, realClock);
  open.push(one);
  return one;
}

const sourceOf = (text: string, format: SchemaSource['format'] = 'JSON'): SchemaSource => ({
  format,
  text,
  references: [],
  lenient: false,
  normalize: false,
});
const parse = (text: string, limitMs = 60_000): thread.TaskRequest => ({
  task: { kind: 'text', source: 0, forms: [] },
  sources: [sourceOf(text)],
  steps: 1_000_000,
  limitMs,
});
const ring = hostileSchemas(1).find(({ format }) => format === 'PROTOBUF');

it('the checker thread gives the same answers as a check on the calling thread', async () => {
  const one = openThread();
  const { reply } = await one.run(parse('{ "type": "string" }'));
  expect(reply).toEqual({ steps: 0, result: { kind: 'text', text: '{"type":"string"}', forms: [] } });
  const bad = await one.run(parse('{"type":1}'));
  expect(bad.reply.error).toMatchObject({ code: 'invalid_schema', details: { line: 1, column: 9 } });
  const judged = await one.run({
    task: {
      kind: 'judge',
      proposed: 0,
      level: 'BACKWARD',
      policy: 'PROVEN',
      against: [
        { version: 1, format: 'JSON', source: 1 },
        { version: 2, format: 'JSON', source: 2 },
        { version: 3, format: 'OTHER', source: undefined },
      ],
      ever: undefined,
      explain: true,
    },
    sources: ['{"type":"string"}', '{"type":"integer"}', 'no JSON'].map((text) => sourceOf(text)),
    steps: 1_000_000,
    limitMs: 60_000,
  });
  expect(judged.reply.result).toMatchObject({
    comparisons: [
      { version: 1, findings: [{ rule: 'JSON_TYPE_NARROWED' }] },
      { version: 2, findings: [{ rule: 'STORED_SCHEMA_UNREADABLE' }] },
      { version: 3, findings: [{ rule: 'STORED_SCHEMA_UNREADABLE' }] },
    ],
    explained: [
      { rule: 'JSON_TYPE_NARROWED' },
      { rule: 'STORED_SCHEMA_UNREADABLE' },
      { rule: 'STORED_SCHEMA_UNREADABLE' },
    ],
    unread: [{ source: 2, why: expect.stringContaining('invalid JSON schema') }],
  });
});

it('a check that exceeds its time is terminated, and a new thread runs the next check', async () => {
  const one = openThread(1_234);
  const text = ring?.text(0) as string;
  const sources = Array.from({ length: 40 }, (_, i) => sourceOf(text.replace('M0', `N${i}`), 'PROTOBUF'));
  const against = sources.map((_, source) => ({ version: source + 1, format: 'PROTOBUF', source }));
  const task = {
    kind: 'judge',
    proposed: 0,
    level: 'FULL_TRANSITIVE',
    policy: 'PROVEN',
    against,
    ever: undefined,
    explain: false,
  } as const;
  await expect(one.run({ task, sources, steps: 1e9, limitMs: 1 })).rejects.toMatchObject({
    code: 'check_too_long',
    message: expect.stringContaining(
      'longer than 1234 ms, over all the versions that it is compared with (the limit -check-timeout)',
    ),
  });
  expect((await one.run(parse('true'))).reply.result).toMatchObject({ text: 'true' });
});

it('checks above the limit of waiting checks are refused, and the waiting checks run', async () => {
  const one = openThread();
  const checks = Array.from({ length: 40 }, () => one.run(parse('true')));
  const settled = await Promise.allSettled(checks);
  const refused = settled.filter(({ status }) => status === 'rejected');
  expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(32);
  expect(refused[0]).toMatchObject({ reason: { code: 'checks_busy' } });
  expect(refused).toHaveLength(8);
});

it('a check that waited longer than its time limit is refused, and the next check runs', async () => {
  let now = 0;
  const one = new CheckThread(1_000, { ...realClock, monotonicMs: () => now });
  open.push(one);
  const first = one.run(parse('true'));
  const second = one.run(parse('false'));
  now = 1_001;
  await expect(first).rejects.toMatchObject({ code: 'checks_busy' });
  await expect(second).rejects.toMatchObject({
    code: 'checks_busy',
    message: expect.stringContaining('waited longer than 1000 ms for others (the limit -check-timeout)'),
  });
  expect((await one.run(parse('true'))).reply.result).toMatchObject({ text: 'true' });
});

it('a closed thread refuses new and waiting checks', async () => {
  const one = openThread();
  const waiting = one.run(parse('true'));
  await one.close();
  await expect(one.run(parse('true'))).rejects.toMatchObject({ code: 'store_failed' });
  await waiting.catch((thrown) => expect(thrown).toMatchObject({ code: 'store_failed' }));
});

it('the bench sends hostile schemas to a registry, checks each answer, and measures /health meanwhile', async () => {
  const closers: Array<() => Promise<void> | void> = [];
  const results = await bench.run(smokeContext({ onClose: (close) => void closers.push(close) }));
  for (const close of closers) await close();
  expect(results.map(({ unit, goal }) => [unit, goal])).toEqual([['ms', 'value <= 100']]);
  expect(results[0]?.value).toBeGreaterThan(0);
});
