// A worker that uses the raw addon: `once` answers and ends, `forever` works until it is terminated, `forget` opens
// handles and ends without closing them.
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
  parentPort.postMessage(kept.length);
  if (mode === 'forget') setInterval(() => {}, 1000);
}
