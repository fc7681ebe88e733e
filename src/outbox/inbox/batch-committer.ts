/** Commits a batch of records in one transaction; on failure, retries it or bisects it. Every
 *  consumer with an inbox uses this loop with its own transaction.
 *
 *  Invariants:
 *  1. When `settle` returns true, a committed transaction applied, skipped or parked each record,
 *  or `defer` or `follows` accepted it.
 *  2. A batch with a failing record is split until that record is alone; then it is parked or
 *  deferred.
 *  3. If the database is unreachable, the loop retries without limit.
 */
import { findMillraceError, invariant } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { RecordPlace } from './port.ts';

/** Records to apply, and records to park because their content is unusable. */
export interface Work<R, P> {
  readonly records: readonly R[];
  readonly parked: readonly P[];
}

export interface BatchCommitterOptions<R extends RecordPlace, P, C> {
  /** Runs the work in one transaction. Throws when the transaction did not commit or its outcome is
   *  unknown; then the same work may be repeated. */
  readonly commit: (work: Work<R, P>) => Promise<C>;
  readonly faultOf: (thrown: unknown) => Fault;
  /** Builds the parked form of a record. */
  readonly park: (record: R, why: string) => P;
  /** True if this member still owns the record's partition. */
  readonly isOurs: (record: R | P) => boolean;
  /** Accepts a record that failed with fault `effect` for a later attempt. False, or no function:
   *  the record is parked. */
  readonly defer?: (record: R, thrown: unknown) => boolean;
  /** Queues a record behind a deferred one of its key. False: no record of its key is deferred. */
  readonly follows?: (record: R) => boolean;
  readonly log: Logger;
  /** Attempts at a single refused record before it is parked. */
  readonly attempts: number;
  /** Waits between two attempts and keeps the membership alive; may resolve early. */
  readonly idle: (ms: number) => Promise<void>;
  /** True if the loop must stop and leave the rest uncommitted for the partition's next owner. */
  readonly shouldStop: () => boolean;
  readonly onWait: (waiting: boolean) => Promise<void>;
  readonly onCommitted: (committed: C, seconds: number) => void;
  readonly monotonicMs: () => number;
}

/** Error of a failing record. */
interface Failure {
  readonly thrown: unknown;
  readonly fault: Fault;
}

const RETRY_MS = 50;
const RETRY_MS_MAX = 2000;
const DETAIL_CHARS_MAX = 1000;
/** Attempts at a lock conflict before the member pauses its partitions. Each attempt may last as
 *  long as the lock timeout. */
const CONTENTION_ATTEMPTS = 5;
/** SQLSTATEs that a retry can cure: deadlock, serialization failure, lock timeout, a partition
 *  attached meanwhile. */
const CONTENTION_STATES = new Set(['40P01', '40001', '55P03']);
/** SQLSTATE classes that the content of a record can cause: bad data, a constraint, a trigger, a
 *  program limit. Also 25P02: the effect continued after a failed statement. */
const RECORD_STATES = /^(?:22|23|44|54|P0|25P02$)/;
/** SQLSTATE classes that no retry cures: a statement that does not fit the tables or lacks a
 *  privilege. */
const SCHEMA_STATES = /^(?:42|0A|28|3D|3F)/;

/** Kinds of failure: `away`: the database is unreachable; `contention`: retry soon; `record`: the
 *  database refuses a record of the batch; `effect`: an effect failed outside the database;
 *  `poison`: the effect declared its record unusable, so there is no retry; `fatal`: no retry cures
 *  it. */
export type Fault = 'away' | 'contention' | 'record' | 'effect' | 'poison' | 'fatal';

/** Returns the fault of a SQLSTATE. An error that no record causes counts as `away`, because a
 *  record is parked only for its own fault. */
export function faultOfState(sqlstate: string): Fault {
  if (CONTENTION_STATES.has(sqlstate)) return 'contention';
  if (RECORD_STATES.test(sqlstate)) return 'record';
  return SCHEMA_STATES.test(sqlstate) ? 'fatal' : 'away';
}

/** Returns the fault of an error that an effect threw. Such an error may be temporary (a third
 *  party that answers 503), so its record is retried later. A transaction whose COMMIT got no
 *  answer is repeated: the inbox then shows if it committed. */
