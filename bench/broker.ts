/** `millrace bench broker`: batch consume and produce from TypeScript, compared with the raw C++
 *  loop and node-rdkafka's consume(2000).
 *
 *  The direct client is compared with the driver over librdkafka.
 *
 *  The first three use the same librdkafka and the same properties, and sum every payload as 32-bit
 *  words; the sums are compared. The clock starts after the first batch, which is not counted. */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Message } from 'node-rdkafka';
import { chooseNative } from '../src/addon/load.ts';
import { invariant } from '../src/core/errors.ts';
import { SPAN } from '../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../src/core/layout/record-batch.ts';
import { DEFAULT_KAFKA_HEAP_BYTES, START_TIMEOUT_MS, startStack } from '../src/devstack/stack.ts';
import { directDriver } from '../src/io/kafka/direct/driver.ts';
import { librdkafkaDriver } from '../src/io/kafka/librdkafka.ts';
import { nodeRdkafkaDriver } from '../src/io/kafka/node-rdkafka/driver.ts';
import { type BrokerDriver, type BrokerProperties, OFFSET_BEGINNING } from '../src/io/kafka/port.ts';
import { consumerProperties, producerProperties } from '../src/io/kafka/properties.ts';
import { flockDriver } from '../src/io/lock/flock.ts';
import { compilePeer } from './compile.ts';
import {
  type Bench,
  type BenchContext,
  type BenchResult,
  result,
  type Series,
  seriesOf,
  takeTurns,
} from './harness.ts';

const PARTITIONS = 8;
const BATCH_ROWS = 10_000;
/** Arena size of a read batch: small enough that the summing thread finds the bytes in a cache
 *  shared with the filling thread. */
const READ_ARENA_BYTES = 512 * 1024;
/** Batches in flight; the raw loop has as many blocks. */
const BATCHES_IN_FLIGHT = 4;
const NODE_READ = 2000;
/** Payload bytes summed in one step; every payload is a multiple of it. */
const PAYLOAD_STEP_BYTES = 16;
const MULTIPLIER = 0x9e3779b1;
const COUNT_SMOKE = 10_000;
/** Batches of a small run fit in the arena of a read batch, as some of a long one do, so the direct
 *  client inflates them there. */
const FILL_SMOKE = { 'batch.size': 100_000 };

interface Shape {
  readonly payloadBytes: number;
  readonly compression: 'none' | 'lz4';
}

interface Measured {
  readonly messages: number;
  readonly seconds: number;
  readonly cpu_seconds: number;
  readonly sum: number;
}

const rate = (measured: Measured): number => measured.messages / measured.seconds;
const run = promisify(execFile);

const asPairs = (properties: Readonly<Record<string, string>>): string[] =>
  Object.entries(properties).map(([name, value]) => `${name}=${value}`);

/** Sums the payloads of a batch as signed integers: the same sum modulo 2^32, and it stays in
 *  integer registers. A value may start at any byte, and a compressed batch that was inflated in
 *  place leaves bytes between values. */
function sumOf(cells: DataView, { columns, rowCount }: RecordBatch): number {
  const { valueStart, valueLength } = columns;
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  for (let row = 0; row < rowCount; row++) {
    let at = valueStart[row] as number;
    const end = at + (valueLength[row] as number);
    for (; at < end; at += PAYLOAD_STEP_BYTES) {
      a = (a + cells.getInt32(at, true)) | 0;
      b = (b + cells.getInt32(at + 4, true)) | 0;
      c = (c + cells.getInt32(at + 8, true)) | 0;
      d = (d + cells.getInt32(at + 12, true)) | 0;
    }
  }
  return (a + b + c + d) | 0;
}

/** Writes `rows` payloads of the messages from `at` on and returns their sum. */
function write(cells: Int32Array, at: number, rows: number, words: number): number {
  let sum = 0;
  let cell = 0;
  for (let row = 0; row < rows; row++) {
    const seed = Math.imul(at + row, MULTIPLIER);
    for (let word = 0; word < words; word++) {
      const value = (seed + word) | 0;
      cells[cell++] = value;
      sum = (sum + value) | 0;
    }
  }
  return sum;
}

/** Brokers, and the properties of every client. */
interface Cluster {
  readonly brokers: string;
  readonly properties: Readonly<Record<string, string>>;
}

