/** Producer and consumer over a broker in memory: framing, the time of each commit, and the records
 *  that wait. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { referenceKernels } from '../../../src/addon/reference/kernels.ts';
import { RecordBatch, type RecordInput } from '../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { Payloads } from '../../../src/formats/payloads.ts';
import { parseSchema } from '../../../src/formats/schema.ts';
import type {
  BatchConsumer,
  BatchProducer,
  DeliveryReport,
  TopicPartition,
  TopicPartitionOffset,
} from '../../../src/io/kafka/port.ts';
import { BatchDecoder } from '../../../src/registry/consumer/decoder.ts';
import { EndTracker } from '../../../src/registry/consumer/ends.ts';
import type { RecordKeys } from '../../../src/registry/consumer/line.ts';
import { consumerMetrics, GroupMember } from '../../../src/registry/consumer/member.ts';
import { Quarantine } from '../../../src/registry/consumer/quarantine.ts';
import { type DecodedSink, LineFile, TextSink } from '../../../src/registry/consumer/sink.ts';
import { registryError } from '../../../src/registry/errors.ts';
import { FramedProducer, producerMetrics } from '../../../src/registry/producer/instance.ts';
import { runProducers } from '../../../src/registry/producer/run.ts';
import { Sequence } from '../../../src/registry/producer/sequence.ts';
import { RegistryClient } from '../../../src/serde/client.ts';
import { writerCodec } from '../../../src/serde/codec.ts';
import { QUARANTINE_HEADER } from '../../../src/serde/quarantine.ts';
import { SeededRandom } from '../../../src/sim/clock.ts';
import { realClock, turn, until } from '../../wait.ts';

const clock = realClock;
const WRITER = parseSchema(
  'AVRO',
  JSON.stringify({
    type: 'record',
    name: 'R',
    fields: [
      { name: 'n', type: 'int' },
      { name: 'text', type: 'string' },
    ],
  }),
);
const READER = parseSchema(
  'AVRO',
  JSON.stringify({
    type: 'record',
    name: 'R',
    fields: [
      { name: 'n', type: 'long' },
      { name: 'more', type: 'string', default: 'd' },
    ],
  }),
);
const BROKEN = parseSchema(
  'AVRO',
  JSON.stringify({ type: 'record', name: 'R', fields: [{ name: 'n', type: 'string' }] }),
);

interface Stored {
  readonly topic: string;
  readonly key: string | null;
  readonly value: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

class MemoryProducer implements BatchProducer {
  readonly stored: Stored[] = [];
  fails = false;
  async produce(batch: RecordBatch, topics: readonly string[]): Promise<DeliveryReport> {
    await turn();
    const status = new Int32Array(batch.rowCount).fill(this.fails ? -192 : 0);
    const offset = new BigInt64Array(batch.rowCount);
    if (this.fails)
      return {
        delivered: 0,
        failed: batch.rowCount,
        status,
        offset,
        events: [
          { code: -192, name: '_MSG_TIMED_OUT', message: 'timed out', retriable: false, fatal: false },
        ],
      };
    for (let row = 0; row < batch.rowCount; row++) {
      const key = batch.key(row);
      this.stored.push({
        topic: topics[batch.columns.topicIndex[row] as number] as string,
        key: key === null ? null : Buffer.from(key).toString(),
        value: Buffer.from(batch.value(row) ?? []),
        headers: Object.fromEntries(
          batch.headers(row).map(([name, value]) => [name, Buffer.from(value ?? []).toString()]),
        ),
      });
    }
    return { delivered: batch.rowCount, failed: 0, status, offset, events: [] };
  }
  queuedBytes(): number {
    return 0;
  }
  async flush(): Promise<void> {}
  async close(): Promise<void> {}
}

class MemoryConsumer implements BatchConsumer {
  readonly topics = ['t'];
  readonly commits: TopicPartitionOffset[][] = [];
  readonly paused: boolean[] = [];
  private readonly batches: RecordInput[][];
  readonly seeks: TopicPartitionOffset[] = [];
  private readonly held = new Set<number>();
  constructor(batches: RecordInput[][]) {
    this.batches = batches;
  }
  async consume(into: RecordBatch): ReturnType<BatchConsumer['consume']> {
    await turn();
    into.clear();
    const isHeld = this.held.has(this.batches[0]?.[0]?.partition ?? 0);
    const next = isHeld ? undefined : this.batches.shift();
    for (const record of next ?? []) into.append(record);
    return { rowCount: into.rowCount, ends: [], events: [] };
  }
  async pause(places: readonly TopicPartition[]): Promise<void> {
    this.paused.push(true);
    for (const at of places) this.held.add(at.partition);
  }
  async resume(places: readonly TopicPartition[]): Promise<void> {
    this.paused.push(false);
    for (const at of places) this.held.delete(at.partition);
  }
  async commit(offsets: readonly TopicPartitionOffset[]): ReturnType<BatchConsumer['commit']> {
    this.commits.push([...offsets]);
    return 'committed';
  }
  assignment(): ReturnType<BatchConsumer['assignment']> {
    return [
      { topic: 't', partition: 0 },
      { topic: 't', partition: 1 },
    ];
  }
  async assign(): Promise<void> {}
  async subscribe(): Promise<void> {}
  async seek(position: TopicPartitionOffset): Promise<void> {
    this.seeks.push(position);
  }
  async committed(): Promise<readonly TopicPartitionOffset[]> {
    return [];
  }
  async reach(): Promise<void> {}
  async lag(): ReturnType<BatchConsumer['lag']> {
    return [];
  }
  async watermarkOffsets(): ReturnType<BatchConsumer['watermarkOffsets']> {
    return { low: 0n, high: 0n };
  }
  async close(): Promise<void> {}
}

const frame = (id: number, value: unknown): Buffer => {
  const batch = RecordBatch.create(1, 4096);
  const payloads = new Payloads(1, 512);
  writerCodec(WRITER).encode(value, payloads);
  referenceKernels.writeFrames(payloads.bytes, payloads.start, payloads.length, 1, id, null, batch);
  return Buffer.from(batch.value(0) ?? []);
};

const rows = (...values: ReadonlyArray<Buffer | null>): RecordInput[] =>
  values.map((value, i) => ({
    partition: 0,
    offset: BigInt(i),
    timestamp: 1000n + BigInt(i),
    key: Buffer.from(`k${i}`),
    value,
    headers: [['own', Buffer.from('h')]],
  }));

function setUp(
  batches: RecordInput[][],
  answer: (path: string) => { status: number; body: string } | Error = known,
) {
  const metrics = new Metrics();
  const asked: string[] = [];
  const client = new RegistryClient({
    transport: {
      async request(_method, path) {
        asked.push(path);
        const given = answer(path);
        if (given instanceof Error) throw given;
        return given;
      },
    },
    clock,
    random: new SeededRandom(1),
    metrics,
    unknownForMs: 1000,
    retries: 0,
    retryDelayMs: 1,
  });
  const consumer = new MemoryConsumer(batches);
  const producer = new MemoryProducer();
  const lines: unknown[] = [];
  const sink: DecodedSink = {
    target: 'memory',
    write: async (_records, decoded) => {
      lines.push(...decoded.map(({ value }) => value));
      return [];
    },
    close: async () => {},
  };
  const drain = new AbortController();
  const end = BigInt(batches.reduce((sum, batch) => sum + batch.length, 0));
  const counters = consumerMetrics(metrics);
  const member = new GroupMember({
    connect: async () => consumer,
    topic: 't',
    subject: 's',
    decoder: new BatchDecoder(client, referenceKernels, READER, 64),
    sink,
    quarantine: new Quarantine({ producer, topic: 't.quarantine', readerVersion: 2 }),
    metrics: counters,
    clock,
    log: silentLogger,
    drain: drain.signal,
    batchRows: 64,
    batchBytes: 1 << 16,
    ends: new EndTracker([{ topic: 't', partition: 0, low: 0n, high: end }]),
    onRows: () => {},
  });
  const errors = (): Record<string, number> =>
    Object.fromEntries(
      metrics
        .snapshot()
        .flatMap((one) =>
          one.name === 'deserialize_errors_total'
            ? one.samples.map((sample) => [
                `${sample.labels['subject']}/${sample.labels['reason']}`,
                sample.value as number,
              ])
            : [],
        ),
    );
  return { member, consumer, producer, lines, drain, asked, errors, counters };
}

function known(path: string): { status: number; body: string } {
  if (path === '/schemas/ids/1')
    return { status: 200, body: JSON.stringify({ schema: WRITER.text, schemaType: 'AVRO' }) };
  if (path === '/schemas/ids/3')
    return { status: 200, body: JSON.stringify({ schema: BROKEN.text, schemaType: 'AVRO' }) };
  return { status: 404, body: '{"error_code":40403,"message":"Schema not found"}' };
}

describe('consumer', () => {
  it('the consumer decodes valid records and quarantines the rest unchanged with a reason', async () => {
    const good = frame(1, { n: 5, text: 'x' });
    const bad = [
      Buffer.from([0, 0]),
      Buffer.from('garbage'),
      frame(9, { n: 1, text: '' }),
      frame(3, { n: 1, text: '' }),
      good.subarray(0, good.length - 1),
    ];
    const { member, consumer, producer, lines, errors, asked } = setUp([rows(good, ...bad, null, good)]);
    await member.run();
    expect(lines).toEqual([
      expect.objectContaining({ n: 5n, more: 'd' }),
      null,
      expect.objectContaining({ n: 5n }),
    ]);
    const reasons = [
      'truncated_frame',
      'bad_magic',
      'unknown_schema_id',
      'incompatible_schema',
      'malformed_payload',
    ];
    expect(producer.stored.map(({ headers }) => headers[QUARANTINE_HEADER.reason])).toEqual(reasons);
    producer.stored.forEach((stored, i) => {
      expect(stored).toMatchObject({ topic: 't.quarantine', key: `k${i + 1}`, value: bad[i] });
      expect(stored.headers).toMatchObject({
        own: 'h',
        [QUARANTINE_HEADER.readerVersion]: '2',
        [QUARANTINE_HEADER.sourceTopic]: 't',
        [QUARANTINE_HEADER.sourcePartition]: '0',
        [QUARANTINE_HEADER.sourceOffset]: String(i + 1),
        [QUARANTINE_HEADER.schemaId]: ['', '', '9', '3', '1'][i],
      });
    });
    expect(errors()).toEqual(Object.fromEntries(reasons.map((reason) => [`s/${reason}`, 1])));
    expect(consumer.commits.at(-1)).toEqual([{ topic: 't', partition: 0, offset: 8n }]);
    expect(asked).toEqual(['/schemas/ids/1', '/schemas/ids/3', '/schemas/ids/9']);
  });

  it('the consumer quarantines a record whose header name is not UTF-8', async () => {
    const bad = Buffer.from('garbage');
    const [record] = rows(bad) as [RecordInput];
    // When read from the broker, each byte that is not UTF-8 becomes a three-byte character.
    const source = RecordBatch.create(1, 256);
    source.append({ ...record, headers: [['own', Buffer.from('h')]] });
    const { arena, headersStart } = source.columns;
    arena.fill(0xff, (headersStart[0] as number) + 8, (headersStart[0] as number) + 11);
    const producer = new MemoryProducer();
    const quarantine = new Quarantine({ producer, topic: 't.quarantine', readerVersion: 2 });
    const failed = {
      row: 0,
      schemaId: 0,
      reason: 'bad_magic',
      error: registryError('bad_magic', 'no'),
    } as const;
    expect(await quarantine.write(source, 't', [failed])).toEqual([]);
    expect(producer.stored.map(({ value }) => value)).toEqual([bad]);
    expect(producer.stored[0]?.headers['\ufffd\ufffd\ufffd']).toBe('h');
  });

  it('the consumer commits nothing of a batch whose quarantine failed', async () => {
    const { member, consumer, producer, counters } = setUp([rows(Buffer.from('garbage'))]);
    producer.fails = true;
    await expect(member.run()).rejects.toMatchObject({ code: 'not_delivered' });
    expect(consumer.commits).toEqual([]);
    expect(counters.consumed.value()).toBe(0);
  });

  it('the consumer pauses while the registry is unreachable, quarantines nothing, and resumes', async () => {
    let away = 3;
    const good = frame(1, { n: 5, text: 'x' });
    const { member, consumer, producer, lines, counters } = setUp([rows(good, good)], (path) =>
      away-- > 0 ? registryError('registry_unavailable', 'ECONNREFUSED') : known(path),
    );
    await member.run();
    expect(lines).toHaveLength(2);
    expect(producer.stored).toEqual([]);
    expect(consumer.paused).toEqual([true, false]);
    expect(counters.registryWaits.value()).toBe(1);
    expect(consumer.commits.at(-1)).toEqual([{ topic: 't', partition: 0, offset: 2n }]);
  });

  it('the consumer keeps records that other partitions deliver meanwhile, in order, and resumes at its position', async () => {
    let away = 4;
    const on = (partition: number, ...texts: readonly string[]): RecordInput[] =>
      rows(...texts.map((text) => frame(1, { n: 1, text }))).map((record) => ({ ...record, partition }));
    const { member, consumer, lines, drain, counters } = setUp([on(0, 'a', 'b'), on(1, 'c')], (path) =>
      away-- > 0 ? registryError('registry_unavailable', 'ECONNREFUSED') : known(path),
    );
    const done = member.run();
    await until('three consumed records', () => counters.consumed.value() >= 3);
    drain.abort();
    await done;
    expect(lines).toHaveLength(3);
    expect(consumer.seeks).toEqual([
      { topic: 't', partition: 0, offset: 2n },
      { topic: 't', partition: 1, offset: 1n },
    ]);
    expect(consumer.commits.at(-1)).toEqual([
      { topic: 't', partition: 0, offset: 2n },
      { topic: 't', partition: 1, offset: 1n },
    ]);
    expect(counters.registryWaits.value()).toBe(1);
  });

  it('a drain while the registry is unreachable ends without a commit', async () => {
    const { member, consumer, drain, counters } = setUp([rows(frame(1, { n: 5, text: 'x' }))], () =>
      registryError('registry_unavailable', 'ECONNREFUSED'),
    );
    const done = member.run();
    await until('a wait for the registry', () => counters.registryWaits.value() > 0);
    drain.abort();
    await done;
    expect(consumer.commits).toEqual([]);
  });
});

describe('file sink', () => {
  it.each<readonly [string, string, string]>([
    ['a whole file', '{"a":1}\n{"b":2}\n', '{"a":1}\n{"b":2}\n'],
    ['an unfinished last line', '{"a":1}\n{"b":', '{"a":1}\n'],
    ['nothing but an unfinished line', '{"a"', ''],
    ['an unfinished line longer than one read', `{"a":1}\n${'x'.repeat(200_000)}`, '{"a":1}\n'],
    ['an empty file', '', ''],
  ])('the file sink continues after %s', async (_what, before, kept) => {
    const dir = mkdtempSync(join(tmpdir(), 'millrace-sink-'));
    try {
      const path = join(dir, 'out.jsonl');
      writeFileSync(path, before);
      const file = await LineFile.open(path);
      const keys = { of: () => ({ text: '"k"', value: 'k', form: undefined, schemaId: undefined }) };
      const options = { form: 'record', keys: keys as unknown as RecordKeys, topic: 't' } as const;
      const sink = new TextSink('the file', options, (text) => file.append(text));
      const batch = RecordBatch.create(1, 16);
      batch.append({ partition: 3, offset: 7n });
      const form = { print: String, field: () => undefined };
      await sink.write(batch, [{ row: 0, schemaId: 2, value: 1152921504606846976n, form }]);
      await file.close();
      const line =
        '{"topic":"t","partition":3,"offset":7,"timestamp":null,"key":"k","schemaId":2,"value":1152921504606846976}\n';
      expect(readFileSync(path, 'utf8')).toBe(kept + line);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
});

describe('producer', () => {
  const make = (producer: BatchProducer, batchRows = 8, schemaId = async () => 0x01020304): FramedProducer =>
    new FramedProducer({
      producer,
      topic: 'out',
      codec: writerCodec(WRITER),
      schemaId,
      kernels: referenceKernels,
      clock,
      batchRows,
      keyOf: (value) => `k${(value as { n: number }).n}`,
      metrics: producerMetrics(new Metrics()),
    });

  it('the producer frames each value under its key, in batches and as oversized rows', async () => {
    const producer = new MemoryProducer();
    const framed = make(producer);
    const values = Array.from({ length: 50 }, (_, n) => ({
      n,
      text: n % 7 === 0 ? 'x'.repeat(20_000) : 'short',
    }));
    await framed.send(values);
    await framed.finish();
    expect(producer.stored.map(({ key }) => key)).toEqual(values.map(({ n }) => `k${n}`));
    for (const [i, { value, topic }] of producer.stored.entries()) {
      expect(topic).toBe('out');
      expect(value.subarray(0, 5)).toEqual(Buffer.from([0, 1, 2, 3, 4]));
      expect(value.length).toBe(frameLength(values[i] as { n: number; text: string }));
    }
  });

  it('a value that does not fit its schema ends the run, and so does an unacknowledged row', async () => {
    const producer = new MemoryProducer();
    const framed = make(producer);
    await expect(
      framed.send([
        { n: 1, text: 'ok' },
        { n: 'one', text: 'x' },
      ]),
    ).rejects.toMatchObject({ code: 'value_refused' });
    await framed.send([{ n: 2, text: 'ok' }]);
    await framed.finish();
    expect(producer.stored).toHaveLength(1);
    producer.fails = true;
    await framed.send([{ n: 3, text: 'ok' }]);
    await expect(framed.finish()).rejects.toMatchObject({ code: 'not_delivered' });
  });

  it('the producer counts a write-cache hit for each batch that finds its id there', async () => {
    const producer = new MemoryProducer();
    const metrics = new Metrics();
    let requests = 0;
    const client = new RegistryClient({
      transport: {
        async request() {
          requests++;
          return { status: 200, body: '{"id":7}' };
        },
      },
      clock,
      random: new SeededRandom(1),
      metrics,
      unknownForMs: 1000,
      retries: 0,
      retryDelayMs: 1,
    });
    const lookups = metrics.counter('schema_cache_lookups_total', '', ['cache', 'result']);
    const count = (result: string): number => lookups.value(lookups.series('schema_to_id', result));
    const id = (): Promise<number> => client.register('s', 'AVRO', WRITER.text);
    await id();
    expect([count('miss'), count('hit')]).toEqual([1, 0]);
    const framed = make(producer, 8, id);
    await framed.send(Array.from({ length: 20 }, (_, n) => ({ n, text: '' })));
    await framed.finish();
    expect([count('miss'), count('hit'), requests]).toEqual([1, 3, 1]);
    expect(producer.stored[19]?.value.subarray(0, 5)).toEqual(Buffer.from([0, 0, 0, 0, 7]));
  });

  it('several producer instances share one count and send each value once', async () => {
    const producer = new MemoryProducer();
    const sent = await runProducers({
      instances: [make(producer), make(producer), make(producer)],
      source: (from, count) => Array.from({ length: count }, (_, i) => ({ n: from + i, text: '' })),
      sequence: new Sequence(1001),
      startMs: clock.monotonicMs(),
      rate: 0,
      batchRows: 8,
      clock,
      drain: new AbortController().signal,
      onSent: () => {},
    });
    expect(sent).toBe(1001);
    expect(new Set(producer.stored.map(({ key }) => key)).size).toBe(1001);
    expect(producer.stored).toHaveLength(1001);
  });
});

/** Header, zigzag n in one or two bytes, length of the text, text. */
function frameLength({ n, text }: { n: number; text: string }): number {
  const varint = (value: number): number => (value < 64 ? 1 : value < 8192 ? 2 : 3);
  return 5 + varint(n) + varint(text.length) + text.length;
}
