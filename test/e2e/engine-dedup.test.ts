/** -dedup on a real broker and registry: through SIGKILLs an engine folds the first event of each
 *  identifier in each window, as an independent reading of the topic does. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { exportedRows, runEngine, startEngine } from '../fixtures/engine.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const ROUND = 2000;
const KILLS = ['kill-after=1200', 'after-changelog-sync@2', 'after-manifest-rename@1', 'kill-after=700'];
const EVENTS = ROUND * (KILLS.length + 1);
const SIZE_MS = 1000;
const AT = 1_750_000_000_000;
const topic = `dedup-${own.suffix}`;

interface Sent {
  readonly account: number;
  readonly id: string;
  readonly at: number;
  readonly amount: number;
}
/** Events in order of arrival, for each partition. */
const sent: Sent[][] = [[], []];
let admin: BrokerAdmin;
let producer: BatchProducer;

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-dedup', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  await admin.createTopics([{ topic, partitions: 2 }]);
});
afterAll(async () => {
  await producer?.close();
  await admin?.close();
});

/** Appends a round of events. Every third repeats the identifier of an earlier event of its key,
 *  with another amount. */
async function sendRound(round: number): Promise<void> {
  const rows = Array.from({ length: ROUND }, (_, i) => {
    const n = round * ROUND + i;
    const account = n % 20;
    const original = n % 3 === 2 ? n - 20 * (1 + (n % 7)) : n;
    const event = { account, id: `order-${original}`, at: AT + n, amount: n };
    const partition = account % 2;
    (sent[partition] as Sent[]).push(event);
    return { partition, value: Buffer.from(JSON.stringify(event)) };
  });
  expect((await producer.produce(batchOf(rows), [topic])).failed).toBe(0);
}

const state = `-state-dir=${join(own.dir, 'state')}`;
const args = (...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topic}`, '-format=json', state],
      ...[
        '-key=account',
        '-time=at:ms',
        '-value=amount',
        '-dedup=id',
        `-size=${SIZE_MS}ms`,
        '-batch-rows=300',
      ],
      ...['-checkpoint-interval=20ms', '-snapshot-after=16KiB', '-allowed-skew=100ms', '-allowed-lateness=0'],
    ],
    more,
  );

/** Count and sum of each window, and the number of duplicates. */
function expected() {
  const rows = new Map<string, { count: number; sum: number }>();
  const seen = new Set<string>();
  let duplicates = 0;
  for (const { account, id, at, amount } of sent.flat()) {
    const start = at - (at % SIZE_MS);
    const name = `${account},${start},${start + SIZE_MS}`;
    if (seen.has(`${name} ${id}`)) {
      duplicates++;
      continue;
    }
    seen.add(`${name} ${id}`);
    const row = rows.get(name) ?? { count: 0, sum: 0 };
    rows.set(name, { count: row.count + 1, sum: row.sum + amount });
  }
  return { rows: [...rows].map(([name, { count, sum }]) => `${name},${count},${sum}`).sort(), duplicates };
}

it('each window has the first event of every identifier, after a loop of SIGKILLs', async () => {
  const signals: Array<string | null> = [];
  for (const [round, chaos] of KILLS.entries()) {
    await sendRound(round);
    signals.push((await runEngine(own, args(`-chaos=${chaos}`, '-exit-at-end'))).signal);
  }
  expect(signals.filter((signal) => signal === 'SIGKILL').length).toBeGreaterThanOrEqual(3);
  await sendRound(KILLS.length);
  const engine = startEngine(own, args(), 'last');
  const address = await engine.address();
  await until('the end of the topic', async () =>
    (await metric(address, 'engine_events_total')) === EVENTS ? true : undefined,
  );
  expect(await metric(address, 'engine_duplicate_events_total')).toBeGreaterThan(0);
  expect(await metric(address, 'engine_dedup_ids')).toBeGreaterThan(0);
  expect(await metric(address, 'engine_dedup_bytes')).toBeGreaterThan(0);
  await engine.drain();
  expect(await runEngine(own, args('-bounded', '-json'))).toMatchObject({ code: 0 });
  const { rows, duplicates } = expected();
  const found = (await exportedRows(own, [state])).map((row) => row.split(',').slice(0, 5).join(','));
  expect(found.sort()).toEqual(rows);
  expect(duplicates).toBeGreaterThan(EVENTS / 10);
});

it('another field than that of the checkpoint, and the fixed layout, are refused', async () => {
  const other = await runEngine(own, args('-dedup=amount', '-log-level=error'));
  expect(other).toMatchObject({ code: 2, stderr: expect.stringMatching(/-dedup was id, is amount/) });
  const fixed = ['-format=binary256', '-dedup=seq', `-state-dir=${join(own.dir, 'fixed')}`];
  const refused = await runEngine(own, [`-brokers=${stack.brokers}`, `-topic=${topic}`, ...fixed]);
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringMatching(/-dedup has no meaning/) });
});