class Measurement {
  private readonly raw: string;
  private readonly cluster: Cluster;
  private readonly topic: string;
  private readonly shape: Shape;
  private readonly count: number;

  constructor(raw: string, cluster: Cluster, topic: string, shape: Shape, count: number) {
    this.raw = raw;
    this.cluster = cluster;
    this.topic = topic;
    this.shape = shape;
    this.count = count;
  }

  private get consumerOptions() {
    return { ...this.cluster, clientId: 'bench' };
  }

  private get producerOptions() {
    return { ...this.cluster, clientId: 'bench', compression: this.shape.compression };
  }

  /** @param more properties of the client */
  async rawRun(
    mode: 'consume' | 'produce',
    topic = this.topic,
    more: BrokerProperties = {},
  ): Promise<Measured> {
    const own = { properties: more };
    const properties =
      mode === 'consume'
        ? consumerProperties({ ...this.consumerOptions, ...own })
        : producerProperties({ ...this.producerOptions, ...own });
    const numbers = [PARTITIONS, this.count, this.shape.payloadBytes].map(String);
    const { stdout } = await run(this.raw, [mode, topic, ...numbers, ...asPairs(properties)], {
      env: { ...process.env, RAW_BROKER_PROPERTIES: asPairs(this.cluster.properties).join('\x1e') },
    });
    return JSON.parse(stdout) as Measured;
  }

  async consume(driver: BrokerDriver): Promise<Measured> {
    const consumer = await driver.consumer(this.consumerOptions);
    // Double buffering: the next batch is filled while this one is summed.
    const batches = [0, 1].map(() => {
      const into = RecordBatch.create(READ_ARENA_BYTES / this.shape.payloadBytes, READ_ARENA_BYTES);
      const { arena } = into.columns;
      return { into, cells: new DataView(arena.buffer, arena.byteOffset, arena.byteLength) };
    });
    await consumer.assign(
      Array.from({ length: PARTITIONS }, (_, partition) => ({
        topic: this.topic,
        partition,
        offset: OFFSET_BEGINNING,
      })),
    );
    let messages = 0;
    let sum = 0;
    let started = 0;
    let first = 0;
    let cpu = process.cpuUsage();
    const fill = (turn: number) =>
      consumer.consume((batches[turn % 2] as (typeof batches)[number]).into, 100);
    let filling = fill(0);
    for (let turn = 0; messages < this.count; turn++) {
      const { rowCount, events } = await filling;
      invariant(events.length === 0, `consume without errors: ${JSON.stringify(events)}`);
      if (messages === 0 && rowCount > 0) {
        first = rowCount;
        started = performance.now();
        cpu = process.cpuUsage();
      }
      messages += rowCount;
      if (messages < this.count) filling = fill(turn + 1);
      const { into, cells } = batches[turn % 2] as (typeof batches)[number];
      sum = (sum + sumOf(cells, into)) | 0;
    }
    const seconds = (performance.now() - started) / 1000;
    const spent = process.cpuUsage(cpu);
    await consumer.close();
    return {
      messages: messages - first,
      seconds,
      cpu_seconds: (spent.user + spent.system) / 1e6,
      sum: sum >>> 0,
    };
  }

  async nodeConsume(count: number): Promise<Measured> {
    const library = (await import('node-rdkafka')).default;
    const { 'auto.offset.reset': reset, ...global } = consumerProperties(this.consumerOptions);
    const consumer = new library.KafkaConsumer(global as never, { 'auto.offset.reset': reset } as never);
    await new Promise<void>((resolve, reject) => {
      consumer.connect({ allTopics: false, timeout: 60_000 }, (error) => (error ? reject(error) : resolve()));
    });
    consumer.setDefaultConsumeTimeout(100);
    consumer.assign(
      Array.from({ length: PARTITIONS }, (_, partition) => ({ topic: this.topic, partition, offset: -2 })),
    );
    const read = (): Promise<Message[]> =>
      new Promise((resolve, reject) => {
        consumer.consume(NODE_READ, (error, messages) => (error ? reject(error) : resolve(messages)));
      });
    let messages = 0;
    let sum = 0;
    let started = 0;
    let first = 0;
    let cpu = process.cpuUsage();
    while (messages < count) {
      const got = await read();
      if (messages === 0 && got.length > 0) {
        first = got.length;
        started = performance.now();
        cpu = process.cpuUsage();
      }
      for (const { value } of got) {
        if (value === null) continue;
        for (let at = 0; at + 4 <= value.length; at += 4) sum = (sum + value.readInt32LE(at)) | 0;
      }
      messages += got.length;
    }
    const seconds = (performance.now() - started) / 1000;
    const spent = process.cpuUsage(cpu);
    await new Promise<void>((resolve) => consumer.disconnect(() => resolve()));
    return {
      messages: messages - first,
      seconds,
      cpu_seconds: (spent.user + spent.system) / 1e6,
      sum: sum >>> 0,
    };
  }

