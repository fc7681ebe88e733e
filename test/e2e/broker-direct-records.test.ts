/** Differential oracle of the direct client: random topics of Kafka's Java client, librdkafka and
 *  kafkajs, with interleaved transactions and with compacted gaps. The direct client reads what was
 *  written, and exactly what librdkafka reads; the engine has the same results with either. */
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { SilentLeader } from '../contract/broker-leader.ts';
import { type Row, text, World } from '../contract/broker-world.ts';
import { exportedRows, runEngine } from '../fixtures/engine.ts';
import { runGen } from '../fixtures/gen.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import {
  CAPACITIES,
  CODECS,
  type Codec,
  ISOLATIONS,
  readTopic,
  recordsIn,
  type Written,
} from './broker-direct-kit.ts';
import { javaWriter, kafkajsWriter, librdkafkaWriter, type Writer } from './broker-writers-kit.ts';

const PARTITIONS = 3;
const TURNS = 40;
/** Time limit of the installation of the clients. */
const INSTALL_LIMIT_MS = 600_000;

const own = launcher();
const { brokers } = await sharedStack();
const world = new World({
  driver: librdkafkaDriver,
  brokers: () => brokers,
  anyHeaders: true,
  timestampTypes: true,
  slowMember: (...of) => new SilentLeader(brokers, ...of),
});
let writers: readonly Writer[] = [];

beforeAll(async () => {
  writers = [librdkafkaWriter(brokers), await javaWriter(brokers), await kafkajsWriter(brokers)];
}, INSTALL_LIMIT_MS);
afterAll(async () => {
  for (const writer of writers) await writer.close();
});

type Outcome = 'plain' | 'commit' | 'abort';

/** Records that one client writes. */
interface Turn {
  /** Index of the writer, modulo those that have the codec. */
  readonly writer: number;
  readonly outcome: Outcome;
  readonly rows: readonly Written[];
}

const turnIn = (partitions: number): fc.Arbitrary<Turn> =>
  fc.record({
    writer: fc.nat({ max: 5 }),
    outcome: fc.constantFrom<Outcome[]>('plain', 'commit', 'abort'),
    rows: recordsIn(partitions),
  });

/** Records as the writer can write them. */
function writable(writer: Writer, rows: readonly Written[]): readonly Written[] {
  if (writer.name !== 'kafkajs') return rows;
  return rows.map((row) => {
    const named = new Map<string, Uint8Array>();
    // Keys of an object that are numbers would change their order.
    for (const [name, bytes] of row.headers) if (bytes !== null) named.set(`k${name}`, bytes);
    return { ...row, headers: [...named] };
  });
}

/** Contents of a record. */
type Content = Omit<Row, 'topic' | 'offset' | 'timestampType'>;
const contentOf = ({ partition, timestamp, key, value, headers }: Row): Content => ({
  ...{ partition, timestamp, key, value, headers },
});
const contentWritten = ({ partition, timestamp, key, value, headers }: Written): Content => ({
  ...{ partition, timestamp, key: text(key), value: text(value) },
  headers: headers.map(([name, bytes]) => [name, text(bytes)] as const),
});

/** Records of a topic that were written and not aborted, and all that were written. */
class Script {
  readonly committed: Content[] = [];
  readonly all: Content[] = [];
  private readonly topic: string;
  private readonly codec: Codec;
  private readonly able: readonly Writer[];

  constructor(topic: string, codec: Codec) {
    this.topic = topic;
    this.codec = codec;
    this.able = writers.filter(({ codecs }) => codecs.includes(codec));
  }

  /** Writes one turn, and another one between the records of a transaction and its end. */
  async play(turn: Turn, within?: Turn): Promise<void> {
    const { topic, codec } = this;
    const writer = this.writerOf(turn);
    const rows = writable(writer, turn.rows);
    const contents = rows.map(contentWritten);
    this.all.push(...contents);
    if (turn.outcome === 'plain') {
      this.committed.push(...contents);
      await writer.send(topic, codec, rows);
      if (within !== undefined) await this.play(within);
      return;
    }
    if (turn.outcome === 'commit') this.committed.push(...contents);
    await writer.begin(codec);
    await writer.sendInTransaction(topic, codec, rows);
    // A producer has one transaction at a time.
    if (within !== undefined)
      await this.play(this.writerOf(within) === writer ? { ...within, outcome: 'plain' } : within);
    await writer.end(codec, turn.outcome === 'commit');
  }

  private writerOf({ writer }: Turn): Writer {
    return this.able[writer % this.able.length] as Writer;
  }
}

