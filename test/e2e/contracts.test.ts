/** registry, producer and consumer as real processes on a real broker: kills, an unavailable
 *  registry, bad input. */
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ask } from '../../src/demo/contracts/model.ts';
import { append, createTopics, TopicReader } from '../../src/demo/contracts/topic.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { logicalOrder } from '../../src/gen/order.ts';
import { orderSchema } from '../../src/gen/order-versions.ts';
import { writerCodec } from '../../src/serde/codec.ts';
import { runConsumer, startConsumer, untilShared } from '../fixtures/consumer.ts';
import { scrape } from '../fixtures/metrics.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { runRegistry, startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { describeFull, itFull } from '../tier.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const name = (part: string): string => `contracts-${own.suffix}-${part}`;
const schemaFile = (version: 1 | 2 | 'breaking', format: 'avro' | 'protobuf' = 'avro'): string => {
  const path = join(own.dir, `order-${format}-${version}`);
  writeFileSync(path, orderSchema(version, format));
  return path;
};

let registry: Running;
let url: string;

async function serve(
  store: string,
  ...more: readonly string[]
): Promise<{ readonly child: Running; readonly url: string }> {
  const child = startRegistry(own, [`-store=${store}`, ...more]);
  return { child, url: `http://${await child.ready()}` };
}

beforeAll(async () => {
  ({ child: registry, url } = await serve('memory'));
});
afterAll(() => registry.kill('SIGTERM'));

async function registerOrder(base: string, subject: string, version: 1 | 2): Promise<void> {
  const schema = orderSchema(version, 'avro');
  expect(await ask(base, 'POST', `/subjects/${subject}/versions`, { schema })).toMatchObject({ status: 200 });
}

const shared = (subject: string): readonly string[] => [
  `-brokers=${stack.brokers}`,
  `-registry=${url}`,
  '-format=avro',
  `-subject=${subject}`,
  '-partitions=3',
];
const produce = (subject: string, count: number, ...more: readonly string[]): ReturnType<typeof own.run> =>
  own.run(['producer', ...shared(subject), `-schema=${schemaFile(1)}`, `-count=${count}`, '-json', ...more]);
const consumer = (subject: string, out: string, ...more: readonly string[]): readonly string[] => [
  ...shared(subject),
  `-out=file:${join(own.dir, out)}`,
  ...more,
];

interface Line {
  readonly partition: number;
  readonly offset: number;
  readonly value: { readonly order_id: string };
}
async function lines(file: string): Promise<Line[]> {
  const text = await readFile(join(own.dir, file), 'utf8').catch(() => '');
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Line);
}
const ids = (list: readonly Line[]): Set<string> => new Set(list.map((line) => line.value.order_id));
const wanted = (count: number): Set<string> =>
  new Set(Array.from({ length: count }, (_, i) => logicalOrder(1, i).order_id));

