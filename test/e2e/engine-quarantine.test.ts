/** The engine's quarantine on a real broker and registry: after kills it has every invalid record
 *  whole, an independent reader counts them, and the consumer's commands list and redrive them. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { runConsumer } from '../fixtures/consumer.ts';
import { exportedRows, runEngine, startEngine } from '../fixtures/engine.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { avro, MemoryRegistry } from '../unit/engine/input/input-kit.ts';
import { until } from '../wait.ts';
import { recordsIn } from './quarantine-kit.ts';

const own = launcher();
const stack = await sharedStack();
const PARTITIONS = 3;
const ROUND = 900;
/** Each process is killed at one of these, while it reads a round. */
const KILLS = [
  'kill-after=400',
  'before-changelog-sync@1',
  'after-changelog-sync@1',
  'kill-after=800',
  'after-changelog-sync@2',
  'before-manifest-rename@1',
  'after-changelog-sync@3',
  'kill-after=600',
];
const EVENTS = ROUND * (KILLS.length + 1);
const AT = 1_750_000_000_000;
const topic = `invalid-${own.suffix}`;

let registry = '';
let admin: BrokerAdmin;
let producer: BatchProducer;
let frameOf: (value: object) => Buffer;
/** Records of the topic: place, value, and the reason of an invalid one. */
interface Sent {
  readonly place: string;
  readonly key: Buffer;
  readonly value: Buffer | null;
  readonly reason: string | undefined;
}
const sent: Sent[] = [];

const SCHEMA = avro(
  { name: 'id', type: ['null', 'long'] },
  { name: 'at', type: { type: 'long', logicalType: 'timestamp-millis' } },
  { name: 'amount', type: 'long' },
);

/** Value of the n-th record. Every reason that one schema can give occurs. */
function recordOf(n: number, frame: (value: object) => Buffer): readonly [Buffer | null, string | undefined] {
  const event = { id: BigInt(n % 50), at: BigInt(AT + n), amount: 1n };
  switch (n % 20) {
    case 3:
      return [frame({ ...event, id: null }), 'missing_field'];
    case 7:
      return [frame({ ...event, at: 2n ** 60n }), 'bad_time'];
    case 11:
      return [frame(event).subarray(0, 7), 'malformed_payload'];
    case 13:
      return [Buffer.from(`no frame ${n}`), 'bad_magic'];
    case 15:
      return [Buffer.from([0, 0, 1]), 'truncated_frame'];
    case 17:
      return [
        Buffer.concat([Buffer.from([0, 0x7f, 0xff, 0xff, 0xff]), Buffer.from(`${n}`)]),
        'unknown_schema_id',
      ];
    case 19:
      return [null, undefined];
    default:
      return [frame(event), undefined];
  }
}

