// Process that holds a store, for tests that kill it, contend for its lock, or measure its memory:
//   node kv.child.mjs CASE FOLDER It reports on stdout, one line per event. It runs the compiled
// driver directly, so that a signal hits the driver's process.
import { readFileSync } from 'node:fs';
import { rocksdbDriver } from '../../dist/src/io/rocksdb/addon.js';

const [name, folder] = process.argv.slice(2);
const MIB = 1024 * 1024;
const families = { runs: 'runs', rows: 'rows' };
const report = (line) => process.stdout.write(`${line}\n`);
const text = (word) => new TextEncoder().encode(word);

/** `count` records of 64 bytes from `first` on, filled by a generator so that they do not compress.
 */
function fill(bytes, first, count) {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, count * 16);
  let x = (first * 2654435761 + 1) >>> 0 || 1;
  for (let i = 0; i < words.length; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    words[i] = x;
  }
  for (let i = 0; i < count; i++) {
    words[i * 16] = first + i;
    words[i * 16 + 1] = 0;
  }
  return bytes;
}
const records = (prefix, bytes, count) => ({
  shape: 'records',
  count,
  bytes,
  recordBytes: 64,
  prefix: text(prefix),
  wordAt: 0,
});

/** Resident memory now and at its peak, from the kernel. */
function memory() {
  const status = readFileSync('/proc/self/status', 'utf8');
  const of = (field) => Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? 0) * 1024;
  return { rss: of('VmRSS'), peak: of('VmHWM') };
}

const CASES = {
  /** Writes runs of 10 pages without end. */
  async runs(store) {
    const bytes = new Uint8Array(64 * 2000);
    for (let run = 0; ; run++) {
      const writing = store.openRun('runs');
      for (let page = 0; page < 10; page++) {
        report(`page ${run} ${page}`);
        await writing.append(records(String(run).padStart(6, '0'), fill(bytes, page * 2000, 2000), 2000));
      }
      report(`last ${run}`);
      await writing.finish();
      report(`run ${run}`);
    }
  },
  /** Writes one row with each kind of log, then flushes and writes one more. */
  async logs(store) {
    const one = (key) => ({ shape: 'fixed', count: 1, bytes: text(`${key}v`), keyBytes: 1, valueBytes: 1 });
    await store.put('rows', one('a'), 'off');
    await store.flush();
    await store.put('rows', one('b'), 'off');
    await store.put('runs', one('c'), 'on');
    await store.put('runs', one('d'), 'sync');
    report('done');
    await new Promise((resolve) => setTimeout(resolve, 60_000));
  },
  async hold() {
    report('open');
    await new Promise((resolve) => setTimeout(resolve, 60_000));
  },
  /** Writes until the disk is full. */
  async full(store) {
    const bytes = new Uint8Array(64 * 2000);
    try {
      const run = store.openRun('runs');
      for (let page = 0; page < 200; page++)
        await run.append(records('r', fill(bytes, page * 2000, 2000), 2000));
      await run.finish();
      report('run taken');
    } catch (error) {
      report(`run ${error.code}`);
    }
    try {
      for (let page = 0; page < 200; page++)
        await store.put('rows', records('r', fill(bytes, page * 2000, 2000), 2000), 'off');
      await store.flush();
      report('put taken');
    } catch (error) {
      report(`put ${error.code}`);
    }
    process.exit(0);
  },
  /** Writes and reads many times the budget in every way, and reports the memory. */
  async budget(store) {
    const before = memory();
    const perPage = 16_384;
    const bytes = new Uint8Array(64 * perPage);
    let written = 0;
    let read = 0;
    let files = 0;
    for (let round = 0; round < 4; round++) {
      const run = store.openRun('runs');
      for (let page = 0; page < 80; page++) {
        await run.append(records(`r${round}`, fill(bytes, page * perPage, perPage), perPage));
        written += bytes.length;
      }
      files += (await run.finish()).files;
      for (let page = 0; page < 24; page++) {
        await store.put('rows', records(`p${round}`, fill(bytes, page * perPage, perPage), perPage), 'off');
        written += bytes.length;
      }
      for (const family of ['runs', 'rows']) {
        const scan = await store.scan(
          family,
          { from: null, to: null },
          { shape: 'records', recordBytes: 64 },
          { keepBlocks: true },
        );
        for (let count = await scan.next({ bytes }); count > 0; count = await scan.next({ bytes }))
          read += count * 64;
        scan.close();
      }
      // Keys from the whole table, so that index and filters are read too.
      const keys = new Uint8Array(10 * 5000);
      const view = new DataView(keys.buffer);
      for (let i = 0; i < 5000; i++) {
        keys.set(text(`p${round}`), i * 10);
        view.setUint32(i * 10 + 6, (i * 7919) % (24 * perPage));
      }
      const found = await store.get('rows', { count: 5000, bytes: keys, keyBytes: 10 });
      if (found.length.some((length) => length !== 64)) throw new Error('a row is missing');
    }
    const stats = await store.stats();
    report(JSON.stringify({ before, after: memory(), written, read, files, stats }));
    await store.close();
  },
};

try {
  const budgetBytes = name === 'budget' ? 32 * MIB : 16 * MIB;
  const store = await rocksdbDriver.open(folder, { budgetBytes, families });
  await CASES[name](store);
} catch (error) {
  report(`error ${error.code}`);
  process.exitCode = 1;
}
