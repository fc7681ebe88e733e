/** Consumer that applies the effect of each message once: runs a handler for each record behind an
 *  inbox.
 *
 *  Invariants: those of member.ts, and: (1) one transaction holds the inbox rows, effects and
 *  parked records of a batch; (2) no offset is committed at or behind a record that awaits a retry
 *  (retries.ts), so a crash loses no record.
 */
import type { Random, Timers } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { TopicPartitionOffset } from '../../io/kafka/port.ts';
import type { SqlPool, SqlSession } from '../../io/postgres/sql/port.ts';
import { canonicalUuid } from '../ids.ts';
import { traced } from '../tracing.ts';
import { BatchCommitter, faultOfEffect, type Work } from './batch-committer.ts';
import { type ClientWork, runInClient, type TransactionRunner } from './client-transaction.ts';
import { Member, type MemberOptions, placeKey, RecordIntake } from './member.ts';
import { plainTableName } from './names.ts';
import { insertParked, requireDigest } from './parked.ts';
import { type InboxPort, type InboxRecord, PARK_REASONS, type Parked, type UnreadRecord } from './port.ts';
import { Retries, type RetryQueue, type RetrySettings } from './retries.ts';

export interface InboxConsumerOptions<T = SqlSession> {
  /** Creates the broker client of a group with this rebalance handler. The consumer closes it when
   *  the run ends. */
  readonly connect: MemberOptions['connect'];
  readonly topics: readonly string[];
  /** Pool of the service's database, which contains the inbox, the parked table and the tables of
   *  the effects. */
  readonly pool: SqlPool;
  /** Runs each batch in a transaction of the service's own database client, on the same database,
   *  instead of one of `pool`. `handle` then gets the client's handle. */
  readonly transaction?: TransactionRunner<T> | undefined;
  readonly inbox: InboxPort;
  /** Table of the records that are parked (quarantined); parkedTableSql creates it. */
  readonly parkedTable: string;
  /** Applies the effect of one record, through this session alone. Records of a key come in offset
   *  order. An error rolls the batch back. A record that the database refuses `attempts` times is
   *  parked. An error of the handler's own is retried as `retry` says, then the record is parked.
   *  poison_record parks it immediately. Errors of kind `unavailable` are retried without limit. */
  readonly handle: (session: T, record: InboxRecord) => Promise<void>;
  /** Returns the id of a record; undefined parks it. Default: the header ce_id. */
  readonly messageId?: (record: Omit<InboxRecord, 'msgId'>) => string | undefined;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly clock: Timers;
  /** Ends the run: the batch in flight is finished and its offsets are committed. */
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
  /** Longest wait for the first record of a batch, ms. */
  readonly batchWaitMs: number;
  readonly attempts: number;
  readonly retry: RetrySettings;
  /** Source of the jitter of retries. */
  readonly random: Random;
}

type ParkedRecord = Parked<UnreadRecord>;

/** Counts and parked records of one transaction. */
interface BatchResult {
  readonly done: number;
  readonly seen: number;
  readonly parked: readonly ParkedRecord[];
}

/** Longest time for retries before the next read, so that the member stays in its group. */
const RETRY_TURN_MS = 1000;
/** After this time since the first failing effect of a batch, its remaining records are postponed,
 *  because the member has to poll again. */
const FAILING_BATCH_MS = 10_000;
/** Interval at which a consumer that is full checks for due retries. */
const FULL_WAIT_MS = 100;

const utf8 = new TextDecoder();

function idOfHeader(record: Omit<InboxRecord, 'msgId'>): string | undefined {
  const [, value] = record.headers.find(([name]) => name === 'ce_id') ?? [];
  return value === undefined || value === null || value.length > 64 ? undefined : utf8.decode(value);
}

/** Longest tracestate that is read, bytes. */
const TRACESTATE_BYTES_MAX = 512;
const TRACEPARENT_BYTES_MAX = 64;

/** Text of a header; undefined where it is absent or longer than `most` bytes. */
function headerText({ headers }: InboxRecord, called: string, most: number): string | undefined {
  const [, bytes] = headers.find(([name]) => name === called) ?? [];
  return bytes === undefined || bytes === null || bytes.length > most ? undefined : utf8.decode(bytes);
}

