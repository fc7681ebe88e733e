/** The embedded store: ingest of sorted runs, scans, puts and look-ups, each compared with raw disk
 *  access to the same bytes.
 *
 *  Rows are the 64-byte accumulators of a window. */
import { mkdtempSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { invariant } from '../src/core/errors.ts';
import { putOrdered } from '../src/core/ordered.ts';
import type { RecordRows } from '../src/core/rows.ts';
import { rocksdbDriver } from '../src/io/rocksdb/addon.ts';
import { rocksdbNpmDriver } from '../src/io/rocksdb/npm.ts';
import type { KvStore } from '../src/io/rocksdb/port.ts';
import {
  type Bench,
  type BenchContext,
  type BenchResult,
  result,
  type Series,
  seriesOf,
  takeTurns,
} from './harness.ts';
import { machineFactor } from './unit.ts';

const ROW_BYTES = 64;
const PAGE_ROWS = 16_384;
const PAGE_BYTES = ROW_BYTES * PAGE_ROWS;
const BUDGET_BYTES = 256 * 1024 * 1024;
/** Rows of one value if a run is only scanned. */
const PER_VALUE = 256;
const PUT_ROWS = 1000;
const MINUTE_MS = 60_000;
const FIRST_WINDOW_MS = 1_750_000_000_000;
const FIRST_WINDOW_HIGH = Math.floor(FIRST_WINDOW_MS / 2 ** 32);
const FIRST_WINDOW_LOW = FIRST_WINDOW_MS % 2 ** 32;
/** Lower bound of a row read: one block of the file. */
const BLOCK_BYTES = 8192;

interface Sizes {
  readonly pages: number;
  readonly putRows: number;
  readonly windows: number;
  readonly lookups: number;
}
const FULL: Sizes = { pages: 128, putRows: 200_000, windows: 20, lookups: 2000 };
const SMOKE: Sizes = { pages: 3, putRows: 2000, windows: 3, lookups: 20 };

/** Pages of one run: accumulators as after a minute of events, keys ascending by gaps of 1 to 8. */
function makePages(count: number): Uint8Array[] {
  let noise = 0x9e37_79b9;
  const next = (): number => {
    noise ^= noise << 13;
    noise ^= noise >>> 17;
    noise ^= noise << 5;
    return noise >>> 0;
  };
  let key = 0;
  return Array.from({ length: count }, () => {
    const words = new Uint32Array(PAGE_BYTES / 4);
    for (let row = 0; row < PAGE_ROWS; row++) {
      const at = row * 16;
      const least = next() >>> 12;
      const most = least + (next() >>> 12);
      const events = 1 + (next() & 15);
      key += 1 + (next() & 7);
      words[at] = key;
      words[at + 2] = events;
      words[at + 4] = least + most + events * (least >>> 1);
      words[at + 8] = least;
      words[at + 10] = most;
      words[at + 12] = FIRST_WINDOW_LOW + (next() % MINUTE_MS);
      words[at + 13] = FIRST_WINDOW_HIGH;
    }
    return new Uint8Array(words.buffer);
  });
}

const recordsOf = (bytes: Uint8Array, prefix: Uint8Array, perValue: number): RecordRows => ({
  shape: 'records',
  count: bytes.length / ROW_BYTES,
  bytes,
  recordBytes: ROW_BYTES,
  prefix,
  wordAt: 0,
  perValue,
});

/** Sum of the first words of all rows, which detects missing rows. */
function sumOf(bytes: Uint8Array, rows: number): number {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, rows * 16);
  let sum = 0;
  for (let row = 0; row < rows; row++) sum += words[row * 16] as number;
  return sum;
}

class KvBench {
  private readonly store: KvStore;
  private readonly folder: string;
  private readonly sizes: Sizes;
  private readonly pages: readonly Uint8Array[];
  private readonly rows: number;
  private readonly sum: number;
  private runs = 0;
  private readonly spent = new Map<string, number[]>();

