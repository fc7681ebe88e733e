/** Consumer with an inbox on a real broker and database: each message has its effect once, despite
 *  poison records, duplicates, delays and outages. */
import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { coreError } from '../../src/core/errors.ts';
import { RecordBatch, type RecordInput } from '../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { createTopics } from '../../src/demo/contracts/topic.ts';
import { openBroker, systemClock, systemRandom } from '../../src/drivers.ts';
import { CONSUMER_DEFAULTS } from '../../src/outbox/defaults.ts';
import { outboxError } from '../../src/outbox/errors.ts';
import { InboxConsumer, type InboxConsumerOptions } from '../../src/outbox/inbox/consumer.ts';
import { Inbox } from '../../src/outbox/inbox/once.ts';
import { redriveParked } from '../../src/outbox/inbox/redrive.ts';
import { dropPartitions, makePartitions } from '../../src/outbox/inbox/retention/partitions.ts';
import { readTopicAges } from '../../src/outbox/inbox/retention/topic-ages.ts';
import { parkedDigestSql, parkedTableSql } from '../../src/outbox/inbox/table.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock, until as untilWithin } from '../wait.ts';
import { HOUR_MS, idAt, inboxWorld, T0, v4 } from './inbox-kit.ts';

const stack = await sharedStack();
const suffix = randomUUID().slice(0, 8);
const world = await inboxWorld();
const inbox = new Inbox();
const driver = await openBroker();
await world.pool.query(parkedTableSql('parked') + parkedDigestSql('parked'));
await world.pool.query(
  "CREATE TABLE effects (place bigserial PRIMARY KEY, msg_id uuid NOT NULL, note text CHECK (note <> 'unwanted'))",
);

async function append(topic: string, records: readonly RecordInput[]): Promise<void> {
  const producer = await driver.producer({
    brokers: stack.brokers,
    clientId: 'library-test',
    connectTimeoutMs: 60_000,
    acks: -1,
  });
  try {
    const batch = RecordBatch.create(records.length, 1 << 20);
    for (const one of records) expect(batch.append(one)).toBe(true);
    expect((await producer.produce(batch, [topic])).events).toEqual([]);
  } finally {
    await producer.close();
  }
}

/** Waits up to 90 s, because rebalances take seconds and longer on a busy machine. */
const until = <T>(what: string, ask: () => Promise<T | undefined>): Promise<T> =>
  untilWithin(what, ask, 90_000);
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const record = (id: string | undefined, note: string, partition = 0): RecordInput => ({
  key: bytes('k'),
  value: bytes(note),
  partition,
  headers:
    id === undefined
      ? []
      : [
          ['ce_id', bytes(id)],
          ['empty', null],
        ],
});
const effectsOf = async (ids: readonly string[]): Promise<string[]> =>
  (
    await world.pool.query<{ id: string }>(
      'SELECT msg_id::text AS id FROM effects WHERE msg_id = ANY ($1::uuid[]) ORDER BY place',
      [[...ids]],
    )
  ).rows.map((row) => row.id);
const parkedOf = async (topic: string) =>
  (
    await world.pool.query<{ reason: string; detail: string; value: Uint8Array; headers: string }>(
      'SELECT reason, detail, value, headers::text AS headers FROM parked WHERE topic = $1 ORDER BY partition, "offset"',
      [topic],
    )
  ).rows;
const handle: InboxConsumerOptions['handle'] = async (session, { msgId, value }) => {
  const note = Buffer.from(value ?? []).toString();
  if (note === 'poison') throw outboxError('poison_record', 'unreadable on purpose');
  if (note === 'broken') throw new TypeError('no such thing');
  await session.query('INSERT INTO effects (msg_id, note) VALUES ($1, $2)', [msgId, note]);
};

const stops: Array<() => Promise<void>> = [];
afterAll(async () => {
  for (const stop of stops) await stop();
});

/** Starts a member of the topic's group; it runs until `stop` is called. */
function start(topic: string, over: Partial<InboxConsumerOptions> = {}) {
  const drain = new AbortController();
  const metrics = new Metrics();
  const consumer = new InboxConsumer({
    connect: (hooks) =>
      driver.consumer({
        ...hooks,
        brokers: stack.brokers,
        clientId: 'library-test',
        connectTimeoutMs: 60_000,
        group: topic,
        autoOffsetReset: 'earliest',
        properties: { 'session.timeout.ms': 45_000 },
      }),
    topics: [topic],
    pool: world.pool,
    inbox,
    parkedTable: 'parked',
    handle,
    metrics,
    log: silentLogger,
    clock: systemClock,
    random: systemRandom,
    drain: drain.signal,
    batchRows: 100,
    batchBytes: 64 * 1024,
    batchWaitMs: 50,
    attempts: 2,
    retry: { ...CONSUMER_DEFAULTS.retry, budgetMs: 500 },
    ...over,
  });
  const ended = consumer.run();
  ended.catch(() => {});
  const stop = async (): Promise<void> => {
    drain.abort();
    await ended;
  };
  stops.push(stop);
  return { consumer, metrics, stop };
}

