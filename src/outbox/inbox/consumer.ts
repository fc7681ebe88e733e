/** A member of a consumer group whose every message has its effect once: wraps a handler per record
 *  in an inbox.
 *
 *  Invariants: those of a member (member.ts), and: (1) a batch is one transaction of inbox rows,
 *  effects and parked records; (2) no offset is committed at or behind a record that waits for
 *  another attempt (retries.ts), so a crash loses none.
 */
import type { Random, Timers } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { TopicPartitionOffset } from '../../io/kafka/port.ts';
import type { SqlPool, SqlSession } from '../../io/postgres/sql/port.ts';
import { canonicalUuid } from '../ids.ts';
import { BatchCommitter, faultOfEffect, type Work } from './batch-committer.ts';
import { Member, type MemberOptions, placeKey, RecordIntake } from './member.ts';
import { plainTableName } from './names.ts';
import { insertParked, requireDigest } from './parked.ts';
import type { InboxPort, InboxRecord, Parked, UnreadRecord } from './port.ts';
import { Retries, type RetryQueue, type RetrySettings } from './retries.ts';

export interface InboxConsumerOptions {
  /** Makes the broker client of a group with this rebalance handler; closed when the run ends. */
  readonly connect: MemberOptions['connect'];
  readonly topics: readonly string[];
  /** The service's own database; the inbox, the parked table and the effects live in it. */
  readonly pool: SqlPool;
  readonly inbox: InboxPort;
  /** Made with parkedTableSql. */
  readonly parkedTable: string;
  /** The effect of one record, through this session alone; records of a key come in their order.
   *  What it throws rolls the batch back. A record that the database refuses `attempts` times is
   *  parked; one whose effect throws an error of its own is tried again as `retry` says, and then
   *  parked; with poison_record it is parked immediately. What is `unavailable` is waited for. */
  readonly handle: (session: SqlSession, record: InboxRecord) => Promise<void>;
  /** A record's id; undefined: it has none and is parked. Default: the header ce_id. */
  readonly messageId?: (record: Omit<InboxRecord, 'msgId'>) => string | undefined;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly clock: Timers;
  /** Ends the run: what is in flight is finished, offsets are committed. */
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
  /** How long a batch waits for its first record. */
  readonly batchWaitMs: number;
  readonly attempts: number;
  readonly retry: RetrySettings;
  /** Jitter of retries. */
  readonly random: Random;
}

type Aside = Parked<UnreadRecord>;

/** What one transaction did. */
interface Settled {
  readonly done: number;
  readonly seen: number;
  readonly parked: readonly Aside[];
}

/** Time spent on waiting records before the next read, so that the member stays in its group. */
const RETRY_TURN_MS = 1000;
/** After this long since the first failure in a batch, what is left of it is postponed: the member
 *  has to read again. */
const FAILING_BATCH_MS = 10_000;
/** Interval at which a full consumer checks for records that are due. */
const FULL_WAIT_MS = 100;

const utf8 = new TextDecoder();

function idOfHeader(record: Omit<InboxRecord, 'msgId'>): string | undefined {
  const [, value] = record.headers.find(([name]) => name === 'ce_id') ?? [];
  return value === undefined || value === null || value.length > 64 ? undefined : utf8.decode(value);
}

/** Consumer that applies each message once: the effect of a record and its inbox row commit in one
 *  transaction. A record that cannot be applied is parked, and its partition continues.
 */
export class InboxConsumer {
  private readonly options: InboxConsumerOptions;
  private readonly settler: BatchCommitter<InboxRecord, Aside, Settled>;
  private readonly messageId: (record: Omit<InboxRecord, 'msgId'>) => string | undefined;
  private readonly counters;
  private readonly member: Member;
  private readonly intake: RecordIntake;
  /** Partitions that left while the batch in flight was not finished. */
  private readonly left = new Set<string>();
  private processing: Promise<boolean> | undefined;
  private readonly retries: Retries;
  /** Next offset behind what was settled or waits, by partition. */
  private readonly reached = new Map<string, TopicPartitionOffset>();
  /** Time of the first failure of an effect in the batch that is being settled. */
  private failingSinceMs: number | undefined;
  private isDatabaseAway = false;
  /** Reads nothing, because too many records wait for another attempt. */
  private isHalted = false;

