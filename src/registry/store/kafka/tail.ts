/** Reader of the Kafka store: follows `_schemas` and the announcements of the side topic, committed
 *  records only.
 *
 *  Invariants:
 *  1. Every committed record reaches the sink, in log order, once, whichever process wrote it. So
 *     the sink shows what the readers of other processes show, also while the writer of a record
 *     does not know its outcome yet.
 *  2. The records of an expected run reach the sink in one call.
 *  3. `applied` is an offset below which the sink misses no committed record.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { sleep, type Timers } from '../../../core/clock.ts';
import { coreError } from '../../../core/errors.ts';
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { Logger } from '../../../core/log.ts';
import type { BatchConsumer, BrokerDriver, BrokerOptions, ConsumeResult } from '../../../io/kafka/port.ts';
import { registryError } from '../../errors.ts';
import type { LogRecord } from '../log.ts';

const ROWS = 4096;
const ARENA_BYTES = 8 << 20;
/** Limit above which a record cannot be a registry's. */
const ARENA_BYTES_MAX = 256 << 20;
const WAIT_MS = 200;
const REOPEN_MS = 500;
const OVERSIZE = -10_000;

export interface TailOptions {
  readonly driver: BrokerDriver;
  readonly clock: Timers;
  readonly broker: BrokerOptions;
  readonly topic: string;
  /** Absent: announcements are not read. */
  readonly leaderTopic: string | undefined;
  readonly log: Logger;
  apply(records: readonly LogRecord[]): void;
  /** Called when the sink threw: its state stays behind the log for good. */
  failed(): void;
  announced(value: Uint8Array | null, offset: bigint, timestampMs: number): void;
}

/** Run of records that this process wrote in one transaction, and whose outcome the writer does not
 *  know yet.
 */
export interface Run {
  /** Offset of each record. Gaps and records of other processes may lie between them. */
  readonly offsets: ReadonlySet<bigint>;
  /** Greatest of the offsets. */
  readonly last: bigint;
  /** True when a record of the run was read from the log. The run is one transaction, so all of it
   *  is kept.
   */
  seen: boolean;
}

interface Waiter {
  readonly of: 'schemas' | 'leaders';
  readonly offset: bigint;
  settle(thrown?: unknown): void;
}

/** Announcements that are read at the start: a current one is among the last of its topic. */
const ANNOUNCEMENTS_READ = 1000n;

export class KafkaTail {
  private readonly options: TailOptions;
  private consumer: BatchConsumer | undefined;
  private batch = RecordBatch.create(ROWS, ARENA_BYTES);
  /** Runs whose outcome their writer does not know yet. */
  private runs: Run[] = [];
  /** Records that were read and wait for the end of a run, and the offset after them. Their offsets
   *  are not below `applied`.
   */
  private held: { readonly records: LogRecord[]; readonly next: bigint } | undefined;
  private waiters: Waiter[] = [];
  private readonly at = { schemas: 0n, leaders: 0n };
  private running: Promise<void> | undefined;
  private closing = false;
  private failure: unknown;
  /** Number of records given to the sink. */
  records = 0;

  constructor(options: TailOptions) {
    this.options = options;
  }

  /** Offset below which no committed record is missing. */
  get applied(): bigint {
    return this.at.schemas;
  }

  /** Reads all existing records, then continues in the background. @throws unreachable, and errors
   *  of the sink
   */
  async open(timeoutMs: number): Promise<void> {
    const consumer = await this.connect();
    this.consumer = consumer;
    const { leaderTopic: topic } = this.options;
    const none = { low: 0n, high: 0n };
    const leaders =
      topic === undefined ? none : await consumer.watermarkOffsets({ topic, partition: 0 }, timeoutMs);
    const from = leaders.high - ANNOUNCEMENTS_READ;
    this.at.leaders = from > leaders.low ? from : leaders.low;
    await this.assign(consumer);
    const end = await this.end('schemas', timeoutMs);
    const { clock } = this.options;
    let [progressed, moved] = [clock.monotonicMs(), -1n];
    while (this.at.schemas < end || this.at.leaders < leaders.high) {
      this.take(await consumer.consume(this.batch, WAIT_MS), consumer);
      const now = clock.monotonicMs();
      if (this.at.schemas + this.at.leaders !== moved) {
        moved = this.at.schemas + this.at.leaders;
        progressed = now;
      } else if (now - progressed > timeoutMs) {
        throw coreError('unreachable', `the broker at ${this.options.broker.brokers} sends no records`, {
          next: 'check that it runs',
        });
      }
    }
    this.running = this.run();
  }

