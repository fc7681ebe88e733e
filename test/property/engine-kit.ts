/** Helpers of the engine's tests: batches from plain events, a folder in memory, a sink that keeps what it was given. */
import fc from 'fast-check';
import type { Oracle } from '../../bench/peers/oracle/windows.ts';
import type { Clock } from '../../src/core/clock.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { PartitionWatermarks } from '../../src/core/watermark.ts';
import { AccumulatorRows, type FiredWindow, resultOf } from '../../src/engine/accumulator.ts';
import { CheckpointStore } from '../../src/engine/checkpoint/store.ts';
import { columnsOf, type EventColumns } from '../../src/engine/columns.ts';
import { Engine, type EngineParts } from '../../src/engine/engine.ts';
import type { Job } from '../../src/engine/job.ts';
import { engineMetrics } from '../../src/engine/metrics.ts';
import type { FiredRows, WindowSink } from '../../src/engine/sink/port.ts';
import type { EventSource } from '../../src/engine/source.ts';
import { MemState } from '../../src/engine/state/mem.ts';
import type { Disk } from '../../src/io/disk/port.ts';

export interface TestEvent {
  readonly partition: number;
  readonly accountId: bigint;
  readonly value: bigint;
  readonly eventTs: bigint;
  /** Not 256 bytes. */
  readonly broken?: boolean;
}

const U64 = (1n << 64n) - 1n;
const I64_MIN = -(1n << 63n);
const I64_MAX = (1n << 63n) - 1n;

const accountIds = fc.oneof(
  fc.bigInt({ min: 0n, max: 5n }),
  fc.constantFrom(0n, 1n << 32n, 1n << 63n, (1n << 63n) - 1n, U64),
);
export const values = fc.oneof(
  fc.bigInt({ min: -10n, max: 10n }),
  fc.bigInt({ min: I64_MIN, max: I64_MAX }),
  fc.constantFrom(I64_MIN, I64_MAX, -(1n << 32n), 0xffff_ffffn, -1n),
);

/** Streams with few timestamps around zero, so that boundaries, lateness and negative windows are met all the time; time
 *  moves on by `drift` an event, so that windows fire on the way. */
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

/** A stand-in for the shard hash: results must not depend on which one it is. */
function testShard(accountId: bigint, shards: number): number {
  return Number((accountId * 0x9e37_79b9n) % BigInt(shards));
}

const shardOfKeys =
  (shards: number) =>
  (keys: BigUint64Array): Int32Array =>
    Int32Array.from(keys, (key) => testShard(key, shards));

/** One batch of the events, which have the offsets given. */
export function batchOf(
  events: readonly TestEvent[],
  offsets: readonly number[],
  shards: number,
): EventColumns {
  const rows = Math.max(1, events.length);
  const records = RecordBatch.create(rows, 64);
  const decoded = EventBatch.create(rows);
  const columns = columnsOf(records, decoded);
  events.forEach((event, row) => {
    records.columns.partition[row] = event.partition;
    records.columns.offset[row] = BigInt(offsets[row] as number);
    const c = decoded.columns;
    c.status[row] = event.broken === true ? EVENT_STATUS.BAD_LENGTH : EVENT_STATUS.OK;
    if (event.broken === true) return;
    c.accountId[row] = event.accountId;
    c.value[row] = event.value;
    c.eventTs[row] = event.eventTs;
    columns.shard[row] = testShard(event.accountId, shards);
  });
  columns.rowCount = events.length;
  return columns;
}

export function tell(oracle: Oracle, events: readonly TestEvent[]): void {
  for (const event of events) {
    if (event.broken === true) oracle.value(event.partition, new Uint8Array(3));
    else oracle.event(event.partition, event.accountId, event.value, event.eventTs);
  }
}

const rowText = (r: {
  accountId: bigint;
  windowStart: number | bigint;
  windowEnd: number | bigint;
  count: bigint;
  sum: bigint;
  min: bigint;
  max: bigint;
  lastUpdateTs: bigint;
  overflow: boolean;
}): string =>
  [r.accountId, r.windowStart, r.windowEnd, r.count, r.sum, r.min, r.max, r.lastUpdateTs, r.overflow].join(
    ',',
  );

export const oracleRows = (oracle: Oracle, finalOnly = false): string[] =>
  [...oracle.rows(finalOnly)].map(rowText);

export function firedRows(windows: readonly FiredWindow[]): string[] {
  return windows.flatMap((window) => {
    const rows = new AccumulatorRows(window.rows, window.rowCount);
    return Array.from({ length: window.rowCount }, (_, row) => rowText(resultOf(window, rows, row)));
  });
}

/** A folder in memory whose files a test may damage. */
export class MemoryDisk implements Disk {
  readonly where = 'memory';
  readonly files = new Map<string, Uint8Array<ArrayBuffer>>();
  /** Calls of write, rename and remove that may still succeed; then the machine is off. */
  callsLeft = Number.POSITIVE_INFINITY;

  private step(): void {
    if (this.callsLeft-- <= 0) throw new Error('the machine is off');
  }
  async list(): Promise<readonly string[]> {
    return [...this.files.keys()];
  }
  async read(name: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.files.get(name)?.slice();
  }
  async write(name: string, chunks: readonly Uint8Array[]): Promise<void> {
    const whole = new Uint8Array(Buffer.concat(chunks));
    if (this.callsLeft <= 0) this.files.set(`${name}.tmp`, whole.slice(0, whole.length >> 1));
    this.step();
    this.files.set(name, whole);
  }
  async rename(from: string, to: string): Promise<void> {
    this.step();
    this.files.set(to, this.files.get(from) as Uint8Array<ArrayBuffer>);
    this.files.delete(from);
  }
  async remove(name: string): Promise<void> {
    this.step();
    this.files.delete(name);
  }
  async lock(): Promise<{ readonly release: () => Promise<void>; readonly holder: string }> {
    return { release: async () => {}, holder: 'test' };
  }