describe('consumer groups', () => {
  it('a consumer group shares the partitions, and a member that is killed loses no record', async () => {
    const subject = name('group-value');
    const count = 20_000;
    expect(await produce(subject, count, '-instances=2')).toMatchObject({ code: 0 });
    const first = startConsumer(
      own,
      consumer(subject, 'first.jsonl', '-batch-rows=200', '-session-timeout=6s'),
      'first',
    );
    await until('the first lines', async () =>
      (await lines('first.jsonl')).length > 500 ? true : undefined,
    );
    await first.die();
    const second = await runConsumer(
      own,
      consumer(subject, 'second.jsonl', '-exit-at-end', '-instances=2', '-session-timeout=6s'),
    );
    expect(second.code).toBe(0);
    const all = [...(await lines('first.jsonl')), ...(await lines('second.jsonl'))];
    expect(ids(all)).toEqual(wanted(count));
    const again = await runConsumer(own, consumer(subject, 'third.jsonl', '-exit-at-end', '-json'));
    expect(again.code).toBe(0);
    expect(JSON.parse(again.stdout)).toMatchObject({ records: 0, quarantined: 0 });
  });

  itFull(
    'a consumer drains on SIGTERM and commits what it wrote, so the next consumer repeats nothing',
    async () => {
      const subject = name('drain-value');
      const count = 5000;
      expect(await produce(subject, count)).toMatchObject({ code: 0 });
      // A member that misses its session timeout would be evicted, and its records read again.
      const sessionTimeout = '-session-timeout=45s';
      const first = startConsumer(
        own,
        consumer(subject, 'drained.jsonl', '-batch-rows=100', sessionTimeout),
        'drained',
      );
      await until('the first lines', async () =>
        (await lines('drained.jsonl')).length > 300 ? true : undefined,
      );
      await first.drain();
      expect(
        (await runConsumer(own, consumer(subject, 'rest.jsonl', '-exit-at-end', sessionTimeout))).code,
      ).toBe(0);
      const all = [...(await lines('drained.jsonl')), ...(await lines('rest.jsonl'))];
      expect(all).toHaveLength(count);
      expect(ids(all)).toEqual(wanted(count));
    },
  );

  itFull('a consumer writes decoded records to a topic under their keys', async () => {
    const subject = name('out-value');
    const out = name('decoded');
    expect(await produce(subject, 500)).toMatchObject({ code: 0 });
    expect((await runConsumer(own, [...shared(subject), '-exit-at-end', `-out=kafka:${out}`])).code).toBe(0);
    const found = new Set<string>();
    const reader = await TopicReader.open(stack.brokers);
    await reader.read([out], (_topic, { key, value }) => {
      const line = JSON.parse(Buffer.from(value ?? []).toString()) as Line;
      expect(Buffer.from(key ?? []).toString()).toBe(line.value.order_id);
      found.add(line.value.order_id);
    });
    await reader.close();
    expect(found).toEqual(wanted(500));
  });
});

describe('registry process', () => {
  it('a registry keeps every id it answered through SIGKILL in the middle of registrations', async () => {
    const store = `file:${join(own.dir, 'killed')}`;
    const { child, url: base } = await serve(store);
    const answered = new Map<string, number>();
    const register = async (i: number): Promise<void> => {
      const schema = JSON.stringify({ type: 'record', name: `R${i}`, fields: [] });
      const { status, body } = await ask(base, 'POST', `/subjects/s${i}/versions`, { schema });
      expect(status).toBe(200);
      answered.set(schema, (body as { id: number }).id);
    };
    const all = Promise.allSettled(Array.from({ length: 400 }, (_, i) => register(i)));
    await until('some registrations', async () => (answered.size > 50 ? true : undefined));
    child.kill('SIGKILL');
    await all;
    const second = await serve(store);
    expect(answered.size).toBeGreaterThan(50);
    for (const [schema, id] of answered) {
      expect((await ask(second.url, 'GET', `/schemas/ids/${id}`)).body).toMatchObject({ schema });
    }
    await second.child.drain();
  });
});

describe('records above one megabyte', () => {
  it('large records are quarantined untouched or decoded, and the topics are created with a sufficient record size limit', async () => {
    const subject = name('large-value');
    const topic = subject.replace(/-value$/, '');
    const out = name('large-decoded');
    const schema = JSON.stringify({ type: 'record', name: 'L', fields: [{ name: 'text', type: 'string' }] });
    const { body } = await ask(url, 'POST', `/subjects/${subject}/versions`, { schema });
    const text = 'x'.repeat(1_500_000);
    const payloads = new Payloads(1, 2_000_000);
    writerCodec(parseSchema('AVRO', schema)).encode({ text }, payloads);
    const head = Buffer.alloc(5);
    head.writeUInt32BE((body as { id: number }).id, 1);
    const garbage = Buffer.alloc(2_000_000, 'garbage');
    await createTopics(stack.brokers, [{ topic, partitions: 1, config: { 'max.message.bytes': '8000000' } }]);
    await append(
      stack.brokers,
      topic,
      [garbage, Buffer.concat([head, payloads.bytes.subarray(0, payloads.used)])].map((value) => ({
        partition: 0,
        key: null,
        value,
      })),
    );
    const ran = await runConsumer(own, [...shared(subject), '-exit-at-end', `-out=kafka:${out}`, '-json']);
    expect(ran.code, ran.stderr).toBe(0);
    expect(JSON.parse(ran.stdout)).toMatchObject({ records: 2, quarantined: 1 });
    const found = new Map<string, Buffer>();
    const reader = await TopicReader.open(stack.brokers);
    await reader.read([`${topic}.quarantine`, out], (from, { value }) => {
      found.set(from, Buffer.from(value ?? []));
    });
    await reader.close();
    expect(found.get(`${topic}.quarantine`)?.equals(garbage)).toBe(true);
    expect((JSON.parse(String(found.get(out))) as { value: unknown }).value).toEqual({ text });
  });
});

