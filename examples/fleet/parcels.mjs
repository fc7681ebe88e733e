// A service without anything of Millrace but the client library: as a producer it writes parcels,
// as a consumer it reads them with the schema version that it was built for. `millrace rollout`
// starts and upgrades a fleet of it: docs/how-to/rollout.md.
import { createServer } from 'node:http';
import { promisify } from 'node:util';
import { recordFaultOf, SchemaRegistry } from 'millrace/registry';
import rdkafka from 'node-rdkafka';

const [role, subject, version] = process.argv.slice(2);
const {
  MILLRACE_PORT: port,
  MILLRACE_BROKERS: brokers,
  MILLRACE_REGISTRY: url,
  MILLRACE_TOPIC: topic,
  MILLRACE_GROUP: group,
  MILLRACE_RATE: rate,
} = process.env;
const registry = new SchemaRegistry({ url });
const counts = { sent: 0, read: 0, failed: {} };
let lag = () => 0;
let isReady = false;

async function produce() {
  const serializer = await registry
    .serializer({ topic, subject: () => subject, version: Number(version) })
    .prefetch();
  const producer = new rdkafka.Producer({ 'metadata.broker.list': brokers, dr_cb: true });
  producer.setPollInterval(50);
  producer.on('delivery-report', (error) => {
    if (error === null) counts.sent++;
  });
  await new Promise((resolve, reject) =>
    producer.connect({}, (error) => (error ? reject(error) : resolve())),
  );
  let id = 0n;
  // Fields that the schema does not have are not written.
  const timer = setInterval(() => {
    const parcel = { id: ++id, state: 'sent', weight: 250 };
    producer.produce(topic, null, serializer.serialize(parcel), String(id));
  }, 1000 / Number(rate));
  isReady = true;
  return async () => {
    clearInterval(timer);
    await new Promise((resolve) => producer.flush(10_000, resolve));
    await new Promise((resolve) => producer.disconnect(resolve));
  };
}

async function consume() {
  const deserializer = registry.deserializer({ readerVersion: { subject, version: Number(version) } });
  const consumer = new rdkafka.KafkaConsumer(
    {
      'metadata.broker.list': brokers,
      'group.id': group,
      'auto.commit.interval.ms': 500,
      rebalance_cb: true,
    },
    { 'auto.offset.reset': 'earliest' },
  );
  const read = async ({ value }) => {
    try {
      await deserializer.deserialize(value);
    } catch (error) {
      const { reason = 'other' } = recordFaultOf(error) ?? {};
      counts.failed[reason] = (counts.failed[reason] ?? 0) + 1;
    }
    counts.read++;
  };
  consumer.on('rebalance', () => {
    isReady = true;
  });
  lag = () =>
    consumer.position().reduce((sum, { partition, offset }) => {
      const { highOffset } = consumer.getWatermarkOffsets(topic, partition);
      return sum + Math.max(0, highOffset - (offset ?? highOffset));
    }, 0);
  await new Promise((resolve, reject) =>
    consumer.connect({}, (error) => (error ? reject(error) : resolve())),
  );
  consumer.subscribe([topic]);
  consumer.setDefaultConsumeTimeout(250);
  const nextBatch = promisify(consumer.consume).bind(consumer);
  let isOver = false;
  const work = (async () => {
    while (!isOver) for (const record of await nextBatch(500)) await read(record);
  })();
  return async () => {
    isOver = true;
    await work;
    await new Promise((resolve) => consumer.disconnect(resolve));
  };
}

const metrics = () =>
  [
    '# TYPE parcels_sent_total counter',
    `parcels_sent_total ${counts.sent}`,
    '# TYPE parcels_read_total counter',
    `parcels_read_total ${counts.read}`,
    '# TYPE parcels_failed_total counter',
    ...Object.entries(counts.failed).map(
      ([reason, count]) => `parcels_failed_total{reason="${reason}"} ${count}`,
    ),
    '# TYPE parcels_lag gauge',
    `parcels_lag ${isReady ? lag() : 'NaN'}`,
    '',
  ].join('\n');

createServer((request, response) => {
  if (request.url === '/metrics') response.end(metrics());
  else response.writeHead(request.url === '/healthz' && isReady ? 200 : 503).end();
}).listen(Number(port), '127.0.0.1');
const stop = await (role === 'producer' ? produce() : consume());
process.once('SIGTERM', async () => {
  await stop();
  process.exit(0);
});
