/** Results after a firing: writing rows from the state to the embedded sink, and reading one
 *  account back.
 *
 *  Rows are 64-byte accumulators. A firing is read, copied, written and made durable; for
 *  comparison the same bytes go to a plain file. Then one account is looked up in a store of as
 *  many rows, compared with plain reads of blocks. */
import { mkdtempSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { invariant } from '../src/core/errors.ts';
import { FIRED_FAMILIES, FiredStore } from '../src/engine/output/fired/store.ts';
import { SinkWriter } from '../src/engine/output/sink/writer.ts';
import type { Firing } from '../src/engine/window/firing.ts';
import { rocksdbDriver } from '../src/io/rocksdb/addon.ts';
import { BenchFiring, MINUTE_MS, makeRows, minute, ROW_BYTES } from './engine/firings.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf, takeTurns } from './harness.ts';

const BUDGET_BYTES = 64 * 1024 * 1024;
const GAP_MS = 30_000;
const BLOCK_BYTES = 8192;

interface Sizes {
  /** Number of rows in a large window. */
  readonly rows: number;
  /** Number of large windows stored before the look-ups. */
  readonly windows: number;
  /** Number of rows in a small window. */
  readonly smallRows: number;
  /** Number of small windows that fire together. */
  readonly smallWindows: number;
  readonly sessions: number;
  readonly lookups: number;
}
const FULL: Sizes = {
  rows: 500_000,
  windows: 20,
  smallRows: 1_000,
  smallWindows: 200,
  sessions: 200_000,
  lookups: 2_000,
};
const SMOKE: Sizes = { rows: 40_000, windows: 2, smallRows: 50, smallWindows: 5, sessions: 500, lookups: 20 };

class ResultsBench {
  private readonly context: BenchContext;
  private readonly sizes: Sizes;
  private readonly root: string;
  private readonly large: Uint8Array;
  private readonly small: Uint8Array;
  private readonly sessions: Uint8Array;
  private stores = 0;
  /** Nanoseconds of CPU per row, over all threads. */
  readonly spent = new Map<string, number[]>();

  constructor(context: BenchContext, root: string) {
    this.context = context;
    this.root = root;
    this.sizes = context.smoke ? SMOKE : FULL;
    this.large = makeRows(this.sizes.rows, 0);
    this.small = makeRows(this.sizes.smallRows, 0);
    this.sessions = makeRows(this.sizes.sessions, 0);
  }

  private async opened<T>(kind: 'windows' | 'sessions', work: (fired: FiredStore) => Promise<T>): Promise<T> {
    const folder = join(this.root, `store-${this.stores++}`);
    const store = await rocksdbDriver.open(folder, { budgetBytes: BUDGET_BYTES, families: FIRED_FAMILIES });
    const shape =
      kind === 'windows'
        ? ({ kind, sizeMs: MINUTE_MS, slideMs: MINUTE_MS } as const)
        : ({ kind, gapMs: GAP_MS } as const);
    try {
      return await work(await FiredStore.open(store, { shape, role: 'sink' }));
    } finally {
      await store.close();
      rmSync(folder, { recursive: true });
    }
  }

  /** Rows per second from the offer until durable. Records the CPU cost under `name`. */
  private async writing(name: string, fired: FiredStore, firings: readonly Firing[]): Promise<number> {
    let rows = 0;
    const writer = new SinkWriter({
      sinks: [fired],
      clock: { wallNowMs: () => Date.now(), monotonicMs: () => performance.now() },
      log: this.context.log,
      sleep: (ms) => sleep(ms),
      onWritten: (count) => {
        rows += count;
      },
    });
    const before = process.cpuUsage();
    const started = performance.now();
    writer.offer(firings);
    await writer.flushed();
    const seconds = (performance.now() - started) / 1000;
    const { user, system } = process.cpuUsage(before);
    this.spent.set(name, [...(this.spent.get(name) ?? []), ((user + system) * 1000) / rows]);
    invariant(rows === firings.reduce((sum, one) => sum + one.rowsMax, 0), 'every row is written');
    return rows / seconds;
  }

  writeLarge(): Promise<number> {
    return this.opened('windows', (fired) =>
      this.writing('large', fired, [new BenchFiring(minute(0), this.large)]),
    );
  }

  writeSmall(): Promise<number> {
    const { smallWindows } = this.sizes;
    const firings = Array.from({ length: smallWindows }, (_, i) => new BenchFiring(minute(i), this.small));
    return this.opened('windows', (fired) => this.writing('small', fired, firings));
  }

  writeSessions(): Promise<number> {
    const bounds = { kind: 'sessions', gapMs: GAP_MS } as const;
    return this.opened('sessions', (fired) =>
      this.writing('sessions', fired, [new BenchFiring(bounds, this.sessions)]),
    );
  }

  /** Writes the rows of the large window to a file, durable at the end. */
  async writeFile(): Promise<number> {
    const started = performance.now();
    const file = await open(join(this.root, 'raw'), 'w');
    await file.write(this.large);
    await file.sync();
    await file.close();
    return this.sizes.rows / ((performance.now() - started) / 1000);
  }

  /** Milliseconds of each request for an account in every window. */
  async lookUp(fired: FiredStore): Promise<readonly number[]> {
    const { rows, windows, lookups } = this.sizes;
    const took: number[] = [];
    for (let turn = 0; turn < lookups; turn++) {
      // Every second account exists in no window.
      const accountId = BigInt(((turn * 7919) % rows) * 8 + (turn % 2));
      const started = performance.now();
      const page = await fired.find({ accountId, from: 0, to: 2 ** 52, limit: 1000 });
      took.push(performance.now() - started);
      invariant(page.rows.length === (turn % 2 === 0 ? windows : 0), 'an account is found in every window');
    }
    return took;
  }

  /** Milliseconds of the raw limit of a look-up: one read of a block for each window. */
  async readBlocks(): Promise<readonly number[]> {
    const { rows, windows, lookups } = this.sizes;
    const block = new Uint8Array(BLOCK_BYTES);
    const blocks = Math.max(1, Math.floor((rows * ROW_BYTES) / BLOCK_BYTES));
    const file = await open(join(this.root, 'raw'), 'r');
    const took: number[] = [];
    for (let turn = 0; turn < lookups; turn++) {
      const started = performance.now();
      for (let i = 0; i < windows; i++)
        await file.read(block, 0, BLOCK_BYTES, (((turn * windows + i) * 7919) % blocks) * BLOCK_BYTES);
      took.push(performance.now() - started);
    }
    await file.close();
    return took;
  }

  /** Looks up accounts in a store of all large windows. */
  lookUps(): Promise<{ readonly ours: readonly number[][]; readonly raw: readonly number[][] }> {
    return this.opened('windows', async (fired) => {
      for (let index = 0; index < this.sizes.windows; index++)
        await this.writing('stored', fired, [new BenchFiring(minute(index), this.large)]);
      const ours: number[][] = [];
      const raw: number[][] = [];
      for (let turn = 0; turn < this.context.repeats; turn++) {
        ours.push([...(await this.lookUp(fired))]);
        raw.push([...(await this.readBlocks())]);
      }
      return { ours, raw };
    });
  }

  get stored(): string {
    const { rows, windows } = this.sizes;
    return `${(rows * windows).toLocaleString('en-US')} rows`;
  }
  get windows(): number {
    return this.sizes.windows;
  }
}

const quantile =
  (q: number) =>
  (took: readonly number[]): number => {
    const sorted = [...took].sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] as number;
  };