async function topicOf(name: string, partitions: number, records: readonly RecordInput[]): Promise<string> {
  const topic = `library-${suffix}-${name}`;
  await createTopics(stack.brokers, [{ topic, partitions }]);
  await append(topic, records);
  return topic;
}

describe('mixed batch', () => {
  const good = Array.from({ length: 40 }, () => idAt(realClock.wallNowMs()));
  const [poison, broken, unwanted, late] = [v4(), v4(), idAt(realClock.wallNowMs()), idAt(T0 + 5)] as const;

  it('a mixed batch has each effect once and in order, and parks records that cannot have an effect', async () => {
    await makePartitions(world.pool, inbox.names, { fromMs: T0, toMs: T0 + HOUR_MS, widthMs: HOUR_MS });
    await world.pool.transaction((session) => dropPartitions(session, inbox.names, T0 + HOUR_MS));
    const topic = await topicOf('mixed', 1, [
      ...good.slice(0, 20).map((id) => record(id, 'first')),
      record(poison, 'poison'),
      record(good[3], 'repeated immediately'),
      record(broken, 'broken'),
      record(undefined, 'no id'),
      record('not-a-uuid', 'no uuid'),
      record(unwanted, 'unwanted'),
      record(late, 'of a dropped hour'),
      ...good.slice(20).map((id) => record(id.toUpperCase(), 'second')),
      ...good.slice(10, 30).map((id) => record(id, 'repeated')),
      record(undefined, 'x'.repeat(200_000)),
    ]);
    const first = start(topic);
    await until('all effects', async () => ((await effectsOf(good)).length >= 40 ? true : undefined));
    await until('all parked', async () => ((await parkedOf(topic)).length >= 7 ? true : undefined));
    // Records behind a quarantined record of their key are processed last.
    const duplicates = first.metrics.counter('inbox_duplicates_total', '');
    await until('all duplicates', async () => (duplicates.value() >= 21 ? true : undefined));
    await first.stop();
    expect(await effectsOf(good)).toEqual(good);
    const parked = await parkedOf(topic);
    expect(parked.map((one) => one.reason)).toEqual([
      'refused',
      'refused',
      'malformed_payload',
      'malformed_payload',
      'refused',
      'undecidable',
      'malformed_payload',
    ]);
    expect(parked.map((one) => one.detail.slice(0, 30))).toEqual(
      expect.arrayContaining([expect.stringContaining('23514'), 'no such thing', 'unreadable on purpose']),
    );
    expect(JSON.parse(parked[0]?.headers ?? '')).toEqual([
      ['ce_id', Buffer.from(poison).toString('base64')],
      ['empty', null],
    ]);
    const { metrics } = first;
    expect(metrics.counter('inbox_effects_total', '').value()).toBe(40);
    expect(duplicates.value()).toBe(21);
    const parkedTotal = metrics.counter('inbox_parked_total', '', ['reason']);
    expect(parkedTotal.value(parkedTotal.series('undecidable'))).toBe(1);
    const [batches] = metrics.histogram('inbox_batch_seconds', '').snapshot().samples;
    expect(batches?.count).toBeGreaterThan(0);

    // The next member starts at the committed offsets, so it gets only the newly appended records.
    const more = [v4(), good[0] as string];
    await append(
      topic,
      more.map((id) => record(id, 'later')),
    );
    const second = start(topic);
    await until('the effects of the later records', async () =>
      (await effectsOf(more.slice(0, 1))).length > 0 ? true : undefined,
    );
    await second.stop();
    expect(second.metrics.counter('inbox_effects_total', '').value()).toBe(1);
    expect(second.metrics.counter('inbox_duplicates_total', '').value()).toBe(1);
    expect(await effectsOf(good)).toEqual(good);
  }, 300_000);

  it('a parked record is redriven once after its cause is removed', async () => {
    await world.pool.query('ALTER TABLE effects DROP CONSTRAINT effects_note_check');
    const options = { pool: world.pool, inbox, parkedTable: 'parked', handle, log: silentLogger };
    expect(await redriveParked({ ...options, reasons: ['refused'] })).toEqual({ done: 1, seen: 0, left: 2 });
    expect(await effectsOf([unwanted])).toEqual([unwanted]);
    expect(await redriveParked({ ...options, reasons: ['refused'] })).toEqual({ done: 0, seen: 0, left: 2 });
    await expect(redriveParked({ ...options, reasons: ['undecidable'] })).rejects.toMatchObject({
      code: 'bad_event',
    });
    const missing = { ...options, undecidableAreMissing: true, reasons: ['undecidable'] } as const;
    expect(await redriveParked(missing)).toEqual({ done: 1, seen: 0, left: 0 });
    expect(await effectsOf([late])).toEqual([late]);
    expect(await redriveParked({ ...options, reasons: ['malformed_payload'] })).toEqual({
      done: 0,
      seen: 0,
      left: 3,
    });
  });
});

