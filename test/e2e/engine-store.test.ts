/** `-checkpoint-store` on a real broker, in a folder and in an emulator of S3 with conditional PUT:
 *  the job of a dead machine continues on another with the same results, a standby takes over, and
 *  an owner that was replaced writes nothing more. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { type S3Emulator, startS3 } from '../clients/s3.ts';
import { batchOf } from '../contract/broker-world.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { locks } from '../locks.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const ROUND = 10_000;
const SIZE_MS = 10_000;
const AT = 1_750_000_020_000;
let admin: BrokerAdmin;
let producer: BatchProducer;
let s3: S3Emulator;

beforeAll(async () => {
  s3 = await startS3('millrace');
  Object.assign(process.env, s3.env);
  const options = { brokers: stack.brokers, clientId: 'engine-store', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
}, 300_000);
afterAll(async () => {
  await producer?.close();
  await admin?.close();
  await s3?.close();
});

const eventOf = (n: number) => ({ user: `user-${n % 300}`, at: AT + n * 10, amount: n });

/** A topic, its events so far, and the expected rows of its windows. */
class Topic {
  readonly name: string;
  private sent = 0;
  constructor(name: string) {
    this.name = `store-${name}-${own.suffix}`;
  }
  get count(): number {
    return this.sent;
  }
  async open(): Promise<this> {
    await admin.createTopics([{ topic: this.name, partitions: 2 }]);
    return this;
  }
  async send(): Promise<void> {
    const rows = Array.from({ length: ROUND }, (_, i) => {
      const n = this.sent + i;
      return { partition: n % 2, value: Buffer.from(JSON.stringify(eventOf(n))) };
    });
    expect((await producer.produce(batchOf(rows, 4 << 20), [this.name])).failed).toBe(0);
    this.sent += ROUND;
  }
  expected(): string[] {
    const rows = new Map<string, { count: number; sum: number }>();
    for (let n = 0; n < this.sent; n++) {
      const { user, at, amount } = eventOf(n);
      const start = at - (at % SIZE_MS);
      const name = `${user},${start},${start + SIZE_MS}`;
      const row = rows.get(name) ?? { count: 0, sum: 0 };
      rows.set(name, { count: row.count + 1, sum: row.sum + amount });
    }
    return [...rows].map(([name, { count, sum }]) => `${name},${count},${sum}`).sort();
  }
}

const folder = (name: string): string => join(own.dir, name);
const flags = (topic: Topic, state: string, store: string, ...more: readonly string[]): readonly string[] => [
  ...[
    `-brokers=${stack.brokers}`,
    `-topic=${topic.name}`,
    `-state-dir=${folder(state)}`,
    `-size=${SIZE_MS}ms`,
  ],
  ...['-format=json', '-key=user', '-time=at:ms', '-value=amount', '-idle-timeout=0', '-allowed-skew=100ms'],
  ...['-snapshot-after=32KiB', '-checkpoint-interval=100ms', '-batch-rows=500', '-allowed-lateness=0'],
  ...[`-checkpoint-store=${store}`, '-checkpoint-store-interval=100ms', ...more],
];

async function rowsOf(state: string, ...sink: readonly string[]): Promise<string[]> {
  const { code, stdout, stderr } = await runEngine(own, ['export', `-state-dir=${folder(state)}`, ...sink]);
  expect(code, stderr).toBe(0);
  const [, ...rows] = stdout.trim().split('\n');
  return rows.map((row) => row.split(',').slice(0, 5).join()).sort();
}

interface Line {
  readonly msg: string;
  readonly [field: string]: unknown;
}
const linesOf = (one: Pick<Running, 'log'>): Line[] =>
  one
    .log()
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Line);
const lineOf = (one: Pick<Running, 'log'>, msg: string): Line | undefined =>
  linesOf(one).findLast((line) => line.msg === msg);

/** Waits until the newest stored checkpoint has all events. */
async function stored(one: Running, topic: Topic): Promise<void> {
  const address = await one.ready();
  await until('the events', async () => ((await consumedAt(address)) === topic.count ? true : undefined));
  const before = linesOf(one).filter(({ msg }) => msg === 'checkpoint stored').length;
  // The one after the next began after the last event.
  await until('a stored checkpoint of all events', () =>
    linesOf(one).filter(({ msg }) => msg === 'checkpoint stored').length >= before + 2 ? true : undefined,
  );
}

/** Stops a process outside of the replacements of a store in a folder. Inside of one it holds the
 *  lock of the folder, so that no process could take its lease. */
async function stopUnlocked(one: Running, store: string): Promise<void> {
  await until('a stop outside of a replacement', async () => {
    one.kill('SIGSTOP');
    if (store.startsWith('s3:')) return true;
    const outcome = await locks.tryLock(store);
    if ('lock' in outcome) {
      outcome.lock.release();
      return true;
    }
    one.kill('SIGCONT');
    return undefined;
  });
}

