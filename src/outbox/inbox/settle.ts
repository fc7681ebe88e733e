/** Brings a batch of records into the database: one transaction, whatever fails.
 *
 *  Invariants: (1) a record has its effect, is skipped or is parked in a transaction that committed before `settle` returns;
 *  (2) a batch with a record that cannot be carried out is split until that record is alone, and it is parked; (3) a database
 *  that is away is waited for. A transaction whose COMMIT got no answer is simply repeated: what it did is then seen.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { SqlPool, SqlSession } from '../../io/sql/port.ts';
import type { InboxRecord, Parked, RecordPlace } from './port.ts';

/** A record that has an id, or one that is parked for the lack of it. */
export interface Work {
  readonly records: readonly InboxRecord[];
  readonly parked: readonly Parked<UnreadRecord>[];
}

export type UnreadRecord = Omit<InboxRecord, 'msgId'> & { readonly msgId: string | null };

export interface Settled {
  readonly done: number;
  readonly seen: number;
  readonly parked: readonly Parked<UnreadRecord>[];
}

export interface SettlerOptions {
  readonly pool: SqlPool;
  /** Claims, effects and parked records of a batch in this transaction. */
  readonly apply: (session: SqlSession, work: Work) => Promise<Settled>;
  readonly log: Logger;
  /** How often a record that fails alone is tried before it is parked. */
  readonly attempts: number;
  /** Waits between two attempts, staying a member of the group. */
  readonly idle: (ms: number) => Promise<void>;
  readonly givenUp: () => boolean;
  readonly isOurs: (place: RecordPlace) => boolean;
  readonly onWait: (waiting: boolean) => Promise<void>;
  readonly onCommitted: (settled: Settled, seconds: number) => void;
  readonly monotonicMs: () => number;
}

const RETRY_MS = 50;
const RETRY_MS_MAX = 2000;
const DETAIL_CHARS_MAX = 1000;
/** Attempts against others' locks before the member pauses its partitions; each may have waited for the lock timeout. */
const CONTENTION_SOON = 5;
/** Deadlock, serialization failure, lock timeout, a partition attached in between: the same again, soon. */
const CONTENTION = new Set(['40P01', '40001', '55P03']);
/** What a record's own content can cause: bad data, a constraint, a trigger's refusal, a program limit; and 25P02, an effect
 *  that went on after a statement of it had failed. */
const OF_THE_RECORD = /^(?:22|23|44|54|P0|25P02$)/;
/** A statement that does not fit the tables, or may not: no attempt can cure it. */
const OF_THE_SCHEMA = /^(?:42|0A|28|3D|3F)/;

type Fault = 'away' | 'contention' | 'record' | 'poison' | 'fatal';

/** What the database says without blaming the record is waited for: a record is parked only for its own fault. What an
 *  effect throws by itself is its record's. */
function faultOf(thrown: unknown): Fault {
  const error = findMillraceError(thrown);
  if (error === undefined) return 'record';
  if (error.code === 'poison_record') return 'poison';
  if (error.code === 'commit_unknown' || error.kind === 'unavailable') return 'away';
  if (error.code !== 'sql_failed') return error.kind === 'internal' ? 'fatal' : 'record';
  const sqlstate = error.details['sqlstate'];
  // The driver refused what an effect handed it: the server never saw it.
  if (typeof sqlstate !== 'string') return 'record';
  if (CONTENTION.has(sqlstate)) return 'contention';
  if (OF_THE_RECORD.test(sqlstate)) return 'record';
  return OF_THE_SCHEMA.test(sqlstate) ? 'fatal' : 'away';
}

export class Settler {
  private readonly options: SettlerOptions;
  private waits = false;

  constructor(options: SettlerOptions) {
    this.options = options;
  }

