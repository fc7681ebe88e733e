/** The engine over topics in the formats that users have, on a real broker and registry: the same
 *  seeded events give the rows of the fixed layout, schemas change in the stream, and wrong
 *  settings end with one error. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { consumedAt, exportedRows, runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { avro, json, MemoryRegistry } from '../unit/engine/input/input-kit.ts';
import { until } from '../wait.ts';
import { oracleOf, rowText } from './engine-kit.ts';

const own = launcher();
const stack = await sharedStack();
const EVENTS = 40_000;
const RULES = { sizeMs: 2000n, skewMs: 1000n, latenessMs: 1000n };
/** Base of the accounts: keys on both sides of 2^32. */
const BASE = 2n ** 32n - 500n;

const JSON_BODY = { 'content-type': 'application/json' };

let registry = '';
let admin: BrokerAdmin;
let producer: BatchProducer;
let expected: string[];

const topicOf = (name: string): string => `formats-${name}-${own.suffix}`;
const args = (topic: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      `-brokers=${stack.brokers}`,
      `-topic=${topic}`,
      '-size=2s',
      '-allowed-skew=1s',
      '-allowed-lateness=1s',
      '-bounded',
      `-state-dir=${join(own.dir, topic)}`,
    ],
    more,
  );
const exported = (topic: string): Promise<string[]> =>
  exportedRows(own, [`-state-dir=${join(own.dir, topic)}`]);

const generate = (name: string, ...more: readonly string[]) =>
  generateEvents(own, { brokers: stack.brokers, topic: topicOf(name) }, [
    `-count=${EVENTS}`,
    `-account-base=${BASE}`,
    '-per-ms=5',
    '-accounts=1000',
    '-tail=0.05',
    '-tail-max=8s',
    '-stragglers=0.001',
    '-straggler-max=1h',
    // One partition: the events arrive in the same order in every format.
    '-partitions=1',
    ...more,
  ]);

