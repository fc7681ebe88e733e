// Worker that leaves a store open, with calls of every kind in flight.
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';

const { path, folder, exits } = workerData;
const addon = createRequire(import.meta.url)(path);
const store = addon.stateOpen(folder, 16 << 20, ['rows'], Uint8Array.of(1), true);
await addon.stateStart(store);
mkdirSync(join(folder, 'incoming'), { recursive: true });
const count = 10_000;
const bytes = new Uint8Array(64 * count);
const words = new Uint32Array(bytes.buffer);
for (let i = 0; i < count; i++) words[i * 16] = i;
const rows = [bytes, null, Uint8Array.of(1), null, count, 0, 64, 0, 1];
await addon.statePut(store, 0, 0, ...rows);
const scan = addon.stateScanOpen(store, 0, null, null, 2, 0, 64, false);
await addon.stateScanStart(scan);
const run = addon.stateRunOpen(store, 0);
for (let i = 0; i < 20; i++) {
  addon.statePut(store, 0, 1, ...rows);
  addon.stateScanNext(scan, new Uint8Array(64 * 100), null);
  addon.stateRunAppend(run, true, ...rows);
}
parentPort.postMessage('busy');
if (exits) process.exit(0);
setInterval(() => {}, 1000);
