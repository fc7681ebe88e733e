/** The engine as a command on the real stack: its ends, its faults, its answers, and one clear line for bad input. */
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { TopicReader } from '../../bench/peers/oracle/kafka.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { launcher, until } from './engine-kit.ts';
import { sharedStack } from './stack.ts';

const own = launcher();
const stack = await sharedStack();
const EVENTS = 60_000;
const topic = `engine-${own.suffix}`;
const RULES = { sizeMs: 2000n, skewMs: 1000n, latenessMs: 1000n };

const sinkTable = (name: string): string => `engine_${name}_${own.suffix}`;
const stateDir = (name: string): string => join(own.dir, `state-${name}`);
const args = (name: string, ...more: readonly string[]): readonly string[] => [
  'engine',
  `-brokers=${stack.brokers}`,
  `-topic=${topic}`,
  '-size=2s',
  '-allowed-skew=1s',
  '-allowed-lateness=1s',
  `-state-dir=${stateDir(name)}`,
  `-sink=postgres:${stack.postgres}`,
  `-sink-table=${sinkTable(name)}`,
  '-migrate',
  ...more,
];
const manifests = async (name: string): Promise<string[]> =>
  (await readdir(stateDir(name)).catch(() => [])).filter((file) => file.endsWith('.manifest')).sort();

async function exported(name: string): Promise<string[]> {
  const { code, stdout } = await own.run([
    'engine',
    'export',
    `-sink=postgres:${stack.postgres}`,
    `-sink-table=${sinkTable(name)}`,
  ]);
  expect(code).toBe(0);
  const [header, ...rows] = stdout.trim().split('\n');
  expect(header).toBe('account_id,window_start,window_end,count,sum,min,max,last_update_ts,overflow');
  return rows;
}

let expected: string[];
let expectedFinal: string[];
let dropped: bigint;

const text = (row: object): string => Object.values(row).join(',');

beforeAll(async () => {
  const made = await own.run([
    'gen',
    '-kind=events',
    '-order=delayed',
    `-count=${EVENTS}`,
    '-per-ms=5',
    '-accounts=2000',
    '-tail=0.05',
    '-tail-max=8s',
    '-stragglers=0.001',
    '-straggler-max=1h',
    `-out=kafka:${topic}`,
    `-brokers=${stack.brokers}`,
    '-partitions=3',
  ]);
  expect(made.stderr + made.stdout).toContain(String(EVENTS));
  const reader = await TopicReader.open(stack.brokers, topic);
  const oracle = new Oracle(RULES, reader.partitions.length);
  for (const p of reader.partitions) await reader.read(p, ({ value }) => oracle.value(p, value));
  reader.close();
  expected = [...oracle.rows()].map(text).sort();
  expectedFinal = [...oracle.rows(true)].map(text).sort();
  dropped = oracle.droppedLate.reduce((a, b) => a + b, 0n);
  expect(dropped).toBeGreaterThan(0n);
}, 60_000);

describe('ends', () => {
  it('-exit-at-end leaves what is open in the checkpoint; -bounded goes on from there and fires it', async () => {
    const first = await own.run(args('end', '-exit-at-end', '-json'));
    expect(first).toMatchObject({ code: 0 });
    expect(JSON.parse(first.stdout)).toMatchObject({
      consumed: EVENTS,
      droppedLate: Number(dropped),
      invalid: 0,
    });
    const rows = await exported('end');
    expect([...rows].sort()).toEqual(expectedFinal);
    expect(rows.length).toBeLessThan(expected.length);
    const second = await own.run(args('end', '-bounded', '-shards=3'));
    expect(second.code).toBe(0);
    expect(second.stderr).toContain('restored from a checkpoint');
    expect((await exported('end')).sort()).toEqual(expected);
    const third = await own.run(args('end', '-bounded'));
    expect(third.code).toBe(0);
    expect((await exported('end')).sort()).toEqual(expected);
  }, 60_000);

  it('is drained by SIGTERM with a checkpoint, and survives its own kill', async () => {
    const killed = await own.run(
      args('term', '-chaos=kill-after=20000', '-batch-rows=500', '-checkpoint-interval=20ms'),
    );
    expect(killed.signal).toBe('SIGKILL');
    const engine = own.spawn('engine', args('term', '-shards=2'));
    const address = await engine.address();
    const watermark = await until('the end of the topic', async () => {
      const answer = (await (await fetch(`http://${address}/watermark`)).json()) as {
        dropped_late: number;
        partitions: { consumed: number }[];
      };
      return answer.partitions.reduce((sum, one) => sum + one.consumed, 0) === EVENTS ? answer : undefined;
    });
    expect(BigInt(watermark.dropped_late)).toBe(dropped);
    engine.kill('SIGTERM');
    expect(await engine.ended).toEqual({ code: 0, signal: null });
    expect((await exported('term')).sort()).toEqual(expectedFinal);
  }, 60_000);
});