describe('faults', () => {
  it('each effect happens once through cut connections, a failing handler and members that leave', async () => {
    const ids = Array.from({ length: 900 }, (_, i) => (i % 4 === 0 ? v4() : idAt(realClock.wallNowMs() + i)));
    const topic = await topicOf(
      'faults',
      2,
      ids.flatMap((id, i) => [
        record(id, 'once', i % 2),
        ...(i % 3 === 0 ? [record(id, 'again', (i + 1) % 2)] : []),
      ]),
    );
    let failures = 0;
    let waits = 0;
    const members: Metrics[] = [];
    const flaky: InboxConsumerOptions['handle'] = async (session, one) => {
      waits += members.filter((of) => of.gauge('inbox_database_waiting', '').value() === 1).length;
      if (failures < 3 && one.offset % 100n === 7n) {
        failures++;
        throw coreError('unreachable', 'a dependency of the handler is unavailable');
      }
      await handle(session, one);
    };
    const first = start(topic, { handle: flaky, batchRows: 50 });
    members.push(first.metrics);
    await until('the first effects', async () => ((await effectsOf(ids)).length > 100 ? true : undefined));
    const second = start(topic, { handle: flaky, batchRows: 50 });
    for (let cut = 0; cut < 5; cut++) {
      await world.pool
        .query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE application_name = $1 AND pid <> pg_backend_pid()`,
          [world.schema],
        )
        .catch(() => {});
      await until('rows', async () => ((await effectsOf(ids)).length > (cut + 1) * 140 ? true : undefined));
    }
    await first.stop();
    await until('all effects', async () => ((await effectsOf(ids)).length >= ids.length ? true : undefined));
    await second.stop();
    const effects = await effectsOf(ids);
    expect(effects).toHaveLength(ids.length);
    expect(new Set(effects)).toEqual(new Set(ids));
    expect(await parkedOf(topic)).toEqual([]);
    expect(failures).toBe(3);
    // The consumer waits for the unavailable dependency as it waits for the database, until the
    // batch is finished.
    expect(waits).toBeGreaterThan(0);
    expect(first.metrics.gauge('inbox_database_waiting', '').value()).toBe(0);
  }, 300_000);
});

describe.each(['on', 'off'] as const)('topic ages, with the addon %s', (native) => {
  const nowMs = realClock.wallNowMs();
  const at = (agoMs: number, id?: string, partition = 0): RecordInput => ({
    ...record(id, 'x', partition),
    timestamp: BigInt(nowMs - agoMs),
  });
  const ages = async (topic: string, group?: string) =>
    readTopicAges({
      driver: await openBroker(native),
      brokers: stack.brokers,
      topic,
      group,
      timeoutMs: 10_000,
    });

  it('the ages of a topic come from its first records, from their timestamps and from the times in their ids', async () => {
    const topic = `library-${suffix}-ages-${native}`;
    await createTopics(stack.brokers, [
      { topic, partitions: 3, config: { 'retention.ms': String(720 * HOUR_MS) } },
    ]);
    expect(await ages(topic)).toEqual({
      retentionMs: 720 * HOUR_MS,
      oldestRecordMs: undefined,
      oldestUncommittedMs: undefined,
    });
    await append(topic, [at(5 * HOUR_MS), at(HOUR_MS), at(2 * HOUR_MS, v4(), 1)]);
    expect(await ages(topic)).toMatchObject({ oldestRecordMs: nowMs - 5 * HOUR_MS });
    await append(topic, [at(4 * HOUR_MS, idAt(nowMs - 9 * HOUR_MS), 2)]);
    expect(await ages(topic)).toMatchObject({ oldestRecordMs: nowMs - 9 * HOUR_MS });

    const group = `${topic}-group`;
    const member = await driver.consumer({
      brokers: stack.brokers,
      clientId: 'ages',
      connectTimeoutMs: 60_000,
      group,
    });
    await member.assign([0, 2].map((partition) => ({ topic, partition, offset: 0n })));
    await member.commit([
      { topic, partition: 0, offset: 1n },
      { topic, partition: 2, offset: 1n },
    ]);
    await member.close();
    // Uncommitted records: partition 0 from its second record on, partition 1 from its first;
    // partition 2 has none.
    expect(await ages(topic, group)).toMatchObject({
      oldestRecordMs: nowMs - 9 * HOUR_MS,
      oldestUncommittedMs: nowMs - 2 * HOUR_MS,
    });
  });

  it('the ages report a topic that keeps everything, and one that is missing', async () => {
    const topic = `library-${suffix}-keeps-${native}`;
    await createTopics(stack.brokers, [
      { topic, partitions: 1, config: { 'cleanup.policy': 'compact', 'retention.ms': '1000' } },
    ]);
    expect((await ages(topic)).retentionMs).toBe(Number.POSITIVE_INFINITY);
    await expect(ages(`${topic}-not`)).rejects.toMatchObject({ code: 'topic_missing' });
  });
});
