/** `millrace consumer -replay` on a real broker: several writer versions in one partition, any
 *  schema, planted records that cannot be read, and a kill. Counts are compared with an independent
 *  reading of the topic. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { append, TopicReader } from '../../src/demo/contracts/topic.ts';
import { runConsumer, startConsumer } from '../fixtures/consumer.ts';
import { runGen } from '../fixtures/gen.ts';
import { pageOf, sumOf } from '../fixtures/metrics.ts';
import { launcher, type Outcome } from '../fixtures/process.ts';
import { runProducer } from '../fixtures/producer.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const topicOf = (part: string): string => `replay-${own.suffix}-${part}`;
let servers: readonly string[] = [];

beforeAll(async () => {
  const url = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
  servers = [`-brokers=${stack.brokers}`, `-registry=${url}`];
});

/** Orders of several versions in one partition. */
async function generate(topic: string, format: string, versions: string, count: number): Promise<void> {
  const made = await runGen(own, [
    ...servers,
    '-kind=orders',
    `-out=kafka:${topic}`,
    '-partitions=1',
    `-format=${format}`,
    `-schema-version=${versions}`,
    `-count=${count}`,
  ]);
  expect(made.code, made.stderr).toBe(0);
}

interface Report {
  readonly complete: boolean;
  readonly records: number;
  readonly decoded: number;
  readonly failed: number;
  readonly threads: number;
  readonly readerVersion: number;
  readonly cpuMicrosPerRecord: number;
  readonly schemas: ReadonlyArray<{
    readonly schemaId: number;
    readonly version: number | null;
    readonly records: number;
  }>;
  readonly reasons: ReadonlyArray<{
    readonly reason: string;
    readonly records: number;
    readonly first: ReadonlyArray<{
      readonly partition: number;
      readonly offset: string;
      readonly error: string;
    }>;
  }>;
}
const reportOf = ({ stdout }: Outcome): Report => JSON.parse(stdout) as Report;
const replay = (topic: string, ...more: readonly string[]): Promise<Outcome> =>
  runConsumer(own, [...servers, `-topic=${topic}`, '-replay', '-json', ...more]);

/** Number of records by the schema id of their frames, and the number of changes of the id from a
 *  record to the next one of its partition. */
async function countByReading(
  topic: string,
): Promise<{ counts: ReadonlyMap<number, number>; changes: number }> {
  const counts = new Map<number, number>();
  let last = 0;
  let changes = 0;
  const reader = await TopicReader.open(stack.brokers);
  await reader.read([topic], (_topic, { value }) => {
    const id = Buffer.from(value ?? []).readUInt32BE(1);
    if (id !== last) changes++;
    last = id;
    counts.set(id, (counts.get(id) ?? 0) + 1);
  });
  await reader.close();
  return { counts, changes };
}

const countsOf = ({ schemas }: Report): ReadonlyMap<number, number> =>
  new Map(schemas.map(({ schemaId, records }) => [schemaId, records]));

describe('versions in one partition', () => {
  it.each([
    ['avro', '1-5', 5],
    ['protobuf', '1,3,6', 3],
  ] as const)(
    'a replay decodes every %s record of the versions %s in one partition, spread over threads',
    async (format, versions, newest) => {
      const topic = topicOf(format);
      const count = 30_000;
      await generate(topic, format, versions, count);
      const { counts, changes } = await countByReading(topic);
      expect(counts.size).toBe(versions === '1-5' ? 5 : 3);
      // The versions alternate within the partition; they do not follow one another.
      expect(changes).toBeGreaterThan(count / 2);
      const ran = await replay(topic, '-threads=2');
      expect(ran.code, ran.stderr).toBe(0);
      const report = reportOf(ran);
      expect(report).toMatchObject({
        complete: true,
        records: count,
        decoded: count,
        failed: 0,
        reasons: [],
        readerVersion: newest,
        threads: 2,
      });
      expect(countsOf(report)).toEqual(counts);
      expect(report.cpuMicrosPerRecord).toBeGreaterThan(0);
      // One thread, single values and the reference implementation decide alike.
      for (const flags of [['-threads=1', '-codec=reference'], ['-native=off']]) {
        const again = reportOf(await replay(topic, ...flags));
        expect([flags, again.decoded, again.failed]).toEqual([flags, count, 0]);
      }
    },
  );

  it('a replay with an older reader counts the versions that it cannot read by their reason', async () => {
    const topic = topicOf('older');
    await generate(topic, 'avro', '1-5', 2000);
    const { counts } = await countByReading(topic);
    const ran = await replay(topic, `-subject=${topic}-value`, '-reader-version=3');
    expect(ran.code, ran.stderr).toBe(1);
    const report = reportOf(ran);
    // Version 4 renames a field without an alias in version 3, and version 5 widens a quantity.
    const unread = [...counts.values()].slice(-2);
    const later = [...counts].filter(([id]) => id > 3).reduce((sum, [, records]) => sum + records, 0);
    expect(unread).toHaveLength(2);
    expect(report).toMatchObject({ readerVersion: 3, failed: later, decoded: 2000 - later });
    expect(report.reasons.map(({ reason }) => reason)).toEqual(['incompatible_schema']);
  });
});

