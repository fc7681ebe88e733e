/** Redrives parked records in bounded batches. */
import { sleep, type Timers } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { UuidV7 } from '../ids.ts';
import type { InboxPort } from '../inbox/port.ts';
import {
  applyRedriven,
  deleteParked,
  deliveryOf,
  nameOf,
  type ParkedFilter,
  type ParkedName,
  readParked,
} from './parked.ts';
import type { BatchOutcome } from './store.ts';
import { PaymentWriter } from './writer.ts';

export interface PaymentsRedriveOptions {
  readonly pool: SqlPool;
  readonly ids: UuidV7;
  readonly inbox: Pick<InboxPort, 'claim'>;
  readonly filter: ParkedFilter;
  readonly batchRows: number;
  readonly clock: Timers;
  readonly log: Logger;
  readonly drain: AbortSignal;
  readonly afterCharges: (batchesCommitted: number, charges: number) => Promise<void>;
  readonly onCommitted: (outcome: BatchOutcome) => void;
}

export interface PaymentsRedriven {
  /** Number of records read. Records that another redrive locked are only in this count. */
  readonly taken: number;
  readonly charged: number;
  readonly suppressed: number;
  /** Parked again. */
  readonly parked: number;
  /** Deleted, because their event type charges nothing. */
  readonly ignored: number;
}

/** Redrives the selected records.
 *  @throws unreachable, sql_failed; earlier commits stay */
export async function redrive(options: PaymentsRedriveOptions): Promise<PaymentsRedriven> {
  const { pool, filter, batchRows, drain, clock } = options;
  const sums = { taken: 0, charged: 0, suppressed: 0, parked: 0, ignored: 0 };
  let batches = 0;
  const writer = new PaymentWriter({
    pool,
    apply: (session, orders, parked) =>
      applyRedriven(session, orders, parked, {
        ids: options.ids,
        inbox: options.inbox,
        afterCharges: (charges) => options.afterCharges(batches, charges),
      }),
    log: options.log,
    idle: (ms) => sleep(clock, ms, drain),
    shouldStop: () => drain.aborted,
    isOurs: () => true,
    onCommitted: (outcome) => {
      batches++;
      sums.charged += outcome.charged.length;
      sums.suppressed += outcome.suppressed.length;
      sums.parked += outcome.parked.length;
      options.onCommitted(outcome);
    },
    onWait: async () => {},
    monotonicMs: () => clock.monotonicMs(),
  });
  let after: ParkedName | undefined;
  while (!drain.aborted) {
    const rows = await readParked(pool, filter, batchRows, after);
    if (rows.length === 0) break;
    after = rows.at(-1);
    const deliveries = rows.map(deliveryOf);
    if (!(await writer.write(deliveries))) break;
    const others = deliveries.filter(({ event }) => event.kind === 'other');
    sums.ignored += await deleteParked(pool, others.map(nameOf));
    sums.taken += rows.length;
  }
  return sums;
}