  /** @throws bad_table_name */
  constructor(options: InboxConsumerOptions) {
    this.options = options;
    plainTableName(options.parkedTable, 'a plain name of a table of parked records');
    this.messageId = options.messageId ?? idOfHeader;
    this.intake = new RecordIntake(options.batchRows, options.batchBytes);
    this.retries = new Retries(options.retry, options.random);
    this.member = new Member({
      ...options,
      underWay: () => this.processing,
      onMoved: (kind, partitions) => {
        for (const at of partitions) {
          if (kind !== 'assigned') this.left.add(placeKey(at));
          this.reached.delete(placeKey(at));
          this.retries.forget(at);
        }
      },
    });
    const { metrics } = options;
    this.counters = {
      done: metrics.counter('inbox_effects_total', 'Messages whose effect was committed.'),
      seen: metrics.counter('inbox_duplicates_total', 'Deliveries of messages that had their effect.'),
      parked: metrics.counter('inbox_parked_total', 'Records set aside without an effect.', ['reason']),
      batchSeconds: metrics.histogram(
        'inbox_batch_seconds',
        'Time of one batch transaction, commit included.',
      ),
      retries: metrics.counter(
        'inbox_retries_total',
        'Effects that failed by themselves and are tried again.',
      ),
      waitingRecords: metrics.gauge(
        'inbox_waiting_records',
        'Records that wait for another attempt, or behind one of their key.',
      ),
      waitingKeys: metrics.gauge('inbox_waiting_keys', 'Keys of which a record waits for another attempt.'),
      waiting: metrics.gauge('inbox_database_waiting', '1 while the consumer waits for its database.'),
    };
    this.settler = new BatchCommitter({
      commit: (work) => options.pool.transaction((session) => this.apply(session, work)),
      faultOf: faultOfEffect,
      park: (delivery, detail) => ({ delivery, reason: 'refused', detail }),
      defer: (record, thrown) => this.defer(record, thrown),
      follows: (record) => this.follows(record),
      log: options.log,
      attempts: options.attempts,
      idle: async (ms) => void (await this.member.idle(ms)),
      givenUp: () => options.drain.aborted,
      isOurs: (one) => !this.left.has(placeKey('delivery' in one ? one.delivery : one)),
      onWait: async (waiting) => {
        this.counters.waiting.set(waiting ? 1 : 0);
        this.isDatabaseAway = waiting;
        await this.member.wait(waiting || this.isHalted);
      },
      onCommitted: (settled, seconds) => this.count(settled, seconds),
      monotonicMs: () => options.clock.monotonicMs(),
    });
  }

  /** The database answered the last time it was asked. */
  isHealthy(): boolean {
    return !this.isDatabaseAway;
  }

  /** Why it may not be reading what comes; undefined: it is a member of its group, and a broker
   *  answers. */
  unhealthyReason(): Promise<string | undefined> {
    return this.member.unhealthyReason();
  }
  /** @deprecated Use `unhealthyReason`; the next version removes this name. */
  whyNotMember(): Promise<string | undefined> {
    return this.unhealthyReason();
  }

  /** Reads until the drain. @throws tables_missing; what no attempt can cure: a fatal client error,
   *  a statement that does not fit the tables */
  async run(): Promise<void> {
    const { member } = this;
    await this.checkTables();
    try {
      await member.join();
      while (!this.options.drain.aborted) {
        await this.haltWhileFull();
        if (!this.isHalted && !(await this.readOnce())) break;
        this.processing = this.retryDue();
        if (!(await this.processing)) break;
        await member.commitIfDue();
      }
      await member.commit();
    } finally {
      await member.leave();
    }
  }

  /** false: given up, the drain came before the database did. */
  private async readOnce(): Promise<boolean> {
    const { clock, batchWaitMs } = this.options;
    const waitMs = Math.min(batchWaitMs, this.retries.dueInMs(clock.monotonicMs()));
    const { rowCount } = await this.member.read(this.intake, waitMs);
    if (rowCount === 0) return true;
    this.processing = this.process(this.intake.records);
    return this.processing;
  }

  /** Pauses the partitions while too much waits, and stays a member of the group. */
  private async haltWhileFull(): Promise<void> {
    const { member, retries, options } = this;
    if (retries.isFull !== this.isHalted) {
      this.isHalted = retries.isFull;
      const fields = { records: retries.waitingRows, keys: retries.waitingKeys };
      if (this.isHalted)
        options.log.warn(fields, 'too many records wait for another attempt; nothing more is read');
      else options.log.info(fields, 'records are read again');
      await member.wait(this.isHalted);
    }
    if (this.isHalted)
      await member.idle(Math.min(FULL_WAIT_MS, retries.dueInMs(options.clock.monotonicMs())));
  }