  async produce(topic: string): Promise<Measured> {
    const producer = await librdkafkaDriver.producer(this.producerOptions);
    const { payloadBytes } = this.shape;
    const words = payloadBytes / 4;
    const blocks = Array.from({ length: BATCHES_IN_FLIGHT }, () => {
      const batch = RecordBatch.create(BATCH_ROWS, BATCH_ROWS * payloadBytes);
      const { columns } = batch;
      columns.partition.fill(-1);
      columns.keyLength.fill(SPAN.NULL);
      columns.valueLength.fill(payloadBytes);
      for (let row = 0; row < BATCH_ROWS; row++) columns.valueStart[row] = row * payloadBytes;
      return {
        batch,
        cells: new Int32Array(batch.buffer as ArrayBuffer, columns.arena.byteOffset, BATCH_ROWS * words),
        sent: Promise.resolve(0),
      };
    });
    let sum = 0;
    const cpu = process.cpuUsage();
    const started = performance.now();
    for (let at = 0, turn = 0; at < this.count; turn++) {
      const block = blocks[turn % BATCHES_IN_FLIGHT] as (typeof blocks)[number];
      invariant((await block.sent) === 0, 'every row is delivered');
      const size = Math.min(BATCH_ROWS, this.count - at);
      sum = (sum + write(block.cells, at, size, words)) | 0;
      block.batch.rowCount = size;
      block.batch.arenaUsed = size * payloadBytes;
      block.sent = producer.produce(block.batch, [topic]).then((report) => report.failed);
      at += size;
    }
    for (const block of blocks) invariant((await block.sent) === 0, 'every row is delivered');
    const seconds = (performance.now() - started) / 1000;
    const spent = process.cpuUsage(cpu);
    await producer.close();
    return { messages: this.count, seconds, cpu_seconds: (spent.user + spent.system) / 1e6, sum: sum >>> 0 };
  }
}

/** The given brokers, or one that ends with the benchmark. */
export async function brokersOf(context: BenchContext): Promise<string> {
  if (context.brokers !== undefined) return context.brokers;
  context.say('starting a broker');
  const stack = await startStack({
    folder: undefined,
    owned: true,
    brokerCount: 1,
    kafkaPort: undefined,
    postgresPort: undefined,
    kafkaHeapBytes: 2 * DEFAULT_KAFKA_HEAP_BYTES,
    locks: flockDriver(chooseNative(process.env['MILLRACE_NATIVE']).mode),
    environment: process.env,
    startTimeoutMs: START_TIMEOUT_MS,
    onStep: (step) => context.say(step),
    signal: context.drain,
  });
  context.onClose(() => stack.close());
  return stack.brokers;
}

/** @param cpu microseconds of CPU a message, by side */
function resultsOf(
  label: string,
  reading: Readonly<Record<'raw' | 'ours' | 'direct' | 'node', Series>>,
  writing: Readonly<Record<'raw' | 'ours', Series>>,
  cpu: Readonly<Record<string, readonly number[]>>,
): BenchResult[] {
  const more = { unit: 'messages/s', better: 'more' } as const;
  const less = { unit: 'us', better: 'less' } as const;
  const cpuOf = (side: string) => seriesOf(cpu[side] as readonly number[]);
  const rawLoop = 'raw C++ librdkafka loop';
  return [
    result({
      ...more,
      metric: `consume ${label}`,
      ours: reading.ours,
      against: { name: rawLoop, series: reading.raw },
      goal: { ratioAtLeast: 0.9 },
    }),
    result({
      ...more,
      metric: `consume ${label}`,
      ours: reading.ours,
      against: { name: `node-rdkafka consume(${NODE_READ})`, series: reading.node },
      goal: { ratioAtLeast: 12 },
    }),
    result({
      ...less,
      metric: `consume CPU a message ${label}`,
      ours: cpuOf('ours'),
      against: { name: rawLoop, series: cpuOf('raw') },
    }),
    result({
      ...more,
      metric: `consume by the direct client ${label}`,
      ours: reading.direct,
      against: { name: 'librdkafka driver', series: reading.ours },
    }),
    result({
      ...less,
      metric: `consume CPU a message by the direct client ${label}`,
      ours: cpuOf('direct'),
      against: { name: 'librdkafka driver', series: cpuOf('ours') },
    }),
    result({
      ...more,
      metric: `produce ${label}`,
      ours: writing.ours,
      against: { name: rawLoop, series: writing.raw },
      goal: { ratioAtLeast: 0.8 },
    }),
    result({
      ...less,
      metric: `produce CPU a message ${label}`,
      ours: cpuOf('oursOut'),
      against: { name: rawLoop, series: cpuOf('rawOut') },
    }),
  ];
}