describe('records that cannot be read', () => {
  it('planted records are found with their reasons and offsets, and quarantined where a topic is named', async () => {
    const topic = topicOf('poison');
    await generate(topic, 'avro', '1-5', 12_000);
    const { counts } = await countByReading(topic);
    const first = [...counts.keys()].sort((a, b) => a - b)[0] as number;
    const cut = Buffer.alloc(8);
    cut.writeUInt32BE(first, 1);
    cut[5] = 0x48;
    const planted = [
      { reason: 'bad_magic', value: Buffer.from('no frame') },
      { reason: 'truncated_frame', value: Buffer.from([0, 0, 1]) },
      { reason: 'unknown_schema_id', value: Buffer.from([0, 0x7f, 0, 0, 9, 1]) },
      { reason: 'malformed_payload', value: cut },
    ];
    const places = await append(
      stack.brokers,
      topic,
      planted.map(({ value }) => ({ partition: 0, key: Buffer.from('k'), value })),
    );
    await append(stack.brokers, topic, [{ partition: 0, key: Buffer.from('gone'), value: null }]);
    await generate(topic, 'avro', '1-5', 8000);
    const quarantine = topicOf('poison-quarantine');
    const ran = await replay(topic, `-quarantine-topic=${quarantine}`, '-threads=2');
    expect(ran.code, ran.stderr).toBe(1);
    const report = reportOf(ran);
    expect(report).toMatchObject({
      complete: true,
      records: 20_005,
      decoded: 20_001,
      tombstones: 1,
      failed: 4,
    });
    expect(
      report.reasons.map(({ reason, records, first: [one] }) => [
        reason,
        records,
        one?.partition,
        one?.offset,
      ]),
    ).toEqual(planted.map(({ reason }, index) => [reason, 1, 0, String(places[index]?.offset)]));
    const kept = new Map<string, Buffer>();
    const reader = await TopicReader.open(stack.brokers);
    await reader.read([quarantine], (_topic, { value, headers }) =>
      kept.set(headers().get('millrace.reason') ?? '', Buffer.from(value ?? [])),
    );
    await reader.close();
    expect(kept).toEqual(new Map(planted.map(({ reason, value }) => [reason, value])));

    const table = await runConsumer(own, [...servers, `-topic=${topic}`, '-replay', '-log-level=warn']);
    expect(table.code).toBe(1);
    expect(table.stdout).toBe('');
    expect(table.stderr).toMatch(/^schema id +version +decoded$/m);
    expect(table.stderr).toMatch(
      new RegExp(
        `^malformed_payload: 1 records\\n  partition 0 offset ${places[3]?.offset} schema ${first}: `,
        'm',
      ),
    );
    expect(table.stderr).toMatch(/20001 decoded \(1 of them tombstones\), 4 not decoded/);
    expect(table.stderr).toMatch(/^CPU: \d+(\.\d+)? µs an event/m);
  });
});