const inPartition = (contents: readonly Content[], partition: number): Content[] =>
  contents.filter((one) => one.partition === partition);

it.each(CODECS)(
  'every record of the Java client, librdkafka and kafkajs in the codec %s is read as it was written and as librdkafka reads it',
  async (codec) => {
    const topic = await world.topic(PARTITIONS, { 'retention.ms': '-1' });
    const script = new Script(topic, codec);
    await fc.assert(
      fc.asyncProperty(
        turnIn(PARTITIONS),
        fc.option(turnIn(PARTITIONS), { nil: undefined }),
        (turn, within) => script.play(turn, within),
      ),
      { numRuns: TURNS, endOnFailure: true },
    );
    expect(script.all.length).toBeGreaterThan(script.committed.length);
    for (const isolation of ISOLATIONS) {
      const all = { brokers, topic, partitions: PARTITIONS };
      const ours = await readTopic(directDriver, all, isolation);
      expect(ours).toEqual(await readTopic(librdkafkaDriver, all, isolation));
      for (const capacity of CAPACITIES)
        expect(await readTopic(directDriver, all, isolation, capacity), capacity.join()).toEqual(ours);
      const written = isolation === 'committed' ? script.committed : script.all;
      for (const [partition, rows] of ours.entries())
        expect(rows.map(contentOf)).toEqual(inPartition(written, partition));
    }
  },
);

it('gaps that compaction and aborted transactions leave in the offsets are read as librdkafka reads them', async () => {
  const topic = await world.topic(PARTITIONS, {
    'cleanup.policy': 'compact',
    'segment.ms': '100',
    'min.cleanable.dirty.ratio': '0.01',
    'delete.retention.ms': '0',
  });
  const script = new Script(topic, 'lz4');
  const keyed = fc.record({ ...{ writer: fc.nat({ max: 5 }), rows: recordsIn(PARTITIONS) }, key: fc.nat(5) });
  const turns = fc.sample(fc.tuple(keyed, fc.constantFrom<Outcome[]>('plain', 'commit', 'abort')), TURNS);
  for (const [{ writer, rows, key }, outcome] of turns) {
    const named = rows.map((row) => ({ ...row, key: Buffer.from(`key-${key}`) }));
    await script.play({ writer, outcome, rows: named });
  }
  const all = { brokers, topic, partitions: PARTITIONS };
  // A segment is compacted once a later one has begun, which the next write after its age does.
  const last = { partition: 0, timestamp: 1n, value: Buffer.from('last'), headers: [] };
  const read = await until(
    'a topic with gaps in each partition',
    async () => {
      const end = Array.from({ length: PARTITIONS }, (_, partition) => ({
        ...{ ...last, partition, key: Buffer.from('end') },
      }));
      await script.play({ writer: 0, outcome: 'plain', rows: end });
      const theirs = await readTopic(librdkafkaDriver, all, 'uncommitted');
      return (
        theirs.every((rows, partition) => rows.length < inPartition(script.committed, partition).length) &&
        theirs
      );
    },
    200_000,
  );
  expect(
    read.every((rows) => rows.some((row, i) => i > 0 && row.offset > (rows[i - 1] as Row).offset + 1n)),
  ).toBe(true);
  await until('equal readings of a topic that is compacted meanwhile', async () => {
    for (const isolation of ISOLATIONS) {
      const theirs = await readTopic(librdkafkaDriver, all, isolation);
      expect(await readTopic(directDriver, all, isolation)).toEqual(theirs);
    }
    return true;
  });
});

it('the engine has the same results with -broker-client=direct as with librdkafka', async () => {
  const topic = `direct-${own.suffix}`;
  const at = `-brokers=${brokers}`;
  const events = ['-kind=events', '-order=delayed', '-count=20000', '-partitions=3'];
  expect((await runGen(own, [...events, at, `-out=kafka:${topic}`])).code).toBe(0);
  const results: string[][] = [];
  for (const client of ['librdkafka', 'direct']) {
    const sink = `-sink=rocksdb:${join(own.dir, `sink-${client}`)}`;
    const state = `-state-dir=${join(own.dir, `state-${client}`)}`;
    const flags = [at, `-topic=${topic}`, '-size=1s', '-bounded', `-broker-client=${client}`];
    const { code, stderr } = await runEngine(own, [...flags, state, sink]);
    expect(code, stderr).toBe(0);
    expect(stderr).not.toContain('librdkafka reads instead');
    results.push((await exportedRows(own, [sink, state])).sort());
  }
  expect(results[0]?.length).toBeGreaterThan(100);
  expect(results[1]).toEqual(results[0]);
});