describeFull('cold start', () => {
  it('a consumer requests each schema id at most once and counts its cache hits', async () => {
    const subject = name('cold-value');
    await registerOrder(url, subject, 1);
    const reading = startConsumer(
      own,
      consumer(subject, 'cold.jsonl', '-instances=2', '-batch-rows=64', '-session-timeout=45s'),
      'cold',
    );
    const address = await reading.address();
    const metrics = async (): Promise<string> => scrape(address);
    const consumed = (count: number): Promise<true> =>
      until(`${count} consumed records`, async () =>
        new RegExp(`^consumed_records_total ${count}$`, 'm').test(await metrics()) ? true : undefined,
      );
    // Partitions that move during the test would be read twice or late.
    await untilShared(reading, 2);
    expect(await produce(subject, 2000)).toMatchObject({ code: 0 });
    await consumed(2000);
    const topic = subject.replace(/-value$/, '');
    // One batch: an unknown id is cached for a few seconds only.
    await append(
      stack.brokers,
      topic,
      Array.from({ length: 20 }, (_, i) => ({
        partition: i % 3,
        key: null,
        value: Buffer.from([0, 0x7f, 0, 0, 9, 1]),
      })),
    );
    await consumed(2020);
    const text = await metrics();
    // Two requests: one for the reader version and one for the unknown id. The writer's id equals
    // the reader's.
    expect(
      /^registry_client_requests_total\{operation="schema_by_id",status="404"\} (\d+)$/m.exec(text)?.[1],
    ).toBe('1');
    expect(text).not.toMatch(/operation="schema_by_id",status="200"/);
    expect(Number(/^schema_cache_hit_ratio\{cache="id_to_schema"\} (\S+)$/m.exec(text)?.[1])).toBeGreaterThan(
      0.99,
    );
    expect(text).toMatch(
      new RegExp(`^deserialize_errors_total\\{subject="${subject}",reason="unknown_schema_id"\\} 20$`, 'm'),
    );
    expect(text).toMatch(new RegExp(`^consumer_reader_schema_version\\{subject="${subject}"\\} 1$`, 'm'));
    await reading.drain();
  });
});