  private life = 0;
  /** What one process sees: after its crash it writes nothing more. */
  view(): Disk {
    const { life } = this;
    const living = <T>(call: () => Promise<T>): Promise<T> =>
      life === this.life ? call() : Promise.reject(new Error('killed'));
    return {
      where: this.where,
      list: () => this.list(),
      read: (name) => this.read(name),
      write: (name, chunks) => living(() => this.write(name, chunks)),
      rename: (from, to) => living(() => this.rename(from, to)),
      remove: (name) => living(() => this.remove(name)),
      lock: () => this.lock(),
    };
  }
  crash(): void {
    this.life++;
  }
}

/** Keeps the last value of every key, and how often a key was written with other values than before. */
export class MemorySink implements WindowSink {
  readonly name = 'memory';
  readonly rows = new Map<string, string>();
  changed = 0;
  failures = 0;
  /** Turns of the queue a write takes; one under way at a crash is lost. */
  turns = 0;
  private life = 0;
  crash(): void {
    this.life++;
  }
  async migrate(): Promise<void> {}
  async check(): Promise<void> {}
  async write(pieces: readonly FiredRows[]): Promise<void> {
    if (this.failures > 0) {
      this.failures--;
      throw new Error('the sink failed');
    }
    const { life } = this;
    for (let turn = 0; turn < this.turns; turn++) await Promise.resolve();
    if (life !== this.life) throw new Error('killed');
    for (const { window, from, to } of pieces) {
      const rows = new AccumulatorRows(window.rows, window.rowCount);
      for (let row = from; row < to; row++) {
        const key = `${rows.accountId(row)},${window.windowStart},${window.windowEnd}`;
        const text = rowText(resultOf(window, rows, row));
        if (this.rows.has(key) && this.rows.get(key) !== text) this.changed++;
        this.rows.set(key, text);
      }
    }
  }
  async *read(): AsyncIterable<never> {}
  sorted(): string[] {
    return [...this.rows.values()].sort();
  }
}

/** A topic in memory: events by partition, handed out in the order given, `batchRows` at a time. */
export class MemorySource implements EventSource {
  readonly partitionCount: number;
  receivedAtMs = 0;
  private readonly log: readonly (TestEvent & { readonly offset: number })[];
  private readonly shards: number;
  private readonly batchRows: number;
  private queue: (TestEvent & { readonly offset: number })[] = [];
  /** Batches that may still be read; then the process is gone. */
  batchesLeft = Number.POSITIVE_INFINITY;
  private readonly highs: number[];

  constructor(events: readonly TestEvent[], partitions: number, shards: number, batchRows: number) {
    this.partitionCount = partitions;
    this.shards = shards;
    this.batchRows = batchRows;
    this.highs = new Array<number>(partitions).fill(0);
    this.log = events.map((event) => ({ ...event, offset: this.takeOffset(event.partition) }));
  }
  private takeOffset(partition: number): number {
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
  async next(): Promise<EventColumns | undefined> {
    if (this.batchesLeft-- <= 0) throw new Error('killed');
    const rows = this.queue.splice(0, this.batchRows);
    if (rows.length === 0) return undefined;
    return batchOf(
      rows,
      rows.map((row) => row.offset),
      this.shards,
    );
  }
  endOf(): number {
    return 0;
  }
  async stop(): Promise<void> {}
}

/** Time moves by one ms a look, so that every interval passes. */
export function tickingClock(): Clock {
  let now = 0;
  return { wallNowMs: () => 1_000_000 + now++, monotonicMs: () => now++ };
}

export interface World {
  readonly job: Job;
  readonly partitions: number;
  readonly shards: number;
  readonly disk: MemoryDisk;
  readonly sink: MemorySink;
  readonly source: MemorySource;
  readonly checkpointIntervalMs: number;
}

export function engineIn(world: World, over: Partial<EngineParts> = {}): Engine {
  const { job, partitions, shards, source, sink, disk } = world;
  return new Engine({
    job,
    clusterId: 'test-cluster',
    source,
    sink,
    watermarks: new PartitionWatermarks(partitions, job.skewMs, job.latenessMs),
    state: new MemState(shards, job.sizeMs),
    shardOf: shardOfKeys(shards),
    checkpoints: new CheckpointStore(disk.view(), silentLogger),
    retain: { retainMs: 3_600_000, bytesMax: 1 << 26 },
    rowCapacity: 256,
    checkpointIntervalMs: world.checkpointIntervalMs,
    stop: 'bounded',
    clock: tickingClock(),
    sleep: async () => {},
    log: silentLogger,
    metrics: engineMetrics(new Metrics()),
    ...over,
  });
}

export const jobs = fc.record({
  topic: fc.constant('events'),
  window: fc.constant('tumbling' as const),
  sizeMs: fc.integer({ min: 1, max: 25 }),
  skewMs: fc.integer({ min: 0, max: 20 }),
  latenessMs: fc.integer({ min: 0, max: 20 }),
  watermark: fc.constant('partition' as const),
});
