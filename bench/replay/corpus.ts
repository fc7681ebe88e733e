/** One corpus of old records: a topic with one partition in which several writer versions of Order
 *  alternate, its replay, and an independent count of both. */
import { randomBytes } from 'node:crypto';
import { coreError } from '../../src/core/errors.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { OrderFormat } from '../../src/gen/order-versions.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { Children } from '../children.ts';
import type { BenchContext } from '../harness.ts';

export interface Corpus {
  readonly name: string;
  readonly format: OrderFormat;
  /** As `gen -schema-version`. */
  readonly versions: string;
  readonly seed: number;
}

const corpusOf = (format: OrderFormat, versions: string, seed: number): Corpus => ({
  name: `${format} ${versions}`,
  format,
  versions,
  seed,
});

/** Each mixes versions that its newest one reads. Version 6 of Avro has a field without a default,
 *  so no older record is readable with it. */
export const CORPORA: readonly Corpus[] = [
  corpusOf('avro', '1-5', 1),
  corpusOf('avro', '1,3,5', 2),
  corpusOf('avro', '2,4,5', 3),
  corpusOf('protobuf', '1-6', 4),
  corpusOf('protobuf', '1,3,6', 5),
];

/** Fields of the document of `consumer -replay -json` that the bench uses. */
export interface ReplayDocument {
  readonly complete: boolean;
  readonly records: number;
  readonly decoded: number;
  readonly failed: number;
  readonly threads: number;
  readonly readerVersion: number;
  readonly perSecond: number;
  readonly cpuSeconds: number;
  readonly cpuMicrosPerRecord: number;
  readonly decodeMicrosPerRecord: number;
  readonly schemas: ReadonlyArray<{
    readonly schemaId: number;
    readonly version: number | null;
    readonly records: number;
  }>;
}

export interface CorpusResult {
  readonly corpus: Corpus;
  /** End offset of the topic, which starts at 0. */
  readonly records: number;
  readonly writeSeconds: number;
  /** Records at the start of the topic that were looked at. */
  readonly sampled: number;
  /** Changes of the schema id among them. */
  readonly changes: number;
  readonly replay: ReplayDocument;
}

export interface CorpusWorld {
  readonly context: BenchContext;
  readonly children: Children;
  /** URL of the registry. */
  readonly registry: string;
}

/** Records whose schema ids show that versions alternate. */
const SAMPLED = 1000;
const SAMPLE_BYTES = 4 << 20;
const WAIT_MS = 500;
const OFFSETS_MS_MAX = 10_000;
const SAMPLE_MS_MAX = 60_000;

/** Runs a command to its end. @throws unreachable for an exit code that is not among `codes` */
async function run(
  { context, children }: CorpusWorld,
  name: string,
  args: readonly string[],
  codes: readonly number[],
): Promise<{ readonly stdout: string; readonly seconds: number }> {
  const started = performance.now();
  const process = children.processes.spawn(name, [...args, '-log-level=warn']);
  const end = (): void => process.kill('SIGTERM');
  context.drain.addEventListener('abort', end, { once: true });
  const { code, signal } = await process.ended;
  context.drain.removeEventListener('abort', end);
  context.drain.throwIfAborted();
  if (code === null || !codes.includes(code))
    throw coreError('unreachable', `${name} ended with ${signal ?? code}`, {
      next: `see ${process.logPath}`,
    });
  return { stdout: process.stdout(), seconds: (performance.now() - started) / 1000 };
}

/** Reads the end offset, and the schema ids of the first records, as a plain client. */
async function inspect(
  { context, children }: CorpusWorld,
  topic: string,
): Promise<Pick<CorpusResult, 'records' | 'sampled' | 'changes'>> {
  const properties = context.brokerProperties ?? {};
  const consumer = await nodeRdkafkaDriver.consumer({
    brokers: children.brokers,
    properties,
    clientId: 'bench',
  });
  try {
    const { low, high } = await consumer.watermarkOffsets({ topic, partition: 0 }, OFFSETS_MS_MAX);
    const wanted = Math.min(SAMPLED, Number(high - low));
    await consumer.assign([{ topic, partition: 0, offset: low }]);
    const batch = RecordBatch.create(SAMPLED, SAMPLE_BYTES);
    const ids: number[] = [];
    const deadline = Date.now() + SAMPLE_MS_MAX;
    while (ids.length < wanted) {
      if (Date.now() > deadline) throw coreError('timeout', `${topic} did not deliver its first records`);
      const { rowCount } = await consumer.consume(batch, WAIT_MS);
      for (let row = 0; row < rowCount; row++) ids.push(Buffer.from(batch.value(row) ?? []).readUInt32BE(1));
      batch.clear();
    }
    const sample = ids.slice(0, wanted);
    const changes = sample.filter((id, index) => index > 0 && id !== sample[index - 1]).length;
    return { records: Number(high - low), sampled: wanted, changes };
  } finally {
    await consumer.close();
  }
}

/** Writes the corpus, replays it and deletes it. @throws unreachable if a command fails */
export async function runCorpus(world: CorpusWorld, corpus: Corpus, rows: number): Promise<CorpusResult> {
  const { context, children } = world;
  const topic = `bench-replay-${randomBytes(4).toString('hex')}`;
  const servers = [`-brokers=${children.brokers}`, `-registry=${world.registry}`];
  const admin = await nodeRdkafkaDriver.admin({
    brokers: children.brokers,
    properties: context.brokerProperties ?? {},
    clientId: 'bench',
  });
  try {
    context.say(`writing ${rows.toLocaleString('en-US')} records: ${corpus.name}`);
    const { seconds } = await run(
      world,
      'gen',
      [
        'gen',
        ...servers,
        '-kind=orders',
        `-out=kafka:${topic}`,
        '-partitions=1',
        '-compression=lz4',
        `-format=${corpus.format}`,
        `-schema-version=${corpus.versions}`,
        `-seed=${corpus.seed}`,
        `-count=${rows}`,
      ],
      [0],
    );
    const seen = await inspect(world, topic);
    context.say(`replaying ${seen.records.toLocaleString('en-US')} records: ${corpus.name}`);
    // Exit code 1: some records were not decoded; the document counts them.
    const { stdout } = await run(
      world,
      'consumer',
      ['consumer', ...servers, `-topic=${topic}`, '-replay', '-json'],
      [0, 1],
    );
    return { corpus, ...seen, writeSeconds: seconds, replay: JSON.parse(stdout) as ReplayDocument };
  } finally {
    await admin.deleteTopics([topic]).catch(() => {});
    await admin.close();
  }
}
