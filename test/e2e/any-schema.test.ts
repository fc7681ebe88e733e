/** Commands for any schema on a real broker: JSON lines and container files into a topic, and any
 *  topic as JSON lines. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import avsc from 'avsc';
import { beforeAll, describe, expect, it } from 'vitest';
import { append, createTopics, TopicReader } from '../../src/demo/contracts/topic.ts';
import { schemaText } from '../clients/kit.ts';
import { runConsumer } from '../fixtures/consumer.ts';
import { runGen } from '../fixtures/gen.ts';
import { launcher } from '../fixtures/process.ts';
import { runProducer } from '../fixtures/producer.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';

const own = launcher();
const stack = await sharedStack();
const topicOf = (part: string): string => `any-${own.suffix}-${part}`;
let servers: readonly string[] = [];
let url = '';

beforeAll(async () => {
  url = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
  servers = [`-brokers=${stack.brokers}`, `-registry=${url}`];
});

function file(name: string, content: string | Uint8Array): string {
  const path = join(own.dir, name);
  writeFileSync(path, content);
  return path;
}

const AVRO_LINES = [
  '{"id":"o-1","total":{"cents":9007199254740993,"currency":"EUR"},"lines":[]}',
  '{"id":"o-2","total":{"cents":-5,"currency":"ключ 🔑"},"lines":[{"sku":"pen","qty":2,"price":{"cents":120,"currency":"EUR"}}]}',
  '{"id":"o-3","total":{"cents":0,"currency":""},"lines":[]}',
];
const PROTO_LINES = [
  '{"id":"o-1","total":{"cents":"9007199254740993","currency":"EUR"},"lines":[],"status":"STATUS_PAID"}',
  '{"id":"o-2","total":{"cents":"-5","currency":""},"lines":[{"sku":"a","qty":2,"price":{"cents":"1","currency":"b"}}],"status":"STATUS_UNKNOWN"}',
];

interface Format {
  readonly name: string;
  readonly schema: () => readonly string[];
  readonly lines: readonly string[];
}
const FORMATS: readonly Format[] = [
  {
    name: 'avro',
    schema: () => [
      `-schema=${file('order-1.avsc', schemaText('order-1.avsc'))}`,
      `-reference=shop.common.Money=${file('money.avsc', schemaText('money.avsc'))}`,
    ],
    lines: AVRO_LINES,
  },
  {
    name: 'protobuf',
    schema: () => [
      `-schema=${file('order-1.proto', schemaText('shop/order-1.proto'))}`,
      `-reference=shop/money.proto=${file('money.proto', schemaText('shop/money.proto'))}`,
      '-message=shop.orders.Order',
    ],
    lines: PROTO_LINES,
  },
];

const dump = (topic: string, ...more: readonly string[]) =>
  runConsumer(own, [...servers, `-topic=${topic}`, '-exit-at-end', ...more]);
const linesOf = (text: string): string[] => text.split('\n').slice(0, -1);

/** Raw keys and values of a topic with one partition. */
async function rawOf(topic: string): Promise<Array<readonly [key: string, value: string]>> {
  const reader = await TopicReader.open(stack.brokers);
  const found: Array<readonly [string, string]> = [];
  const hex = (bytes: Uint8Array | null): string =>
    bytes === null ? 'null' : Buffer.from(bytes).toString('hex');
  try {
    await reader.read([topic], (_topic, { key, value }) => found.push([hex(key), hex(value)]));
  } finally {
    await reader.close();
  }
  return found;
}

