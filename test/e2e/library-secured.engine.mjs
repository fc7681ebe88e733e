// Parts of the engine of an installed package, on the broker of MILLRACE_BROKER_CONFIG. Prints what
// the source, the group and the sink found.
import { openBroker, RecordBatch, readBrokerConfig, silentLogger, systemClock } from 'millrace/drivers';
import { BrokerSource, binary256Input, GroupLease, KafkaSink } from 'millrace/engine';

const config = readBrokerConfig({ env: process.env });
const driver = await openBroker('auto', config);
const { brokers } = config;
const at = { brokers, clientId: 'engine' };
const topic = 'engine-events';
const admin = await driver.admin(at);
await admin.createTopics([{ topic, partitions: 1 }]);
await admin.close();
const producer = await driver.producer(at);
const events = RecordBatch.create(3, 1024);
for (let i = 0; i < 3; i++) events.append({ partition: 0, value: Buffer.from(`event ${i}`) });
await producer.produce(events, [topic]);
await producer.close();

const consumer = await driver.consumer({ ...at, partitionEof: true });
const source = new BrokerSource({
  consumer,
  input: binary256Input({ decodeEvents: () => 0 }),
  clock: systemClock,
  stages: { recordsReady: () => {}, enter: () => {} },
  topic,
  partitionCount: 1,
  findTopic: async () => ({ partitions: 1, id: undefined }),
  rowCapacity: 16,
  arenaBytes: 4096,
  onEvent: (event) => console.error(event),
});
const bounds = await source.bounds();
await source.start([0]);
let rows = 0;
while (rows < 3) rows += (await source.next(1000))?.records.rowCount ?? 0;
await source.stop();
await consumer.close();

const lease = new GroupLease({
  topic,
  partitionCount: () => 1,
  join: (onRebalance) => driver.consumer({ ...at, group: 'engine', onRebalance }),
  clock: systemClock,
  log: silentLogger,
  sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  random: Math.random,
});
lease.start();
while (!lease.isWhole) {
  lease.check();
  await new Promise((resolve) => setTimeout(resolve, 20));
}
const whole = lease.isWhole;
await lease.close();

const scratch = () => Promise.reject(new Error('not read'));
const sink = new KafkaSink({
  ...{ driver, brokers, topic: 'engine-results', partitions: 1, replicationFactor: 0, scratch },
});
await sink.migrate();
await sink.check();
await sink.close();
process.stdout.write(JSON.stringify({ bounds, rows, whole, sink: sink.name }));
