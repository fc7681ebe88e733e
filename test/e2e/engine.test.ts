/** The engine as a command on the real stack: ways to end, faults, HTTP answers, and one error line
 *  for bad input. */
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { batchOf } from '../contract/broker-world.ts';
import { exportedRows, runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { describeFull, itFull } from '../tier.ts';
import { until } from '../wait.ts';
import { oracleOf, rowText } from './engine-kit.ts';

const own = launcher();
const stack = await sharedStack();
const EVENTS = 60_000;
const topic = `engine-${own.suffix}`;
const RULES = { sizeMs: 2000n, skewMs: 1000n, latenessMs: 1000n };

const sinkTable = (name: string): string => `engine_${name}_${own.suffix}`;
const stateDir = (name: string): string => join(own.dir, `state-${name}`);
const args = (name: string, ...more: readonly string[]): readonly string[] => [
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

const exported = (name: string): Promise<string[]> =>
  exportedRows(own, [`-sink=postgres:${stack.postgres}`, `-sink-table=${sinkTable(name)}`]);

let expected: string[];
let expectedFinal: string[];
let dropped: bigint;

beforeAll(async () => {
  const made = await generateEvents(own, { brokers: stack.brokers, topic }, [
    `-count=${EVENTS}`,
    '-per-ms=5',
    '-accounts=2000',
    '-tail=0.05',
    '-tail-max=8s',
    '-stragglers=0.001',
    '-straggler-max=1h',
    '-partitions=3',
  ]);
  expect(made.stderr + made.stdout).toContain(String(EVENTS));
  const oracle = await oracleOf(stack.brokers, topic, RULES);
  expected = [...oracle.rows()].map(rowText).sort();
  expectedFinal = [...oracle.rows(true)].map(rowText).sort();
  dropped = oracle.droppedLate.reduce((a, b) => a + b, 0n);
  expect(dropped).toBeGreaterThan(0n);
});

describe('ways to end', () => {
  itFull(
    'an engine with -exit-at-end leaves open windows in the checkpoint, and an engine with -bounded resumes and fires them',
    async () => {
      const first = await runEngine(own, args('end', '-state=mem', '-exit-at-end', '-json'));
      expect(first).toMatchObject({ code: 0 });
      expect(JSON.parse(first.stdout)).toMatchObject({
        consumed: EVENTS,
        droppedLate: Number(dropped),
        invalid: 0,
        limitedBy: { by: expect.stringMatching(/^[a-z]+$/), share: expect.any(Number) },
        stages: ['fetch', 'decode', 'route', 'update', 'spill', 'changelog', 'sink'].map((stage) =>
          expect.objectContaining({ stage, ...(stage === 'spill' ? { busy: 0, blocked: 0, idle: 1 } : {}) }),
        ),
      });
      const rows = await exported('end');
      expect([...rows].sort()).toEqual(expectedFinal);
      expect(rows.length).toBeLessThan(expected.length);
      const second = await runEngine(own, args('end', '-state=mem', '-bounded', '-shards=3'));
      expect(second.code).toBe(0);
      expect(second.stderr).toContain('restored from a checkpoint');
      const limited = / watermark lag \S+, \S+ keys open, \S+ late, (limited by: [a-z]+ \(\d+%\))\n/g;
      // A long run logs its progress as well; take the last line.
      const [, limitText] = [...second.stderr.matchAll(limited)].at(-1) ?? [];
      expect(limitText).toBeDefined();
      expect(second.stdout).toContain(`; ${limitText}\n`);
      expect((await exported('end')).sort()).toEqual(expected);
      // The state in memory moves to disk, which is the default.
      const third = await runEngine(own, args('end', '-bounded'));
      expect(third.code).toBe(0);
      expect((await exported('end')).sort()).toEqual(expected);
    },
  );

  it('an engine drains on SIGTERM with a checkpoint, and resumes after SIGKILL', async () => {
    const killed = await runEngine(
      own,
      args('term', '-chaos=kill-after=20000', '-batch-rows=500', '-checkpoint-interval=20ms'),
    );
    expect(killed.signal).toBe('SIGKILL');
    const engine = startEngine(own, args('term', '-shards=2'));
    const address = await engine.address();
    const watermark = await until('the end of the topic', async () => {
      const answer = (await (await fetch(`http://${address}/watermark?partitions=true`)).json()) as {
        dropped_late: number;
        partitions: { consumed: number }[];
      };
      return answer.partitions.reduce((sum, one) => sum + one.consumed, 0) === EVENTS ? answer : undefined;
    });
    expect(BigInt(watermark.dropped_late)).toBe(dropped);
    await engine.drain();
    expect((await exported('term')).sort()).toEqual(expectedFinal);
  });
});

describe('invalid records alone', () => {
  it.each(['-exit-at-end', '-bounded'])(
    'an engine with %s that reads only invalid records exits with 1, the reason and the first record',
    async (end) => {
      const invalid = `engine-invalid${end}-${own.suffix}`;
      const options = { brokers: stack.brokers, clientId: 'engine-invalid', connectTimeoutMs: 60_000 };
      const [admin, producer] = [
        await nodeRdkafkaDriver.admin(options),
        await nodeRdkafkaDriver.producer(options),
      ];
      try {
        await admin.createTopics([{ topic: invalid, partitions: 2 }]);
        const record = { partition: 1, value: Buffer.from('no') };
        expect((await producer.produce(batchOf([record, record]), [invalid])).failed).toBe(0);
      } finally {
        await Promise.all([admin.close(), producer.close()]);
      }
      const flags = args(`invalid${end.replaceAll('-', '_')}`, end).map((flag) =>
        flag.startsWith('-topic=') ? `-topic=${invalid}` : flag,
      );
      expect(await runEngine(own, flags)).toMatchObject({
        code: 1,
        stderr: expect.stringContaining(
          `none of the 2 records read from topic ${invalid} is an event: 2 have a value that is not 256 bytes long; the first: partition 1 offset 0 has a value that is not 256 bytes long but 2`,
        ),
      });
    },
  );
});

describe('HTTP answers', () => {
  it('an engine serves /windows, /watermark, /ready and the required metrics', async () => {
    const engine = startEngine(own, args('http', '-checkpoint-interval=100ms'));
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
    expect(found.map(rowText)).toEqual(
      expectedFinal.filter((row) => row.startsWith(`${accountId},${windowStart},`)),
    );
    expect((await get('/windows/x')).status).toBe(400);
    expect((await get('/windows')).status).toBe(200);
    expect((await get('/window')).status).toBe(404);
    await until('a checkpoint', async () => ((await manifests('http')).length > 0 ? true : undefined));
    const metrics = await until('the gauges that are polled every second', async () => {
      const text = await (await get('/metrics')).text();
      // The sink reports its rows once all of them are durable, in PostgreSQL too.
      const areReported = [
        /^engine_unread_events 0$/m,
        /^engine_fired_bytes \d/m,
        /^engine_sink_waiting_rows 0$/m,
        /^engine_sink_rows_total [1-9]/m,
      ].every((line) => line.test(text));
      return areReported ? text : undefined;
    });
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
      'engine_sink_waiting_rows',
      'engine_unread_events 0',
      'engine_ready 1',
      'engine_checkpoint_age_seconds',
      'engine_fired_bytes',
      'engine_recovery_seconds',
    ]) {
      expect(metrics).toContain(`\n${name}`);
    }
    for (const stage of ['accumulate', 'step', 'fetch', 'decode', 'route', 'update', 'changelog', 'sink'])
      for (const quantile of ['0.5', '0.99', '0.999'])
        expect(metrics).toMatch(
          new RegExp(
            `^engine_stage_quantile_seconds\\{stage="${stage}",quantile="${quantile}"\\} [\\d.e-]+$`,
            'm',
          ),
        );
    const spentOn = (kind: string, stage: string): number =>
      Number(
        new RegExp(`^engine_stage_${kind}_seconds_total\\{stage="${stage}"\\} (\\S+)$`, 'm').exec(
          metrics,
        )?.[1],
      );
    expect(spentOn('busy', 'update')).toBeGreaterThan(0);
    expect(spentOn('busy', 'sink')).toBeGreaterThan(0);
    const whole = (stage: string) =>
      spentOn('busy', stage) + spentOn('blocked', stage) + spentOn('idle', stage);
    for (const stage of ['fetch', 'decode', 'route', 'update', 'spill', 'changelog', 'sink'])
      expect(whole(stage)).toBeGreaterThan(0);
    expect(metrics).toMatch(/^engine_limited_seconds_total\{by="input"\} [\d.]+$/m);
    // The rules about growth need a duration, so they are skipped. Their metrics are checked above.
    const judged = await own.run([
      ...['slo', '-rules=engine', `-scrape=${address}`, '-for=0', '-json'],
      '-skip=engine_keeps_up,engine_sink_flat',
    ]);
    const { rules } = JSON.parse(judged.stdout) as { rules: { id: string; verdict: string }[] };
    expect(rules).toHaveLength(7);
    expect(rules.filter(({ verdict }) => verdict === 'no_data')).toEqual([]);
    expect(rules).toContainEqual(expect.objectContaining({ id: 'engine_is_ready', verdict: 'met' }));
    const locked = await runEngine(own, args('http', '-bounded'));
    expect(locked).toMatchObject({
      code: 3,
      stderr: expect.stringContaining(`in use by process ${engine.pid}`),
    });
    await engine.drain();
  });
});

