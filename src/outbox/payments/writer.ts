/** Writes batches of deliveries, one transaction each, in the loop of every inbox consumer
 *  (inbox/batch-committer.ts).
 *
 *  Invariants: (1) when `write` returns true, each delivery was charged, suppressed, parked or
 *  ignored exactly once, and that is committed; (2) a batch with a record that the database refuses
 *  is split until that record is alone, and then it is parked; (3) an unreachable database is
 *  retried without limit; after a COMMIT without an answer, the rows in the database decide.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { refusedState, type SqlPool, type SqlSession } from '../../io/postgres/sql/port.ts';
import { BatchCommitter, type Fault, faultOfState, retryMs, type Work } from '../inbox/batch-committer.ts';
import type { Delivery } from './duplicates.ts';
import {
  type BatchOutcome,
  commitState,
  isOrder,
  type OrderDelivery,
  type ParkedDelivery,
  parkedOf,
  type WrittenBatch,
} from './store.ts';

export interface PaymentWriterOptions {
  readonly pool: SqlPool;
  /** Writes a batch in its transaction. */
  readonly apply: (
    session: SqlSession,
    orders: readonly OrderDelivery[],
    parked: readonly ParkedDelivery[],
  ) => Promise<WrittenBatch>;
  readonly log: Logger;
  /** Waits between two attempts; may resolve early. */
  readonly idle: (ms: number) => Promise<void>;
  /** True if the writer must stop and leave the rest uncommitted for the partition's next owner. */
  readonly shouldStop: () => boolean;
  /** True if this member still owns the delivery's partition. */
  readonly isOurs: (delivery: Delivery) => boolean;
  /** Called after each commit. */
  readonly onCommitted: (outcome: BatchOutcome, seconds: number) => void;
  readonly onWait: (waiting: boolean) => Promise<void>;
  readonly monotonicMs: () => number;
}

/** False if it stopped before everything was committed. */
export type BatchCommitted = boolean;

/** All statements are our own, so an error without a SQLSTATE from the server is a bug and no
 *  record's fault. */
function faultOf(thrown: unknown): Fault {
  const error = findMillraceError(thrown);
  if (error?.code === 'unreachable' || error?.code === 'commit_unknown') return 'away';
  const sqlstate = refusedState(error);
  return sqlstate === undefined ? 'fatal' : faultOfState(sqlstate);
}

export class PaymentWriter {
  private readonly options: PaymentWriterOptions;
  private readonly committer: BatchCommitter<OrderDelivery, ParkedDelivery, BatchOutcome>;

  constructor(options: PaymentWriterOptions) {
    this.options = options;
    const { log, idle, shouldStop, isOurs, onWait, onCommitted, monotonicMs } = options;
    this.committer = new BatchCommitter<OrderDelivery, ParkedDelivery, BatchOutcome>({
      commit: (work) => this.commit(work),
      faultOf,
      park: (order, why) => parkedOf(order, 'refused', why),
      isOurs,
      // A charge that the database refuses once, it refuses again.
      attempts: 1,
      log,
      idle,
      shouldStop,
      onWait,
      onCommitted,
      monotonicMs,
    });
  }

  async write(deliveries: readonly Delivery[]): Promise<BatchCommitted> {
    const records: OrderDelivery[] = [];
    const parked: ParkedDelivery[] = [];
    for (const delivery of deliveries) {
      if (isOrder(delivery)) records.push(delivery);
      else if (delivery.event.kind === 'poison')
        parked.push(parkedOf(delivery, 'malformed_payload', delivery.event.why));
    }
    if (records.length + parked.length === 0) return true;
    return this.committer.settle({ records, parked });
  }

  private async commit({ records, parked }: Work<OrderDelivery, ParkedDelivery>): Promise<BatchOutcome> {
    let written: WrittenBatch | undefined;
    try {
      await this.options.pool.transaction(async (session) => {
        written = await this.options.apply(session, records, parked);
      });
    } catch (thrown) {
      if (findMillraceError(thrown)?.code !== 'commit_unknown' || written === undefined) throw thrown;
      if (!(await this.didCommit(written))) throw thrown;
    }
    return (written as WrittenBatch).outcome;
  }

  /** Polls until the outcome of the transaction is known. A drain ends this only while the database
   *  is unreachable; otherwise the time limit of the drain does. */
  private async didCommit(written: WrittenBatch): Promise<boolean> {
    for (let failures = 0; ; failures++) {
      try {
        const state = await commitState(this.options.pool, written.proof);
        if (state !== 'in_progress') return state === 'committed';
      } catch (thrown) {
        const fault = faultOf(thrown);
        if (fault !== 'away' && fault !== 'contention') throw thrown;
        await this.committer.startWait(thrown);
        if (this.options.shouldStop()) return false;
      }
      await this.options.idle(retryMs(failures));
    }
  }
}
