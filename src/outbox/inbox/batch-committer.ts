/** Brings a batch into the database: one transaction, whatever fails. Every consumer with an inbox, payments too, has this loop; what
 *  the transaction holds is its own.
 *
 *  Invariants: (1) a record has its effect, is skipped or is parked in a transaction that committed before `settle` returns, or
 *  `defer` or `follows` has taken it; (2) a batch with a record that cannot be carried out is split until that record is alone, and
 *  it is parked or deferred; (3) a database that is away is waited for.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { RecordPlace } from './port.ts';

/** Records that are to have their effect, and records that are parked for what they are. */
export interface Work<R, P> {
  readonly records: readonly R[];
  readonly parked: readonly P[];
}

export interface SettlerOptions<R extends RecordPlace, P, C> {
  /** One transaction of all of it; throws where it did not commit, or where that is not known and the same work may come again. */
  readonly commit: (work: Work<R, P>) => Promise<C>;
  readonly faultOf: (thrown: unknown) => Fault;
  /** The record as it is parked. */
  readonly park: (record: R, why: string) => P;
  readonly isOurs: (one: R | P) => boolean;
  /** Takes a record that failed with fault `effect` for a later attempt; false: it is parked. Absent: every such record is parked. */
  readonly defer?: (record: R, thrown: unknown) => boolean;
  /** Takes a record that has to wait behind a deferred one. */
  readonly follows?: (record: R) => boolean;
  readonly log: Logger;
  /** Attempts at a single record that the database refuses, before it is parked. */
  readonly attempts: number;
  /** Waits between two attempts, staying a member of the group; may resolve early. */
  readonly idle: (ms: number) => Promise<void>;
  /** True: leave what is not committed; its next owner reads it again. */
  readonly givenUp: () => boolean;
  readonly onWait: (waiting: boolean) => Promise<void>;
  readonly onCommitted: (committed: C, seconds: number) => void;
  readonly monotonicMs: () => number;
}

/** Error with which a record of the work failed. */
interface Failure {
  readonly thrown: unknown;
  readonly fault: Fault;
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

/** `away` the database is waited for, `contention` the same again soon, `record` the database refuses a record of the batch, `effect` the
 *  effect of a record failed outside of the database, `poison` a record is declared unusable and is not tried again, `fatal` no
 *  attempt can cure it. */
export type Fault = 'away' | 'contention' | 'record' | 'effect' | 'poison' | 'fatal';

/** What the database says without blaming the record is waited for: a record is parked only for its own fault. */
export function faultOfState(sqlstate: string): Fault {
  if (CONTENTION.has(sqlstate)) return 'contention';
  if (OF_THE_RECORD.test(sqlstate)) return 'record';
  return OF_THE_SCHEMA.test(sqlstate) ? 'fatal' : 'away';
}

/** An error of the effect's own may pass (a third party that answers 503), so its record is tried again later. A transaction whose
 *  COMMIT got no answer is simply repeated: what it did is then seen. */
export function faultOfEffect(thrown: unknown): Fault {
  const error = findMillraceError(thrown);
  if (error === undefined) return 'effect';
  if (error.code === 'poison_record') return 'poison';
  if (error.code === 'commit_unknown' || error.kind === 'unavailable') return 'away';
  if (error.code !== 'sql_failed') return error.kind === 'internal' ? 'fatal' : 'effect';
  const sqlstate = error.details['sqlstate'];
  // Without one, the driver refused what an effect handed it: the server never saw it.
  return typeof sqlstate === 'string' ? faultOfState(sqlstate) : 'record';
}

/** The pause behind so many failures. */
export const retryMs = (failures: number): number =>
  Math.min(RETRY_MS_MAX, RETRY_MS * 2 ** Math.min(failures, 10));

export class Settler<R extends RecordPlace, P, C> {
  private readonly options: SettlerOptions<R, P, C>;
  private waits = false;

  constructor(options: SettlerOptions<R, P, C>) {
    this.options = options;
  }

  /** false: given up before everything was committed. @throws what no attempt can cure */
  async settle(given: Work<R, P>): Promise<boolean> {
    const { defer, follows } = this.options;
    const work =
      follows === undefined
        ? given
        : { records: given.records.filter((record) => !follows(record)), parked: given.parked };
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
    if (failure.fault === 'effect' && defer?.(record, failure.thrown) === true) return true;
    return this.settle({ records: [], parked: [this.refused(record, failure.thrown)] });
  }

  /** The member stays in its group with its partitions paused, until a commit. */
  async startWait(thrown: unknown): Promise<void> {
    if (this.waits) return;
    this.waits = true;
    const error = findMillraceError(thrown);
    this.options.log.warn(
      { code: error?.code, error: error?.message },
      'the database does not take the batch; paused until it does',
    );
    await this.options.onWait(true);
  }

  private refused(record: R, thrown: unknown): P {
    const { sqlstate, constraint } = findMillraceError(thrown)?.details ?? {};
    const told = thrown instanceof Error ? thrown.message : String(thrown);
    const why = [sqlstate, constraint, told].filter((part) => part !== undefined).join(' ');
    const { topic, partition, offset } = record;
    this.options.log.warn(
      { topic, partition, offset: offset.toString(), error: why },
      'a record has no effect; it is parked',
    );
    return this.options.park(record, why.slice(0, DETAIL_CHARS_MAX).replaceAll('\u0000', ' '));
  }

  /** Commits the work, waiting for the database as long as it takes. Returns what a record of it failed with. */
  private async attempt(work: Work<R, P>, attempts: number): Promise<Failure | 'given_up' | undefined> {
    const { options } = this;
    let ownFailures = 0;
    for (let failures = 0; ; failures++) {
      const records = work.records.filter(options.isOurs);
      const parked = work.parked.filter(options.isOurs);
      if (records.length + parked.length === 0) {
        // What it waited with is gone; the partitions that stayed are read again, and the next batch asks the database.
        await this.endWait();
        return undefined;
      }
      const startMs = options.monotonicMs();
      try {
        const committed = await options.commit({ records, parked });
        await this.endWait();
        options.onCommitted(committed, (options.monotonicMs() - startMs) / 1000);
        return undefined;
      } catch (thrown) {
        const fault = options.faultOf(thrown);
        if (fault === 'fatal') throw thrown;
        if (fault === 'record' || fault === 'effect' || fault === 'poison') {
          await this.endWait();
          if (fault !== 'record' || ++ownFailures >= attempts) return { thrown, fault };
        }
        // Somebody who holds rows for long: the group must not take this member for dead meanwhile.
        if (fault === 'away' || (fault === 'contention' && failures >= CONTENTION_SOON))
          await this.startWait(thrown);
        if (options.givenUp()) return 'given_up';
        await options.idle(retryMs(failures));
      }
    }
  }

  private async endWait(): Promise<void> {
    if (!this.waits) return;
    this.waits = false;
    this.options.log.info({}, 'the wait for the database is over');
    await this.options.onWait(false);
  }
}

/** Two parts that keep the order; the parked ones go with the first, or are a part of their own. */
function halvesOf<R, P>({ records, parked }: Work<R, P>): readonly [Work<R, P>, Work<R, P>] {
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
