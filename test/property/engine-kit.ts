/** Helpers of the engine's tests: batches from plain events, a folder in memory, and a sink that
 *  keeps every row that it receives. */
import fc from 'fast-check';
import { rowText } from '../../bench/peers/oracle/difference.ts';
import type { OracleRules } from '../../bench/peers/oracle/rules.ts';
import type { Oracle } from '../../bench/peers/oracle/windows.ts';
import type { WindowKernels } from '../../src/addon/window-surface.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import type { Clock } from '../../src/core/clock.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { PIECE_FAMILIES, PieceStore } from '../../src/engine/durability/spill/pieces.ts';
import { type Job, pieceOrderOf, rowFormOf, stateOf, watermarksOf } from '../../src/engine/job.ts';
import { engineMetrics } from '../../src/engine/metrics.ts';
import type { WindowPage, WindowQuery } from '../../src/engine/output/fired/lookup.ts';
import type { RangePage, RangeQuery, TopQuery } from '../../src/engine/output/fired/range.ts';
import type { WindowSink } from '../../src/engine/output/sink/port.ts';
import type { EngineParts } from '../../src/engine/parts.ts';
import { Engine } from '../../src/engine/run.ts';
import type { EventRows, EventSource, Receipt } from '../../src/engine/source/events.ts';
import type { WindowResult } from '../../src/engine/window/accumulator.ts';
import type { FiredPage } from '../../src/engine/window/firing.ts';
import { KV_BUDGET_MIN_BYTES } from '../../src/io/rocksdb/port.ts';
import type { SimDisk } from '../../src/sim/disk.ts';
import type { SimKv } from '../../src/sim/kv.ts';
import { shareSmallBatches } from '../native-threads.ts';
import { rowsOfPage } from '../windows/fired-rows.ts';

// Every state of several shards uses threads, whatever the size of its batches.
shareSmallBatches();

export const KERNELS = loadWindowKernels('native');

/** Kernels for the rows of a job. */
const kernelsOf = (job: Job): WindowKernels => loadWindowKernels('native', rowFormOf(job));

export interface TestEvent {
  readonly partition: number;
  readonly accountId: bigint;
  readonly value: bigint;
  readonly eventTs: bigint;
  /** True if the value of the record does not have 256 bytes. */
  readonly broken?: boolean;
  /** Status of a broken event; absent: that of a value without 256 bytes. */
  readonly fault?: number;
}

const U64 = (1n << 64n) - 1n;
const I64_MIN = -(1n << 63n);
const I64_MAX = (1n << 63n) - 1n;

const accountIds = fc.oneof(
  fc.bigInt({ min: 0n, max: 5n }),
  fc.constantFrom(0n, 1n << 32n, 1n << 63n, (1n << 63n) - 1n, U64),
);
const values = fc.oneof(
  fc.bigInt({ min: -10n, max: 10n }),
  fc.bigInt({ min: I64_MIN, max: I64_MAX }),
  fc.constantFrom(I64_MIN, I64_MAX, -(1n << 32n), 0xffff_ffffn, -1n),
);

/** Streams with few timestamps around zero, so that boundaries, lateness and negative windows occur
 *  often. Event time advances by `drift` per event, so that windows fire before the end. */
export const streams = (partitions: number) =>
  fc
    .tuple(
      fc.bigInt({ min: 0n, max: 3n }),
      fc.array(
        fc.record({
          partition: fc.integer({ min: 0, max: partitions - 1 }),
          accountId: accountIds,
          value: values,
          eventTs: fc.oneof(
            { weight: 60, arbitrary: fc.bigInt({ min: -30n, max: 30n }) },
            { weight: 1, arbitrary: fc.bigInt({ min: -2000n, max: 300n }) },
            { weight: 1, arbitrary: fc.constantFrom(I64_MIN, I64_MAX, 1n << 52n, -(1n << 52n) - 1n) },
          ),
          broken: fc.oneof(
            { weight: 30, arbitrary: fc.constant(false) },
            { weight: 1, arbitrary: fc.constant(true) },
          ),
        }),
        { maxLength: 80, size: 'max' },
      ),
    )
    .map(([drift, events]): TestEvent[] =>
      events.map((event, i) =>
        event.eventTs > -5000n && event.eventTs < 5000n
          ? { ...event, eventTs: event.eventTs + BigInt(i) * drift }
          : event,
      ),
    );

/** Makes one batch of events with the given offsets. */
export function batchOf(events: readonly TestEvent[], offsets: readonly number[]): EventRows {
  const rows = Math.max(1, events.length);
  const records = RecordBatch.create(rows, 64);
  const decoded = EventBatch.create(rows);
  events.forEach((event, row) => {
    records.columns.partition[row] = event.partition;
    records.columns.offset[row] = BigInt(offsets[row] as number);
    const c = decoded.columns;
    c.status[row] = event.broken === true ? (event.fault ?? EVENT_STATUS.BAD_LENGTH) : EVENT_STATUS.OK;
    if (event.broken === true) return;
    c.accountId[row] = event.accountId;
    c.value[row] = event.value;
    c.eventTs[row] = event.eventTs;
  });
  records.rowCount = events.length;
  decoded.rowCount = events.length;
  return { records, events: decoded };
}

