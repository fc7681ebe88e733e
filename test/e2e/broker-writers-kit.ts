/** Writers of the differential oracle of the direct client: librdkafka, Kafka's Java client and
 *  kafkajs, each with a producer of its own for transactions. */
import { createRequire } from 'node:module';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import type { BatchProducer, TransactionalProducer } from '../../src/io/kafka/port.ts';
import { type JavaClient, type JavaRecord, startJavaClient } from '../clients/java.ts';
import { kafkajsFolder } from '../clients/kit.ts';
import { batchOf, fresh } from '../contract/broker-world.ts';
import { CODECS, type Codec, type Written } from './broker-direct-kit.ts';

const STEP_MS = 60_000;
const ARENA_BYTES = 1 << 24;
/** batch.size of the Java client: some groups of records become several batches. */
const JAVA_BATCH_BYTES = [1, 200, 16_384] as const;

export interface Writer {
  readonly name: 'librdkafka' | 'java' | 'kafkajs';
  readonly codecs: readonly Codec[];
  /** Sends outside of a transaction, and resolves when the records are acknowledged. */
  send(topic: string, codec: Codec, rows: readonly Written[]): Promise<void>;
  begin(codec: Codec): Promise<void>;
  sendInTransaction(topic: string, codec: Codec, rows: readonly Written[]): Promise<void>;
  end(codec: Codec, commit: boolean): Promise<void>;
  close(): Promise<void>;
}

/** Opens each key's client once. */
class Once<T extends { close(): Promise<void> }> {
  private readonly made = new Map<string, Promise<T>>();
  of(key: string, make: () => Promise<T>): Promise<T> {
    const known = this.made.get(key);
    if (known !== undefined) return known;
    const making = make();
    this.made.set(key, making);
    return making;
  }
  async close(): Promise<void> {
    for (const one of this.made.values()) await (await one).close();
  }
}

export function librdkafkaWriter(brokers: string): Writer {
  const common = { brokers, clientId: 'writer', connectTimeoutMs: STEP_MS };
  const plain = new Once<BatchProducer>();
  const transactional = new Once<TransactionalProducer>();
  const sent = async (producer: BatchProducer, topic: string, rows: readonly Written[]): Promise<void> => {
    const { failed, events } = await producer.produce(batchOf(rows, ARENA_BYTES), [topic]);
    if (failed > 0) throw new Error(JSON.stringify(events));
  };
  const demand = (failure: unknown): void => {
    if (failure !== undefined) throw new Error(JSON.stringify(failure));
  };
  const transaction = (codec: Codec): Promise<TransactionalProducer> =>
    transactional.of(codec, async () => {
      const options = { ...common, compression: codec, transactionalId: fresh('librdkafka') };
      const made = await librdkafkaDriver.transactional(options);
      demand(await made.init(STEP_MS));
      return made;
    });
  return {
    name: 'librdkafka',
    codecs: CODECS,
    async send(topic, codec, rows) {
      const options = { ...common, compression: codec };
      await sent(await plain.of(codec, () => librdkafkaDriver.producer(options)), topic, rows);
    },
    begin: async (codec) => demand(await (await transaction(codec)).begin()),
    sendInTransaction: async (topic, codec, rows) => sent(await transaction(codec), topic, rows),
    async end(codec, commit) {
      const producer = await transaction(codec);
      demand(await (commit ? producer.commit(STEP_MS) : producer.abort(STEP_MS)));
    },
    async close() {
      await plain.close();
      await transactional.close();
    },
  };
}

const base64 = (bytes: Uint8Array | null): string | null =>
  bytes === null ? null : Buffer.from(bytes).toString('base64');

const javaRecord = ({ partition, key, value, timestamp, headers }: Written): JavaRecord => ({
  partition,
  key: base64(key),
  value: base64(value),
  timestamp: String(timestamp),
  headers: headers.map(([name, bytes]) => [name, base64(bytes)] as const),
});