async function measure(
  context: BenchContext,
  raw: string,
  cluster: Cluster,
  shape: Shape,
): Promise<BenchResult[]> {
  const count = context.smoke ? COUNT_SMOKE : 3_000_000;
  const nodeCount = context.smoke ? COUNT_SMOKE : 300_000;
  const label = `${shape.payloadBytes} B ${shape.compression}`;
  const admin = await nodeRdkafkaDriver.admin({ ...cluster, clientId: 'bench' });
  const names: string[] = [];
  const fresh = async (what: string): Promise<string> => {
    const topic = `bench-${process.pid}-${what}-${shape.payloadBytes}-${shape.compression}-${names.length}-${Date.now()}`;
    names.push(topic);
    await admin.createTopics([{ topic, partitions: PARTITIONS }]);
    return topic;
  };
  const drop = async (topic: string): Promise<void> => admin.deleteTopics([topic]);
  try {
    const source = await fresh('source');
    const measurement = new Measurement(raw, cluster, source, shape, count);
    context.say(`${label}: filling ${count} messages`);
    const filled = await measurement.rawRun('produce', source, context.smoke ? FILL_SMOKE : {});
    const cpu: Record<string, number[]> = { raw: [], ours: [], direct: [], rawOut: [], oursOut: [] };
    const record = (side: string, measured: Measured, sum: number | undefined): number => {
      if (sum !== undefined)
        invariant(measured.sum === sum, `${label}: ${side} sums to ${measured.sum}, not ${sum}`);
      cpu[side]?.push((measured.cpu_seconds / measured.messages) * 1e6);
      return rate(measured);
    };
    context.say(`${label}: consuming in turn`);
    const reading = await takeTurns(
      {
        raw: async () => record('raw', await measurement.rawRun('consume'), filled.sum),
        ours: async () => record('ours', await measurement.consume(librdkafkaDriver), filled.sum),
        direct: async () => record('direct', await measurement.consume(directDriver), filled.sum),
        node: async () => record('node', await measurement.nodeConsume(nodeCount), undefined),
      },
      context.repeats,
    );
    await drop(source);
    context.say(`${label}: producing in turn`);
    const out = async (side: string, send: (topic: string) => Promise<Measured>): Promise<number> => {
      const topic = await fresh(side);
      const value = record(side, await send(topic), filled.sum);
      await drop(topic);
      return value;
    };
    const writing = await takeTurns(
      {
        raw: () => out('rawOut', (topic) => measurement.rawRun('produce', topic)),
        ours: () => out('oursOut', (topic) => measurement.produce(topic)),
      },
      context.repeats,
    );
    return resultsOf(label, reading, writing, cpu);
  } finally {
    await admin.close();
  }
}

export const bench: Bench = {
  name: 'broker',
  takesBrokerProperties: true,
  summary:
    'Batch consume and produce beside a C++ loop of librdkafka and node-rdkafka, and the direct client beside librdkafka.',
  async run(context) {
    const raw = await compilePeer('raw-broker');
    const cluster = { brokers: await brokersOf(context), properties: context.brokerProperties ?? {} };
    const shapes: Shape[] = [];
    for (const payloadBytes of [256, 512])
      for (const compression of ['none', 'lz4'] as const) shapes.push({ payloadBytes, compression });
    const results: BenchResult[] = [];
    for (const shape of context.smoke ? shapes.slice(1, 2) : shapes) {
      if (context.drain.aborted) break;
      results.push(...(await measure(context, raw, cluster, shape)));
    }
    return results;
  },
};
