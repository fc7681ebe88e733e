/** Commits a batch of records in one transaction, and repeats or splits it when that fails. Every
 *  consumer with an inbox uses this loop with a transaction of its own.
 *
 *  Invariants:
 *  1. When `settle` returns, each record is applied, skipped or parked by a committed transaction,
 *     or `defer` or `follows` has accepted it.
 *  2. A batch with a failing record is split until that record is alone; then it is parked or
 *     deferred.
 *  3. An unreachable database is waited for.
 */
import { findMillraceError, invariant } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { RecordPlace } from './port.ts';

/** Records to apply, and records to park because of their content. */
export interface Work<R, P> {
  readonly records: readonly R[];
  readonly parked: readonly P[];
}

export interface BatchCommitterOptions<R extends RecordPlace, P, C> {
  /** Runs the work in one transaction. Throws when the transaction did not commit or its outcome is
   *  unknown; then the same work may be repeated. */
  readonly commit: (work: Work<R, P>) => Promise<C>;
  readonly faultOf: (thrown: unknown) => Fault;
  /** Form in which a record is parked. */
  readonly park: (record: R, why: string) => P;
  readonly isOurs: (one: R | P) => boolean;
  /** Accepts a record that failed with fault `effect` for a later attempt. False, or no function:
   *  the record is parked. */
  readonly defer?: (record: R, thrown: unknown) => boolean;
  /** Accepts a record that must wait behind a deferred one of its key. */
  readonly follows?: (record: R) => boolean;
  readonly log: Logger;
  /** Attempts at a single refused record before it is parked. */
  readonly attempts: number;
  /** Waits between two attempts and keeps the membership alive; may resolve early. */
  readonly idle: (ms: number) => Promise<void>;
  /** True: stop and leave the rest uncommitted for the partition's next owner. */
  readonly givenUp: () => boolean;
  readonly onWait: (waiting: boolean) => Promise<void>;
  readonly onCommitted: (committed: C, seconds: number) => void;
  readonly monotonicMs: () => number;
}

/** Error of the record that failed. */
interface Failure {
  readonly thrown: unknown;
  readonly fault: Fault;
}

const RETRY_MS = 50;
const RETRY_MS_MAX = 2000;
const DETAIL_CHARS_MAX = 1000;
/** Attempts against locks of other sessions before the member pauses its partitions. Each attempt
 *  may wait for the lock timeout. */
const CONTENTION_SOON = 5;
/** SQLSTATEs that a repetition cures: deadlock, serialization failure, lock timeout, a partition
 *  attached meanwhile. */
const CONTENTION = new Set(['40P01', '40001', '55P03']);
/** SQLSTATE classes that the content of a record can cause: bad data, a constraint, a trigger, a
 *  program limit; and 25P02, an effect that continued after a failed statement. */
const OF_THE_RECORD = /^(?:22|23|44|54|P0|25P02$)/;
/** SQLSTATEs that no attempt cures: a statement that does not fit the tables, or lacks the right.
 */
const OF_THE_SCHEMA = /^(?:42|0A|28|3D|3F)/;

/** Kinds of failure: `away` the database is unreachable, `contention` repeat soon, `record` the
 *  database refuses a record of the batch, `effect` an effect failed outside the database, `poison`
 *  a record is declared unusable and not repeated, `fatal` no attempt cures it. */
export type Fault = 'away' | 'contention' | 'record' | 'effect' | 'poison' | 'fatal';

/** Fault of a SQLSTATE. An error that does not blame the record is waited out: a record is parked
 *  for its own fault only. */
export function faultOfState(sqlstate: string): Fault {
  if (CONTENTION.has(sqlstate)) return 'contention';
  if (OF_THE_RECORD.test(sqlstate)) return 'record';
  return OF_THE_SCHEMA.test(sqlstate) ? 'fatal' : 'away';
}

/** Fault of an error that an effect threw. Such an error may pass (a third party that answers 503),
 *  so its record is retried later. A transaction with an unanswered COMMIT is repeated: the inbox
 *  then shows whether it committed. */
export function faultOfEffect(thrown: unknown): Fault {
  const error = findMillraceError(thrown);
  if (error === undefined) return 'effect';
  if (error.code === 'poison_record') return 'poison';
  if (error.code === 'commit_unknown' || error.kind === 'unavailable') return 'away';
  if (error.code !== 'sql_failed') return error.kind === 'internal' ? 'fatal' : 'effect';
  const sqlstate = error.details['sqlstate'];
  // Without a SQLSTATE the driver refused a value of the effect; the server never saw it.
  return typeof sqlstate === 'string' ? faultOfState(sqlstate) : 'record';
}

/** Pause after this many failures. */
export const retryMs = (failures: number): number =>
  Math.min(RETRY_MS_MAX, RETRY_MS * 2 ** Math.min(failures, 10));

export class BatchCommitter<R extends RecordPlace, P, C> {
  private readonly options: BatchCommitterOptions<R, P, C>;
  private waits = false;

  constructor(options: BatchCommitterOptions<R, P, C>) {
    this.options = options;
  }

  /** Commits the batch. Returns false when it stopped before everything was committed. @throws a
   *  fault that no attempt cures */
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
      const halves = halvesOf(work);
      invariant(
        halves.every(({ records, parked }) => records.length + parked.length > 0),
        'each half of a split batch is smaller than the batch',
      );
      for (const half of halves) if (!(await this.settle(half))) return false;
      return true;
    }
    const [record] = work.records;
    // Parking itself was refused: stop before this record.
    if (record === undefined) throw failure.thrown;
    if (failure.fault === 'effect' && defer?.(record, failure.thrown) === true) return true;
    return this.settle({ records: [], parked: [this.refused(record, failure.thrown)] });
  }

  /** Keeps the member in its group with paused partitions until a commit succeeds. */
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

  /** Commits the work and waits for the database without limit. Returns the error of a failing
   *  record. */
  private async attempt(work: Work<R, P>, attempts: number): Promise<Failure | 'given_up' | undefined> {
    const { options } = this;
    let ownFailures = 0;
    for (let failures = 0; ; failures++) {
      const records = work.records.filter(options.isOurs);
      const parked = work.parked.filter(options.isOurs);
      if (records.length + parked.length === 0) {
        // The waiting batch was revoked. Partitions that stayed are read again with the next batch.
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
        // Another session holds the rows for long: keep polling, or the group evicts this member.
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

/** Halves of the work in order. Records to park go with the first half, or form a part of their
 *  own. */
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