describe('schemas of users', () => {
  const RIDE = {
    type: 'record',
    name: 'Ride',
    namespace: 'city',
    fields: [
      { name: 'id', type: { type: 'string', logicalType: 'uuid' } },
      { name: 'fare', type: { type: 'bytes', logicalType: 'decimal', precision: 12, scale: 2 } },
      {
        name: 'stops',
        type: {
          type: 'array',
          items: { type: 'record', name: 'Stop', fields: [{ name: 'at', type: 'long' }] },
        },
      },
      { name: 'tags', type: { type: 'map', values: ['null', 'string', 'int'] } },
    ],
  };

  it('a replay reads the records of any subject, with every version that wrote them', async () => {
    const topic = topicOf('rides');
    const newer = {
      ...RIDE,
      fields: [...RIDE.fields, { name: 'tip', type: ['null', 'double'], default: null }],
    };
    for (const [version, schema] of [RIDE, newer].entries()) {
      const path = join(own.dir, `ride-${version}.avsc`);
      writeFileSync(path, JSON.stringify(schema));
      const lines = Array.from({ length: 500 }, (_, i) =>
        JSON.stringify({
          id: `00000000-0000-4000-8000-${String(i).padStart(12, '0')}`,
          fare: '\u0001',
          stops: [{ at: i }, { at: i + 1 }],
          tags: { a: null, b: { string: 'x' }, c: { int: i } },
          ...(version === 1 ? { tip: { double: 0.5 } } : {}),
        }),
      );
      const sent = await runProducer(
        own,
        [...servers, `-topic=${topic}`, '-partitions=3', `-schema=${path}`, '-in=-', '-key-field=id'],
        `${lines.join('\n')}\n`,
      );
      expect(sent.code, sent.stderr).toBe(0);
    }
    const ran = await replay(topic);
    expect(ran.code, ran.stderr).toBe(0);
    const report = reportOf(ran);
    expect(report).toMatchObject({ complete: true, records: 1000, decoded: 1000, readerVersion: 2 });
    expect(countsOf(report)).toEqual((await countByReading(topic)).counts);
    expect(report.schemas.map(({ version }) => version).sort()).toEqual([1, 2]);
  });

  it('a replay without a subject, a topic or a codec ends with one error', async () => {
    const topic = topicOf('absent');
    const registry = servers[1]?.replace('-registry=', '');
    const made = await fetch(`${registry}/subjects/${topic}-json/versions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ schemaType: 'JSON', schema: '{"type":"object"}' }),
    });
    expect(made.status).toBe(200);
    const json = await replay(topic, `-subject=${topic}-json`);
    expect(json.code).toBe(2);
    expect(json.stderr).toMatch(/^error: version 1 of .* is JSON Schema/m);
    const absent = await replay(topic);
    expect(absent.code).toBe(2);
    expect(absent.stderr).toMatch(new RegExp(`^error: .*Subject '${topic}-value' not found`, 'm'));
    const idle = await replay(topic, '-group=g');
    expect(idle.code).toBe(2);
    expect(idle.stderr).toMatch(/^error: .*-group/m);
  });
});

describe('a replay that is killed', () => {
  it('a killed replay starts again from the beginning and counts every record', async () => {
    const topic = topicOf('killed');
    const count = 40_000;
    await generate(topic, 'protobuf', '1-6', count);
    const flags = [...servers, `-topic=${topic}`, '-replay', '-threads=2', '-json'];
    const first = startConsumer(own, [...flags, '-batch-rows=1'], 'first');
    const address = await first.ready();
    await until('the first decoded records', async () => {
      const read = sumOf(await pageOf(address), 'decoded_records_total');
      return read > 0 && read < count ? read : undefined;
    });
    await first.die();
    const ran = await runConsumer(own, flags);
    expect(ran.code, ran.stderr).toBe(0);
    const report = reportOf(ran);
    expect(report).toMatchObject({ complete: true, records: count, decoded: count });
    expect(countsOf(report)).toEqual((await countByReading(topic)).counts);
  });

  it('a drained replay reports what it has read, as incomplete, with exit code 1', async () => {
    const topic = topicOf('killed');
    const flags = [...servers, `-topic=${topic}`, '-replay', '-threads=2', '-json', '-batch-rows=1'];
    const running = startConsumer(own, flags, 'drained');
    const address = await running.ready();
    await until('the first decoded records', async () =>
      sumOf(await pageOf(address), 'decoded_records_total') > 0 ? true : undefined,
    );
    running.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 1 });
    const report = JSON.parse(running.stdout()) as Report;
    expect(report.complete).toBe(false);
    expect(report.records).toBeGreaterThan(0);
    expect(report.records).toBeLessThan(40_000);
  });
});
