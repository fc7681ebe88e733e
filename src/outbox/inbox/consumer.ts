/** A member of a consumer group whose every message has its effect once: wraps a handler per record in an inbox.
 *
 *  Invariants: (1) a batch is one transaction of inbox rows, effects and parked records; (2) an offset is committed after the
 *  database committed every record before it, so a crash repeats records and loses none; (3) partitions that leave in
 *  mid-batch take only finished offsets with them; (4) while the database is away the member stays in the group with its
 *  partitions paused, and reads on where it stopped.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../../core/clock.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type {
  BatchConsumer,
  BrokerEvent,
  ConsumerOptions,
  Rebalance,
  TopicPartition,
  TopicPartitionOffset,
} from '../../io/broker/port.ts';
import type { SqlPool, SqlSession } from '../../io/sql/port.ts';
import { canonicalUuid } from '../ids.ts';
import { plainTableName } from './names.ts';
import { insertParked } from './parked.ts';
import type { InboxPort, InboxRecord, Parked, RecordPlace } from './port.ts';
import { type Settled, Settler, type UnreadRecord, type Work } from './settle.ts';

export interface InboxConsumerOptions {
  /** Makes the broker client of a group with this rebalance handler; closed when the run ends. */
  readonly connect: (hooks: Required<Pick<ConsumerOptions, 'onRebalance'>>) => Promise<BatchConsumer>;
  readonly topics: readonly string[];
  /** The service's own database; the inbox, the parked table and the effects live in it. */
  readonly pool: SqlPool;
  readonly inbox: InboxPort;
  /** Made with parkedTableSql. */
  readonly parkedTable: string;
  /** The effect of one record, through this session alone; records come in the order of their partition. What it throws rolls
   *  the batch back: a record that fails `attempts` times by itself is parked, with poison_record at once; what is
   *  `unavailable` is waited for. */
  readonly handle: (session: SqlSession, record: InboxRecord) => Promise<void>;
  /** A record's id; undefined: it has none and is parked. Default: the header ce_id. */
  readonly messageId?: (record: Omit<InboxRecord, 'msgId'>) => string | undefined;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly clock: Clock;
  /** Ends the run: what is under way is finished, offsets are committed. */
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
  /** How long a batch waits for its first record. */
  readonly batchWaitMs: number;
  readonly attempts: number;
}

/** While the group is between two assignments a commit is answered only after this member reads again, so it is not waited for. */
const OFFSET_COMMIT_WAIT_MS = 1000;
const OFFSET_COMMIT_EVERY_MS = 500;
/** How long a rebalance waits for the batch under way. */
const REBALANCE_WAIT_MS = 10_000;
/** Where a batch that is too small for one record stops to grow. */
const BATCH_BYTES_MAX = 1024 * 1024 * 1024;
const OVERSIZE = 'MILLRACE_OVERSIZE';

const placeKey = (at: TopicPartition): string => `${at.topic}/${at.partition}`;
const utf8 = new TextDecoder();

function idOfHeader(record: Omit<InboxRecord, 'msgId'>): string | undefined {
  const [, value] = record.headers.find(([name]) => name === 'ce_id') ?? [];
  return value === undefined || value === null || value.length > 64 ? undefined : utf8.decode(value);
}

export class InboxConsumer {
  private readonly options: InboxConsumerOptions;
  private readonly settler: Settler;
  private readonly messageId: (record: Omit<InboxRecord, 'msgId'>) => string | undefined;
  private readonly counters;
  private records: RecordBatch;
  private spare: RecordBatch | undefined;
  private consumer: BatchConsumer | undefined;
  private isCommitting = false;
  /** Next offset to commit; behind it everything is in the database. */
  private readonly positions = new Map<string, TopicPartitionOffset>();
  private readonly offsetsCommitted = new Map<string, bigint>();
  /** Next offset to take: ahead of `positions` by the batch under way. */
  private readonly received = new Map<string, bigint>();
  private readonly paused = new Set<string>();
  /** Partitions that left while the batch under way was not finished. */
  private readonly left = new Set<string>();
  private processing: Promise<unknown> = Promise.resolve();
  private waiting = false;
  private lastOffsetCommitMs = 0;