/** Runs a handler in a span of the trace that the record carries. */
function inTrace(record: InboxRecord, work: () => Promise<void>): Promise<void> {
  const parent = headerText(record, 'traceparent', TRACEPARENT_BYTES_MAX);
  // The relay derives the trace of an event without one from its message id.
  const isDerived = parent?.slice(3, 35) === record.msgId.replaceAll('-', '');
  if (parent === undefined || isDerived) return work();
  const attributes = {
    'messaging.system': 'kafka',
    'messaging.operation.name': 'process',
    'messaging.operation.type': 'process',
    'messaging.destination.name': record.topic,
    'messaging.destination.partition.id': String(record.partition),
    'messaging.kafka.offset': Number(record.offset),
    'messaging.message.id': record.msgId,
  };
  const tracestate = headerText(record, 'tracestate', TRACESTATE_BYTES_MAX);
  const cause = { traceparent: parent, tracestate };
  return traced(`process ${record.topic}`, 'consumer', attributes, cause, work);
}

/** Consumer that applies each message once: the effect of a record and its inbox row commit in one
 *  transaction. A record that cannot be applied is parked, and its partition continues.
 */
export class InboxConsumer<T = SqlSession> {
  private readonly options: InboxConsumerOptions<T>;
  private readonly committer: BatchCommitter<InboxRecord, ParkedRecord, BatchResult>;
  private readonly messageId: (record: Omit<InboxRecord, 'msgId'>) => string | undefined;
  private readonly counters;
  private readonly member: Member;
  private readonly intake: RecordIntake;
  /** Partitions that were revoked while a batch was in flight. */
  private readonly revoked = new Set<string>();
  private processing: Promise<boolean> | undefined;
  private readonly retries: Retries;
  /** Next offset behind the settled and the deferred records, by partition. */
  private readonly nextOffsets = new Map<string, TopicPartitionOffset>();
  /** Time of the first failing effect in the batch in flight. */
  private failingSinceMs: number | undefined;
  private isDatabaseAway = false;
  /** True while reading is paused because too many records await a retry. */
  private isReadPaused = false;

  /** @throws bad_table_name */
  constructor(options: InboxConsumerOptions<T>) {
    this.options = options;
    plainTableName(options.parkedTable, 'a plain name of a table of parked records');
    this.messageId = options.messageId ?? idOfHeader;
    this.intake = new RecordIntake(options.batchRows, options.batchBytes);
    this.retries = new Retries(options.retry, options.random);
    this.member = new Member({
      ...options,
      inFlight: () => this.processing,
      onMoved: (kind, partitions) => {
        for (const at of partitions) {
          if (kind !== 'assigned') this.revoked.add(placeKey(at));
          this.nextOffsets.delete(placeKey(at));
          this.retries.forget(at);
        }
      },
    });
    const { metrics } = options;
    this.counters = {
      done: metrics.counter('inbox_effects_total', 'Messages whose effect was committed.'),
      seen: metrics.counter(
        'inbox_duplicates_total',
        'Redeliveries of messages whose effect was committed before.',
      ),
      parked: metrics.counter('inbox_parked_total', 'Records parked without an effect.', ['reason']),
      batchSeconds: metrics.histogram(
        'inbox_batch_seconds',
        'Time of one batch transaction, commit included.',
      ),
      retries: metrics.counter(
        'inbox_retries_total',
        'Effects that failed outside the database and are retried.',
      ),
      waitingRecords: metrics.gauge(
        'inbox_waiting_records',
        'Records that await a retry, or wait behind one of the same key.',
      ),
      waitingKeys: metrics.gauge('inbox_waiting_keys', 'Keys with a record that awaits a retry.'),
      waiting: metrics.gauge('inbox_database_waiting', '1 while the consumer waits for its database.'),
    };
    // A counter that begins with its first record has no increase that an alert could see.
    for (const reason of PARK_REASONS) this.counters.parked.series(reason);
    this.committer = new BatchCommitter({
      commit: (work) => this.commit(work),
      faultOf: faultOfEffect,
      park: (delivery, detail) => ({ delivery, reason: 'refused', detail }),
      defer: (record, thrown) => this.defer(record, thrown),
      follows: (record) => this.follows(record),
      log: options.log,
      attempts: options.attempts,
      idle: async (ms) => void (await this.member.idle(ms)),
      shouldStop: () => options.drain.aborted,
      isOurs: (one) => !this.revoked.has(placeKey('delivery' in one ? one.delivery : one)),
      onWait: async (waiting) => {
        this.counters.waiting.set(waiting ? 1 : 0);
        this.isDatabaseAway = waiting;
        await this.member.wait(waiting || this.isReadPaused);
      },
      onCommitted: (settled, seconds) => this.count(settled, seconds),
      monotonicMs: () => options.clock.monotonicMs(),
    });
  }