describe.each([
  ['a folder', (name: string): string => folder(`store-${name}`)],
  ['S3', (name: string): string => `s3://millrace/${own.suffix}/${name}`],
])('checkpoints in %s', (where, storeOf) => {
  const kind = where === 'S3' ? 's3' : 'dir';

  it('the job of a dead machine continues on another, with the same results and without a second reading', async () => {
    const topic = await new Topic(`dead-${kind}`).open();
    const store = storeOf('dead');
    await topic.send();
    const first = startEngine(own, flags(topic, `${kind}-a`, store), 'first');
    await stored(first, topic);
    await topic.send();
    // In the middle of the second half, most likely in the middle of an upload.
    const address = await first.address();
    await until('some of the second half', async () =>
      (await consumedAt(address)) > ROUND ? true : undefined,
    );
    await first.die();
    rmSync(folder(`${kind}-a`), { recursive: true });
    await topic.send();
    const second = await runEngine(own, flags(topic, `${kind}-b`, store, '-bounded', '-json'));
    expect(second, second.stderr).toMatchObject({ code: 0 });
    const log = { log: () => second.stderr };
    expect(lineOf(log, 'lease of the job taken')).toMatchObject({ epoch: 2 });
    expect(lineOf(log, 'checkpoint fetched from the store')).toMatchObject({ files: expect.any(Number) });
    expect(lineOf(log, 'restored from a checkpoint')?.['consumed']).toBeGreaterThanOrEqual(ROUND);
    expect(JSON.parse(second.stdout)).toMatchObject({ consumed: 3 * ROUND, droppedLate: 0, invalid: 0 });
    expect(await rowsOf(`${kind}-b`)).toEqual(topic.expected());
  });

  it('a standby takes over a killed engine without reading the first record again', async () => {
    const topic = await new Topic(`standby-${kind}`).open();
    const store = storeOf('standby');
    await topic.send();
    const first = startEngine(own, flags(topic, `${kind}-c`, store), 'active');
    const standby = await first
      .ready()
      .then(() => startEngine(own, flags(topic, `${kind}-d`, store, '-standby'), 'standby'));
    await stored(first, topic);
    await until('a waiting standby', () => lineOf(standby, 'standby: another engine runs the job'));
    await topic.send();
    await first.die();
    await stored(standby, topic);
    expect(lineOf(standby, 'lease of the job taken')).toMatchObject({ epoch: 2 });
    expect(lineOf(standby, 'restored from a checkpoint')?.['consumed']).toBeGreaterThanOrEqual(ROUND);
    await standby.drain();
    const ended = await runEngine(own, flags(topic, `${kind}-d`, store, '-bounded'));
    expect(ended, ended.stderr).toMatchObject({ code: 0 });
    // The lease was released, and the state of the folder is the newest one.
    expect(lineOf({ log: () => ended.stderr }, 'checkpoint fetched from the store')).toBeUndefined();
    expect(await rowsOf(`${kind}-d`)).toEqual(topic.expected());
  });

  it('two engines never run one job: a second is refused, and an owner that was replaced ends', async () => {
    const topic = await new Topic(`fenced-${kind}`).open();
    const store = storeOf('fenced');
    await topic.send();
    const first = startEngine(own, flags(topic, `${kind}-e`, store), 'paused');
    await stored(first, topic);
    const refused = await runEngine(own, flags(topic, `${kind}-f`, store));
    expect(refused).toMatchObject({ code: 3, stderr: expect.stringContaining('[state_locked]') });
    await stopUnlocked(first, store);
    const second = startEngine(own, flags(topic, `${kind}-g`, store, '-standby'), 'successor');
    await topic.send();
    await stored(second, topic);
    first.kill('SIGCONT');
    expect(await first.ended).toMatchObject({ code: 3 });
    expect(first.log()).toContain('[store_fenced]');
    await stored(second, topic);
    await second.drain();
    const ended = await runEngine(own, flags(topic, `${kind}-g`, store, '-bounded'));
    expect(ended, ended.stderr).toMatchObject({ code: 0 });
    expect(await rowsOf(`${kind}-g`)).toEqual(topic.expected());
    // The state of the replaced owner is not used again.
    const back = await runEngine(own, flags(topic, `${kind}-e`, store, '-bounded'));
    expect(back, back.stderr).toMatchObject({ code: 0 });
    expect(lineOf({ log: () => back.stderr }, 'checkpoint fetched from the store')).toBeDefined();
    expect(await rowsOf(`${kind}-e`)).toEqual(topic.expected());
  });
});

describe('results in a folder that both machines reach', () => {
  it('a Parquet sink continues in its folder on another machine, and each start warns once of the folder', async () => {
    const topic = await new Topic('parquet').open();
    const results = folder('results');
    const sink = `-sink=parquet:${results}`;
    const run = (state: string, ...more: readonly string[]) =>
      flags(topic, state, folder('store-parquet'), sink, '-migrate', ...more);
    const warnings = (one: Pick<Running, 'log'>) => linesOf(one).filter((line) => line['folder'] === results);
    await topic.send();
    const first = startEngine(own, run('parquet-a'), 'parquet');
    await stored(first, topic);
    expect(warnings(first)).toHaveLength(1);
    await first.die();
    await topic.send();
    const second = await runEngine(own, run('parquet-b', '-bounded'));
    expect(second, second.stderr).toMatchObject({ code: 0 });
    expect(warnings({ log: () => second.stderr })).toHaveLength(1);
    expect(await rowsOf('parquet-b', sink)).toEqual(topic.expected());
    expect(readdirSync(results).filter((name) => /unfinished|tmp/.test(name))).toEqual([]);
  });
});

describe('flags of the checkpoint store', () => {
  it('a store that cannot be used is refused with one error', async () => {
    const topic = await new Topic('flags').open();
    const cases = [
      [['-checkpoint-store=s3://Bad'], 2, 'not an address of a bucket'],
      [['-checkpoint-store=s3://nowhere/x'], 2, 'NoSuchBucket'],
      [['-checkpoint-store=/proc/none'], 3, '[store_unavailable]'],
      [[`-checkpoint-store=${folder('x')}`, `-sink=rocksdb:${folder('y')}`], 2, 'lost with its machine'],
      [['-standby'], 2, '-standby'],
    ] as const;
    for (const [more, code, text] of cases) {
      const plain = flags(topic, 'flags', '').filter((flag) => !flag.startsWith('-checkpoint-store'));
      const refused = await runEngine(own, [...plain, ...more]);
      expect(refused.stderr).toContain(text);
      expect(refused.code, text).toBe(code);
    }
  });
});
