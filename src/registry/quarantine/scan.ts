/** Reads a topic from its first record to its end at the start, by assignment and without commits.
 *
 *  Invariants: (1) each committed record in the range is passed once, unless retention deletes it
 *  before it is read; (2) deleted records are counted. */
import type { Timers } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { BatchConsumer, BrokerDriver, BrokerOptions, ConsumeResult } from '../../io/kafka/port.ts';

const WAIT_MS = 250;
const OFFSETS_MS = 10_000;
/** Longest silence of the broker before the end of the range. */
const STALL_MS = 60_000;
const OVERSIZE = -10_000;

export interface ScanOptions {
  readonly driver: BrokerDriver;
  readonly broker: BrokerOptions;
  readonly clock: Timers;
  readonly log: Logger;
  readonly batchRows: number;
  readonly batchBytes: number;
}

interface Range {
  readonly low: bigint;
  /** Offset behind the last record of the range. */
  readonly end: bigint;
  next: bigint;
}

export class Scan {
  /** Number of offsets in the range. */
  readonly total: number;
  private readonly options: ScanOptions;
  private readonly topic: string;
  private readonly consumer: BatchConsumer;
  private readonly ranges: ReadonlyMap<number, Range>;
  private deletedCount = 0;

  private constructor(
    options: ScanOptions,
    topic: string,
    consumer: BatchConsumer,
    ranges: ReadonlyMap<number, Range>,
  ) {
    this.options = options;
    this.topic = topic;
    this.consumer = consumer;
    this.ranges = ranges;
    this.total = [...ranges.values()].reduce((sum, { low, end }) => sum + Number(end - low), 0);
  }

  /** Finds the range of each partition.
   *  @param from first offset of each partition; default: its first record
   *  @param to `stable`: the end of committed records; `written`: the end with open transactions,
   *    which are waited for
   *  @throws timeout, broker_unavailable */
  static async open(
    options: ScanOptions,
    topic: string,
    partitions: readonly number[],
    { from = new Map<number, bigint>(), to = 'stable' as 'stable' | 'written' } = {},
  ): Promise<Scan> {
    const { driver, broker } = options;
    const consumer = await driver.consumer({ ...broker, partitionEof: true, autoOffsetReset: 'earliest' });
    try {
      const written =
        to === 'written' ? await driver.consumer({ ...broker, isolation: 'uncommitted' }) : undefined;
      try {
        const ranges = new Map<number, Range>();
        for (const partition of partitions) {
          const { low, high } = await (written ?? consumer).watermarkOffsets(
            { topic, partition },
            OFFSETS_MS,
          );
          const first = from.get(partition) ?? low;
          const start = first > low ? first : low;
          ranges.set(partition, { low: start, end: high, next: start });
        }
        return new Scan(options, topic, consumer, ranges);
      } finally {
        await written?.close();
      }
    } catch (thrown) {
      await consumer.close();
      throw thrown;
    }
  }

  /** Records that retention deleted before they were read. */
  get deleted(): number {
    return this.deletedCount;
  }

  /** Next offset of each partition. */
  get positions(): ReadonlyMap<number, bigint> {
    return new Map([...this.ranges].map(([partition, { next }]) => [partition, next]));
  }

  /** Passes batches until the end of the range.
   *  @param each handles a batch, whose rows before the range's end are wanted; false ends the scan
   *  @throws timeout, bad_value for a record that is larger than a batch, and errors of `each` */
  async run(
    each: (records: RecordBatch, isInRange: (row: number) => boolean) => Promise<boolean>,
  ): Promise<void> {
    const { options, consumer } = this;
    const { clock, log } = options;
    const open = [...this.ranges].filter(([, { next, end }]) => next < end);
    if (open.length === 0) return;
    await consumer.assign(
      open.map(([partition, { next }]) => ({ topic: this.topic, partition, offset: next })),
    );
    const records = RecordBatch.create(options.batchRows, options.batchBytes);
    let progressMs = clock.monotonicMs();
    while (!this.isDone) {
      const result = await consumer.consume(records, WAIT_MS);
      const before = this.left;
      for (const event of result.events) log.warn({ ...event }, 'broker event');
      await this.advance(records, result);
      if (result.rowCount > 0) {
        const { partition, offset } = records.columns;
        const isInRange = (row: number): boolean =>
          (offset[row] as bigint) < (this.ranges.get(partition[row] as number)?.end ?? 0n);
        if (!(await each(records, isInRange))) return;
      }
      if (this.left !== before) progressMs = clock.monotonicMs();
      else if (result.rowCount === 0) this.checkProgress(result, progressMs);
    }
  }

  close(): Promise<void> {
    return this.consumer.close();
  }

  private get isDone(): boolean {
    return [...this.ranges.values()].every(({ next, end }) => next >= end);
  }

  private get left(): bigint {
    return [...this.ranges.values()].reduce((sum, { next, end }) => sum + (next < end ? end - next : 0n), 0n);
  }

  /** Moves the positions behind the records and the ends, and counts the records that were deleted
   *  before them. Compaction and transactions leave gaps too, so a gap counts only below the first
   *  offset that the partition still has. */
  private async advance(records: RecordBatch, { ends }: ConsumeResult): Promise<void> {
    const gaps = new Map<number, Array<readonly [from: bigint, to: bigint]>>();
    const pass = (partition: number, at: bigint, next: bigint): void => {
      const range = this.ranges.get(partition);
      if (range === undefined || next <= range.next) return;
      const to = at < range.end ? at : range.end;
      if (to > range.next) {
        const known = gaps.get(partition) ?? [];
        known.push([range.next, to]);
        gaps.set(partition, known);
      }
      range.next = next;
    };
    const { partition, offset } = records.columns;
    for (let row = 0; row < records.rowCount; row++)
      pass(partition[row] as number, offset[row] as bigint, (offset[row] as bigint) + 1n);
    for (const end of ends) pass(end.partition, end.offset, end.offset);
    for (const [of, found] of gaps) {
      const { low } = await this.consumer.watermarkOffsets({ topic: this.topic, partition: of }, OFFSETS_MS);
      for (const [from, to] of found) {
        const end = low < to ? low : to;
        if (end > from) this.deletedCount += Number(end - from);
      }
    }
  }

  private checkProgress({ events }: ConsumeResult, progressMs: number): void {
    const large = events.find(({ code }) => code === OVERSIZE);
    if (large !== undefined)
      throw coreError('bad_value', `topic ${this.topic}: ${large.message}`, {
        next: 'raise -batch-bytes',
      });
    if (this.options.clock.monotonicMs() - progressMs < STALL_MS) return;
    throw coreError(
      'timeout',
      `topic ${this.topic} cannot be read to its end: no record for ${STALL_MS / 1000} s`,
      {
        next: 'check that the broker runs, and that no program left a transaction open in this topic; then run the command again',
      },
    );
  }
}