async function run(context: BenchContext): Promise<readonly BenchResult[]> {
  const root = mkdtempSync(join(tmpdir(), 'millrace-results-'));
  context.onClose(() => rmSync(root, { recursive: true, force: true }));
  const bench = new ResultsBench(context, root);
  context.say('results: writing');
  const wrote = await takeTurns(
    {
      large: () => bench.writeLarge(),
      small: () => bench.writeSmall(),
      sessions: () => bench.writeSessions(),
      raw: () => bench.writeFile(),
    },
    context.repeats,
  );
  context.say('results: look-ups');
  const looked = await bench.lookUps();
  const against = { name: 'plain file, same bytes', series: wrote.raw };
  const rows = { unit: 'rows/s', better: 'more' } as const;
  /** A million rows per second on one core are 1000 ns. */
  const cpu = (metric: string, name: string, goal?: number): BenchResult =>
    result({
      metric,
      unit: 'ns CPU/row',
      better: 'less',
      ours: seriesOf(bench.spent.get(name) ?? []),
      ...(goal === undefined ? {} : { goal: { valueAtMost: goal } }),
    });
  const ask = (q: number, goal: number): BenchResult =>
    result({
      metric: `account in ${bench.windows} windows of ${bench.stored}, p${q * 100}`,
      unit: 'ms',
      better: 'less',
      ours: seriesOf(looked.ours.map(quantile(q))),
      against: { name: 'plain file, a block a window', series: seriesOf(looked.raw.map(quantile(q))) },
      goal: { valueAtMost: goal },
    });
  return [
    result({
      ...rows,
      metric: 'a large window, durable',
      ours: wrote.large,
      against,
      goal: { valueAtLeast: 1_000_000 },
    }),
    result({ ...rows, metric: 'small windows, durable', ours: wrote.small, against }),
    result({ ...rows, metric: 'sessions, durable', ours: wrote.sessions, against }),
    cpu('a large window', 'large', 1000),
    cpu('small windows', 'small'),
    cpu('sessions', 'sessions'),
    ask(0.5, 5),
    ask(0.99, 20),
  ];
}

export const bench: Bench = {
  name: 'results',
  summary:
    'Results after a firing: written to the embedded sink until durable, and one account read back, against a plain file.',
  run,
};