  /** False while the database does not accept a batch. */
  isHealthy(): boolean {
    return !this.isDatabaseAway;
  }

  /** Returns why this consumer may not be reading. Undefined: it is a member of its group and a
   *  broker answers. */
  unhealthyReason(): Promise<string | undefined> {
    return this.member.unhealthyReason();
  }
  /** @deprecated Use `unhealthyReason`; the next version removes this name. */
  whyNotMember(): Promise<string | undefined> {
    return this.unhealthyReason();
  }

  /** Consumes until the drain.
   *  @throws tables_missing; errors that no retry cures: a fatal client error, a statement that
   *  does not fit the tables */
  async run(): Promise<void> {
    const { member } = this;
    await this.checkTables();
    try {
      await member.join();
      while (!this.options.drain.aborted) {
        await this.pauseWhileFull();
        if (!this.isReadPaused && !(await this.readOnce())) break;
        this.processing = this.retryDue();
        if (!(await this.processing)) break;
        await member.commitIfDue();
      }
      await member.commit();
    } finally {
      await member.leave();
    }
  }

  /** Reads and commits one batch. False if the drain came before the database accepted it. */
  private async readOnce(): Promise<boolean> {
    const { clock, batchWaitMs } = this.options;
    const waitMs = Math.min(batchWaitMs, this.retries.dueInMs(clock.monotonicMs()));
    const { rowCount } = await this.member.read(this.intake, waitMs);
    if (rowCount === 0) return true;
    this.processing = this.process(this.intake.records);
    return this.processing;
  }

  /** Pauses the partitions while too many records await a retry; the member stays in its group. */
  private async pauseWhileFull(): Promise<void> {
    const { member, retries, options } = this;
    if (retries.isFull !== this.isReadPaused) {
      this.isReadPaused = retries.isFull;
      const fields = { records: retries.waitingRows, keys: retries.waitingKeys };
      if (this.isReadPaused) options.log.warn(fields, 'reading paused: too many records await a retry');
      else options.log.info(fields, 'reading resumed');
      await member.wait(this.isReadPaused);
    }
    if (this.isReadPaused)
      await member.idle(Math.min(FULL_WAIT_MS, retries.dueInMs(options.clock.monotonicMs())));
  }

  /** Retries due records, for RETRY_TURN_MS at most. False if the drain came before the database
   *  accepted one. */
  private async retryDue(): Promise<boolean> {
    const { retries, options } = this;
    const endMs = options.clock.monotonicMs() + RETRY_TURN_MS;
    this.revoked.clear();
    this.failingSinceMs = undefined;
    let finished = true;
    for (const queue of retries.due(options.clock.monotonicMs()))
      if (finished) finished = await this.retryQueue(queue, endMs);
    this.advance();
    return finished;
  }

  /** Retries the records of one key, each in its own transaction, until one fails or the turn ends.
   */
  private async retryQueue(queue: RetryQueue, endMs: number): Promise<boolean> {
    const { retries, options } = this;
    for (;;) {
      const nowMs = options.clock.monotonicMs();
      const [record] = queue.records;
      if (record === undefined || nowMs >= endMs || options.drain.aborted || this.revoked.has(queue.place))
        return true;
      const { failures } = queue;
      if (!(await this.committer.settle({ records: [record], parked: [] }))) return false;
      if (queue.failures !== failures) return true;
      retries.settled(queue, options.clock.monotonicMs());
    }
  }

  /** Queues a record whose effect failed for a retry. False if its time budget is used up. */
  private defer(record: InboxRecord, thrown: unknown): boolean {
    // The partition's next owner reads the record again.
    if (this.revoked.has(placeKey(record))) return true;
    const nowMs = this.options.clock.monotonicMs();
    this.failingSinceMs ??= nowMs;
    if (!this.retries.failed(record, nowMs)) return false;
    this.counters.retries.add();
    const { topic, partition, offset } = record;
    this.options.log.info(
      {
        topic,
        partition,
        offset: offset.toString(),
        error: thrown instanceof Error ? thrown.message : String(thrown),
      },
      'effect failed; it will be retried, and later records of its key wait',
    );
    return true;
  }

