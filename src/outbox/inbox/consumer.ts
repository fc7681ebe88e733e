/** A member of a consumer group whose every message has its effect once: wraps a handler per record in an inbox.
 *
 *  Invariants: those of a member (member.ts), and: a batch is one transaction of inbox rows, effects and parked records.
 */
import type { Clock } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { SqlPool, SqlSession } from '../../io/sql/port.ts';
import { canonicalUuid } from '../ids.ts';
import { Member, type MemberOptions, placeKey, RecordIntake } from './member.ts';
import { plainTableName } from './names.ts';
import { insertParked, requireDigest } from './parked.ts';
import type { InboxPort, InboxRecord, Parked, UnreadRecord } from './port.ts';
import { faultOfEffect, Settler, type Work } from './settle.ts';

export interface InboxConsumerOptions {
  /** Makes the broker client of a group with this rebalance handler; closed when the run ends. */
  readonly connect: MemberOptions['connect'];
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

type Aside = Parked<UnreadRecord>;

/** What one transaction did. */
interface Settled {
  readonly done: number;
  readonly seen: number;
  readonly parked: readonly Aside[];
}

const utf8 = new TextDecoder();

function idOfHeader(record: Omit<InboxRecord, 'msgId'>): string | undefined {
  const [, value] = record.headers.find(([name]) => name === 'ce_id') ?? [];
  return value === undefined || value === null || value.length > 64 ? undefined : utf8.decode(value);
}

export class InboxConsumer {
  private readonly options: InboxConsumerOptions;
  private readonly settler: Settler<InboxRecord, Aside, Settled>;
  private readonly messageId: (record: Omit<InboxRecord, 'msgId'>) => string | undefined;
  private readonly counters;
  private readonly member: Member;
  private readonly intake: RecordIntake;
  /** Partitions that left while the batch under way was not finished. */
  private readonly left = new Set<string>();
  private processing: Promise<boolean> | undefined;

  /** @throws bad_table_name */
  constructor(options: InboxConsumerOptions) {
    this.options = options;
    plainTableName(options.parkedTable, 'a plain name of a table of parked records');
    this.messageId = options.messageId ?? idOfHeader;
    this.intake = new RecordIntake(options.batchRows, options.batchBytes);
    this.member = new Member({
      ...options,
      underWay: () => this.processing,
      onMoved: (kind, partitions) => {
        if (kind !== 'assigned') for (const at of partitions) this.left.add(placeKey(at));
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
      waiting: metrics.gauge('inbox_database_waiting', '1 while the consumer waits for its database.'),
    };
    this.settler = new Settler({
      commit: (work) => options.pool.transaction((session) => this.apply(session, work)),
      faultOf: faultOfEffect,
      park: (delivery, detail) => ({ delivery, reason: 'refused', detail }),
      log: options.log,
      attempts: options.attempts,
      idle: async (ms) => void (await this.member.idle(ms)),
      givenUp: () => options.drain.aborted,
      isOurs: (one) => !this.left.has(placeKey('delivery' in one ? one.delivery : one)),
      onWait: async (waiting) => {
        this.counters.waiting.set(waiting ? 1 : 0);
        await this.member.wait(waiting);
      },
      onCommitted: (settled, seconds) => this.count(settled, seconds),
      monotonicMs: () => options.clock.monotonicMs(),
    });
  }

  /** The database answered the last time it was asked. */
  isHealthy(): boolean {
    return !this.member.isWaiting;
  }

  /** Why it may not be reading what comes; undefined: it is a member of its group, and a broker answers. */
  whyNotMember(): Promise<string | undefined> {
    return this.member.whyNot();
  }

  /** Reads until the drain. @throws tables_missing; what no attempt can cure: a fatal client error, a statement that does not fit the tables */
  async run(): Promise<void> {
    const { member, intake } = this;
    await this.checkTables();
    try {
      await member.join();
      while (!this.options.drain.aborted) {
        const { rowCount } = await member.read(intake);
        if (rowCount > 0) {
          this.processing = this.process(intake.records);
          if (!(await this.processing)) break;
        }
        await member.commitIfDue();
      }
      await member.commit();
    } finally {
      await member.leave();
    }
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
    const work = this.workOf(batch);
    if (!(await this.settler.settle(work))) return false;
    for (const at of [...work.records, ...work.parked.map(({ delivery }) => delivery)])
      if (!this.left.has(placeKey(at))) this.member.finished(at, at.offset + 1n);
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