  /** Tries records that are due, for a turn. false: given up, the drain came before the database
   *  did. */
  private async retryDue(): Promise<boolean> {
    const { retries, options } = this;
    const endMs = options.clock.monotonicMs() + RETRY_TURN_MS;
    this.left.clear();
    this.failingSinceMs = undefined;
    let finished = true;
    for (const queue of retries.due(options.clock.monotonicMs()))
      if (finished) finished = await this.retryQueue(queue, endMs);
    this.advance();
    return finished;
  }

  /** Tries the records of one key until one fails or the turn ends, each in a transaction of its
   *  own. */
  private async retryQueue(queue: RetryQueue, endMs: number): Promise<boolean> {
    const { retries, options } = this;
    for (;;) {
      const nowMs = options.clock.monotonicMs();
      const [record] = queue.records;
      if (record === undefined || nowMs >= endMs || options.drain.aborted || this.left.has(queue.place))
        return true;
      const { failures } = queue;
      if (!(await this.settler.settle({ records: [record], parked: [] }))) return false;
      if (queue.failures !== failures) return true;
      retries.settled(queue, options.clock.monotonicMs());
    }
  }

  /** Takes a record whose effect failed, to try it again. false: its time is over. */
  private defer(record: InboxRecord, thrown: unknown): boolean {
    // Its next owner reads it again.
    if (this.left.has(placeKey(record))) return true;
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
      'an effect failed and is tried again; later records of its key wait',
    );
    return true;
  }

  private follows(record: InboxRecord): boolean {
    if (this.left.has(placeKey(record))) return false;
    if (this.retries.follow(record)) return true;
    const nowMs = this.options.clock.monotonicMs();
    if (this.failingSinceMs === undefined || nowMs - this.failingSinceMs < FAILING_BATCH_MS) return false;
    this.retries.postpone(record, nowMs);
    return true;
  }

  /** Offsets may be committed up to the first record that waits. */
  private advance(): void {
    for (const [place, { topic, partition, offset }] of this.reached) {
      const lowest = this.retries.lowest(place);
      this.member.finished({ topic, partition }, lowest !== undefined && lowest < offset ? lowest : offset);
    }
    this.counters.waitingRecords.set(this.retries.waitingRows);
    this.counters.waitingKeys.set(this.retries.waitingKeys);
  }

  /** A database that is away is waited for later, with the first batch. */
  private async checkTables(): Promise<void> {
    const { pool, parkedTable, log } = this.options;
    try {
      await requireDigest(pool, parkedTable);
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error?.kind !== 'unavailable' || error.code === 'tables_missing') throw thrown;
      log.warn({ code: error.code, error: error.message }, 'the tables could not be looked at');
    }
  }

  /** Claims, effects and parked records of a batch. */
  private async apply(session: SqlSession, { records, parked }: Work<InboxRecord, Aside>): Promise<Settled> {
    const { inbox, handle, parkedTable } = this.options;
    const claim = await inbox.claim(
      session,
      records.map((record) => record.msgId),
    );
    const aside: Aside[] = [...parked];
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
    this.member.trust();
    const { done, seen, parked, batchSeconds } = this.counters;
    done.add(settled.done);
    seen.add(settled.seen);
    for (const { reason } of settled.parked) parked.add(1, parked.series(reason));
    batchSeconds.observe(seconds);
  }

  /** false: given up, the drain came before the database did. */
  private async process(batch: RecordBatch): Promise<boolean> {
    this.left.clear();
    this.failingSinceMs = undefined;
    const work = this.workOf(batch);
    if (!(await this.settler.settle(work))) return false;
    for (const at of [...work.records, ...work.parked.map(({ delivery }) => delivery)]) {
      const place = placeKey(at);
      const { topic, partition, offset } = at;
      if (!this.left.has(place) && offset >= (this.reached.get(place)?.offset ?? 0n))
        this.reached.set(place, { topic, partition, offset: offset + 1n });
    }
    this.advance();
    return true;
  }

  private workOf(batch: RecordBatch): Work<InboxRecord, Aside> {
    const { topicIndex, partition, offset, timestamp } = batch.columns;
    const { topics } = this.member.consumer;
    const records: InboxRecord[] = [];
    const parked: Aside[] = [];
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
      // What reads the id of hostile bytes may fail at them; the record is parked.
      return undefined;
    }
  }
}