describe.each(FORMATS)('$name', ({ name, schema, lines }) => {
  const topic = topicOf(name);
  const into = (to: string, ...more: readonly string[]): string[] => [
    ...servers,
    `-topic=${to}`,
    ...schema(),
    '-partitions=1',
    '-json',
    ...more,
  ];

  it('JSON lines of a pipe are sent with their references and keys, and printed unchanged', async () => {
    const sent = await runProducer(own, into(topic, '-in=-', '-key-field=id'), `${lines.join('\r\n')}\n`);
    expect(sent).toMatchObject({ code: 0 });
    expect(JSON.parse(sent.stdout)).toMatchObject({ topic, records: lines.length, skipped: 0 });
    const read = await dump(topic, '-lines=value');
    expect(read.code).toBe(0);
    expect(linesOf(read.stdout)).toEqual(lines);
    const [first] = linesOf((await dump(topic, '-count=1')).stdout);
    expect(first).toMatch(
      new RegExp(
        `^\\{"topic":"${topic}","partition":0,"offset":0,"timestamp":\\d{13},"key":"o-1","schemaId":\\d+,`,
      ),
    );
    expect(first).toContain(`"value":${lines[0]}}`);
  });

  it('the lines of a consumer make an equal topic, tombstones included', async () => {
    await append(stack.brokers, topic, [{ key: Buffer.from('gone'), value: null, partition: 0 }]);
    const copy = topicOf(`${name}-copy`);
    const { stdout } = await dump(topic);
    const sent = await runProducer(
      own,
      into(copy, `-subject=${topic}-value`, '-in=-', '-lines=record'),
      stdout,
    );
    expect(sent).toMatchObject({ code: 0 });
    expect(await rawOf(copy)).toEqual(await rawOf(topic));
  });

  it('a topic is written and read with the schema ids of the context that its subject names', async () => {
    const to = topicOf(`${name}-context`);
    const context = `.${name}`;
    // Ids of the context are behind those of the default context.
    for (const n of [1, 2, 3])
      await fetch(`${url}/contexts/${context}/subjects/filler-${n}/versions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ schema: `{"type":"fixed","name":"F","size":${n}}` }),
      });
    const subject = `-subject=:${context}:${to}-value`;
    const key = `-key-schema=${file('string.avsc', '"string"')}`;
    const flags = [...servers, subject, ...schema(), key, '-key-field=id', '-partitions=2', '-in=-'];
    const sent = await runProducer(own, flags, `${lines.join('\n')}\n`);
    expect(sent).toMatchObject({ code: 0 });
    const end = ['-exit-at-end', '-group=', '-out=-'];
    for (const threads of ['1', '2']) {
      const more = ['-instances=2', `-threads=${threads}`];
      const read = await runConsumer(own, [...servers, subject, ...end, ...more]);
      expect(read.stderr).toContain('"unreadable":0');
      const values = linesOf(read.stdout).map((line) => line.slice(line.indexOf('"value":') + 8, -1));
      expect(values.sort()).toEqual([...lines].sort());
      for (const line of linesOf(read.stdout)) expect(line).toMatch(/"key":"o-\d","keySchemaId":\d+,/);
    }
    const replayed = await runConsumer(own, [...servers, subject, '-replay', '-json']);
    expect(JSON.parse(replayed.stdout), replayed.stderr).toMatchObject({ records: lines.length, failed: 0 });
    const within = [servers[0] as string, `-registry=${url}/contexts/${context}`];
    const any = await runConsumer(own, [...within, `-topic=${to}`, '-exit-at-end', '-lines=value']);
    expect(linesOf(any.stdout).sort(), any.stderr).toEqual([...lines].sort());
  });

  it('a line that does not fit ends the run with its number and path after the lines before it', async () => {
    const to = topicOf(`${name}-bad`);
    const input = file(
      `${name}-bad.jsonl`,
      `${lines[0]}\n\n${lines[1]?.replace(/"qty":2/, '"qty":"two"')}\n${lines[0]}\n`,
    );
    const failed = await runProducer(own, into(to, `-in=${input}`));
    expect(failed.code).toBe(2);
    expect(failed.stderr).toMatch(/bad\.jsonl line 3: Order\.lines\[0\]\.qty: "two" is not (an int|int32)/);
    expect(await rawOf(to)).toHaveLength(1);
    const skipped = await runProducer(own, into(to, `-in=${input}`, '-on-error=skip'));
    expect(skipped.code).toBe(0);
    expect(JSON.parse(skipped.stdout)).toMatchObject({ records: 2, skipped: 1 });
    expect(await rawOf(to)).toHaveLength(3);
  });
});

describe('Avro', () => {
  const KEY = '{"type":"record","name":"Key","fields":[{"name":"n","type":"long"}]}';
  const EVENT = JSON.stringify({
    type: 'record',
    name: 'Event',
    fields: [
      { name: 'key', type: { type: 'record', name: 'Key', fields: [{ name: 'n', type: 'long' }] } },
      { name: 'raw', type: 'bytes' },
      { name: 'maybe', type: ['null', 'string', 'long'], default: null },
      { name: 'either', type: ['bytes', 'string'] },
    ],
  });

  it('keys are framed with a schema of their own; unions may be named or plain', async () => {
    const topic = topicOf('keys');
    const [schema, key] = [file('event.avsc', EVENT), file('key.avsc', KEY)];
    const input = [
      '{"key":{"n":9007199254740993},"raw":"\\u00ff\\u0000","maybe":{"long":7},"either":{"string":"s"}}',
      '{"key":{"n":1},"raw":"","maybe":"text","either":"plain"}',
      '{"key":{"n":2},"raw":"","either":{"bytes":"b"}}',
    ].join('\n');
    const flags = [...servers, `-topic=${topic}`, `-schema=${schema}`, `-key-schema=${key}`];
    expect(
      await runProducer(own, [...flags, '-key-field=key', '-in=-', '-partitions=1'], input),
    ).toMatchObject({ code: 0 });
    const { stdout } = await dump(topic);
    const [first, second, third] = linesOf(stdout);
    expect(first).toMatch(/"key":\{"n":9007199254740993\},"keySchemaId":\d+,"schemaId":\d+/);
    expect(first).toContain('"maybe":7,"either":{"string":"s"}');
    expect(second).toContain('"maybe":"text","either":{"string":"plain"}');
    expect(third).toContain('"maybe":null,"either":{"bytes":"b"}');
    const named = await dump(topic, '-unions=named', '-lines=value', '-filter=@key.n = 9007199254740993');
    expect(linesOf(named.stdout)).toEqual([
      '{"key":{"n":9007199254740993},"raw":"ÿ\\u0000","maybe":{"long":7},"either":{"string":"s"}}',
    ]);
  });

  it.each(['null', 'deflate'])(
    'an Avro container file is sent with its own schema: codec %s',
    async (codec) => {
      const topic = topicOf(`container-${codec}`);
      const path = join(own.dir, `${codec}.avro`);
      const type = avsc.Type.forSchema({
        type: 'record',
        name: 'Row',
        fields: [
          { name: 'n', type: 'long' },
          { name: 'text', type: ['null', 'string'] },
        ],
      });
      const encoder = new avsc.streams.BlockEncoder(type, { codec, blockSize: 500 });
      const parts: Buffer[] = [];
      encoder.on('data', (part: Buffer) => parts.push(part));
      for (let n = 0; n < 200; n++) encoder.write({ n, text: n % 2 === 0 ? null : `row ${n}` });
      encoder.end();
      await once(encoder, 'end');
      writeFileSync(path, Buffer.concat(parts));
      const sent = await runProducer(own, [
        ...servers,
        `-topic=${topic}`,
        `-in=${path}`,
        '-key-field=n',
        '-partitions=1',
        '-json',
      ]);
      expect(sent).toMatchObject({ code: 0 });
      expect(JSON.parse(sent.stdout)).toMatchObject({ records: 200 });
      const lines = linesOf((await dump(topic)).stdout).map((line) => JSON.parse(line));
      expect(lines.map(({ key }) => key)).toEqual(Array.from({ length: 200 }, (_, n) => String(n)));
      expect(lines.slice(0, 2).map(({ value }) => value)).toEqual([
        { n: 0, text: null },
        { n: 1, text: 'row 1' },
      ]);
    },
  );
});

describe('gen', () => {
  it.each(['avro', 'protobuf'])('random events of a registered schema are readable: %s', async (format) => {
    const topic = topicOf(`gen-${format}`);
    const gen = (out: string) =>
      runGen(own, [...servers, `-subject=${topicOf(format)}-value`, '-seed=7', '-count=200', `-out=${out}`]);
    const made = await gen(`kafka:${topic}`);
    expect(made.code).toBe(0);
    const { stdout } = await dump(topic, '-lines=value');
    const printed = await gen('-');
    expect(printed.code).toBe(0);
    expect(linesOf(stdout).sort()).toEqual(linesOf(printed.stdout).sort());
    expect(linesOf(stdout)).toHaveLength(200);
  });
});

describe('reading', () => {
  const topic = topicOf('plain');
  beforeAll(async () => {
    // The timestamps of the records are older than the retention of a topic.
    await createTopics(stack.brokers, [{ topic, partitions: 2, config: { 'retention.ms': '-1' } }]);
    const record = (partition: number, n: number, value: string) => ({
      partition,
      key: Buffer.from(`k${n}`),
      timestamp: BigInt(1_769_860_800_000 + n * 1000),
      value: Buffer.from(value),
    });
    const status = ['PLACED', 'PAID'];
    await append(
      stack.brokers,
      topic,
      Array.from({ length: 10 }, (_, n) =>
        record(n % 2, n, `{\n "n": ${n}, "id": 90071992547409${93 + n}, "status": "${status[n % 2]}" }`),
      ),
    );
  });
  const numbers = (text: string): number[] =>
    linesOf(text)
      .map((line) => JSON.parse(line).value.n as number)
      .sort((a, b) => a - b);

  it('plain JSON is printed on one line with all digits', async () => {
    const { stdout, code } = await dump(topic, '-lines=value');
    expect(code).toBe(0);
    expect(linesOf(stdout)).toContain('{"n":0,"id":9007199254740993,"status":"PLACED"}');
  });

  it.each([
    ['-start=3', [6, 7, 8, 9]],
    ['-start=-1', [8, 9]],
    ['-start=latest', []],
    ['-start=@1769860804000', [4, 5, 6, 7, 8, 9]],
    ['-start=2026-01-31T12:00:08Z', [8, 9]],
    ['-filter=status = "PAID" and n > 4', [5, 7, 9]],
    ['-filter=id = 9007199254740994', [1]],
    ['-filter=@partition = 0 and @offset < 2', [0, 2]],
  ] as const)('the selection %s finds the records %j', async (flag, expected) => {
    expect(numbers((await dump(topic, flag)).stdout)).toEqual(expected);
  });

  it('a group commits only what a count selected, and starts where its first member was told to', async () => {
    const group = `-group=g-${own.suffix}`;
    const flags = [group, '-out=-', '-session-timeout=6s'];
    const first = await dump(topic, ...flags, '-start=2', '-count=2');
    expect(first.code).toBe(0);
    const second = await dump(topic, ...flags);
    expect([...numbers(first.stdout), ...numbers(second.stdout)].sort()).toEqual([4, 5, 6, 7, 8, 9]);
    expect(numbers(first.stdout)).toHaveLength(2);
  });

  it('a field that no record has is reported', async () => {
    const { stderr, code } = await dump(topic, '-filter=staus = "PAID"');
    expect(code).toBe(0);
    expect(stderr).toContain('no record has these fields of -filter');
    const bad = await dump(topic, '-filter=status = PAID');
    expect(bad.code).toBe(2);
    expect(bad.stderr).toContain('the filter is not valid at character 10');
  });

  it('a reader that closes the pipe ends the consumer with 0', async () => {
    const ended = await runConsumer(own, [...servers, `-topic=${topic}`], { stdout: 'closed' });
    expect(ended.code).toBe(0);
  });

  it('a reader that closes the pipe ends the consumer of a topic without records', async () => {
    const quiet = topicOf('quiet');
    await createTopics(stack.brokers, [{ topic: quiet, partitions: 1 }]);
    const ended = await runConsumer(own, [...servers, `-topic=${quiet}`, '-native=on'], { stdout: 'closed' });
    expect(ended.code).toBe(0);
  });

  it.each([
    ['alone', []],
    ['threads', ['-instances=2', '-threads=2']],
    ['group', [`-group=absent-${own.suffix}`, '-out=-', '-session-timeout=6s']],
  ])('-exit-at-end ends with an error if the registry does not answer (%s)', async (how, more) => {
    const absent = topicOf(`absent-${how}`);
    await createTopics(stack.brokers, [{ topic: absent, partitions: 2 }]);
    const value = Buffer.from('\u0000\u0000\u0000\u0000\u0001x');
    const records = [0, 1].map((partition) => ({ partition, value }));
    await append(stack.brokers, absent, records);
    const servers = [`-brokers=${stack.brokers}`, '-registry=http://127.0.0.1:9', '-connect-timeout=1s'];
    const flags = [...servers, `-topic=${absent}`, '-exit-at-end', ...more];
    const { code, stdout, stderr } = await runConsumer(own, flags);
    expect({ code, stdout }, stderr).toEqual({ code: 3, stdout: '' });
    expect(stderr).toContain('[registry_unavailable]');
    expect(stderr).toContain('the registry at http://127.0.0.1:9 cannot be reached');
    expect(stderr).toContain('it never answered, for 1s (-connect-timeout); no record was read');
    expect(stderr).toContain('check -registry');
  });

  it('an unreadable record is reported with its reason, or goes to the quarantine topic', async () => {
    const bad = topicOf('unreadable');
    await createTopics(stack.brokers, [{ topic: bad, partitions: 1 }]);
    await append(
      stack.brokers,
      bad,
      ['garbage', '\u0000\u0000\u0000\u0000\u0063x', '{"n":1}'].map((value) => ({
        partition: 0,
        value: Buffer.from(value),
      })),
    );
    const logged = await dump(bad, '-lines=value');
    expect(logged).toMatchObject({ code: 0, stdout: '{"n":1}\n' });
    expect(logged.stderr).toContain('"reason":"bad_magic"');
    expect(logged.stderr).toContain('"reason":"unknown_schema_id"');
    const quarantine = `${bad}.quarantine`;
    const moved = await dump(bad, `-quarantine-topic=${quarantine}`, '-out=none', '-json');
    expect(JSON.parse(moved.stdout)).toMatchObject({ records: 3, selected: 1, quarantined: 2 });
    expect((await rawOf(quarantine)).map(([, value]) => value)).toEqual([
      Buffer.from('garbage').toString('hex'),
      '000000006378',
    ]);
  });
});
