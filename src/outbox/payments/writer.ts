/** Brings batches of deliveries into the database: one transaction a batch, whatever fails.
 *
 *  Invariants: (1) a delivery is charged, suppressed, parked or ignored exactly once in what `write` returns, and what it
 *  returns is committed; (2) a batch that holds a record the database refuses is split until that record is alone, and it
 *  is parked; (3) a database that is away, or whose answer to COMMIT was lost, is waited for; then what it has decides.
 */
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { SqlPool, SqlSession } from '../../io/sql/port.ts';
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
export type Written = boolean;

const RETRY_MS = 50;
const RETRY_MS_MAX = 2000;
const DETAIL_CHARS_MAX = 1000;
/** Attempts against others' locks before the member pauses its partitions; each may have waited for the lock timeout. */
const CONTENTION_SOON = 5;
/** Deadlock, serialization failure, lock timeout: the same statements again, soon. */
const CONTENTION = new Set(['40P01', '40001', '55P03']);
/** What a record's own content can cause: bad data, a constraint, a trigger's refusal, a program limit. */
const OF_THE_RECORD = /^(?:22|23|44|54|P0)/;
/** A statement that does not fit the tables, or may not: no attempt can cure it. */
const OF_THE_SCHEMA = /^(?:42|0A|28|3D|3F)/;

type Fault = 'away' | 'unknown' | 'contention' | 'record' | 'fatal';

function faultOf(thrown: unknown): Fault {
  const error = findMillraceError(thrown);
  if (error?.code === 'unreachable') return 'away';
  if (error?.code === 'commit_unknown') return 'unknown';
  if (error?.code !== 'sql_failed') return 'fatal';
  const sqlstate = error.details['sqlstate'];
  if (typeof sqlstate !== 'string') return 'fatal';
  if (CONTENTION.has(sqlstate)) return 'contention';
  if (OF_THE_RECORD.test(sqlstate)) return 'record';
  return OF_THE_SCHEMA.test(sqlstate) ? 'fatal' : 'away';
}

interface Work {
  readonly orders: readonly OrderDelivery[];
  readonly parked: readonly ParkedDelivery[];
}

export class PaymentWriter {
  private readonly options: PaymentWriterOptions;
  private waits = false;

  constructor(options: PaymentWriterOptions) {
    this.options = options;
  }

  async write(deliveries: readonly Delivery[]): Promise<Written> {
    const orders: OrderDelivery[] = [];
    const parked: ParkedDelivery[] = [];
    for (const delivery of deliveries) {
      if (isOrder(delivery)) orders.push(delivery);
      else if (delivery.event.kind === 'poison')
        parked.push(parkedOf(delivery, 'malformed_payload', delivery.event.why));
    }
    if (orders.length + parked.length === 0) return true;
    return this.settle({ orders, parked });
  }

  private async settle(work: Work): Promise<Written> {
    const refusal = await this.attempt(work);
    if (refusal === 'given_up') return false;
    if (refusal === undefined) return true;
    const { orders, parked } = work;
    if (orders.length + parked.length > 1) {
      const middle = orders.length >> 1;
      const halves: Work[] =
        orders.length > 1
          ? [
              { orders: orders.slice(0, middle), parked },
              { orders: orders.slice(middle), parked: [] },
            ]
          : orders.length === 1 && parked.length > 0
            ? [
                { orders, parked: [] },
                { orders: [], parked },
              ]
            : [
                { orders, parked: parked.slice(0, parked.length >> 1) },
                { orders, parked: parked.slice(parked.length >> 1) },
              ];
      for (const half of halves) if (!(await this.settle(half))) return false;
      return true;
    }
    const [order] = orders;
    // A record that even the table of parked records refuses leaves nothing to do but to stop before it.
    if (order === undefined) throw refusal;
    return this.settle({ orders: [], parked: [this.refused(order, refusal)] });
  }

  private refused(order: OrderDelivery, refusal: MillraceError): ParkedDelivery {
    const { sqlstate, constraint } = refusal.details;
    const why = `${sqlstate}${constraint === undefined ? '' : ` ${constraint}`}: ${refusal.message}`;
    this.options.log.warn(
      {
        topic: order.topic,
        partition: order.partition,
        offset: order.offset.toString(),
        error: refusal.message,
      },
      'the database refuses a record; it is parked',
    );
    return parkedOf(order, 'refused', why.slice(0, DETAIL_CHARS_MAX).replaceAll('\u0000', ' '));
  }

  /** Commits the work, waiting as long as it takes. Returns the refusal when a record of it is at fault. */
  private async attempt(work: Work): Promise<MillraceError | 'given_up' | undefined> {
    const { options } = this;
    for (let failures = 0; ; failures++) {
      const orders = work.orders.filter(options.isOurs);
      const parked = work.parked.filter(options.isOurs);
      if (orders.length + parked.length === 0) {
        // What it waited with is gone; the partitions that stayed are read again, and the next batch asks the database.
        await this.endWait();
        return undefined;
      }
      try {
        await this.commit(orders, parked);
        await this.endWait();
        return undefined;
      } catch (thrown) {
        const fault = faultOf(thrown);
        const error = findMillraceError(thrown);
        if (error === undefined || fault === 'fatal') throw thrown;
        if (fault === 'record') {
          await this.endWait();
          return error;
        }
        // Somebody who holds rows for long: the group must not take this member for dead meanwhile.
        if (fault !== 'contention' || failures >= CONTENTION_SOON) await this.startWait(error);
        if (options.givenUp()) return 'given_up';
        await options.idle(Math.min(RETRY_MS_MAX, RETRY_MS * 2 ** Math.min(failures, 10)));
      }
    }
  }

  private async commit(orders: readonly OrderDelivery[], parked: readonly ParkedDelivery[]): Promise<void> {
    const { pool, apply, onCommitted, monotonicMs } = this.options;
    const startMs = monotonicMs();
    let written: WrittenBatch | undefined;
    try {
      await pool.transaction(async (session) => {
        written = await apply(session, orders, parked);
      });
    } catch (thrown) {
      if (faultOf(thrown) !== 'unknown' || written === undefined) throw thrown;
      if (!(await this.tookPlace(written))) throw thrown;
    }
    onCommitted((written as WrittenBatch).outcome, (monotonicMs() - startMs) / 1000);
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
        await this.startWait(findMillraceError(thrown) as MillraceError);
        if (this.options.givenUp()) return false;
      }
      await this.options.idle(Math.min(RETRY_MS_MAX, RETRY_MS * 2 ** Math.min(failures, 10)));
    }
  }

  private async startWait(error: MillraceError): Promise<void> {
    if (this.waits) return;
    this.waits = true;
    this.options.log.warn(
      { code: error.code, error: error.message },
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