describeFull('silent partition', () => {
  const quiet = `engine-quiet-${own.suffix}`;
  const quietArgs = (name: string, ...more: readonly string[]): readonly string[] =>
    args(name, ...more).map((flag) => (flag.startsWith('-topic=') ? `-topic=${quiet}` : flag));

  beforeAll(async () => {
    // One account: all events are in one partition of two.
    const to = [`-out=kafka:${quiet}`, `-brokers=${stack.brokers}`, '-partitions=2'];
    const made = await own.run(['gen', '-kind=events', '-count=20000', '-per-ms=2', '-accounts=1', ...to]);
    expect(made.code).toBe(0);
  });

  it('a silent partition holds every window back until it is idle, and stays idle through SIGKILL', async () => {
    expect((await runEngine(own, quietArgs('held', '-exit-at-end', '-idle-timeout=0'))).code).toBe(0);
    expect(await exported('held')).toEqual([]);
    const idleOf = async (address: string): Promise<unknown> => {
      const answer = await fetch(`http://${address}/watermark?partitions=true`);
      const { partitions } = (await answer.json()) as { partitions: { consumed: number; idle: boolean }[] };
      return partitions.some(({ consumed, idle }) => consumed === 0 && idle) ? true : undefined;
    };
    const first = startEngine(own, quietArgs('held', '-idle-timeout=300ms'), 'idle');
    const address = await first.address();
    await until('an idle partition', () => idleOf(address));
    const rows = await until('results', async () => {
      const found = await exported('held');
      return found.length > 0 ? found : undefined;
    });
    await first.die();
    // Idleness detection is off: the restored idle state must still hold.
    const second = startEngine(own, quietArgs('held', '-idle-timeout=0'), 'idle-again');
    await until('the restore', async () => idleOf(await second.address()));
    await second.drain();
    expect(await exported('held')).toEqual(expect.arrayContaining(rows));
  });
});

