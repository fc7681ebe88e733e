// Peer of `millrace bench relay`: the replication listener of pg-transactional-outbox, whose
// handler is a Kafka producer.
//
//  node main.mjs POSTGRES_URL BROKERS TOPIC NODE_RDKAFKA
//
// NODE_RDKAFKA is the path of the producer's package, so that both sides use the same one. Messages
// of one key keep their order (one mutex per segment). The handler waits for the acknowledgement of
// all replicas.
import { createRequire } from 'node:module';
import {
  createReplicationSegmentMutexConcurrencyController,
  getDisabledLogger,
  initializeReplicationMessageListener,
} from 'pg-transactional-outbox';

const [url, brokers, topic, rdkafka] = process.argv.slice(2);
const { Producer } = createRequire(import.meta.url)(rdkafka);

const producer = new Producer({
  'metadata.broker.list': brokers,
  'enable.idempotence': true,
  acks: -1,
  'linger.ms': 1,
  partitioner: 'murmur2_random',
  dr_cb: true,
});
await new Promise((resolve, reject) => {
  producer.connect({}, (error) => (error ? reject(error) : resolve()));
});
producer.setPollInterval(2);
producer.on('delivery-report', (error, report) => report.opaque(error));

const publish = (message) =>
  new Promise((resolve, reject) => {
    const settle = (error) => (error ? reject(error) : resolve());
    producer.produce(
      topic,
      null,
      Buffer.from(JSON.stringify(message.payload)),
      message.aggregateId,
      0,
      settle,
      [{ id: message.id }],
    );
  });

const connection = { connectionString: url };
const [shutdown] = initializeReplicationMessageListener(
  {
    outboxOrInbox: 'outbox',
    dbHandlerConfig: connection,
    dbListenerConfig: connection,
    settings: {
      dbSchema: 'public',
      dbTable: 'pto_outbox',
      dbPublication: 'pto',
      dbReplicationSlot: process.env.SLOT,
      enableMaxAttemptsProtection: false,
      enablePoisonousMessageProtection: false,
    },
  },
  { handle: publish },
  getDisabledLogger(),
  { concurrencyStrategy: createReplicationSegmentMutexConcurrencyController() },
);

process.once('SIGTERM', async () => {
  await shutdown();
  producer.disconnect(() => process.exit(0));
});