  constructor(store: KvStore, folder: string, sizes: Sizes) {
    this.store = store;
    this.folder = folder;
    this.sizes = sizes;
    this.pages = makePages(sizes.pages);
    this.rows = sizes.pages * PAGE_ROWS;
    this.sum = this.pages.reduce((sum, page) => sum + sumOf(page, PAGE_ROWS), 0);
  }

  /** Returns rows per second. Records their CPU cost over all threads under the name of the side.
   *  */
  private async rate(side: string, rows: number, work: () => Promise<void>): Promise<number> {
    const before = process.cpuUsage();
    const started = performance.now();
    await work();
    const seconds = (performance.now() - started) / 1000;
    const { user, system } = process.cpuUsage(before);
    this.spent.set(side, [...(this.spent.get(side) ?? []), ((user + system) * 1000) / rows]);
    return rows / seconds;
  }

  /** CPU nanoseconds per row. */
  cpu(side: string): Series {
    return seriesOf(this.spent.get(side) ?? []);
  }

  /** Key prefix: role, slice start, run number. */
  private prefix(run: number): Uint8Array {
    const prefix = new Uint8Array(13);
    const view = new DataView(prefix.buffer);
    view.setUint8(0, 1);
    putOrdered(view, 1, FIRST_WINDOW_MS);
    view.setUint32(9, run);
    return prefix;
  }

  /** Rows per second of the ingest of one run, which is deleted afterwards unless `keep` is set. */
  async ingest(perValue: number, keep?: number): Promise<number> {
    const prefix = this.prefix(keep ?? 1000 + this.runs++);
    const rate = await this.rate(`run ${perValue}`, this.rows, async () => {
      const run = this.store.openRun('runs');
      for (const page of this.pages) await run.append(recordsOf(page, prefix, perValue));
      const report = await run.finish();
      invariant(report.rows === this.rows, 'a run takes all its rows');
    });
    if (keep === undefined)
      await this.store.deleteRange('runs', { from: prefix, to: this.after(prefix) }, 'off');
    return rate;
  }

  private after(prefix: Uint8Array): Uint8Array {
    const to = prefix.slice();
    const view = new DataView(to.buffer);
    view.setUint32(9, view.getUint32(9) + 1);
    return to;
  }

  /** Writes the same pages to a file, durable at the end. */
  async write(): Promise<number> {
    return this.rate('write', this.rows, async () => {
      const file = await open(join(this.folder, 'raw'), 'w');
      for (const page of this.pages) await file.write(page);
      await file.sync();
      await file.close();
    });
  }

  async read(): Promise<number> {
    const page = new Uint8Array(PAGE_BYTES);
    let sum = 0;
    const rate = await this.rate('read', this.rows, async () => {
      const file = await open(join(this.folder, 'raw'), 'r');
      for (;;) {
        const { bytesRead } = await file.read(page);
        if (bytesRead === 0) break;
        sum += sumOf(page, bytesRead / ROW_BYTES);
      }
      await file.close();
    });
    invariant(sum === this.sum, 'the file has every row');
    return rate;
  }

  async scan(run: number): Promise<number> {
    const prefix = this.prefix(run);
    const page = { bytes: new Uint8Array(PAGE_BYTES) };
    let sum = 0;
    const rate = await this.rate(`scan ${run}`, this.rows, async () => {
      const scan = await this.store.scan(
        'runs',
        { from: prefix, to: this.after(prefix) },
        {
          shape: 'records',
          recordBytes: ROW_BYTES,
        },
      );
      for (let rows = await scan.next(page); rows > 0; rows = await scan.next(page))
        sum += sumOf(page.bytes, rows);
      scan.close();
    });
    invariant(sum === this.sum, 'a scan meets every row');
    return rate;
  }

