/** Driver over node-rdkafka: works without the addon, on the main thread only, and creates an
 *  object for each message. */
import type { EventEmitter } from 'node:events';
import { isMainThread } from 'node:worker_threads';
import type { KafkaConsumer, LibrdKafkaError, Metadata, Producer } from 'node-rdkafka';
import { badProperty, isRefusal, thrownEvent, unreachable } from '../errors.ts';
import type {
  BatchConsumer,
  BatchProducer,
  BrokerAdmin,
  BrokerDriver,
  BrokerOptions,
  ConsumerOptions,
  ProducerOptions,
  TransactionalOptions,
  TransactionalProducer,
} from '../port.ts';
import {
  CONNECT_TIMEOUT_MS,
  clientProperties,
  consumerProperties,
  producerProperties,
  transactionalProperties,
} from '../properties.ts';
import { reachBroker } from '../reach.ts';
import { NodeAdmin } from './admin.ts';
import { mainThreadOnly, NodeConsumer } from './consumer.ts';
import { loadNodeRdkafka } from './load.ts';
import { NodeProducer } from './producer.ts';
import { NodeTransactionalProducer } from './transactions.ts';

/** Topic properties, passed separately: node-rdkafka replaces the topic defaults of the global
 *  configuration. */
const TOPIC_PROPERTIES = new Set([
  'acks',
  'request.required.acks',
  'request.timeout.ms',
  'message.timeout.ms',
  'delivery.timeout.ms',
  'queuing.strategy',
  'partitioner',
  'compression.level',
  'auto.offset.reset',
  'offset.store.path',
  'offset.store.sync.interval.ms',
  'offset.store.method',
  'consume.callback.max.messages',
]);

type Properties = Record<string, string>;

function split(properties: Properties): { global: Properties; topic: Properties } {
  const global: Properties = {};
  const topic: Properties = {};
  for (const [name, value] of Object.entries(properties))
    (TOPIC_PROPERTIES.has(name) ? topic : global)[name] = value;
  return { global, topic };
}

type GetMetadata = (
  what: { readonly allTopics: boolean; readonly timeout: number },
  done: (error: unknown, metadata?: Metadata) => void,
) => void;

/** Makes a client and waits for the first answer of a broker. @throws bad_broker_property,
 *  broker_unauthenticated, broker_untrusted, unreachable */
async function connect<C extends KafkaConsumer | Producer>(
  make: () => C,
  options: BrokerOptions,
): Promise<C> {
  let client: C;
  try {
    client = make();
  } catch (thrown) {
    throw badProperty(options.properties, thrownEvent(thrown).message);
  }
  // Only the log has the reason of a failed connection; the error of the call is a later one.
  let refusal: string | undefined;
  let latest: string | undefined;
  const onLog = ({ fac, message = '' }: { readonly fac?: string; readonly message?: string }): void => {
    if (isRefusal(message)) refusal = message;
    if (fac === 'FAIL') latest = message;
  };
  const events: Pick<EventEmitter, 'on' | 'removeListener'> = client;
  events.on('event.log', onLog);
  const calls = client as unknown as { getMetadata: GetMetadata };
  const ask = calls.getMetadata.bind(client);
  let failure: unknown;
  // The client's own connect sends one request, for which a thread waits until its whole timeout.
  calls.getMetadata = (_what, done) => {
    let metadata: Metadata | undefined;
    const once = (timeout: number): Promise<string | undefined> =>
      new Promise((resolve) =>
        ask({ allTopics: false, timeout }, (error, found) => {
          metadata = found;
          resolve(error ? (refusal ?? latest ?? thrownEvent(error).message) : undefined);
        }),
      );
    reachBroker(options, options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS, once).then(
      () => done(null, metadata),
      (thrown: unknown) => {
        failure = thrown;
        done(thrown);
      },
    );
  };
  try {
    await new Promise<void>((resolve, reject) => {
      client.connect({}, (error: LibrdKafkaError | undefined) => {
        if (error) reject(failure ?? unreachable(options, thrownEvent(error).message));
        else resolve();
      });
    });
  } finally {
    calls.getMetadata = ask;
    events.removeListener('event.log', onLog);
  }
  return client;
}

async function consumer(options: ConsumerOptions): Promise<BatchConsumer> {
  mainThreadOnly(isMainThread);
  const { KafkaConsumer: Consumer } = await loadNodeRdkafka();
  const { global, topic } = split(consumerProperties(options));
  const callbacks = { rebalance_cb: () => {}, offset_commit_cb: true };
  const client = await connect(
    () => new Consumer({ ...global, ...callbacks } as never, topic as never),
    options,
  );
  return new NodeConsumer(client, options);
}

async function producer(options: ProducerOptions): Promise<BatchProducer> {
  mainThreadOnly(isMainThread);
  const { Producer: Client } = await loadNodeRdkafka();
  const { global, topic } = split(producerProperties(options));
  const client = await connect(
    () => new Client({ ...global, dr_cb: true } as never, topic as never),
    options,
  );
  return new NodeProducer(client, options);
}

async function transactional(options: TransactionalOptions): Promise<TransactionalProducer> {
  mainThreadOnly(isMainThread);
  const { Producer: Client } = await loadNodeRdkafka();
  const { global, topic } = split(transactionalProperties(options));
  const client = await connect(
    () => new Client({ ...global, dr_cb: true } as never, topic as never),
    options,
  );
  return new NodeTransactionalProducer(client, options);
}

async function admin(options: BrokerOptions): Promise<BrokerAdmin> {
  mainThreadOnly(isMainThread);
  const library = await loadNodeRdkafka();
  const properties = clientProperties(options);
  const client = await connect(() => new library.Producer({ ...properties } as never), options);
  return new NodeAdmin(
    client,
    () => library.AdminClient.create({ ...properties, log_level: '0' } as never),
    // node-rdkafka has no call for the cluster id, but librdkafka logs the id when it learns it. A
    // client with that much logging can end the process while it starts: node-rdkafka publishes its
    // event handle before it is initialized. So only this call uses such a client, a separate one.
    async (seen) => {
      return connect(() => {
        const made = new library.Producer({ ...properties, debug: 'generic' } as never);
        made.on('event.log', (line: { fac?: string; message?: string }) => {
          const found = line.fac === 'CLUSTERID' ? /-> "([^"]+)"/.exec(line.message ?? '') : null;
          if (found !== null) seen(found[1] as string);
        });
        return made;
      }, options);
    },
    // node-rdkafka has no call for the id of a topic either. librdkafka logs the ids of the topics
    // in a client's requests.
    async (seen) => {
      return connect(() => {
        const made = new library.Producer({ ...properties, debug: 'topic' } as never);
        made.on('event.log', (line: { fac?: string; message?: string }) => {
          const found =
            line.fac === 'METADATA'
              ? /Topic (\S+) changed id from \S+ to (\S+)/.exec(line.message ?? '')
              : null;
          // Form of the id in Kafka's own tools.
          const id = found?.[2]?.replaceAll('+', '-').replaceAll('/', '_');
          if (id !== undefined) seen(found?.[1] as string, id);
        });
        return made;
      }, options);
    },
    () => {
      const { global, topic } = split(consumerProperties(options));
      return connect(() => new library.KafkaConsumer(global as never, topic as never), options);
    },
    options,
  );
}

export const nodeRdkafkaDriver: BrokerDriver = {
  name: 'node-rdkafka',
  consumer,
  producer,
  transactional,
  admin,
};