describe('bad input', () => {
  let busy: Server;
  let busyPort: number;
  beforeAll(async () => {
    busy = createServer().listen(0, '127.0.0.1');
    await once(busy, 'listening');
    busyPort = (busy.address() as { port: number }).port;
    writeFileSync(join(own.dir, 'broken'), '{"type":"record","name":"Order"');
    writeFileSync(join(own.dir, 'plain-file'), '');
    mkdirSync(join(own.dir, 'held'), { recursive: true });
  });
  afterAll(() => new Promise((resolve) => busy.close(resolve)));

  const base = (over: Readonly<Record<string, string>> = {}): string[] =>
    Object.entries({
      brokers: stack.brokers,
      registry: url,
      format: 'avro',
      subject: name('bad-value'),
      ...over,
    }).map(([flag, value]) => `-${flag}=${value}`);
  const dead = '127.0.0.1:9';

  itFull.concurrent.each<readonly [string, () => string[], number, RegExp]>([
    [
      'producer: a broken schema file',
      () => ['producer', ...base(), `-schema=${join(own.dir, 'broken')}`],
      2,
      /invalid Avro schema: the text is not JSON/,
    ],
    [
      'producer: a schema file that is missing',
      () => ['producer', ...base(), `-schema=${join(own.dir, 'nowhere')}`],
      2,
      /cannot be read \(ENOENT\)/,
    ],
    [
      'producer: a schema of the other format',
      () => ['producer', ...base({ format: 'protobuf' }), `-schema=${schemaFile(1)}`],
      2,
      /invalid Protobuf schema/,
    ],
    [
      'producer: an unknown format',
      () => ['producer', ...base({ format: 'thrift' }), `-schema=${schemaFile(1)}`],
      2,
      /-format=thrift is not a choice; choose from avro, protobuf/,
    ],
    [
      'producer: an unknown flag',
      () => ['producer', ...base(), '-shema=x'],
      2,
      /unknown flag -shema; did you mean -schema\?/,
    ],
    [
      'producer: an unreachable registry',
      () => ['producer', ...base({ registry: `http://${dead}` }), `-schema=${schemaFile(1)}`],
      3,
      /the registry at http:\/\/127\.0\.0\.1:9 cannot be reached/,
    ],
    [
      'producer: an invalid registry address',
      () => ['producer', ...base({ registry: 'nowhere' }), `-schema=${schemaFile(1)}`],
      2,
      /-registry=nowhere is not an address/,
    ],
    [
      'producer: an unreachable broker',
      () => [
        'producer',
        ...base({ brokers: dead }),
        `-schema=${schemaFile(1)}`,
        '-count=1',
        '-connect-timeout=1s',
      ],
      3,
      /127\.0\.0\.1:9/,
    ],
    [
      'producer: a key that no order has',
      () => ['producer', ...base(), `-schema=${schemaFile(1)}`, '-count=1', '-key=items'],
      2,
      /-key-field=items/,
    ],
    [
      'consumer: an unreachable registry',
      () => ['consumer', ...base({ registry: `http://${dead}` })],
      3,
      /cannot be reached/,
    ],
    [
      'consumer: an unreachable broker',
      () => ['consumer', ...base({ brokers: dead, subject: name('known') }), '-connect-timeout=1s'],
      3,
      /127\.0\.0\.1:9/,
    ],
    [
      'consumer: an unknown subject',
      () => ['consumer', ...base({ subject: name('absent') })],
      2,
      /Subject '.*' not found/,
    ],
    [
      'consumer: an unknown version',
      () => ['consumer', ...base({ subject: name('known') }), '-reader-version=7'],
      2,
      /Version 7 not found/,
    ],
    [
      'consumer: the format of another subject',
      () => ['consumer', ...base({ subject: name('known'), format: 'protobuf' })],
      2,
      /is AVRO, not PROTOBUF/,
    ],
    [
      'consumer: an unknown kind of output',
      () => ['consumer', ...base({ subject: name('known') }), '-out=s3:orders'],
      2,
      /-out=s3:orders is not an output/,
    ],
    [
      'consumer: an output that cannot be written',
      () => [
        'consumer',
        ...base({ subject: name('known') }),
        `-out=file:${join(own.dir, 'plain-file', 'x')}`,
      ],
      2,
      /cannot write to .*ENOTDIR/,
    ],
    [
      'registry: a busy port',
      () => ['registry', '-store=memory', `-listen=127.0.0.1:${busyPort}`],
      3,
      /in use|busy/,
    ],
    [
      'registry: an unknown kind of store',
      () => ['registry', '-store=floppy', '-listen=127.0.0.1:0'],
      2,
      /-store=floppy is not a store/,
    ],
    [
      'registry: a folder that cannot be created',
      () => ['registry', `-store=file:${join(own.dir, 'plain-file', 'sub')}`, '-listen=127.0.0.1:0'],
      2,
      /cannot be a registry store: one of the folders above it is a file/,
    ],
  ])('bad input ends a command with one error line: %s', async (_what, args, code, words) => {
    await registerOrder(url, name('known'), 1);
    const result = await own.run([...args(), '-log-level=silent']);
    const errors = result.stderr.split('\n').filter((line) => line.startsWith('error: '));
    expect({ code: result.code, errors }).toEqual({ code, errors: [expect.stringMatching(words)] });
  });

  it('a producer with a breaking schema exits with 1 and names the field', async () => {
    await registerOrder(url, name('known'), 1);
    const result = await own.run([
      'producer',
      ...base({ subject: name('known') }),
      `-schema=${schemaFile('breaking')}`,
      '-log-level=silent',
    ]);
    expect(result.code).toBe(1);
    expect(result.stderr).toMatch(/amount_cents/);
  });

  itFull('a second registry on the same folder is refused', async () => {
    const store = `file:${join(own.dir, 'held')}`;
    const { child } = await serve(store);
    await until('the lock', async () => {
      const owner = await readFile(join(own.dir, 'held', 'lock'), 'utf8');
      return owner === '' ? undefined : owner;
    });
    const second = await runRegistry(own, [`-store=${store}`, '-listen=127.0.0.1:0', '-log-level=silent']);
    expect(second.code).toBe(3);
    expect(second.stderr).toMatch(/is in use by process \d+/);
    await child.drain();
  });
});