  /** @throws bad_table_name */
  constructor(options: InboxConsumerOptions) {
    this.options = options;
    plainTableName(options.parkedTable, 'a plain name of a table of parked records');
    this.messageId = options.messageId ?? idOfHeader;
    this.records = RecordBatch.create(options.batchRows, options.batchBytes);
    const { metrics } = options;
    this.counters = {
      done: metrics.counter('inbox_effects_total', 'Messages whose effect was committed.'),
      seen: metrics.counter('inbox_duplicates_total', 'Deliveries of messages that had their effect.'),
      parked: metrics.counter('inbox_parked_total', 'Records set aside without an effect.', ['reason']),
      batchSeconds: metrics.histogram(
        'inbox_batch_seconds',
        'Time of one batch transaction, commit included.',
      ),
      waiting: metrics.gauge('inbox_database_waiting', '1 while the consumer waits for its database.'),
    };
    this.settler = new Settler({
      pool: options.pool,
      apply: (session, work) => this.apply(session, work),
      log: options.log,
      attempts: options.attempts,
      idle: (ms) => this.idle(ms),
      givenUp: () => options.drain.aborted,
      isOurs: (place) => !this.left.has(placeKey(place)),
      onWait: (waiting) => this.wait(waiting),
      onCommitted: (settled, seconds) => this.count(settled, seconds),
      monotonicMs: () => options.clock.monotonicMs(),
    });
  }

  /** The database answered the last time it was asked. */
  isHealthy(): boolean {
    return !this.waiting;
  }

  /** Reads until the drain. @throws what no attempt can cure: a fatal client error, a statement that does not fit the tables */
  async run(): Promise<void> {
    const { options } = this;
    const consumer = await options.connect({ onRebalance: (rebalance) => this.onRebalance(rebalance) });
    this.consumer = consumer;
    this.lastOffsetCommitMs = options.clock.monotonicMs();
    try {
      await consumer.subscribe(options.topics);
      while (!options.drain.aborted) {
        const { rowCount, events } = await consumer.consume(this.records, options.batchWaitMs);
        for (const event of events) this.note(event);
        if (rowCount > 0) {
          this.processing = this.process(consumer, this.records);
          if (!(await this.processing)) break;
        }
        if (options.clock.monotonicMs() - this.lastOffsetCommitMs >= OFFSET_COMMIT_EVERY_MS)
          await this.commitOffsets();
      }
      await this.commitOffsets();
    } finally {
      await consumer.close();
    }
  }

  /** Claims, effects and parked records of a batch. */
  private async apply(session: SqlSession, { records, parked }: Work): Promise<Settled> {
    const { inbox, handle, parkedTable } = this.options;
    const claim = await inbox.claim(
      session,
      records.map((record) => record.msgId),
    );
    const aside: Parked<UnreadRecord>[] = [...parked];
    const open = new Set(claim.unseen);
    let done = 0;
    let seen = 0;
    for (const record of records) {
      if (claim.undecidable.has(record.msgId)) {
        aside.push({
          delivery: record,
          reason: 'undecidable',
          detail:
            'the id is older than what the inbox remembers, so nobody can say whether it had its effect',
        });
      } else if (open.delete(record.msgId)) {
        await handle(session, record);
        done++;
      } else seen++;
    }
    await insertParked(session, parkedTable, aside);
    return { done, seen, parked: aside };
  }

  private count(settled: Settled, seconds: number): void {
    const { done, seen, parked, batchSeconds } = this.counters;
    done.add(settled.done);
    seen.add(settled.seen);
    for (const { reason } of settled.parked) parked.add(1, parked.series(reason));
    batchSeconds.observe(seconds);
  }

  /** false: given up, the drain came before the database did. */
  private async process(consumer: BatchConsumer, records: RecordBatch): Promise<boolean> {
    this.left.clear();
    const work = this.workOf(consumer, records);
    if (!(await this.settler.settle(work))) return false;
    for (const { topic, partition, offset } of [
      ...work.records,
      ...work.parked.map(({ delivery }) => delivery),
    ]) {
      const key = placeKey({ topic, partition });
      const known = this.positions.get(key);
      if (!this.left.has(key) && (known === undefined || known.offset <= offset))
        this.positions.set(key, { topic, partition, offset: offset + 1n });
    }
    return true;
  }

  private workOf(consumer: BatchConsumer, batch: RecordBatch): Work {
    const { topicIndex, partition, offset, timestamp } = batch.columns;
    const records: InboxRecord[] = [];
    const parked: Parked<UnreadRecord>[] = [];
    for (let row = 0; row < batch.rowCount; row++) {
      const record = {
        topic: consumer.topics[topicIndex[row] as number] as string,
        partition: partition[row] as number,
        offset: offset[row] as bigint,
        key: batch.key(row),
        value: batch.value(row),
        timestampMs: Number(timestamp[row]),
        headers: batch.headers(row),
      };
      this.received.set(placeKey(record), record.offset + 1n);
      const msgId = this.idOf(record);
      if (msgId !== undefined) records.push({ ...record, msgId });
      else {
        parked.push({
          delivery: { ...record, msgId: null },
          reason: 'malformed_payload',
          detail: 'the record has no UUID as its message id',
        });
      }
    }
    return { records, parked };
  }