beforeAll(async () => {
  const running = startRegistry(own, ['-store=memory']);
  registry = `http://${await running.ready()}`;
  const options = { brokers: stack.brokers, clientId: 'engine-formats', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  await generate('binary256');
  for (const format of ['avro', 'protobuf', 'json'])
    await generate(format, `-format=${format}`, `-registry=${registry}`);
  const oracle = await oracleOf(stack.brokers, topicOf('binary256'), RULES);
  expected = [...oracle.rows()].map(rowText).sort();
  expect(oracle.droppedLate[0]).toBeGreaterThan(0n);
});
afterAll(async () => {
  await producer?.close();
  await admin?.close();
});

describe('the same events in every format', () => {
  const FIELDS = ['-key=account_id', '-value=value'];

  it.each(['avro', 'protobuf', 'json'])(
    'aggregates of a field in %s have the rows of the fixed layout, through a SIGKILL and on disk',
    async (format) => {
      const topic = topicOf(format);
      const state = `-state-dir=${join(own.dir, `aggregates-${format}`)}`;
      const flags = [
        '-key=account_id',
        `-time=event_ts${format === 'json' ? ':ms' : ''}`,
        '-aggregate=count,sum(value) as sum,min(value) as min,max(value) as max',
        ...(format === 'json' ? ['-format=json'] : [`-registry=${registry}`]),
        '-mem-budget=160MiB',
        state,
      ];
      const killed = await runEngine(
        own,
        args(topic, ...flags, '-chaos=kill-after=15000', '-batch-rows=500', '-checkpoint-interval=20ms'),
      );
      expect(killed.signal).toBe('SIGKILL');
      const resumed = await runEngine(own, args(topic, ...flags));
      expect(resumed).toMatchObject({ code: 0 });
      expect((await exportedRows(own, [state])).sort()).toEqual(expected);
      const changed = await runEngine(own, args(topic, ...flags, '-aggregate=count'));
      expect(changed.code).not.toBe(0);
      expect(changed.stderr).toContain('-aggregate');
    },
  );

  it.each([
    ['avro', 'named', [...FIELDS, '-time=event_ts']],
    ['protobuf', 'named', [...FIELDS, '-time=event_ts']],
    ['json', 'named', [...FIELDS, '-time=event_ts:ms']],
    ['avro', 'inferred but for the value', ['-value=value']],
    ['protobuf', 'inferred but for the value', ['-value=value']],
  ] as const)(
    'events in %s with their fields %s give the rows of the fixed layout, through a SIGKILL',
    async (format, how, fields) => {
      const topic = topicOf(format);
      const state = `-state-dir=${join(own.dir, `${format}-${how.length}`)}`;
      const asked = how === 'named' && format === 'json' ? [`-format=${format}`] : [`-registry=${registry}`];
      const flags = [...fields, ...asked, state];
      const killed = await runEngine(
        own,
        args(topic, ...flags, '-chaos=kill-after=15000', '-batch-rows=500', '-checkpoint-interval=20ms'),
      );
      expect(killed.signal).toBe('SIGKILL');
      const resumed = await runEngine(own, args(topic, ...flags, '-json'));
      expect(resumed).toMatchObject({ code: 0 });
      expect(JSON.parse(resumed.stdout)).toMatchObject({ consumed: EVENTS, invalid: 0 });
      expect((await exportedRows(own, [state])).sort()).toEqual(expected);
    },
  );

  it('a registry address with a context has the schema ids of events of that context', async () => {
    const within = `${registry}/contexts/.engine`;
    // The id of the events is behind this one, and that of another schema in the default context.
    await fetch(`${within}/subjects/filler/versions`, {
      method: 'POST',
      headers: JSON_BODY,
      body: JSON.stringify({ schema: '"int"' }),
    });
    await generate('context', '-format=avro', `-registry=${within}`);
    const topic = topicOf('context');
    const run = await runEngine(own, args(topic, `-registry=${within}`, '-value=value', '-json'));
    expect(run).toMatchObject({ code: 0 });
    expect(JSON.parse(run.stdout)).toMatchObject({ consumed: EVENTS, invalid: 0 });
    expect((await exported(topic)).sort()).toEqual(expected);
  });

  it('both sets of kernels give the same rows', async () => {
    const topic = topicOf('avro');
    const state = `-state-dir=${join(own.dir, 'reference')}`;
    const run = await runEngine(
      own,
      args(topic, `-registry=${registry}`, '-value=value', '-native=off', state),
    );
    expect(run).toMatchObject({ code: 0 });
    expect((await exportedRows(own, [state, '-native=off'])).sort()).toEqual(expected);
  });

  it('a condition on the key keeps the rows of the key, because the other events advance the watermark', async () => {
    const topic = topicOf('avro');
    const state = `-state-dir=${join(own.dir, 'where')}`;
    const flags = [
      `-registry=${registry}`,
      '-key=account_id',
      '-value=value',
      `-where=account_id = ${BASE}`,
      state,
    ];
    const run = await runEngine(own, args(topic, ...flags, '-json'));
    expect(run).toMatchObject({ code: 0 });
    const all = await runEngine(
      own,
      args(topicOf('binary256'), `-state-dir=${join(own.dir, 'all')}`, '-json'),
    );
    const [some, every] = [JSON.parse(run.stdout), JSON.parse(all.stdout)];
    expect(some).toMatchObject({ consumed: EVENTS, watermark_ms: every.watermark_ms });
    const rows = await exportedRows(own, [state]);
    expect(rows.length).toBeGreaterThan(0);
    expect([...rows].sort()).toEqual(expected.filter((row) => row.startsWith(`${BASE},`)));
  });
});

describe('schemas that change in the stream', () => {
  const AT = { name: 'at', type: { type: 'long', logicalType: 'timestamp-millis' } };
  const post = async (topic: string, text: string): Promise<number> => {
    const answer = await fetch(`${registry}/subjects/${topic}-value/versions`, {
      method: 'POST',
      headers: JSON_BODY,
      body: JSON.stringify({ schema: text }),
    });
    return ((await answer.json()) as { readonly id: number }).id;
  };
  /** Registers schemas and makes their frames with the registry's ids. */
  const framesOf = async (topic: string, texts: readonly string[]) => {
    const memory = new MemoryRegistry();
    const ids: number[] = [];
    for (const text of texts) {
      ids.push(await post(topic, text));
      memory.add('AVRO', text);
    }
    return (schema: number, value: unknown): Buffer => {
      const frame = memory.frame(schema + 1, value);
      frame.writeUInt32BE(ids[schema] as number, 1);
      return frame;
    };
  };
  const topicWith = async (name: string, values: readonly (Buffer | null)[]): Promise<string> => {
    const topic = topicOf(name);
    await admin.createTopics([{ topic, partitions: 1 }]);
    const { failed } = await producer.produce(batchOf(values.map((value) => ({ partition: 0, value }))), [
      topic,
    ]);
    expect(failed).toBe(0);
    return topic;
  };

  it('added, renamed and promoted fields are read, and a schema without the key makes its records invalid', async () => {
    const topic = topicOf('evolution');
    // The registry checks no compatibility here: one version lacks the key.
    await fetch(`${registry}/config/${topic}-value`, {
      method: 'PUT',
      headers: JSON_BODY,
      body: JSON.stringify({ compatibility: 'NONE' }),
    });
    const frame = await framesOf(topic, [
      avro({ name: 'account', type: 'int' }, AT),
      avro({ name: 'note', type: 'string' }, { name: 'account', type: 'long' }, AT),
      avro(AT),
      avro({ name: 'id', type: 'long', aliases: ['account'] }, AT, { name: 'v', type: 'long', default: 7 }),
    ]);
    const at = 1_750_000_000_000n;
    await topicWith('evolution', [
      frame(0, { account: -1, at }),
      frame(1, { note: 'n', account: 5n, at }),
      frame(2, { at }),
      frame(3, { id: 5n, at, v: 100n }),
      Buffer.from([0, 0x7f, 0xff, 0xff, 0xff, 1]),
      Buffer.from('{"id":5}'),
      null,
    ]);
    const flags = ['-format=avro', `-registry=${registry}`, '-key=id', '-value=v', '-json'];
    const run = await runEngine(own, args(topic, ...flags));
    expect(run).toMatchObject({ code: 0 });
    expect(JSON.parse(run.stdout)).toMatchObject({
      ...{ consumed: 7, accepted: 3, invalid: 4 },
      invalidRecords: {
        reasons: { missing_field: 1, unknown_schema_id: 1, bad_magic: 1, null_value: 1 },
        sample: { offset: 2, reason: 'missing_field', fault: expect.stringContaining('no field id (-key)') },
      },
    });
    const rows = await exported(topic);
    // Rows ascend by the 64 bits of the key; a negative key is printed with its sign.
    expect(rows.map((row) => row.split(',').filter((_, i) => i === 0 || i === 3 || i === 4))).toEqual([
      ['5', '2', '107'],
      ['-1', '1', '7'],
    ]);
    const unsigned = await exportedRows(own, [`-state-dir=${join(own.dir, topic)}`, '-export-keys=unsigned']);
    expect(unsigned[1]).toMatch(/^18446744073709551615,/);
  });

  it('records of a nested Protobuf message decide kind and time, and validation and verification agree', async () => {
    const topic = topicOf('messages');
    const text = `syntax = "proto3"; import "google/protobuf/timestamp.proto";
      message Audit { string id = 1; google.protobuf.Timestamp written = 2; }
      message Shop { message Order { fixed64 id = 1; google.protobuf.Timestamp paid_at = 2; } }`;
    const answer = await fetch(`${registry}/subjects/${topic}-value/versions`, {
      method: 'POST',
      headers: JSON_BODY,
      body: JSON.stringify({ schema: text, schemaType: 'PROTOBUF' }),
    });
    const { id } = (await answer.json()) as { readonly id: number };
    const memory = new MemoryRegistry();
    const known = memory.add('PROTOBUF', text);
    const frame = (value: unknown, message: string): Buffer => {
      const bytes = memory.frame(known, value, message);
      bytes.writeUInt32BE(id, 1);
      return bytes;
    };
    const at = { seconds: 1_750_000_000n, nanos: 0 };
    const order = frame({ id: 7n, paid_at: at }, 'Shop.Order');
    const audit = frame({ id: 'x', written: { seconds: 1n, nanos: 0 } }, 'Audit');
    await topicWith('messages', [audit, order, order]);
    const sink = `-sink=rocksdb:${join(own.dir, 'messages-sink')}`;
    const flags = [`-registry=${registry}`, '-key=id', sink];
    const run = await runEngine(own, args(topic, ...flags, '-json'));
    expect(run).toMatchObject({ code: 0 });
    expect(JSON.parse(run.stdout)).toMatchObject({ accepted: 2, invalid: 1 });
    expect(run.stderr).toMatch(/"key":"id:u64","time":"paid_at".*"records":3,"message":"Shop.Order"/);
    expect(run.stderr).toContain('"messages":{"Shop.Order":2,"Audit":1},"decidedBy":"Shop.Order"');
    // Without a checkpoint the verification decides by the records itself.
    const empty = `-state-dir=${join(own.dir, 'messages-none')}`;
    const verified = await runEngine(own, ['verify', ...args(topic, ...flags, empty)]);
    expect(verified).toMatchObject({ code: 0, stdout: expect.stringContaining('equal: 1 windows') });
    const path = join(own.dir, 'messages.yaml');
    const validated = async (fields: string) => {
      await writeFile(path, `topic: ${topic}\nregistry: ${registry}\nsize: 1s\n${fields}\n`);
      return runEngine(own, ['validate', `-job=${path}`]);
    };
    expect(await validated('key: id')).toMatchObject({
      ...{ code: 0, stdout: expect.stringContaining('whose messages Audit and Shop.Order have them') },
    });
    expect(await validated('key: id\ntime: paid_at')).toMatchObject({
      ...{ code: 0, stdout: expect.stringContaining('whose message Shop.Order has them') },
    });
    expect(await validated('key: id\ntime: made_at')).toMatchObject({ code: 1 });
  });

  it('GET /windows shows and finds negative keys, and a metric counts filtered events', async () => {
    const at = Date.parse('2026-01-31T12:00:00Z');
    const values = [
      { id: -7, at: new Date(at).toISOString() },
      { id: -7, at: new Date(at).toISOString(), test: true },
      { at: new Date(at + 60_000).toISOString(), test: true },
    ];
    const topic = await topicWith('negative', values.map(json));
    const engine = startEngine(own, [
      ...args(topic, '-format=json', '-key=id', '-time=at', '-where=test is null').filter(
        (flag) => flag !== '-bounded',
      ),
    ]);
    const address = await engine.address();
    const rows = await until('the fired window', async () => {
      const answer = await fetch(`http://${address}/windows/-7`);
      const found = answer.status === 200 ? ((await answer.json()) as readonly object[]) : [];
      return found.length > 0 ? found : undefined;
    });
    expect(rows).toMatchObject([{ account_id: '-7', window_start: String(at), count: '1', sum: '0' }]);
    expect((await fetch(`http://${address}/windows/18446744073709551609`)).status).toBe(400);
    expect(await metric(address, 'engine_filtered_events_total')).toBe(2);
    await engine.drain();
  });

  it('a registry that goes away pauses the engine, and its return resumes it without an invalid record', async () => {
    const folder = join(own.dir, 'registry');
    const first = startRegistry(own, [`-store=file:${folder}`], 'registry-away');
    const away = `http://${await first.ready()}`;
    const at = 1_750_000_000_000n;
    const memory = new MemoryRegistry();
    const ids: number[] = [];
    for (const text of [avro({ name: 'id', type: 'int' }, AT), avro({ name: 'id', type: 'long' }, AT)]) {
      memory.add('AVRO', text);
      const answer = await fetch(`${away}/subjects/paused-value/versions`, {
        method: 'POST',
        headers: JSON_BODY,
        body: JSON.stringify({ schema: text }),
      });
      ids.push(((await answer.json()) as { readonly id: number }).id);
    }
    const frame = (schema: number, value: unknown): Buffer => {
      const bytes = memory.frame(schema + 1, value);
      bytes.writeUInt32BE(ids[schema] as number, 1);
      return bytes;
    };
    const topic = await topicWith('away', [frame(0, { id: 1, at })]);
    const flags = args(topic, `-registry=${away}`, '-key=id').filter((flag) => flag !== '-bounded');
    const engine = startEngine(own, flags, 'paused');
    const address = await engine.ready();
    await until('the first event', async () => ((await consumedAt(address)) === 1 ? true : undefined));
    await first.die();
    await producer.produce(batchOf([{ partition: 0, value: frame(1, { id: 2n, at }) }]), [topic]);
    await until('the pause', async () => (engine.log().includes('registry unavailable') ? true : undefined));
    await until('a failing /ready', async () => (await fetch(`http://${address}/ready`)).status === 503);
    const second = startRegistry(
      own,
      [`-store=file:${folder}`, `-listen=${away.slice('http://'.length)}`],
      'registry-back',
    );
    await second.ready();
    await until('the second event', async () => ((await consumedAt(address)) === 2 ? true : undefined));
    expect(await metric(address, 'engine_invalid_events_total')).toBe(0);
    await engine.drain();
  });
});

describe('wrong settings', () => {
  const refused = async (topic: string, flags: readonly string[]) => {
    const { code, stderr } = await runEngine(own, args(topic, ...flags));
    return { code, error: stderr.trim().split('\n').at(-1) };
  };

  it.each([
    ['a format without its registry', ['-format=avro'], /need the registry.*-registry=http/],
    ['a key that names a field twice', ['-key=a,b,a'], /names a field twice/],
    ['a condition with a mistake', ['-where=value >'], /not valid at character 8/],
    [
      'fields of the fixed layout',
      ['-format=binary256', '-value=value'],
      /no meaning for events of the fixed layout/,
    ],
    [
      'a registry for the fixed layout',
      ['-format=binary256', '-registry=http://127.0.0.1:1'],
      /-registry has no meaning/,
    ],
    ['credentials without a registry', ['-registry-user=a:b'], /-registry/],
    [
      'a token file that does not exist',
      ['-registry=http://127.0.0.1:1', '-registry-token-file=/nowhere'],
      /nowhere cannot be read/,
    ],
  ] as const)('an engine with %s is refused with exit 2', async (_what, flags, message) => {
    expect(await refused(topicOf('avro'), flags)).toEqual({
      code: 2,
      error: expect.stringMatching(message),
    });
  });

  it('a registry that cannot be reached at the start is exit 3', async () => {
    const flags = ['-registry=http://127.0.0.1:1', '-key=account_id'];
    expect(await refused(topicOf('avro'), flags)).toMatchObject({ code: 3 });
  });

  it('a field of a type that cannot be read is refused with what can be read', async () => {
    const state = `-state-dir=${join(own.dir, 'text-value')}`;
    const flags = [`-registry=${registry}`, '-key=account_id', '-value=pad', state];
    expect(await refused(topicOf('avro'), flags)).toEqual({
      code: 2,
      error: expect.stringMatching(/-value=pad is the type string, .*give a field that/),
    });
  });

  it('records that all lack a field end the run with exit 1 and a sample', async () => {
    const state = `-state-dir=${join(own.dir, 'no-field')}`;
    const flags = [`-registry=${registry}`, '-key=acount_id', state];
    expect(
      await refused(
        topicOf('avro'),
        flags.map((flag) => flag),
      ),
    ).toEqual({
      code: 1,
      error: expect.stringMatching(/is an event: \d+ have no value of a field.*no field acount_id \(-key\)/),
    });
  });

  it('other settings than those of the checkpoint are refused', async () => {
    const topic = topicOf('json');
    const named = ['-format=json', '-key=account_id', '-time=event_ts:ms'];
    expect(await runEngine(own, args(topic, ...named, '-value=value'))).toMatchObject({ code: 0 });
    expect(await refused(topic, [...named, '-value=seq'])).toEqual({
      code: 2,
      error: expect.stringMatching(
        /made by another job: -value was value, is seq; start with -value=value again/,
      ),
    });
  });
});
