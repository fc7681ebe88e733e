// Repeats calls of the addon in its own process and prints, as JSON, how much memory stays
// allocated:
//   node --expose-gc leak.mjs ADDON CASE CYCLES
import { createRequire } from 'node:module';

const [path, name, cycles] = process.argv.slice(2);
const addon = createRequire(import.meta.url)(path);
const MAGIC = 0x3142524d;

/** A batch of 4 rows by its header; `bytes` is enough for any layout. */
function batch(id, bytes, shared, arena = 0) {
  const buffer = shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes);
  const header = new Uint32Array(buffer, 0, 6);
  header.set([MAGIC, id, 4, 4, arena, arena]);
  return new Uint8Array(buffer);
}

const CASES = {
  calls(i) {
    const shared = i % 2 === 0;
    const events = batch(2, 8192, shared);
    const records = batch(1, 8192, shared, 4096);
    addon.decodeEvents(records, events);
    addon.scanFrames(records, true, batch(3, 8192, shared));
    addon.shardOf(events, 5, new Int32Array(4));
    addon.writeFrames(
      new Uint8Array(8),
      Uint32Array.of(0),
      Int32Array.of(8),
      1,
      7,
      Int32Array.of(1, 2),
      records,
    );
  },
  errors(i) {
    for (const call of [
      () => addon.shardOf(batch(1, 8192, false, 64), 5, new Int32Array(4)),
      () => addon.shardOf(batch(2, 8192, false), 0, new Int32Array(4)),
      () => addon.decodeEvents({ i }, `${i}`),
      () => addon.brokerProducerClose({ i }),
    ]) {
      try {
        call();
        throw new Error('nothing was thrown');
      } catch (error) {
        if (error.code === undefined) throw error;
      }
    }
  },
  async windows(i) {
    const [events, admitted] = [batch(2, 8192, i % 2 === 0), batch(7, 8192, false)];
    const rows = new ArrayBuffer(256);
    const state = addon.windowOpen(10, 2, null);
    const sessions = addon.sessionOpen(10, 2, null);
    addon.windowAccumulate(state, events, admitted, null, null, null, null);
    addon.sessionAccumulate(sessions, events, admitted, null, null, null, null);
    const deltas = new Uint8Array(4096);
    addon.sessionApplyDeltas(sessions, deltas.slice(0, addon.sessionEncodeDeltas(sessions, deltas)), 1, null);
    addon.sessionCopyRange(sessions, i % 1024, new Float64Array(1), rows);
    addon.sessionFind(sessions, 0n, rows);
    const run = addon.windowSeal(state, 0);
    const fired = addon.sessionFire(sessions, Infinity);
    addon.sessionAccumulate(sessions, events, admitted, null, null, null, null);
    const open = addon.sessionDetach(sessions);
    await Promise.all([run, fired, open].map((one) => addon.windowRunSort(one)));
    addon.windowRunRead(fired, 0, rows);
    addon.sessionMerge(10, [rows], Uint32Array.of(0, 0, 1), new ArrayBuffer(64), rows.slice(0), null);
    addon.windowRunFind(run, 0n, rows);
    for (const one of [run, fired, open]) addon.windowRunClose(one);
    addon.windowClose(state);
    addon.sessionClose(sessions);
  },
  handles() {
    const producer = addon.brokerProducerOpen([]);
    addon.brokerProducerClose(producer);
    addon.brokerProducerClose(producer);
  },
};

async function run(count) {
  for (let i = 0; i < count; i++) {
    const pending = CASES[name](i);
    if (pending !== undefined) await pending;
    if (i % 200 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  for (let i = 0; i < 5; i++) {
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return process.memoryUsage.rss();
}

const warm = await run(Number(cycles) / 4);
const end = await run(Number(cycles));
process.stdout.write(JSON.stringify({ warm, end, grown: end - warm }));