  /** End of a topic: the offset below which every transaction has ended. @throws store_timeout */
  async end(of: 'schemas' | 'leaders', timeoutMs: number): Promise<bigint> {
    const topic = of === 'schemas' ? this.options.topic : this.options.leaderTopic;
    if (topic === undefined) return 0n;
    const consumer = this.consumer;
    if (this.closing) throw coreError('closed', 'the log is closed');
    if (consumer === undefined) throw this.late('the broker cannot be reached');
    try {
      return (await consumer.watermarkOffsets({ topic, partition: 0 }, timeoutMs)).high;
    } catch (thrown) {
      throw this.late('the broker does not report the end of the log', thrown);
    }
  }

  /** Settles when everything below `offset` was applied. @throws store_timeout */
  reach(of: 'schemas' | 'leaders', offset: bigint, timeoutMs: number): Promise<void> {
    if (this.failure !== undefined) return Promise.reject(this.failure);
    if (this.at[of] >= offset) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        of,
        offset,
        settle: (thrown) => {
          cancel();
          if (thrown === undefined) resolve();
          else reject(thrown);
        },
      };
      const cancel = this.options.clock.after(timeoutMs, () => {
        this.waiters = this.waiters.filter((one) => one !== waiter);
        reject(this.late('the log was not read to its end in time'));
      });
      this.waiters.push(waiter);
    });
  }

  /** Watches for the records that this process wrote at these offsets, ascending, until `forget`.
   *  Call it before the transaction can be committed.
   */
  expect(offsets: readonly bigint[]): Run {
    const run = { offsets: new Set(offsets), last: offsets.at(-1) ?? -1n, seen: false };
    this.runs.push(run);
    return run;
  }

  /** Outcome of a run: certainly in the log, certainly not, or open. */
  outcome(run: Run): 'kept' | 'lost' | 'open' {
    if (run.seen) return 'kept';
    return this.at.schemas > run.last ? 'lost' : 'open';
  }

  /** Ends `expect`. Records of the run that were read only in part no longer wait for the others.
   */
  forget(run: Run): void {
    this.runs = this.runs.filter((one) => one !== run);
  }

  async close(): Promise<void> {
    this.closing = true;
    for (const waiter of this.waiters.splice(0)) waiter.settle(coreError('closed', 'the log is closed'));
    await this.running;
    await this.consumer?.close();
  }

  private late(what: string, cause?: unknown) {
    return registryError('store_timeout', what, {
      next: 'check that the broker runs, then try again',
      ...(cause === undefined ? {} : { cause }),
    });
  }

  private connect(): Promise<BatchConsumer> {
    const { driver, broker } = this.options;
    return driver.consumer({
      ...broker,
      isolation: 'committed',
      partitionEof: true,
      autoOffsetReset: 'earliest',
      properties: {
        // The marker of a transaction arrives with the fetch after the one with its rows.
        'fetch.wait.max.ms': 10,
        'fetch.message.max.bytes': 2 << 20,
        'queued.max.messages.kbytes': 16_384,
        ...broker.properties,
      },
    });
  }

  private assign(consumer: BatchConsumer): Promise<void> {
    const { topic, leaderTopic } = this.options;
    return consumer.assign([
      { topic, partition: 0, offset: this.at.schemas },
      ...(leaderTopic === undefined ? [] : [{ topic: leaderTopic, partition: 0, offset: this.at.leaders }]),
    ]);
  }

  private async run(): Promise<void> {
    while (!this.closing) {
      const { consumer } = this;
      try {
        if (consumer === undefined) await this.reopen();
        else {
          this.take(await consumer.consume(this.batch, WAIT_MS), consumer);
          // Other work runs between two batches of records.
          await nextTurn();
        }
      } catch (thrown) {
        if (this.closing) return;
        if (this.failure !== undefined) {
          this.options.log.error(
            { err: thrown },
            'the log cannot be applied; this instance stops following it',
          );
          for (const waiter of this.waiters.splice(0)) waiter.settle(this.failure);
          return;
        }
        this.options.log.warn({ err: thrown }, 'the log cannot be read; reopening it');
        this.consumer = undefined;
        await consumer?.close().catch(() => {});
        await sleep(this.options.clock, REOPEN_MS);
      }
    }
  }

  private async reopen(): Promise<void> {
    const consumer = await this.connect();
    // The new consumer reads them again.
    this.held = undefined;
    await this.assign(consumer);
    this.consumer = consumer;
  }

  private take({ rowCount, ends, events }: ConsumeResult, consumer: BatchConsumer): void {
    const { columns } = this.batch;
    const records = this.held?.records ?? [];
    let next = this.held?.next ?? this.at.schemas;
    let leaders = this.at.leaders;
    for (let row = 0; row < rowCount; row++) {
      const offset = columns.offset[row] as bigint;
      if (consumer.topics[columns.topicIndex[row] as number] === this.options.leaderTopic) {
        this.options.announced(this.batch.value(row), offset, Number(columns.timestamp[row]));
        leaders = offset + 1n;
        continue;
      }
      next = offset + 1n;
      for (const run of this.runs) if (run.offsets.has(offset)) run.seen = true;
      const key = this.batch.key(row);
      // A record without a key belongs to no registry, and a compacted topic does not keep it.
      if (key === null) continue;
      records.push({
        key: key.slice(),
        value: this.batch.value(row)?.slice() ?? null,
        ts: Number(columns.timestamp[row]),
      });
    }
    for (const end of ends) {
      if (end.topic === this.options.topic) next = end.offset > next ? end.offset : next;
      else leaders = end.offset > leaders ? end.offset : leaders;
    }
    this.advance('leaders', leaders);
    // No reader may see half of a transaction, and the transaction is not readable before it is
    // complete, so the rest follows.
    if (this.runs.some(({ seen, last }) => seen && next <= last)) this.held = { records, next };
    else {
      this.held = undefined;
      this.apply(records);
      this.advance('schemas', next);
    }
    this.enlarge(events);
  }

  private apply(records: readonly LogRecord[]): void {
    if (records.length === 0) return;
    try {
      this.options.apply(records);
    } catch (thrown) {
      this.failure = thrown;
      this.options.failed();
      throw thrown;
    }
    this.records += records.length;
  }

  /** Enlarges the arena where a record did not fit. */
  private enlarge(events: ConsumeResult['events']): void {
    for (const event of events) {
      if (event.code !== OVERSIZE) continue;
      const bytes = this.batch.arenaCapacity * 4;
      if (bytes > ARENA_BYTES_MAX) {
        this.failure = registryError(
          'store_corrupt',
          `a record of ${this.options.topic} is larger than ${this.batch.arenaCapacity} bytes`,
          { next: 'find the program that writes to the topic' },
        );
        throw this.failure;
      }
      this.batch = RecordBatch.create(ROWS, bytes);
    }
  }

  private advance(of: 'schemas' | 'leaders', to: bigint): void {
    if (to <= this.at[of]) return;
    this.at[of] = to;
    if (this.waiters.length === 0) return;
    const done = this.waiters.filter((one) => one.of === of && one.offset <= to);
    if (done.length === 0) return;
    this.waiters = this.waiters.filter((one) => !done.includes(one));
    for (const waiter of done) waiter.settle();
  }
}