export function faultOfEffect(thrown: unknown): Fault {
  const error = findMillraceError(thrown);
  if (error === undefined) return 'effect';
  if (error.code === 'poison_record') return 'poison';
  // The batch's own transaction is none: a mistake of the wiring, for which no record is parked.
  if (error.code === 'not_in_transaction') return 'fatal';
  if (error.code === 'commit_unknown' || error.kind === 'unavailable') return 'away';
  if (error.code !== 'sql_failed') return error.kind === 'internal' ? 'fatal' : 'effect';
  const sqlstate = error.details['sqlstate'];
  // An error without a SQLSTATE comes from the driver, which refused a value of the effect before
  // the server saw it.
  return typeof sqlstate === 'string' ? faultOfState(sqlstate) : 'record';
}

/** Returns the pause after this many failures, ms: exponential backoff. */
export const retryMs = (failures: number): number =>
  Math.min(RETRY_MS_MAX, RETRY_MS * 2 ** Math.min(failures, 10));

export class BatchCommitter<R extends RecordPlace, P, C> {
  private readonly options: BatchCommitterOptions<R, P, C>;
  private isWaiting = false;

  constructor(options: BatchCommitterOptions<R, P, C>) {
    this.options = options;
  }

  /** Commits the batch. Returns false if it stopped before everything was committed.
   *  @throws errors that no retry cures */
  async settle(given: Work<R, P>): Promise<boolean> {
    const { defer, follows } = this.options;
    const work =
      follows === undefined
        ? given
        : { records: given.records.filter((record) => !follows(record)), parked: given.parked };
    const single = work.records.length + work.parked.length <= 1;
    const failure = await this.attempt(work, single ? this.options.attempts : 1);
    if (failure === 'stopped') return false;
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
    // The database refuses even to park the record: stop before it.
    if (record === undefined) throw failure.thrown;
    if (failure.fault === 'effect' && defer?.(record, failure.thrown) === true) return true;
    return this.settle({ records: [], parked: [this.refused(record, failure.thrown)] });
  }

  /** Pauses the partitions until a commit succeeds; the member stays in its group. */
  async startWait(thrown: unknown): Promise<void> {
    if (this.isWaiting) return;
    this.isWaiting = true;
    const error = findMillraceError(thrown);
    this.options.log.warn(
      { code: error?.code, error: error?.message },
      'the database does not accept the batch; partitions paused until it does',
    );
    await this.options.onWait(true);
  }

  private refused(record: R, thrown: unknown): P {
    const { sqlstate, constraint } = findMillraceError(thrown)?.details ?? {};
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    const why = [sqlstate, constraint, message].filter((part) => part !== undefined).join(' ');
    const { topic, partition, offset } = record;
    this.options.log.warn(
      { topic, partition, offset: offset.toString(), error: why },
      'record parked without an effect',
    );
    return this.options.park(record, why.slice(0, DETAIL_CHARS_MAX).replaceAll('\u0000', ' '));
  }

  /** Commits the work, and retries without limit while the database is unreachable. Returns the
   *  error of a failing record, or 'stopped'. */
  private async attempt(work: Work<R, P>, attempts: number): Promise<Failure | 'stopped' | undefined> {
    const { options } = this;
    let ownFailures = 0;
    for (let failures = 0; ; failures++) {
      const records = work.records.filter(options.isOurs);
      const parked = work.parked.filter(options.isOurs);
      if (records.length + parked.length === 0) {
        // All partitions of the work were revoked during the wait. End the wait, so that the
        // remaining partitions resume.
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
        // Pause and poll, or the group evicts this member while another session holds the rows.
        if (fault === 'away' || (fault === 'contention' && failures >= CONTENTION_ATTEMPTS))
          await this.startWait(thrown);
        if (options.shouldStop()) return 'stopped';
        await options.idle(retryMs(failures));
      }
    }
  }

  private async endWait(): Promise<void> {
    if (!this.isWaiting) return;
    this.isWaiting = false;
    this.options.log.info({}, 'the database accepts batches again; partitions resumed');
    await this.options.onWait(false);
  }
}

/** Splits the work into halves, in order. Records to park go with the first half, or form a half of
 *  their own. */
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