  private idOf(record: Omit<InboxRecord, 'msgId'>): string | undefined {
    try {
      return canonicalUuid(this.messageId(record) ?? '');
    } catch {
      // What reads the id of hostile bytes may fail at them; the record is parked.
      return undefined;
    }
  }

  private note(event: BrokerEvent): void {
    this.options.log.warn({ ...event }, 'broker event');
    const bytes = this.records.arenaCapacity;
    // Nothing was read into a batch that is too small even when it is empty.
    if (event.name === OVERSIZE && bytes < BATCH_BYTES_MAX)
      this.records = RecordBatch.create(this.options.batchRows, Math.min(BATCH_BYTES_MAX, bytes * 2));
  }

  private async commitOffsets(): Promise<void> {
    const { log, clock } = this.options;
    const consumer = this.consumer as BatchConsumer;
    this.lastOffsetCommitMs = clock.monotonicMs();
    const owned = new Set(consumer.assignment().map(placeKey));
    const offsets = [...this.positions].flatMap(([key, at]) =>
      owned.has(key) && this.offsetsCommitted.get(key) !== at.offset ? [at] : [],
    );
    if (offsets.length === 0 || this.isCommitting) return;
    this.isCommitting = true;
    const answered = consumer.commit(offsets).then(
      () => {
        this.isCommitting = false;
        for (const at of offsets) this.offsetsCommitted.set(placeKey(at), at.offset);
      },
      (thrown: unknown) => {
        this.isCommitting = false;
        // The effects are safe; what is not committed is read again and seen.
        log.warn({ error: (thrown as Error).message }, 'offset commit failed; it is tried again');
      },
    );
    await Promise.race([answered, sleep(OFFSET_COMMIT_WAIT_MS, undefined, { ref: false })]);
  }

  private async onRebalance({ kind, partitions }: Rebalance): Promise<void> {
    this.options.log.info({ kind, partitions: partitions.map(placeKey) }, 'rebalance');
    if (kind === 'revoked') {
      // A batch that waits for the database is not finished now; its new owner reads it again.
      if (!this.waiting)
        await Promise.race([
          this.processing.catch(() => {}),
          sleep(REBALANCE_WAIT_MS, undefined, { ref: false }),
        ]);
      await this.commitOffsets();
    }
    for (const at of partitions) {
      const key = placeKey(at);
      for (const map of [this.positions, this.offsetsCommitted, this.received]) map.delete(key);
      this.paused.delete(key);
      if (kind !== 'assigned') this.left.add(key);
    }
  }

  private async wait(waiting: boolean): Promise<void> {
    this.waiting = waiting;
    this.counters.waiting.set(waiting ? 1 : 0);
    if (waiting) return this.pause();
    const consumer = this.consumer as BatchConsumer;
    const places = consumer.assignment().filter((at) => this.paused.has(placeKey(at)));
    this.paused.clear();
    if (places.length === 0) return;
    await consumer.resume(places);
    // A pause forgets how far the client has read; what was taken is known here.
    for (const at of places)
      await consumer.seek({ ...at, offset: this.received.get(placeKey(at)) as bigint });
  }

  /** Pauses the partitions of which it is known where to go on. */
  private async pause(): Promise<void> {
    const consumer = this.consumer as BatchConsumer;
    const places = consumer
      .assignment()
      .filter((at) => this.received.has(placeKey(at)) && !this.paused.has(placeKey(at)));
    for (const at of places) this.paused.add(placeKey(at));
    if (places.length > 0) await consumer.pause(places);
  }

  /** Stays a member of the group: a client that does not read is thrown out of it. What still arrives is not taken;
   *  it is read again from its first record once the partitions are resumed. */
  private async idle(ms: number): Promise<void> {
    const { drain, batchRows, batchBytes } = this.options;
    const rest = sleep(ms, undefined, { signal: drain }).catch(() => {});
    if (!this.waiting) return rest;
    const consumer = this.consumer as BatchConsumer;
    this.spare ??= RecordBatch.create(batchRows, batchBytes);
    const { rowCount } = await consumer.consume(this.spare, ms);
    const { topicIndex, partition, offset } = this.spare.columns;
    for (let row = 0; row < rowCount; row++) {
      const place: RecordPlace = {
        topic: consumer.topics[topicIndex[row] as number] as string,
        partition: partition[row] as number,
        offset: offset[row] as bigint,
      };
      const key = placeKey(place);
      if (!this.received.has(key)) this.received.set(key, place.offset);
    }
    if (rowCount > 0) await this.pause();
    await rest;
  }
}