beforeAll(async () => {
  const running = startRegistry(own, ['-store=memory']);
  registry = `http://${await running.ready()}`;
  const options = { brokers: stack.brokers, clientId: 'engine-quarantine', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  const answer = await fetch(`${registry}/subjects/${topic}-value/versions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ schema: SCHEMA }),
  });
  const { id } = (await answer.json()) as { readonly id: number };
  const memory = new MemoryRegistry();
  memory.add('AVRO', SCHEMA);
  frameOf = (value: object): Buffer => {
    const bytes = memory.frame(1, value);
    bytes.writeUInt32BE(id, 1);
    return bytes;
  };
  await admin.createTopics([{ topic, partitions: PARTITIONS }]);
});

/** Appends one round of records. */
async function sendRound(): Promise<void> {
  const from = sent.length;
  const rows = Array.from({ length: ROUND }, (_, i) => {
    const n = from + i;
    const partition = n % PARTITIONS;
    const [value, reason] = recordOf(n, frameOf);
    const key = Buffer.from(`k${n}`);
    sent.push({ place: `${partition}@${Math.floor(n / PARTITIONS)}`, key, value, reason });
    return { partition, key, value, headers: [['ce_source', Buffer.from('till')]] as const };
  });
  expect((await producer.produce(batchOf(rows), [topic])).failed).toBe(0);
}
afterAll(async () => {
  await producer?.close();
  await admin?.close();
});

const args = (...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topic}`, `-registry=${registry}`],
      ...['-key=id', '-value=amount', '-size=1s', '-batch-rows=200', '-checkpoint-interval=20ms'],
      `-state-dir=${join(own.dir, 'state')}`,
    ],
    more,
  );

const invalid = (): readonly Sent[] => sent.filter(({ reason }) => reason !== undefined);

describe('the quarantine of an engine', () => {
  it('the quarantine has every invalid record whole after a loop of SIGKILLs, and the results have the others', async () => {
    const signals: Array<string | null> = [];
    for (const chaos of KILLS) {
      await sendRound();
      signals.push((await runEngine(own, args(`-chaos=${chaos}`, '-exit-at-end'))).signal);
    }
    expect(signals.filter((signal) => signal === 'SIGKILL').length).toBeGreaterThanOrEqual(5);
    const before = invalid().length;
    await sendRound();
    const engine = startEngine(own, args('-idle-timeout=0'), 'last');
    const address = await engine.address();
    await until('the end of the topic', async () =>
      (await metric(address, 'engine_events_total')) === EVENTS &&
      (await metric(address, 'engine_quarantine_waiting')) === 0
        ? true
        : undefined,
    );
    const nulls = sent.filter(({ value }) => value === null).length;
    expect(await metric(address, 'engine_invalid_events_total')).toBe(invalid().length + nulls);
    // No process before this one has read the last round.
    expect(await metric(address, 'engine_quarantined_total')).toBeGreaterThanOrEqual(
      invalid().length - before,
    );
    await engine.drain();

    // Counted by a plain consumer, not by the processes under test.
    const found = await recordsIn(stack.brokers, `${topic}.quarantine`);
    const expected = new Map(invalid().map((one) => [one.place, one]));
    const places = new Set<string>();
    for (const { headers, key, value } of found) {
      const place = `${headers.get('millrace.source_partition')}@${headers.get('millrace.source_offset')}`;
      const one = expected.get(place);
      expect(headers.get('millrace.reason')).toBe(one?.reason);
      expect(headers.get('millrace.source_topic')).toBe(topic);
      expect(headers.get('ce_source')).toBe('till');
      expect(value).toEqual(one?.value);
      expect(key).toEqual(one?.key);
      places.add(place);
    }
    expect([...places].sort()).toEqual([...expected.keys()].sort());

    const end = await runEngine(own, args('-bounded', '-json'));
    expect(end).toMatchObject({ code: 0 });
    const counts = (await exportedRows(own, [`-state-dir=${join(own.dir, 'state')}`])).map((row) =>
      Number(row.split(',')[3]),
    );
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(EVENTS - invalid().length - nulls);
  });

  it('the commands of the consumer list the records by reason and redrive those that it can read', async () => {
    const servers = [`-brokers=${stack.brokers}`, `-registry=${registry}`, `-topic=${topic}`];
    const listed = await runConsumer(own, [
      ...servers,
      '-quarantine',
      '-json',
      '-list-max=1',
      '-reason=missing_field',
    ]);
    expect(listed.code, listed.stderr).toBe(0);
    const missing = invalid().filter(({ reason }) => reason === 'missing_field');
    const document = JSON.parse(listed.stdout) as {
      readonly groups: unknown;
      readonly listed: readonly object[];
    };
    expect(document.groups).toEqual([
      { reason: 'missing_field', schemaId: expect.any(String), producer: 'till', count: missing.length },
    ]);
    expect(document.listed).toMatchObject([
      { reason: 'missing_field', readable: true, error: expect.stringContaining('no value of a field') },
    ]);
    const before = await admin.listTopics();
    expect(before.map((one) => one.topic)).toContain(`${topic}.quarantine`);
    const redriven = await runConsumer(own, [...servers, '-redrive', '-reason=missing_field', '-json']);
    expect(redriven.code, redriven.stderr).toBe(0);
    const records = await recordsIn(stack.brokers, topic);
    const again = records.filter(({ headers }) => headers.has('millrace.record_id'));
    expect(again.map(({ value }) => value?.toString('hex')).sort()).toEqual(
      missing.map(({ value }) => value?.toString('hex')).sort(),
    );
  });

  it('an engine without a quarantine only counts invalid records', async () => {
    const state = `-state-dir=${join(own.dir, 'off')}`;
    const before = (await recordsIn(stack.brokers, `${topic}.quarantine`)).length;
    const run = await runEngine(
      own,
      args('-quarantine=off', '-exit-at-end', '-json', '-late-topic=late-of-off', state),
    );
    expect(run).toMatchObject({ code: 0 });
    expect((await recordsIn(stack.brokers, `${topic}.quarantine`)).length).toBe(before);
    const copies = await recordsIn(stack.brokers, 'late-of-off');
    // Null values are no quarantined records.
    expect(new Set(copies.map(({ headers }) => headers.get('millrace.reason')))).toEqual(
      new Set(['invalid']),
    );
    expect(copies.every(({ value }) => value === null)).toBe(true);
  });
});

describe('wrong settings', () => {
  it.each([
    ['the topic that is read', [`-quarantine=${topic}`], /is the topic that is read/],
    ['the topic of the late events', ['-quarantine=x', '-late-topic=x'], /is the topic of late events/],
    ['the topic of the results', ['-quarantine=x', '-sink=kafka:x'], /is the topic of the results/],
    ['no name of a topic', ['-quarantine=a/b'], /is not the name of a topic/],
    ['batches larger than a record may be', ['-batch-bytes=256MiB'], /at most 128MiB/],
    ['the fixed layout', ['-quarantine=x', '-format=binary256'], /-quarantine .*-format=binary256/],
  ] as const)('an engine refuses a quarantine in one line: %s', async (_, flags, line) => {
    const refused = await runEngine(own, args(...flags, '-log-level=error'));
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringMatching(line) });
  });

  it('a quarantine topic that may not be created ends the run with what to do', async () => {
    const state = `-state-dir=${join(own.dir, 'missing')}`;
    const flags = ['-quarantine=no-such', '-create-topics=false', '-exit-at-end', state, '-log-level=error'];
    const refused = await runEngine(own, args(...flags));
    expect(refused).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/no topic no-such.*-quarantine=off/s),
    });
  });
});
