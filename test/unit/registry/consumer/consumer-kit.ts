/** Simulated topic, registry and group members under one virtual clock. */

import { referenceKernels } from '../../../../src/addon/reference/kernels.ts';
import { sleep } from '../../../../src/core/clock.ts';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { Payloads } from '../../../../src/formats/payloads.ts';
import { parseSchema, type Schema } from '../../../../src/formats/schema.ts';
import type {
  BatchProducer,
  BrokerAdmin,
  BrokerEvent,
  DeliveryReport,
} from '../../../../src/io/kafka/port.ts';
import { BatchDecoder } from '../../../../src/registry/consumer/decoder.ts';
import {
  type ConsumerMetrics,
  consumerMetrics,
  GroupMember,
} from '../../../../src/registry/consumer/member.ts';
import { Quarantine } from '../../../../src/registry/consumer/quarantine.ts';
import { RegistryWait } from '../../../../src/registry/consumer/registry-wait.ts';
import type { DecodedSink } from '../../../../src/registry/consumer/sink.ts';
import { registryError } from '../../../../src/registry/errors.ts';
import { RegistryClient } from '../../../../src/serde/client.ts';
import { writerCodec } from '../../../../src/serde/codec.ts';
import type { RegistryTransport, TransportAnswer } from '../../../../src/serde/transport.ts';
import { simBrokerDriver } from '../../../../src/sim/broker.ts';
import { SeededRandom, VirtualClock } from '../../../../src/sim/clock.ts';

const TOPIC = 't';
export const QUARANTINE_TOPIC = 't.quarantine';
const BROKERS = 'sim:1';
const BATCH_ROWS = 256;
const BATCH_BYTES = 1 << 20;

export const SCHEMA = parseSchema(
  'AVRO',
  JSON.stringify({ type: 'record', name: 'R', fields: [{ name: 'n', type: 'int' }] }),
);

const notFound: TransportAnswer = {
  status: 404,
  body: '{"error_code":40403,"message":"Schema not found"}',
};

/** Answers known ids; each answer takes `latencyMs` of virtual time. */
class SimRegistry implements RegistryTransport {
  readonly schemas = new Map<number, Schema>([[1, SCHEMA]]);
  /** Status by schema id. */
  readonly refused = new Map<number, number>();
  readonly asked: string[] = [];
  latencyMs = 3;
  isUnavailable = false;
  inFlight = 0;
  inFlightMax = 0;
  private readonly clock: VirtualClock;

  constructor(clock: VirtualClock) {
    this.clock = clock;
  }

  async request(_method: string, path: string): Promise<TransportAnswer> {
    this.asked.push(path);
    this.inFlightMax = Math.max(this.inFlightMax, ++this.inFlight);
    await sleep(this.clock, this.latencyMs);
    this.inFlight--;
    if (this.isUnavailable) throw registryError('registry_unavailable', 'ECONNREFUSED');
    const id = Number(/^\/schemas\/ids\/(\d+)$/.exec(path)?.[1]);
    const status = this.refused.get(id);
    if (status !== undefined) return { status, body: `{"error_code":${status}01,"message":"not for you"}` };
    const schema = this.schemas.get(id);
    if (schema === undefined) return notFound;
    return { status: 200, body: JSON.stringify({ schema: schema.text, schemaType: schema.format }) };
  }
}

/** Refuses whole batches above a limit, as a broker refuses a set of records. */
export class LimitedProducer implements Pick<BatchProducer, 'produce'> {
  bytesMax: number;
  private readonly producer: BatchProducer;

  constructor(producer: BatchProducer, bytesMax: number) {
    this.producer = producer;
    this.bytesMax = bytesMax;
  }

  async produce(batch: RecordBatch, topics: readonly string[]): Promise<DeliveryReport> {
    if (batch.arenaUsed <= this.bytesMax) return this.producer.produce(batch, topics);
    const rows = batch.rowCount;
    return {
      delivered: 0,
      failed: rows,
      status: new Int32Array(rows).fill(TOO_LARGE.code),
      offset: new BigInt64Array(rows),
      events: [TOO_LARGE],
    };
  }
}

const TOO_LARGE: BrokerEvent = {
  code: 10,
  name: 'MSG_SIZE_TOO_LARGE',
  message: 'Broker: Message size too large',
  retriable: false,
  fatal: false,
};

export interface StoredRecord {
  readonly value: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

export interface MemberHandle {
  readonly metrics: ConsumerMetrics;
  readonly all: Metrics;
  readonly decoded: unknown[];
  readonly member: GroupMember;
  /** Number of ids for which the registry was not asked. */
  skipped(): number;
  /** Resolves with the error of the run, or undefined, when it has ended. */
  readonly ended: Promise<unknown>;
  /** Lag by partition. */
  lag(): ReadonlyMap<string, number>;
  stop(): Promise<void>;
}

export interface MemberOptions {
  readonly reader?: Schema;
  readonly quarantine?: LimitedProducer;
  readonly sink?: DecodedSink;
  /** Longest wait for the registry, ms; default: no limit. */
  readonly registryWaitMs?: number;
}

export class MemberWorld {
  readonly clock = new VirtualClock(0);
  readonly registry = new SimRegistry(this.clock);
  private readonly driver = simBrokerDriver({
    brokers: BROKERS,
    seed: 1,
    clock: this.clock,
  });
  private producer!: BatchProducer;
  private admin!: BrokerAdmin;