describe('answers', () => {
  it('serves /windows, /watermark, /ready and the metrics of the requirements', async () => {
    const engine = own.spawn('engine', args('http', '-checkpoint-interval=100ms'));
    const address = await engine.address();
    const get = async (path: string) => fetch(`http://${address}${path}`);
    await until('readiness', async () => ((await get('/ready')).status === 200 ? true : undefined));
    const [accountId, windowStart] = (expectedFinal[0] as string).split(',') as [string, string];
    const found = await until('fired windows', async () => {
      const rows = (await (
        await get(`/windows/${accountId}?from=${windowStart}&to=${Number(windowStart) + 1}`)
      ).json()) as object[];
      return rows.length > 0 ? rows : undefined;
    });
    expect(found.map(text)).toEqual(
      expectedFinal.filter((row) => row.startsWith(`${accountId},${windowStart},`)),
    );
    expect((await get('/windows/x')).status).toBe(400);
    expect((await get('/windows')).status).toBe(404);
    await until('a checkpoint', async () => ((await manifests('http')).length > 0 ? true : undefined));
    const metrics = await (await get('/metrics')).text();
    for (const name of [
      'engine_ingest_events_per_second',
      'engine_events_total',
      'engine_watermark_ms',
      'engine_watermark_lag_ms',
      'engine_open_windows',
      'dropped_late',
      'engine_spill_bytes_total',
      'engine_checkpoint_duration_seconds_count',
      'engine_sink_rows_per_second',
      'engine_sink_rows_total',
      'engine_stage_quantile_seconds{stage="sink",quantile="0.999"}',
    ]) {
      expect(metrics).toContain(`\n${name}`);
    }
    const locked = await own.run(args('http', '-bounded'));
    expect(locked).toMatchObject({
      code: 3,
      stderr: expect.stringContaining(`in use by process ${engine.pid}`),
    });
    engine.kill('SIGTERM');
    expect((await engine.ended).code).toBe(0);
  }, 60_000);
});

describe('damaged checkpoints', () => {
  it('falls back past a flipped bit and refuses to start empty, each in one line', async () => {
    expect(
      (await own.run(args('torn', '-exit-at-end', '-batch-rows=5000', '-checkpoint-interval=10ms'))).code,
    ).toBe(0);
    const names = await manifests('torn');
    expect(names.length).toBeGreaterThan(1);
    const newest = join(stateDir('torn'), names.at(-1) as string);
    const bytes = await readFile(newest);
    bytes[40] = (bytes[40] as number) ^ 4;
    await writeFile(newest, bytes);
    const back = await own.run(args('torn', '-bounded'));
    expect(back.code).toBe(0);
    expect(back.stderr).toContain(`${names.at(-1)} has changed since it was written`);
    expect((await exported('torn')).sort()).toEqual(expected);
    for (const name of await readdir(stateDir('torn'))) {
      if (name.startsWith('state-')) await writeFile(join(stateDir('torn'), name), 'x');
    }
    const refused = await own.run(args('torn', '-bounded', '-log-level=error'));
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/no checkpoint in .* can be restored: .*\[state_corrupt\]/);
    await rm(stateDir('torn'), { recursive: true });
  }, 60_000);
});

describe('bad input', () => {
  const cases: readonly (readonly [string, readonly string[], number, RegExp])[] = [
    ['an unknown window', ['-window=sliding'], 2, /choose from tumbling/],
    ['an unknown state', ['-state=disk'], 2, /choose from mem/],
    ['an unknown flag', ['-sise=1m'], 2, /did you mean -size\?/],
    ['an unknown sink', ['-sink=kafka:t'], 2, /choose from postgres:URL/],
    ['a fault that does not exist', ['-chaos=fire'], 2, /kill-after=N/],
    ['a broker that is not there', ['-brokers=127.0.0.1:1'], 3, /127\.0\.0\.1:1/],
    [
      'a database that is not there',
      ['-sink=postgres:postgres://x@127.0.0.1:1/x'],
      3,
      /PostgreSQL at 127\.0\.0\.1:1/,
    ],
    [
      'a topic that is not there',
      ['-topic=no-such-topic', '-create-topics=false'],
      2,
      /there is no topic no-such-topic/,
    ],
    ['a folder that cannot be', ['-state-dir=/proc/engine'], 2, /cannot write \/proc\/engine/],
  ];
  it('an export as JSON, or of nothing', async () => {
    const sink = `-sink=postgres:${stack.postgres}`;
    const json = await own.run(['engine', 'export', sink, '-json', '-log-level=error']);
    expect(json).toMatchObject({ code: 2, stderr: expect.stringContaining('leave -json out') });
    const missing = await own.run([
      'engine',
      'export',
      sink,
      '-sink-table=no_such_table',
      '-log-level=error',
    ]);
    expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('-migrate') });
  });

  it.each(cases)(
    '%s',
    async (_, flags, code, line) => {
      const given = new Set(flags.map((flag) => flag.split('=')[0]));
      const rest = args('bad', '-log-level=error').filter((flag) => !given.has(flag.split('=')[0]));
      const { code: got, stderr } = await own.run([...rest, ...flags]);
      expect(stderr).toMatch(line);
      expect(stderr.split('\n').filter((one) => one.startsWith('error:'))).toHaveLength(1);
      expect(got).toBe(code);
    },
    30_000,
  );
});
