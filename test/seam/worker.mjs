// A worker that uses the raw addon: `once` answers and ends, `forever` works until it is terminated, `forget` opens
// handles and is terminated with a call of each under way, `fall` opens handles and ends by itself.
import { createRequire } from 'node:module';
import { parentPort, workerData } from 'node:worker_threads';

const { path, mode, records, events } = workerData;
const addon = createRequire(import.meta.url)(path);
const owners = new Int32Array(workerData.rows);

function work() {
  const decoded = addon.decodeEvents(new Uint8Array(records), new Uint8Array(events));
  addon.shardOf(new Uint8Array(events), 7, owners);
  try {
    addon.shardOf('no batch', 7, owners);
  } catch (error) {
    return { decoded, owners: [...owners], code: error.code, name: error.name };
  }
  return { decoded };
}

if (mode === 'once') {
  for (let i = 0; i < 200; i++) work();
  parentPort.postMessage(work());
} else if (mode === 'forever') {
  parentPort.postMessage('working');
  for (;;) work();
} else {
  const kept = [addon.brokerProducerOpen([]), addon.brokerConsumerOpen(['group.id', 'forgotten'], () => {})];
  if (mode === 'forget') {
    const forever = 600_000;
    const refused = (error) => parentPort.postMessage(`refused: ${error.message}`);
    addon.brokerConsumerConsume(kept[1], new Uint8Array(records), forever).catch(refused);
    addon.brokerProducerFlush(kept[0], forever).catch(refused);
    addon
      .brokerConsumerCommitted(kept[1], ['t'], Int32Array.of(0), BigInt64Array.of(-1n), forever)
      .catch(refused);
    setInterval(() => {}, 1000);
  }
  parentPort.postMessage(kept.length);
}