  static async open({ partitions }: { readonly partitions: number }): Promise<MemberWorld> {
    const world = new MemberWorld();
    const options = { brokers: BROKERS, clientId: 'test' };
    world.producer = await world.driver.producer(options);
    world.admin = await world.driver.admin(options);
    await world.admin.createTopics([
      { topic: TOPIC, partitions },
      { topic: QUARANTINE_TOPIC, partitions: 1 },
    ]);
    return world;
  }

  async createTopic(topic: string): Promise<void> {
    await this.admin.createTopics([{ topic, partitions: 1 }]);
  }

  limited(bytesMax: number): LimitedProducer {
    return new LimitedProducer(this.producer, bytesMax);
  }

  /** Next offset that the group reads. */
  async committed(partition: number): Promise<bigint> {
    const consumer = await this.driver.consumer({ brokers: BROKERS, clientId: 'test', group: 'g' });
    const [at] = await consumer.committed([{ topic: TOPIC, partition }]);
    await consumer.close();
    return at?.offset ?? -1n;
  }

  /** Returns a frame that the reader decodes. */
  good(n = 1, id = 1): Buffer {
    const payloads = new Payloads(1, 64);
    writerCodec(SCHEMA).encode({ n }, payloads);
    return this.frame(id, payloads.bytes.subarray(0, payloads.used));
  }

  frame(id: number, payload: Uint8Array): Buffer {
    const head = Buffer.alloc(5);
    head.writeUInt32BE(id, 1);
    return Buffer.concat([head, payload]);
  }

  async append(partition: number, values: readonly Buffer[]): Promise<void> {
    const batch = RecordBatch.create(
      values.length,
      values.reduce((sum, value) => sum + value.length, 0),
    );
    for (const value of values) batch.append({ partition, value });
    await this.running(this.producer.produce(batch, [TOPIC]));
  }

  member(options: MemberOptions = {}): MemberHandle {
    const { clock, driver } = this;
    const all = new Metrics();
    const metrics = consumerMetrics(all);
    const drain = new AbortController();
    const decoded: unknown[] = [];
    const client = new RegistryClient({
      transport: this.registry,
      clock,
      random: new SeededRandom(1),
      metrics: all,
      unknownForMs: 10_000,
      retries: 0,
      retryDelayMs: 1,
    });
    const member = new GroupMember({
      connect: (hooks) =>
        driver.consumer({ brokers: BROKERS, clientId: 'test', group: 'g', partitionEof: true, ...hooks }),
      topic: TOPIC,
      subject: 's',
      decoder: new BatchDecoder(client, referenceKernels, options.reader ?? SCHEMA, BATCH_ROWS),
      sink: options.sink ?? {
        target: 'memory',
        write: async (_records, rows) => {
          decoded.push(...rows.map(({ value }) => value));
          return [];
        },
        close: async () => {},
      },
      quarantine: new Quarantine({
        producer: (options.quarantine as BatchProducer | undefined) ?? this.producer,
        topic: QUARANTINE_TOPIC,
        readerVersion: 1,
      }),
      metrics,
      clock,
      log: silentLogger,
      drain: drain.signal,
      batchRows: BATCH_ROWS,
      batchBytes: BATCH_BYTES,
      ends: undefined,
      registryWait:
        options.registryWaitMs === undefined
          ? undefined
          : new RegistryWait(clock, options.registryWaitMs, false),
      onRows: () => {},
    });
    let failure: unknown;
    const ended = member.run().catch((thrown: unknown) => {
      failure = thrown;
    });
    return {
      metrics,
      all,
      decoded,
      member,
      ended: ended.then(() => failure),
      skipped: () => all.counter('schema_lookups_skipped_total', '').value(),
      lag: () => {
        const found = all.snapshot().find(({ name }) => name === 'consumer_lag_records');
        return new Map(
          found?.samples.map(({ labels, value }) => [labels['partition'] as string, value as number]),
        );
      },
      stop: async () => {
        drain.abort();
        await this.running(ended);
        if (failure !== undefined) throw failure;
      },
    };
  }

  /** Reads all records of the first partition of a topic. */
  async read(topic: string): Promise<readonly StoredRecord[]> {
    const consumer = await this.driver.consumer({ brokers: BROKERS, clientId: 'test', partitionEof: true });
    await consumer.assign([{ topic, partition: 0, offset: 0n }]);
    const batch = RecordBatch.create(BATCH_ROWS, BATCH_BYTES);
    const found: StoredRecord[] = [];
    for (let isEnd = false; !isEnd; ) {
      isEnd = (await this.running(consumer.consume(batch, 100))).ends.length > 0;
      for (let row = 0; row < batch.rowCount; row++) {
        const headers = batch
          .headers(row)
          .map(([name, value]) => [name, Buffer.from(value ?? []).toString()]);
        found.push({ value: Buffer.from(batch.value(row) ?? []), headers: Object.fromEntries(headers) });
      }
    }
    await consumer.close();
    return found;
  }

  /** Advances the virtual time. */
  sleep(ms: number): Promise<void> {
    return this.clock.advance(ms);
  }

  /** Advances the virtual time until the work settles. */
  running<T>(work: Promise<T>): Promise<T> {
    return this.clock.run(work);
  }

  async until(what: string, isDone: () => boolean): Promise<void> {
    await this.clock.until(what, isDone);
  }
}