  private follows(record: InboxRecord): boolean {
    if (this.revoked.has(placeKey(record))) return false;
    if (this.retries.follow(record)) return true;
    const nowMs = this.options.clock.monotonicMs();
    if (this.failingSinceMs === undefined || nowMs - this.failingSinceMs < FAILING_BATCH_MS) return false;
    this.retries.postpone(record, nowMs);
    return true;
  }

  /** Advances the offsets to commit, at most to the first record that awaits a retry. */
  private advance(): void {
    for (const [place, { topic, partition, offset }] of this.nextOffsets) {
      const lowest = this.retries.lowest(place);
      this.member.finished({ topic, partition }, lowest !== undefined && lowest < offset ? lowest : offset);
    }
    this.counters.waitingRecords.set(this.retries.waitingRows);
    this.counters.waitingKeys.set(this.retries.waitingKeys);
  }

  /** Checks the parked table. An unavailable database is no error here: the first batch waits for
   *  it.
   *  @throws tables_missing */
  private async checkTables(): Promise<void> {
    const { pool, parkedTable, log } = this.options;
    try {
      await requireDigest(pool, parkedTable);
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error?.kind !== 'unavailable' || error.code === 'tables_missing') throw thrown;
      log.warn(
        { code: error.code, error: error.message },
        'parked table not checked: the database is unavailable',
      );
    }
  }

  private commit(work: Work<InboxRecord, ParkedRecord>): Promise<BatchResult> {
    const { pool, transaction } = this.options;
    if (transaction !== undefined) return runInClient(transaction, (client) => this.apply(client, work));
    return pool.transaction((session) =>
      // Without a runner, T is the session of the pool.
      this.apply({ tx: session, own: session as T, effect: (call) => call() }, work),
    );
  }

  /** Claims the ids, applies the effects and parks records, in one transaction. */
  private async apply(
    { tx, own, effect }: ClientWork<T>,
    { records, parked }: Work<InboxRecord, ParkedRecord>,
  ): Promise<BatchResult> {
    const { inbox, handle, parkedTable } = this.options;
    const claim = await inbox.claim(
      tx,
      records.map((record) => record.msgId),
    );
    const aside: ParkedRecord[] = [...parked];
    const open = new Set(claim.unseen);
    let done = 0;
    let seen = 0;
    for (const record of records) {
      if (claim.undecidable.has(record.msgId)) {
        aside.push({
          delivery: record,
          reason: 'undecidable',
          detail: 'the id is older than the floor of the inbox, so it is unknown if it had its effect',
        });
      } else if (open.delete(record.msgId)) {
        await effect(() => inTrace(record, () => handle(own, record)));
        done++;
      } else seen++;
    }
    await insertParked(tx, parkedTable, aside);
    return { done, seen, parked: aside };
  }

  private count(settled: BatchResult, seconds: number): void {
    this.member.noteCommitted();
    const { done, seen, parked, batchSeconds } = this.counters;
    done.add(settled.done);
    seen.add(settled.seen);
    for (const { reason } of settled.parked) parked.add(1, parked.series(reason));
    batchSeconds.observe(seconds);
  }

  /** Settles one batch and advances its offsets. False if the drain came before the database
   *  accepted it. */
  private async process(batch: RecordBatch): Promise<boolean> {
    this.revoked.clear();
    this.failingSinceMs = undefined;
    const work = this.workOf(batch);
    if (!(await this.committer.settle(work))) return false;
    for (const at of [...work.records, ...work.parked.map(({ delivery }) => delivery)]) {
      const place = placeKey(at);
      const { topic, partition, offset } = at;
      if (!this.revoked.has(place) && offset >= (this.nextOffsets.get(place)?.offset ?? 0n))
        this.nextOffsets.set(place, { topic, partition, offset: offset + 1n });
    }
    this.advance();
    return true;
  }

  private workOf(batch: RecordBatch): Work<InboxRecord, ParkedRecord> {
    const { topicIndex, partition, offset, timestamp } = batch.columns;
    const { topics } = this.member.consumer;
    const records: InboxRecord[] = [];
    const parked: ParkedRecord[] = [];
    for (let row = 0; row < batch.rowCount; row++) {
      const record = {
        topic: topics[topicIndex[row] as number] as string,
        partition: partition[row] as number,
        offset: offset[row] as bigint,
        key: batch.key(row),
        value: batch.value(row),
        timestampMs: Number(timestamp[row]),
        headers: batch.headers(row),
      };
      this.member.took(record, record.offset + 1n);
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
      // messageId() may throw on malformed bytes; then the record is parked.
      return undefined;
    }
  }
}
