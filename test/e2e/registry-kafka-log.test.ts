/** The Kafka store without a registry, against a real broker: the records that it stores, the
 *  instance that may write, and the view of other readers. */
import { afterEach, describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../src/core/log.ts';
import { systemRandom } from '../../src/io/clock/system.ts';
import type { BrokerDriver, TransactionalProducer } from '../../src/io/kafka/port.ts';
import { KafkaLog, type KafkaLogOptions } from '../../src/registry/store/kafka/log.ts';
import type { LogRecord } from '../../src/registry/store/log.ts';
import { allOf, batchOf, fresh, readUntil, text, utf8 } from '../contract/broker-world.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { createTopic } from '../fixtures/topic.ts';
import { realClock, until } from '../wait.ts';

const stack = await sharedStack();
const driver: BrokerDriver =
  process.env['MILLRACE_NATIVE'] === 'off'
    ? (await import('../../src/io/kafka/node-rdkafka/driver.ts')).nodeRdkafkaDriver
    : (await import('../../src/io/kafka/librdkafka.ts')).librdkafkaDriver;
const broker = { brokers: stack.brokers, clientId: 'registry-kafka-log', connectTimeoutMs: 60_000 };

const open: Array<{ close(): Promise<void> }> = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

/** Collects the records of a log: the last value of each key, and the number of records. */
class Sink {
  readonly values = new Map<string, string | null>();
  count = 0;
  apply(records: readonly LogRecord[]): void {
    for (const { key, value } of records) this.values.set(text(key) as string, text(value));
    this.count += records.length;
  }
}

const record = (key: string, value: string | null): LogRecord => ({
  key: utf8.encode(key),
  value: value === null ? null : utf8.encode(value),
});

/** Longer than any stall, so that only the actions of the instances decide who leads and what is
 *  read. */
const LONG_LIMITS = { leaseMs: 60_000, catchUpMs: 60_000, firstTermMs: 200_000 };

async function log(topic: string, options: Partial<KafkaLogOptions> = {}) {
  const sink = new Sink();
  const made = new KafkaLog({
    driver,
    brokers: stack.brokers,
    topic,
    log: silentLogger,
    clock: realClock,
    random: systemRandom,
    ...LONG_LIMITS,
    url: `http://${fresh('host')}`,
    ...options,
  });
  open.push(made);
  const report = await made.open(sink);
  return { log: made, sink, report };
}

/** Opens a log like log(), and resolves once it leads. */
async function openLeader(topic: string, options: Partial<KafkaLogOptions> = {}) {
  const made = await log(topic, options);
  await until('a leader', () => made.log.role().leader);
  return made;
}

/** Returns the last value of each key, as a reader of uncommitted rows sees it. */
async function uncommitted(topic: string): Promise<Map<string, string | null>> {
  const consumer = await driver.consumer({ ...broker, isolation: 'uncommitted', partitionEof: true });
  open.push(consumer);
  const { high } = await consumer.watermarkOffsets({ topic, partition: 0 }, 60_000);
  await consumer.assign(allOf(topic, 1));
  const into = RecordBatch.create(1000, 1 << 20);
  const { rows } = await readUntil(consumer, (so) => so.ends.some(({ offset }) => offset >= high), { into });
  return new Map(rows.map(({ key, value }) => [key as string, value]));
}

/** Opens a producer with the right to write; this fences the current leader. */
async function fencingProducer(topic: string): Promise<TransactionalProducer> {
  const producer = await driver.transactional({ ...broker, transactionalId: `millrace-registry-${topic}` });
  open.push(producer);
  expect(await producer.init(60_000)).toBeUndefined();
  return producer;
}

describe('Kafka store', () => {
  it('the Kafka store creates its topic, stores the appended records, and returns them to the next process', async () => {
    const topic = fresh('schemas');
    const first = await log(topic);
    expect(first.report).toEqual({ records: 0, tornBytes: 0 });
    expect(first.log.role()).toEqual({ leader: true });
    await first.log.append([record('a', '1'), record('b', '2')]);
    await first.log.append([record('a', '3'), record('b', null)]);
    await first.log.catchUp();
    // A process applies its own appends when it reads them from the log.
    expect(first.sink.count).toBe(4);
    await first.log.close();
    const second = await log(topic);
    expect(second.report.records).toBe(4);
    expect([...second.sink.values]).toEqual([
      ['a', '3'],
      ['b', null],
    ]);
    expect(second.log.role()).toEqual({ leader: true });
    const admin = await driver.admin(broker);
    open.push(admin);
    const facts = await admin.describeTopic(topic);
    expect(facts?.partitions).toBe(1);
    expect(facts?.config?.get('cleanup.policy')).toBe('compact');
  });

  it('the Kafka store refuses a topic of several partitions, and one that is not compacted', async () => {
    const wide = fresh('schemas');
    await createTopic(stack.brokers, wide, 2, { 'cleanup.policy': 'compact' });
    await expect(log(wide)).rejects.toMatchObject({ code: 'store_unfit', message: /2 partitions/ });
    const aging = fresh('schemas');
    await createTopic(stack.brokers, aging, 1, { 'cleanup.policy': 'delete' });
    await expect(log(aging)).rejects.toMatchObject({
      code: 'store_unfit',
      message: /cleanup\.policy is delete/,
    });
    // No leader topic was created for the refused topics.
    const admin = await driver.admin(broker);
    open.push(admin);
    for (const topic of [wide, aging]) expect(await admin.describeTopic(`${topic}-leader`)).toBeUndefined();
  });

  it('a follow-only reader creates nothing, and neither leads nor fences', async () => {
    const topic = fresh('schemas');
    await expect(log(topic, { follow: true })).rejects.toMatchObject({
      code: 'store_unfit',
      message: `there is no topic ${topic}`,
    });
    const admin = await driver.admin(broker);
    open.push(admin);
    for (const name of [topic, `${topic}-leader`]) expect(await admin.describeTopic(name)).toBeUndefined();
    // The topic of another registry has no leader topic.
    await createTopic(stack.brokers, topic, 1, { 'cleanup.policy': 'compact' });
    const alone = await log(topic, { follow: true });
    expect(alone.log.role()).toEqual({ leader: false, url: undefined });
    expect(await admin.describeTopic(`${topic}-leader`)).toBeUndefined();
    const leader = await openLeader(topic);
    await leader.log.append([record('a', '1')]);
    const follower = await log(topic, { follow: true });
    expect(Object.fromEntries(follower.sink.values)).toEqual({ a: '1' });
    await expect(follower.log.append([record('a', '2')])).rejects.toMatchObject({ code: 'not_leader' });
    await follower.log.close();
    await leader.log.append([record('a', '3')]);
    await alone.log.catchUp();
    expect(Object.fromEntries(alone.sink.values)).toEqual({ a: '3' });
    expect(leader.log.role()).toEqual({ leader: true });
  });

  it('the next instance leads immediately when the leader resigns', async () => {
    const topic = fresh('schemas');
    // A lease longer than the time limit of this test.
    const first = await openLeader(topic, { leaseMs: 600_000 });
    const second = await log(topic, { leaseMs: 600_000 });
    await first.log.append([record('a', '1')]);
    await first.log.close();
    await until('a leader', () => second.log.role().leader);
    expect(second.sink.values.get('a')).toBe('1');
    await second.log.append([record('a', '2')]);
    const third = await log(topic);
    expect(third.sink.values.get('a')).toBe('2');
    expect(third.log.role().leader).toBe(false);
  });

  it('an overtaken leader is fenced, and its append is discarded', async () => {
    const topic = fresh('schemas');
    const leader = await openLeader(topic);
    await leader.log.append([record('a', '1')]);
    await fencingProducer(topic);
    await expect(leader.log.append([record('a', 'never')])).rejects.toMatchObject({ code: 'not_leader' });
    expect(leader.log.role().leader).toBe(false);
    const reader = await log(topic, { follow: true });
    expect(Object.fromEntries(reader.sink.values)).toEqual({ a: '1' });
  });

  it('an aborted transaction leaves no ghost record for a reader of uncommitted rows', async () => {
    const topic = fresh('schemas');
    const first = await openLeader(topic);
    await first.log.append([record('kept', 'old'), record('gone', 'x'), record('late', '1')]);
    await first.log.append([record('gone', null)]);
    await first.log.close();
    const other = await fencingProducer(topic);
    await other.begin();
    const rows = [
      { partition: 0, key: utf8.encode('kept'), value: utf8.encode('ghost') },
      { partition: 0, key: utf8.encode('never'), value: utf8.encode('ghost') },
      { partition: 0, key: utf8.encode('gone'), value: utf8.encode('ghost') },
    ];
    expect((await other.produce(batchOf(rows), [topic])).failed).toBe(0);
    expect((await uncommitted(topic)).get('never')).toBe('ghost');
    // The transaction stays open: the next leader aborts it.
    const second = await log(topic);
    expect(second.log.role()).toEqual({ leader: true });
    const stored = { kept: 'old', never: null, gone: null, late: '1' };
    expect(Object.fromEntries(second.sink.values)).toEqual(stored);
    expect(Object.fromEntries(await uncommitted(topic))).toEqual(stored);
  });

  it('the leader refuses a record that the topic would not accept, and continues to lead', async () => {
    const topic = fresh('schemas');
    const rows = Array.from({ length: 40 }, (_, i) => record(`k${i}`, 'x'.repeat(1500)));
    await createTopic(stack.brokers, topic, 1, { 'cleanup.policy': 'compact', 'max.message.bytes': '20000' });
    const { log: leader } = await openLeader(topic);
    await expect(leader.append([record('a', 'x'.repeat(30_000))])).rejects.toMatchObject({
      code: 'store_failed',
      message: /larger than topic/,
    });
    await leader.append([record('a', 'x'.repeat(10_000))]);
    // Records that exceed the limit together are sent in several batches.
    await leader.append(rows);
    expect(leader.role().leader).toBe(true);
  });
});
