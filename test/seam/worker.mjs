// Worker that uses the raw addon, or works against it (`scribble` overwrites a shared batch).
// `once` answers and ends, `forever` works until it is terminated, `forget` opens handles and is
// terminated with a call of each in flight, `fall` opens handles and ends by itself; `share` and
// `share-forget` do the same with states and a decoder that have threads.
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
} else if (mode === 'scribble') {
  const words = new Uint32Array(records);
  parentPort.postMessage('scribbling');
  const lies = [0, 1, 5, 256, 0x7fffffff, 0x80000000, 0xffffff00, 0xffffffff];
  for (let i = 1; ; i = (Math.imul(i, 1_664_525) + 1_013_904_223) >>> 0) {
    // Magic and layout id stay valid, or the check of the header would refuse every batch.
    words[2 + ((i >>> 8) % (words.length - 2))] = lies[i >>> 29];
    words[2] = i & 64 ? workerData.rows : lies[i >>> 29];
    words[3] = workerData.rows;
    words[4] = words[5] = workerData.rows * 256;
  }
} else if (mode.startsWith('share')) {
  const [state, sessions] = [addon.windowOpen(10, 4, null), addon.sessionOpen(10, 4, null)];
  const decoder = addon.eventDecoderOpen(4);
  globalThis.kept = [state, sessions, decoder];
  addon.eventDecoderDecode(decoder, new Uint8Array(records), new Uint8Array(events));
  const { decodedEvents, admitted } = workerData;
  for (let i = 0; i < 20; i++) {
    addon.windowAccumulate(state, decodedEvents, admitted, null, null, null, null);
    addon.sessionAccumulate(sessions, decodedEvents, admitted, null, null, null, null);
  }
  parentPort.postMessage('shared');
  if (mode === 'share-forget') setInterval(() => {}, 1000);
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