  /** false: given up before everything was committed. @throws what no attempt can cure */
  async settle(work: Work): Promise<boolean> {
    const single = work.records.length + work.parked.length <= 1;
    const failure = await this.attempt(work, single ? this.options.attempts : 1);
    if (failure === 'given_up') return false;
    if (failure === undefined) return true;
    if (!single) {
      for (const half of halvesOf(work)) if (!(await this.settle(half))) return false;
      return true;
    }
    const [record] = work.records;
    // A record that even the table of parked records refuses leaves nothing to do but to stop before it.
    if (record === undefined) throw failure.thrown;
    return this.settle({ records: [], parked: [this.refused(record, failure.thrown)] });
  }

  private refused(record: InboxRecord, thrown: unknown): Parked<UnreadRecord> {
    const { sqlstate, constraint } = findMillraceError(thrown)?.details ?? {};
    const told = thrown instanceof Error ? thrown.message : String(thrown);
    const why = [sqlstate, constraint, told].filter((part) => part !== undefined).join(' ');
    const { topic, partition, offset } = record;
    this.options.log.warn(
      { topic, partition, offset: offset.toString(), error: why },
      'a record has no effect; it is parked',
    );
    return {
      delivery: record,
      reason: 'refused',
      detail: why.slice(0, DETAIL_CHARS_MAX).replaceAll('\u0000', ' '),
    };
  }

  /** Commits the work, waiting for the database as long as it takes. Returns what a record of it failed with. */
  private async attempt(
    work: Work,
    attempts: number,
  ): Promise<{ readonly thrown: unknown } | 'given_up' | undefined> {
    const { options } = this;
    let ownFailures = 0;
    for (let failures = 0; ; failures++) {
      const records = work.records.filter(options.isOurs);
      const parked = work.parked.filter((one) => options.isOurs(one.delivery));
      if (records.length + parked.length === 0) {
        // What it waited with is gone; the partitions that stayed are read again, and the next batch asks the database.
        await this.endWait();
        return undefined;
      }
      const startMs = options.monotonicMs();
      try {
        const settled = await options.pool.transaction((session) =>
          options.apply(session, { records, parked }),
        );
        await this.endWait();
        options.onCommitted(settled, (options.monotonicMs() - startMs) / 1000);
        return undefined;
      } catch (thrown) {
        const fault = faultOf(thrown);
        if (fault === 'fatal') throw thrown;
        if (fault === 'record' || fault === 'poison') {
          await this.endWait();
          if (fault === 'poison' || ++ownFailures >= attempts) return { thrown };
        }
        // Somebody who holds rows for long: the group must not take this member for dead meanwhile.
        if (fault === 'away' || (fault === 'contention' && failures >= CONTENTION_SOON))
          await this.startWait(thrown);
        if (options.givenUp()) return 'given_up';
        await options.idle(Math.min(RETRY_MS_MAX, RETRY_MS * 2 ** Math.min(failures, 10)));
      }
    }
  }

  private async startWait(thrown: unknown): Promise<void> {
    if (this.waits) return;
    this.waits = true;
    const error = findMillraceError(thrown);
    this.options.log.warn(
      { code: error?.code, error: error?.message },
      'the database does not take the batch; paused until it does',
    );
    await this.options.onWait(true);
  }

  private async endWait(): Promise<void> {
    if (!this.waits) return;
    this.waits = false;
    this.options.log.info({}, 'the wait for the database is over');
    await this.options.onWait(false);
  }
}

/** Two parts that keep the order; the parked ones go with the first, or are a part of their own. */
function halvesOf({ records, parked }: Work): readonly [Work, Work] {
  if (records.length > 1) {
    const middle = records.length >> 1;
    return [
      { records: records.slice(0, middle), parked },
      { records: records.slice(middle), parked: [] },
    ];
  }
  if (records.length === 1) {
    return [
      { records, parked: [] },
      { records: [], parked },
    ];
  }
  const middle = parked.length >> 1;
  return [
    { records: [], parked: parked.slice(0, middle) },
    { records: [], parked: parked.slice(middle) },
  ];
}
