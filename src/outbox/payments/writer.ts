/** Brings batches of deliveries into the database: one transaction a batch, whatever fails, in the
 *  loop of every inbox consumer (inbox/settle.ts).
 *
 *  Invariants: (1) a delivery is charged, suppressed, parked or ignored exactly once in what
 *  `write` returns, and what it returns is committed; (2) a batch that holds a record the database
 *  refuses is split until that record is alone, and it is parked; (3) a database that is away, or
 *  whose answer to COMMIT was lost, is waited for; then what it has decides.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { SqlPool, SqlSession } from '../../io/postgres/sql/port.ts';
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
  /** Waits between two attempts; resolves early when the attempts are to be looked at again. */
  readonly idle: (ms: number) => Promise<void>;
  /** True: leave what is not committed; its next owner reads it again. */
  readonly givenUp: () => boolean;
  /** Whether a delivery is still ours. */
  readonly isOurs: (delivery: Delivery) => boolean;
  /** Called after each commit. */
  readonly onCommitted: (outcome: BatchOutcome, seconds: number) => void;
  readonly onWait: (waiting: boolean) => Promise<void>;
  readonly monotonicMs: () => number;
}

/** false: given up before everything was committed. */
export type BatchCommitted = boolean;

/** The statements are all our own: what is not the server's word on one of them is a bug, and no
 *  record's fault. */
function faultOf(thrown: unknown): Fault {
  const error = findMillraceError(thrown);
  if (error?.code === 'unreachable' || error?.code === 'commit_unknown') return 'away';
  const sqlstate = error?.code === 'sql_failed' ? error.details['sqlstate'] : undefined;
  return typeof sqlstate === 'string' ? faultOfState(sqlstate) : 'fatal';
}

export class PaymentWriter {
  private readonly options: PaymentWriterOptions;
  private readonly settler: BatchCommitter<OrderDelivery, ParkedDelivery, BatchOutcome>;

  constructor(options: PaymentWriterOptions) {
    this.options = options;
    const { log, idle, givenUp, isOurs, onWait, onCommitted, monotonicMs } = options;
    this.settler = new BatchCommitter<OrderDelivery, ParkedDelivery, BatchOutcome>({
      commit: (work) => this.commit(work),
      faultOf,
      park: (order, why) => parkedOf(order, 'refused', why),
      isOurs,
      // What the database refuses of a charge it refuses again.
      attempts: 1,
      log,
      idle,
      givenUp,
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
    return this.settler.settle({ records, parked });
  }

  private async commit({ records, parked }: Work<OrderDelivery, ParkedDelivery>): Promise<BatchOutcome> {
    let written: WrittenBatch | undefined;
    try {
      await this.options.pool.transaction(async (session) => {
        written = await this.options.apply(session, records, parked);
      });
    } catch (thrown) {
      if (findMillraceError(thrown)?.code !== 'commit_unknown' || written === undefined) throw thrown;
      if (!(await this.tookPlace(written))) throw thrown;
    }
    return (written as WrittenBatch).outcome;
  }

  /** Asks until the database knows; a drain does not end this, its time limit does. */
  private async tookPlace(written: WrittenBatch): Promise<boolean> {
    for (let failures = 0; ; failures++) {
      try {
        const state = await commitState(this.options.pool, written.proof);
        if (state !== 'in_progress') return state === 'committed';
      } catch (thrown) {
        const fault = faultOf(thrown);
        if (fault !== 'away' && fault !== 'contention') throw thrown;
        await this.settler.startWait(thrown);
        if (this.options.givenUp()) return false;
      }
      await this.options.idle(retryMs(failures));
    }
  }
}