describeFull('damaged checkpoints', () => {
  it('an engine falls back past a damaged checkpoint and refuses to start empty, each in one line', async () => {
    expect(
      (await runEngine(own, args('torn', '-exit-at-end', '-batch-rows=5000', '-checkpoint-interval=10ms')))
        .code,
    ).toBe(0);
    const names = await manifests('torn');
    expect(names.length).toBeGreaterThan(1);
    const newest = join(stateDir('torn'), names.at(-1) as string);
    const bytes = await readFile(newest);
    bytes[40] = (bytes[40] as number) ^ 4;
    await writeFile(newest, bytes);
    const back = await runEngine(own, args('torn', '-bounded'));
    expect(back.code).toBe(0);
    expect(back.stderr).toContain(`${names.at(-1)} has changed since it was written`);
    expect((await exported('torn')).sort()).toEqual(expected);
    for (const name of await readdir(stateDir('torn'))) {
      if (name.startsWith('changelog-')) await writeFile(join(stateDir('torn'), name), 'x');
    }
    const refused = await runEngine(own, args('torn', '-bounded', '-log-level=error'));
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/no checkpoint in .* can be restored: .*\[state_corrupt\]/);
    await rm(stateDir('torn'), { recursive: true });
  });
});

describeFull('bad input', () => {
  const cases: readonly (readonly [string, readonly string[], number, RegExp])[] = [
    ['an unknown window', ['-window=hopping'], 2, /choose from tumbling, sliding, session/],
    ['sliding windows without a slide', ['-window=sliding'], 2, /-window=sliding needs -slide/],
    ['a slide longer than the size', ['-window=sliding', '-slide=3s'], 2, /-slide of 3000 ms is longer than/],
    ['a slide for tumbling windows', ['-slide=1s'], 2, /-slide has no meaning for -window=tumbling/],
    ['a gap for tumbling windows', ['-gap=1s'], 2, /-gap has no meaning for -window=tumbling/],
    ['a size for sessions', ['-window=session', '-gap=1s'], 2, /-size has no meaning for -window=session/],
    ['sessions without a gap', ['-window=session'], 2, /-window=session needs -gap/],
    ['an unknown state', ['-state=tape'], 2, /choose from mem, disk/],
    [
      'a budget for state in memory',
      ['-state=mem', '-mem-budget=1GiB'],
      2,
      /changes nothing without -state=disk/,
    ],
    [
      'a budget too small',
      ['-state=disk', '-mem-budget=20MiB'],
      2,
      /20MiB leaves no memory for state .*give -mem-budget=\d+MiB or more/s,
    ],
    [
      'idleness of a global watermark',
      ['-watermark=global', '-idle-timeout=5s'],
      2,
      /-idle-timeout changes nothing with -watermark=global/,
    ],
    [
      'a table of a sink without tables',
      ['-sink=rocksdb', '-sink-table=t'],
      2,
      /-sink-table changes nothing without -sink=postgres…/,
    ],
    [
      'a migration of the default sink',
      ['-sink=rocksdb', '-migrate'],
      2,
      /-migrate changes nothing without -sink=postgres… or -sink=kafka:…/,
    ],
    [
      'an export wait of another sink',
      ['-export-wait=1m'],
      2,
      /-export-wait changes nothing without -sink=rocksdb…/,
    ],
    [
      'an export wait without an export',
      ['-sink=rocksdb', '-export-wait=1m'],
      2,
      /-export-wait changes nothing without export/,
    ],
    [
      'partitions without a new topic',
      ['-create-topics=false', '-partitions=3'],
      2,
      /-partitions changes nothing without/,
    ],
    [
      'replicas without a new topic',
      ['-create-topics=false', '-replication-factor=1'],
      2,
      /-replication-factor changes nothing/,
    ],
    [
      'a retention without a new topic',
      ['-create-topics=false', '-retention=1h'],
      2,
      /-retention changes nothing without -create-topics/,
    ],
    ['two ends of the run', ['-bounded', '-exit-at-end'], 2, /-exit-at-end changes nothing with -bounded/],
    ['an unknown flag', ['-sise=1m'], 2, /did you mean -size\?/],
    [
      'a missing table',
      ['-state=disk', `-sink=postgres:${stack.postgres}`],
      2,
      /run the engine with -migrate once/,
    ],
    ['an unknown sink', ['-sink=ftp:t'], 2, /choose from rocksdb, rocksdb:FOLDER, postgres:URL, kafka:TOPIC/],
    ['a fault that does not exist', ['-chaos=fire'], 2, /kill-after=N/],
    ['an unreachable broker', ['-brokers=127.0.0.1:1'], 3, /127\.0\.0\.1:1/],
    [
      'an unreachable database',
      ['-sink=postgres:postgres://x@127.0.0.1:1/x'],
      3,
      /PostgreSQL at 127\.0\.0\.1:1 .*check -sink and that/s,
    ],
    [
      'a missing topic',
      ['-topic=no-such-topic', '-create-topics=false'],
      2,
      /there is no topic no-such-topic/,
    ],
    ['a folder that cannot be created', ['-state-dir=/proc/engine'], 2, /cannot write \/proc\/engine/],
  ];
  it('engine export refuses -json and a missing sink table', async () => {
    const sink = `-sink=postgres:${stack.postgres}`;
    const json = await runEngine(own, ['export', sink, '-json', '-log-level=error']);
    expect(json).toMatchObject({ code: 2, stderr: expect.stringContaining('leave -json out') });
    const served = await runEngine(own, ['export', sink, '-listen=127.0.0.1:0', '-log-level=error']);
    expect(served).toMatchObject({ code: 2, stderr: expect.stringContaining('-listen changes nothing for') });
    const missing = await runEngine(own, ['export', sink, '-sink-table=no_such_table', '-log-level=error']);
    expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('-migrate') });
    expect(missing.stderr).not.toContain('listening');
  });

  it.concurrent.each(cases)(
    'an engine refuses bad input in one line: %s',
    async (what, flags, code, line) => {
      const given = new Set(flags.map((flag) => flag.split('=')[0]));
      const name = what.replaceAll(' ', '_');
      // A sink flag that does not apply to the given sink is an error of its own, so leave it out.
      if (given.has('-sink')) for (const flag of ['-sink-table', '-migrate']) given.add(flag);
      const rest = args(name, '-log-level=error').filter((flag) => !given.has(flag.split('=')[0]));
      const { code: got, stderr } = await runEngine(own, [...rest, ...flags]);
      expect(stderr).toMatch(line);
      expect(stderr.split('\n').filter((one) => one.startsWith('error:'))).toHaveLength(1);
      expect(got).toBe(code);
      // A refused start leaves nothing behind except the folder and its lock file, which is never
      // removed.
      const left = await readdir(stateDir(name)).catch(() => []);
      expect(left.filter((file) => file !== 'lock')).toEqual([]);
    },
  );
});