  /** Rows per second of puts in random order, `PUT_ROWS` per call: the cost that a sorted run
   *  avoids. */
  async put(store: KvStore, side: string): Promise<number> {
    const { putRows } = this.sizes;
    const prefix = this.prefix(this.runs++);
    const page = this.pages[0] as Uint8Array;
    const rowBytes = prefix.length + 8 + ROW_BYTES;
    const bytes = new Uint8Array(rowBytes * PUT_ROWS);
    const view = new DataView(bytes.buffer);
    const rate = await this.rate(side, putRows, async () => {
      for (let first = 0; first < putRows; first += PUT_ROWS) {
        for (let i = 0; i < PUT_ROWS; i++) {
          const at = i * rowBytes;
          bytes.set(prefix, at);
          // An odd factor visits every number of the range once, far from its predecessor.
          view.setUint32(at + prefix.length + 4, Math.imul(first + i, 2_654_435_761) >>> 0);
          bytes.set(page.subarray(i * ROW_BYTES, (i + 1) * ROW_BYTES), at + prefix.length + 8);
        }
        const rows = {
          shape: 'fixed',
          count: PUT_ROWS,
          bytes,
          keyBytes: prefix.length + 8,
          valueBytes: ROW_BYTES,
        } as const;
        await store.put('puts', rows, 'off');
      }
      await store.flush();
    });
    await store.deleteRange('puts', { from: null, to: null }, 'off');
    return rate;
  }

  /** Key prefix: window_start, window_end. */
  private window(index: number): Uint8Array {
    const prefix = new Uint8Array(16);
    const view = new DataView(prefix.buffer);
    putOrdered(view, 0, FIRST_WINDOW_MS + index * MINUTE_MS);
    putOrdered(view, 8, FIRST_WINDOW_MS + (index + 1) * MINUTE_MS);
    return prefix;
  }

  /** Writes fired windows, one run for each. */
  async fire(): Promise<void> {
    for (let index = 0; index < this.sizes.windows; index++) {
      const run = this.store.openRun('fired');
      for (const page of this.pages.slice(0, 8)) await run.append(recordsOf(page, this.window(index), 1));
      await run.finish();
    }
  }

  private account(turn: number): Uint8Array {
    const page = this.pages[turn % Math.min(8, this.pages.length)] as Uint8Array;
    return page.subarray(((turn * 7919) % PAGE_ROWS) * ROW_BYTES);
  }

  /** Keys per second; each call looks up one account in every window. */
  async lookUp(): Promise<number> {
    const { windows, lookups } = this.sizes;
    const keyBytes = 24;
    const bytes = new Uint8Array(keyBytes * windows);
    for (let index = 0; index < windows; index++) bytes.set(this.window(index), index * keyBytes);
    let found = 0;
    const rate = await this.rate('look-up', windows * lookups, async () => {
      for (let turn = 0; turn < lookups; turn++) {
        const account = this.account(turn);
        for (let index = 0; index < windows; index++)
          for (let b = 0; b < 8; b++) bytes[index * keyBytes + 16 + b] = account[7 - b] as number;
        const { length } = await this.store.get('fired', { count: windows, bytes, keyBytes });
        for (const size of length) if (size === ROW_BYTES) found++;
      }
    });
    invariant(found === windows * lookups, 'every fired row is found');
    return rate;
  }

  /** Reads the same number of blocks from random places of a file. */
  async readBlocks(): Promise<number> {
    const { windows, lookups } = this.sizes;
    const block = new Uint8Array(BLOCK_BYTES);
    const blocks = Math.floor((this.rows * ROW_BYTES) / BLOCK_BYTES);
    const file = await open(join(this.folder, 'raw'), 'r');
    const rate = await this.rate('blocks', windows * lookups, async () => {
      for (let i = 0; i < windows * lookups; i++)
        await file.read(block, 0, BLOCK_BYTES, ((i * 7919) % blocks) * BLOCK_BYTES);
    });
    await file.close();
    return rate;
  }
}

/** Series by the names of the sides. */
type Sides<N extends string> = Readonly<Record<N, Series>>;

