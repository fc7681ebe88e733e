import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Bench, type BenchContext, result, seriesOf } from '../../../bench/harness.ts';
import { BENCHES } from '../../../bench/index.ts';
import { benchCommand } from '../../../src/bin/bench.ts';
import type { Command } from '../../../src/shell/command.ts';
import { start } from '../shell/fake-world.ts';

let seen: Pick<BenchContext, 'smoke' | 'repeats' | 'brokers'> | undefined;
let closed = 0;

const probe = (goal: number): Bench => ({
  name: 'probe',
  summary: 'A bench of the tests.',
  run: (context) => {
    const { smoke, repeats, brokers } = context;
    seen = { smoke, repeats, brokers };
    context.onClose(() => {
      closed++;
    });
    const raw = { name: 'raw', series: seriesOf([100]) };
    return Promise.resolve([
      result({
        metric: 'rate',
        unit: 'msg/s',
        ours: seriesOf([90]),
        against: raw,
        better: 'more',
        goal: { ratioAtLeast: goal },
      }),
      result({ metric: 'bytes', unit: 'B', ours: seriesOf([5]), better: 'less' }),
    ]);
  },
});

const command = benchCommand({
  easy: () => Promise.resolve({ bench: probe(0.9) }),
  hard: () => Promise.resolve({ bench: probe(0.95) }),
}) as unknown as Command;

test('the bench document has exactly the promised fields', async () => {
  const { code, world } = start(command, ['easy', '-json', '-smoke']);
  expect(await code).toBe(0);
  expect(JSON.parse(world.stdout())).toEqual({
    bench: 'easy',
    build: expect.stringMatching(/^[0-9a-f]{16}$/),
    machine: {
      cpu: expect.any(String),
      cores: expect.any(Number),
      memory_bytes: expect.any(Number),
      os: expect.any(String),
      arch: process.arch,
      node: process.version,
    },
    results: [
      {
        metric: 'rate',
        unit: 'msg/s',
        value: 90,
        spread: 0,
        against: 'raw',
        against_value: 100,
        ratio: 0.9,
        goal: 'ratio >= 0.9',
        met: true,
      },
      {
        metric: 'bytes',
        unit: 'B',
        value: 5,
        spread: 0,
        against: null,
        against_value: null,
        ratio: null,
        goal: null,
        met: null,
      },
    ],
  });
});

test('a missed goal exits with 1 only with -check, and the table is printed in both cases', async () => {
  const lenient = start(command, ['hard']);
  expect(await lenient.code).toBe(0);
  const strict = start(command, ['hard', '-check']);
  expect(await strict.code).toBe(1);
  expect(strict.world.stdout()).toMatch(/^\| rate .*0\.90 .*ratio >= 0\.95 .*NO/m);
  expect(strict.world.stderr()).toContain('missed: rate: ratio >= 0.95, it is 0.9\n');
  expect(await start(command, ['easy', '-check']).code).toBe(0);
});

test('a bench gets its settings and closes its resources', async () => {
  closed = 0;
  await start(command, ['easy']).code;
  expect(seen).toEqual({ smoke: false, repeats: 5, brokers: undefined });
  await start(command, ['easy', '-smoke']).code;
  expect(seen).toEqual({ smoke: true, repeats: 2, brokers: undefined });
  await start(command, ['easy', '-smoke', '-repeats=7', '-brokers=a:1']).code;
  expect(seen).toEqual({ smoke: true, repeats: 7, brokers: 'a:1' });
  expect(closed).toBe(3);
});

test('the bench command lists the benches without a name, and suggests the nearest for an unknown name', async () => {
  const list = start(command, []);
  expect(await list.code).toBe(0);
  expect(list.world.stdout()).toContain('  easy       A bench of the tests.');
  const unknown = start(command, ['esay']);
  expect(await unknown.code).toBe(2);
  expect(unknown.world.stderr()).toContain('unknown benchmark "esay"; did you mean easy?');
});

test.each(Object.entries(BENCHES))(
  'the bench %s has that name and a summary of its measurement',
  async (name, load) => {
    const { bench } = await load();
    expect(bench.name).toBe(name);
    expect(bench.summary).toMatch(/^[^\n]{10,120}$/);
  },
);

/** A folder of the test, which is removed after it. */
function ownFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-bench-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

test('the report of any bench is stored in the folder of -out, which is created', async () => {
  const folder = join(ownFolder(), 'results');
  const { code, world } = start(command, ['easy', '-json', `-out=${folder}`]);
  expect(await code).toBe(0);
  expect(JSON.parse(readFileSync(join(folder, 'easy.json'), 'utf8'))).toEqual(JSON.parse(world.stdout()));
});

test('selected parts are stored beside the report of all parts, which stays as it is', async () => {
  const folder = ownFolder();
  expect(await start(command, ['easy', `-out=${folder}`]).code).toBe(0);
  const whole = readFileSync(join(folder, 'easy.json'), 'utf8');
  expect(await start(command, ['easy', '-only=rate,../bytes', `-out=${folder}`]).code).toBe(0);
  expect(readdirSync(folder).sort()).toEqual(['easy-rate-___bytes.json', 'easy.json']);
  expect(readFileSync(join(folder, 'easy.json'), 'utf8')).toBe(whole);
});

test('an interrupted bench says that its report is not stored, and leaves the stored one', async () => {
  const folder = ownFolder();
  const waiting: Bench = {
    ...probe(0.9),
    run: ({ drain }) =>
      new Promise((resolve) => {
        drain.addEventListener('abort', () => resolve([]));
        queueMicrotask(() => world.signal('SIGTERM'));
      }),
  };
  const interrupted = benchCommand({ easy: () => Promise.resolve({ bench: waiting }) }) as unknown as Command;
  expect(await start(command, ['easy', `-out=${folder}`]).code).toBe(0);
  const whole = readFileSync(join(folder, 'easy.json'), 'utf8');
  const { code, world } = start(interrupted, ['easy', `-out=${folder}`]);
  expect(await code).toBe(0);
  expect(world.stderr()).toContain('interrupted: the report is not stored\n');
  expect(readFileSync(join(folder, 'easy.json'), 'utf8')).toBe(whole);
});
