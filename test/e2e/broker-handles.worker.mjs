// Worker that leaves its clients open in the middle of calls. It exits by itself if `exits` is set;
// otherwise the test terminates it.
import { pathToFileURL } from 'node:url';
import { parentPort, workerData } from 'node:worker_threads';

const { addonPath, brokers, topic, batch } = workerData;
const { createRequire } = await import('node:module');
const addon = createRequire(pathToFileURL(addonPath))(addonPath);
const consumer = addon.brokerConsumerOpen(
  [
    'metadata.broker.list',
    brokers,
    'group.id',
    'handles',
    'enable.auto.commit',
    'false',
    'auto.offset.reset',
    'earliest',
  ],
  () => {},
);
await addon.brokerConsumerAssign(consumer, [topic], Int32Array.of(0), BigInt64Array.of(-2n));
const [rows] = await addon.brokerConsumerConsume(consumer, batch, 60_000);
const producer = addon.brokerProducerOpen(['metadata.broker.list', brokers, 'linger.ms', '60000']);
addon.brokerProducerProduce(producer, batch, [topic], new Int32Array(rows), new BigInt64Array(rows));
addon.brokerConsumerConsume(consumer, batch, 60_000);
addon.brokerConsumerCommitted(consumer, [topic], Int32Array.of(0), BigInt64Array.of(0n), 60_000);
parentPort.postMessage(rows);
if (workerData.exits) process.exit(0);