function resultsOf(
  bench: KvBench,
  wrote: Sides<'single' | 'many' | 'put' | 'raw'>,
  read: Sides<'single' | 'many' | 'raw'>,
  looked: Sides<'keys' | 'raw'>,
): BenchResult[] {
  const plain = (series: Series) => ({ name: 'plain file, same bytes', series });
  const puts = (series: Series) => ({ name: `puts of ${PUT_ROWS}, random keys`, series });
  const npm = (series: Series) => ({ name: 'the same puts, npm package rocksdb', series });
  const rows = { unit: 'rows/s', better: 'more' } as const;
  const cpu = { unit: 'ns CPU/row', better: 'less' } as const;
  const many = `a key for ${PER_VALUE}`;
  return [
    result({
      ...rows,
      metric: 'run, a key each',
      ours: wrote.single,
      against: plain(wrote.raw),
      goal: { onReference: 3_000_000, factor: machineFactor() },
    }),
    result({
      ...rows,
      metric: `run, ${many}`,
      ours: wrote.many,
      against: plain(wrote.raw),
      goal: { onReference: 5_000_000, factor: machineFactor() },
    }),
    result({ ...rows, metric: 'run, a key each', ours: wrote.single, against: puts(wrote.put) }),
    result({
      ...cpu,
      metric: 'run, a key each',
      ours: bench.cpu('run 1'),
      against: puts(bench.cpu('put')),
      goal: { ratioAtLeast: 5 },
    }),
    result({
      ...cpu,
      metric: `run, ${many}`,
      ours: bench.cpu(`run ${PER_VALUE}`),
      against: { name: 'run, a key each', series: bench.cpu('run 1') },
      goal: { ratioAtLeast: 1.5 },
    }),
    result({ ...cpu, metric: 'puts', ours: bench.cpu('put'), against: npm(bench.cpu('other')) }),
    result({
      ...rows,
      metric: 'scan, a key each',
      ours: read.single,
      against: plain(read.raw),
      goal: { onReference: 2_000_000, factor: machineFactor() },
    }),
    result({ ...rows, metric: `scan, ${many}`, ours: read.many, against: plain(read.raw) }),
    result({
      ...cpu,
      metric: `scan, ${many}`,
      ours: bench.cpu('scan 2'),
      against: { name: 'scan, a key each', series: bench.cpu('scan 1') },
      goal: { ratioAtLeast: 3 },
    }),
    result({
      metric: 'look-ups of fired rows',
      unit: 'keys/s',
      better: 'more',
      ours: looked.keys,
      against: { name: 'plain file, a block a key', series: looked.raw },
    }),
  ];
}

async function run(context: BenchContext): Promise<readonly BenchResult[]> {
  const root = mkdtempSync(join(tmpdir(), 'millrace-kv-'));
  context.onClose(() => rmSync(root, { recursive: true, force: true }));
  const options = {
    budgetBytes: BUDGET_BYTES,
    families: { runs: 'runs', puts: 'rows', fired: 'rows' },
  } as const;
  const other = await rocksdbNpmDriver.open(join(root, 'package'), options);
  const store = await rocksdbDriver.open(join(root, 'store'), options);
  try {
    const bench = new KvBench(store, root, context.smoke ? SMOKE : FULL);
    context.say('kv: runs');
    const wrote = await takeTurns(
      {
        single: () => bench.ingest(1),
        many: () => bench.ingest(PER_VALUE),
        put: () => bench.put(store, 'put'),
        other: () => bench.put(other, 'other'),
        raw: () => bench.write(),
      },
      context.repeats,
    );
    await bench.ingest(1, 1);
    await bench.ingest(PER_VALUE, 2);
    context.say('kv: scans');
    const read = await takeTurns(
      { single: () => bench.scan(1), many: () => bench.scan(2), raw: () => bench.read() },
      context.repeats,
    );
    await bench.fire();
    context.say('kv: look-ups');
    const looked = await takeTurns(
      { keys: () => bench.lookUp(), raw: () => bench.readBlocks() },
      context.repeats,
    );
    return resultsOf(bench, wrote, read, looked);
  } finally {
    await store.close();
    await other.close();
  }
}

export const bench: Bench = {
  name: 'kv',
  summary:
    'The embedded store: runs, scans, puts and look-ups of 64-byte rows, against a plain file with the same bytes.',
  run,
};