export function feedOracle(oracle: Oracle, events: readonly TestEvent[]): void {
  for (const event of events) {
    if (event.broken === true) oracle.value(event.partition, new Uint8Array(3));
    else oracle.event(event.partition, event.accountId, event.value, event.eventTs);
  }
}

export function rulesOf(job: Job): OracleRules {
  const shared = {
    skewMs: BigInt(job.skewMs),
    latenessMs: BigInt(job.latenessMs),
    watermark: job.watermark,
  };
  if (job.window === 'session') return { ...shared, window: 'session', gapMs: BigInt(job.gapMs) };
  if (job.window === 'tumbling') return { ...shared, sizeMs: BigInt(job.sizeMs) };
  return { ...shared, window: 'sliding', sizeMs: BigInt(job.sizeMs), slideMs: BigInt(job.slideMs) };
}

export const oracleRows = (oracle: Oracle, finalOnly = false): string[] =>
  [...oracle.rows(finalOnly)].map(rowText);

/** Draws a whole number in [0, below). */
export type Draw = (below: number) => number;

/** Pseudo-random numbers from a seed. */
export function drawFrom(seed: number): Draw {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return ((state ^ (state >>> 13)) >>> 0) % Math.max(1, below);
  };
}

/** Fields of one life of an engine: its sizes, and the place of the crash that ends it. */
export const crashFields = {
  shards: fc.integer({ min: 1, max: 4 }),
  batchRows: fc.integer({ min: 1, max: 12 }),
  batches: fc.integer({ min: 0, max: 12 }),
  diskChanges: fc.oneof(fc.constant(1_000_000), fc.integer({ min: 0, max: 30 })),
  left: fc.nat(),
  interval: fc.constantFrom(1, 20, 1000),
};

/** Waits for a life that a crash may end. @throws every error other than the crash */
export async function untilKilled(life: Promise<unknown>): Promise<void> {
  await life.catch((thrown: unknown) => {
    if (!/killed|the process is gone|the machine is off/.test(String(thrown))) throw thrown;
  });
}

/** Keeps the last row of every key, and counts how often a key was rewritten with another row. */
export class MemorySink implements WindowSink {
  readonly name = 'memory';
  readonly writeRowsMax = 1000;
  readonly rows = new Map<string, string>();
  private readonly results = new Map<string, WindowResult>();
  changed = 0;
  failures = 0;
  /** Number of microtasks that a write takes. A write in flight at a crash is lost. */
  turns = 0;
  private life = 0;
  crash(): void {
    this.life++;
  }
  async migrate(): Promise<void> {}
  async check(): Promise<void> {}
  async write(pages: readonly FiredPage[]): Promise<void> {
    if (this.failures > 0) {
      this.failures--;
      throw new Error('the sink failed');
    }
    const { life } = this;
    for (let turn = 0; turn < this.turns; turn++) await Promise.resolve();
    if (life !== this.life) throw new Error('killed');
    for (const row of pages.flatMap(rowsOfPage)) {
      const key = `${row.accountId},${row.windowStart},${row.windowEnd}`;
      const text = rowText(row);
      if (this.rows.has(key) && this.rows.get(key) !== text) this.changed++;
      this.rows.set(key, text);
      const [windowStart, windowEnd] = [Number(row.windowStart), Number(row.windowEnd)];
      this.results.set(key, { ...row, windowStart, windowEnd });
    }
  }
  async *read(): AsyncIterable<never> {}
  sorted(): string[] {
    return [...this.rows.values()].sort();
  }
  async find({ accountId, from, to, limit, after }: WindowQuery): Promise<WindowPage> {
    const rows = [...this.results.values()]
      .filter((row) => row.accountId === accountId && row.windowStart >= from && row.windowStart < to)
      .filter((row) => row.windowEnd > (after?.windowEnd ?? Number.NEGATIVE_INFINITY))
      .sort((a, b) => a.windowStart - b.windowStart)
      .slice(0, limit);
    return { rows, next: rows.length === limit ? rows.at(-1) : undefined };
  }
  async range({ from, to, limit }: RangeQuery): Promise<RangePage> {
    return { rows: this.between(from, to).slice(0, limit), next: undefined };
  }
  async top({ from, to, top, by }: TopQuery): Promise<readonly WindowResult[]> {
    const value = (row: WindowResult): number => Number(by.read(row));
    return this.between(from, to)
      .sort((a, b) => value(b) - value(a))
      .slice(0, top);
  }
  private between(from: number, to: number): WindowResult[] {
    return [...this.results.values()]
      .filter(({ windowStart }) => windowStart >= from && windowStart < to)
      .sort((a, b) => a.windowStart - b.windowStart || (a.accountId < b.accountId ? -1 : 1));
  }
}