export async function javaWriter(brokers: string): Promise<Writer> {
  const client: JavaClient = await startJavaClient(brokers);
  const suffix = fresh('java');
  let sends = 0;
  const batchBytes = (): number => JAVA_BATCH_BYTES[sends++ % JAVA_BATCH_BYTES.length] as number;
  // Records of one transaction have one producer, and so one size of its batches.
  const transaction = (codec: Codec) => ({ codec, batchBytes: 200, transactionalId: `${suffix}-${codec}` });
  return {
    name: 'java',
    codecs: CODECS,
    send: (topic, codec, rows) =>
      client.ask({ op: 'send', topic, codec, batchBytes: batchBytes(), records: rows.map(javaRecord) }),
    begin: (codec) => client.ask({ op: 'begin', ...transaction(codec) }),
    sendInTransaction: (topic, codec, rows) =>
      client.ask({ op: 'sendIn', topic, ...transaction(codec), records: rows.map(javaRecord) }),
    end: (codec, commit) => client.ask({ op: 'end', ...transaction(codec), commit }),
    close: () => client.close(),
  };
}

/** The part of kafkajs that the writer uses. */
interface KafkajsSender {
  send(request: {
    readonly topic: string;
    readonly compression: number;
    readonly messages: ReadonlyArray<Readonly<Record<string, unknown>>>;
  }): Promise<unknown>;
}
interface KafkajsTransaction extends KafkajsSender {
  commit(): Promise<void>;
  abort(): Promise<void>;
}
interface KafkajsProducer extends KafkajsSender {
  connect(): Promise<void>;
  disconnect(): Promise<void>;
  transaction(): Promise<KafkajsTransaction>;
}
interface Kafkajs {
  readonly Kafka: new (
    options: Readonly<Record<string, unknown>>,
  ) => {
    producer(options: Readonly<Record<string, unknown>>): KafkajsProducer;
  };
  readonly CompressionTypes: { readonly None: number; readonly GZIP: number };
  readonly logLevel: { readonly NOTHING: number };
}

/** kafkajs has two codecs without further packages. It refuses headers without a value, and its
 *  headers are an object, so that each name occurs once. */
export async function kafkajsWriter(brokers: string): Promise<Writer> {
  const library = createRequire(import.meta.url)(await kafkajsFolder()) as Kafkajs;
  const kafka = new library.Kafka({
    clientId: 'writer',
    brokers: brokers.split(','),
    logLevel: library.logLevel.NOTHING,
  });
  const open = async (options: Readonly<Record<string, unknown>>): Promise<KafkajsProducer> => {
    const producer = kafka.producer(options);
    await producer.connect();
    return producer;
  };
  const plain = await open({});
  const transactional = await open({
    transactionalId: fresh('kafkajs'),
    maxInFlightRequests: 1,
    idempotent: true,
  });
  let running: KafkajsTransaction | undefined;
  const send = async (to: KafkajsSender, topic: string, codec: Codec, rows: readonly Written[]) => {
    const { None, GZIP } = library.CompressionTypes;
    const messages = rows.map(({ partition, key, value, timestamp, headers }) => ({
      partition,
      key: key === null ? null : Buffer.from(key),
      value: value === null ? null : Buffer.from(value),
      timestamp: String(timestamp),
      headers: Object.fromEntries(headers.map(([name, bytes]) => [name, Buffer.from(bytes as Uint8Array)])),
    }));
    await to.send({ topic, compression: codec === 'gzip' ? GZIP : None, messages });
  };
  return {
    name: 'kafkajs',
    codecs: ['none', 'gzip'],
    send: (topic, codec, rows) => send(plain, topic, codec, rows),
    async begin() {
      running = await transactional.transaction();
    },
    sendInTransaction: (topic, codec, rows) => send(running as KafkajsTransaction, topic, codec, rows),
    async end(_, commit) {
      await (commit ? running?.commit() : running?.abort());
      running = undefined;
    },
    async close() {
      await plain.disconnect();
      await transactional.disconnect();
    },
  };
}
