/** consumer -quarantine on a real broker: counts, and where records of Avro, Protobuf and JSON
 *  break. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { append, createTopics } from '../../src/demo/contracts/topic.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { writerCodec } from '../../src/serde/codec.ts';
import { runConsumer } from '../fixtures/consumer.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { runProducer } from '../fixtures/producer.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { fill, frame, payloadOf, register } from './redrive-kit.ts';

const own = launcher();
const stack = await sharedStack();
const topicOf = (part: string): string => `quarantine-${own.suffix}-${part}`;
let registry: Running;
let url = '';
let servers: readonly string[] = [];

beforeAll(async () => {
  registry = startRegistry(own, ['-store=memory']);
  url = `http://${await registry.ready()}`;
  servers = [`-brokers=${stack.brokers}`, `-registry=${url}`];
});

const list = (topic: string, ...more: readonly string[]) =>
  runConsumer(own, [...servers, `-topic=${topic}`, '-quarantine', ...more]);

interface Listed {
  readonly reason: string;
  readonly partition: number;
  readonly offset: string;
  readonly byte?: number;
  readonly path?: string;
  readonly decoded: readonly string[];
  readonly readable: boolean | null;
  readonly hex: string;
}

const PROTO =
  'syntax = "proto3"; package shop; message Order { string id = 1; int64 cents = 2; repeated Item items = 3; message Item { string sku = 1; } }';

function protoFrame(id: number): Buffer {
  const payloads = new Payloads(1, 256);
  writerCodec(parseSchema('PROTOBUF', PROTO)).encode(
    { id: 'o-1', cents: 5n, items: [{ sku: 'a' }, { sku: 'b' }] },
    payloads,
  );
  return frame(id, Buffer.concat([Buffer.of(0), payloads.bytes.subarray(0, payloads.used)]));
}

it('the list counts by reason, schema id and producer', async () => {
  const topic = topicOf('counts');
  const { id } = await fill(stack.brokers, url, topic, 7, [Buffer.from('garbage')]);
  await runConsumer(own, [...servers, `-topic=${topic}`, `-subject=${topic}-value`, '-exit-at-end']);
  const ran = await list(topic, '-json', '-list-max=2');
  expect(ran.code, ran.stderr).toBe(0);
  const document = JSON.parse(ran.stdout) as { groups: unknown; listed: readonly Listed[] };
  expect(document).toMatchObject({ topic, read: 8, left: 8, redriven: 0, foreign: 0, copies: 0 });
  expect(document.groups).toEqual([
    { reason: 'unknown_schema_id', schemaId: String(id), producer: 'till', count: 4 },
    { reason: 'unknown_schema_id', schemaId: String(id), producer: 'web', count: 3 },
    { reason: 'bad_magic', schemaId: null, producer: null, count: 1 },
  ]);
  expect(document.listed).toHaveLength(2);
  const text = await list(topic, '-list-max=0', '-reason=unknown_schema_id', '-producer-header=none');
  expect(text.stdout).toContain(
    `7 quarantined records of ${topic} in ${topic}.quarantine; 0 more were redriven; 1 were not selected`,
  );
  expect(text.stdout).toMatch(new RegExp(`7  unknown_schema_id  ${id} +unknown`));
  expect(text.stdout).toContain('and 7 more; -list-max lists more of them');
});

it('the list shows what can be read of a record, and the byte where it breaks, in each format', async () => {
  const topic = topicOf('formats');
  await createTopics(stack.brokers, [{ topic, partitions: 1 }]);
  const avro = await fill(stack.brokers, url, topicOf('formats-avro'), 1);
  await avro.fix();
  const proto = await register(url, `${topic}-proto`, PROTO, 'PROTOBUF');
  const json = await register(url, `${topic}-json`, '{"type":"object"}', 'JSON');
  const whole = frame(avro.id, payloadOf(1));
  const values = [
    whole.subarray(0, -3),
    protoFrame(proto).subarray(0, -1),
    frame(json, Buffer.from('{"id":"o-1","cents":x}')),
    Buffer.from([0, 0, 0]),
    Buffer.from('\u001b[2Jgarbage'),
    frame(99_999, Buffer.of(1)),
    whole,
  ];
  await append(
    stack.brokers,
    topic,
    values.map((value) => ({ partition: 0, key: Buffer.from('k'), value })),
  );
  const quarantine = [`-quarantine-topic=${topic}.quarantine`, '-out=none', '-exit-at-end'];
  const read = await runConsumer(own, [...servers, `-topic=${topic}`, ...quarantine, '-json']);
  expect(JSON.parse(read.stdout), read.stderr).toMatchObject({ quarantined: 6 });
  const ran = await list(topic, '-json');
  expect(ran.code, ran.stderr).toBe(0);
  const { listed } = JSON.parse(ran.stdout) as { listed: readonly Listed[] };
  expect(listed.map(({ reason, byte }) => [reason, byte])).toEqual([
    ['malformed_payload', expect.any(Number)],
    ['malformed_payload', expect.any(Number)],
    ['malformed_payload', 5 + '{"id":"o-1","cents":'.length],
    ['truncated_frame', 3],
    ['bad_magic', 0],
    ['unknown_schema_id', 1],
  ]);
  const [avroRow, protoRow, jsonRow, , garbage] = listed;
  expect(avroRow?.decoded).toEqual(['id="o-1"', 'cents=1']);
  expect(avroRow?.path).toBe('Order.items[0].sku');
  expect(whole.subarray(avroRow?.byte).toString('latin1')).toContain('sku-1');
  expect(protoRow?.decoded).toEqual(['id="o-1"', 'cents=5', 'items[0].sku="a"']);
  expect(jsonRow?.decoded).toEqual(['{"id":"o-1","cents":']);
  expect(garbage?.hex).toMatch(/^1b5b32/);
  const text = await list(topic);
  expect(text.stdout).toContain('decoded: id="o-1" cents=1');
  expect(text.stdout).toContain('now: the payload ends inside a value');
  expect(text.stdout).toMatch(/breaks at byte \d+ of \d+; bytes \d+…: [\da-f ]+/);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: no record may control the terminal
  expect(text.stdout).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/);
});

it.each(['on', 'off'])(
  'the list counts by the name that producer -producer-name gave itself (native %s)',
  async (native) => {
    const topic = topicOf(`named-${native}`);
    await register(
      url,
      `${topic}-reader`,
      '{"type":"record","name":"R","fields":[{"name":"m","type":"int"}]}',
    );
    const schema = join(own.dir, `${topic}.avsc`);
    writeFileSync(schema, '{"type":"record","name":"R","fields":[{"name":"n","type":"string"}]}');
    const rows = Array.from({ length: 300 }, (_, n) => `{"n":"${n}"}`).join('\n');
    const named = [
      `-topic=${topic}`,
      `-schema=${schema}`,
      '-key-field=n',
      '-batch-rows=128',
      `-native=${native}`,
    ];
    for (const producer of ['till-7', 'till-8']) {
      const flags = [...servers, ...named, '-in=-', `-producer-name=${producer}`];
      expect(await runProducer(own, flags, rows)).toMatchObject({ code: 0 });
    }
    const read = [`-topic=${topic}`, `-subject=${topic}-reader`, '-exit-at-end', `-native=${native}`];
    expect((await runConsumer(own, [...servers, ...read])).code).toBe(0);
    const { groups } = JSON.parse((await list(topic, '-json', '-list-max=0')).stdout) as {
      groups: ReadonlyArray<{ readonly producer: string; readonly count: number }>;
    };
    expect(groups.map(({ producer, count }) => [producer, count])).toEqual([
      ['till-7', 300],
      ['till-8', 300],
    ]);
  },
);

it('a record that can be read now is shown as such, and a redriven one is no longer listed', async () => {
  const topic = topicOf('readable');
  const { fix } = await fill(stack.brokers, url, topic, 2);
  await runConsumer(own, [...servers, `-topic=${topic}`, `-subject=${topic}-value`, '-exit-at-end']);
  await fix();
  expect((await list(topic)).stdout.match(/now: it can be read; consumer -redrive writes it/g)).toHaveLength(
    2,
  );
  const redriven = await runConsumer(own, [
    ...servers,
    `-topic=${topic}`,
    '-redrive',
    '-partition=0',
    '-json',
  ]);
  expect(JSON.parse(redriven.stdout), redriven.stderr).toMatchObject({ redriven: 1, skipped: 1 });
  const { stdout } = await list(topic, '-json');
  expect(JSON.parse(stdout)).toMatchObject({ left: 1, redriven: 1, redrivenInto: { source: 1 } });
});

it('flags that a list does not use are refused', async () => {
  const topic = topicOf('flags');
  for (const flag of [
    '-count=1',
    '-out=-',
    '-filter=n = 1',
    '-instances=2',
    '-redrive',
    '-dry-run',
    '-exit-at-end',
  ]) {
    const { code, stderr } = await list(topic, flag);
    expect(code, stderr).toBe(2);
    expect(stderr).toContain('changes nothing');
  }
  expect((await list(topic)).stderr).toContain(`topic ${topic}.quarantine does not exist`);
});

it('the list of a quarantine needs no registry', async () => {
  const topic = topicOf('offline');
  await fill(stack.brokers, url, topic, 1);
  await runConsumer(own, [...servers, `-topic=${topic}`, `-subject=${topic}-value`, '-exit-at-end']);
  await registry.drain();
  const ran = await list(topic, '-connect-timeout=500ms');
  expect(ran.code, ran.stderr).toBe(0);
  expect(ran.stdout).toContain('1 quarantined records');
  expect(ran.stdout).toContain('was: ');
  expect(ran.stderr).toContain('records are listed without their fields');
});