/** Topic in memory: returns the events in the given order, `batchRows` at a time. */
export class MemorySource implements EventSource {
  readonly partitionCount: number;
  receipts: readonly Receipt[] = [];
  private readonly log: readonly (TestEvent & { readonly offset: number })[];
  private readonly batchRows: number;
  private queue: (TestEvent & { readonly offset: number })[] = [];
  /** Batches that may still be read before the process dies. */
  batchesLeft = Number.POSITIVE_INFINITY;
  private readonly highs: number[];

  constructor(events: readonly TestEvent[], partitions: number, batchRows: number) {
    this.partitionCount = partitions;
    this.batchRows = batchRows;
    this.highs = new Array<number>(partitions).fill(0);
    this.log = events.map((event) => ({ ...event, offset: this.nextOffset(event.partition) }));
  }
  private nextOffset(partition: number): number {
    const offset = this.highs[partition] as number;
    this.highs[partition] = offset + 1;
    return offset;
  }
  async bounds(): Promise<readonly { readonly low: number; readonly high: number }[]> {
    return this.highs.map((high) => ({ low: 0, high }));
  }
  async start(offsets: readonly number[]): Promise<void> {
    this.queue = this.log.filter((event) => event.offset >= (offsets[event.partition] as number));
  }
  async next(): Promise<EventRows | undefined> {
    if (this.batchesLeft-- <= 0) throw new Error('killed');
    const rows = this.queue.splice(0, this.batchRows);
    if (rows.length === 0) return undefined;
    return batchOf(
      rows,
      rows.map((row) => row.offset),
    );
  }
  async added(): Promise<readonly number[]> {
    return [];
  }
  endOf(): number {
    return 0;
  }
  async stop(): Promise<void> {}
}

/** Clock that advances by 1 ms at each read, so that every interval elapses. */
export function tickingClock(): Clock {
  let now = 0;
  return { wallNowMs: () => 1_000_000 + now++, monotonicMs: () => now++ };
}

/** Engine parts for state on disk, with a store in memory. */
export async function onDisk(
  kv: SimKv,
  { job, shards }: Pick<EngineSetup, 'job' | 'shards'>,
  bytesMax: number,
): Promise<Pick<EngineParts, 'spill' | 'openState' | 'sleep'>> {
  const options = { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES };
  const pieces = await PieceStore.open(
    () => kv.open(SPILL_FOLDER, options),
    pieceOrderOf(job),
    rowFormOf(job).bytes,
  );
  return {
    spill: { pieces, bytesMax },
    openState: (own, view) => stateOf(own, kernelsOf(own), shards, view),
    // Yields to the event loop, so that other work continues.
    sleep: () => new Promise((resolve) => setImmediate(resolve)),
  };
}
export const SPILL_FOLDER = 'spill';

export interface EngineSetup {
  readonly job: Job;
  readonly partitions: number;
  readonly shards: number;
  readonly disk: SimDisk;
  readonly sink: MemorySink;
  readonly source: MemorySource;
  readonly checkpointIntervalMs: number;
}

export function engineIn(setup: EngineSetup, over: Partial<EngineParts> = {}): Engine {
  const { job, partitions, shards, source, sink, disk } = setup;
  return new Engine({
    job,
    clusterId: 'test-cluster',
    source,
    sinks: [sink],
    fired: sink,
    watermarks: watermarksOf(job, KERNELS, partitions),
    openState: (own) => stateOf(own, kernelsOf(own), shards),
    disk: disk.view(),
    checkpointSizes: { segmentBytes: 4000, stepBytes: 50_000, baseFactor: 0.5, baseBytesMin: 0 },
    idleTimeoutMs: 0,
    partitionIntervalMs: 0,
    rowCapacity: 256,
    checkpointIntervalMs: setup.checkpointIntervalMs,
    stop: 'bounded',
    clock: tickingClock(),
    sleep: async () => {},
    log: silentLogger,
    metrics: engineMetrics(new Metrics()),
    ...over,
  });
}

const shared = {
  topic: fc.constant('events'),
  skewMs: fc.integer({ min: 0, max: 20 }),
  latenessMs: fc.integer({ min: 0, max: 20 }),
  watermark: fc.constant('partition' as const),
};
const length = fc.integer({ min: 1, max: 25 });

export const jobs: fc.Arbitrary<Job> = fc.oneof(
  fc.record({ ...shared, window: fc.constant('tumbling' as const), sizeMs: length }),
  fc
    .record({ ...shared, window: fc.constant('sliding' as const), sizeMs: length, slideMs: length })
    .map((job) => ({ ...job, slideMs: 1 + (job.slideMs % job.sizeMs) })),
  fc.record({ ...shared, window: fc.constant('session' as const), gapMs: length }),
);
