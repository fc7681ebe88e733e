/** Applies a batch of deliveries in SQL: inbox rows, charges and the outcome of each delivery, in
 *  the caller's transaction. */
import type { SqlPool, SqlRow, SqlSession } from '../../io/postgres/sql/port.ts';
import type { UuidV7 } from '../ids.ts';
import { recordDigest, truncate } from '../inbox/parked.ts';
import type { CommitState, InboxPort } from '../inbox/port.ts';
import type { Delivery } from './duplicates.ts';
import type { OrderEvent } from './event.ts';

/** Reason that a delivery charged nothing: `seen`: its msg_id is in the inbox; `same_batch`: its
 *  msg_id is twice in this batch; `order_charged`: its msg_id is new, but its order has a charge.
 */
export type SuppressedReason = 'seen' | 'same_batch' | 'order_charged';

/** Reason that a delivery is parked: `malformed_payload`: it cannot be parsed; `refused`: the
 *  database refuses this record only; `undecidable`: its msg_id is below the floor of the inbox. */
export type ParkedReason = 'malformed_payload' | 'refused' | 'undecidable';

export interface OrderDelivery extends Delivery {
  readonly event: OrderEvent;
}

export interface ParkedDelivery extends Delivery {
  readonly reason: ParkedReason;
  readonly detail: string;
  readonly digest: Uint8Array;
}

/** Returns the parked form of a delivery, with the fields of its table row. */
export function parkedOf(delivery: Delivery, reason: ParkedReason, detail: string): ParkedDelivery {
  const { topic, partition, offset, key, value, event, injected } = delivery;
  const digest = delivery.digest ?? recordDigest(key, value);
  return { topic, partition, offset, key, value, event, injected, reason, detail, digest };
}

export function isOrder(delivery: Delivery): delivery is OrderDelivery {
  return delivery.event.kind === 'order';
}

interface Suppressed {
  readonly delivery: OrderDelivery;
  readonly reason: SuppressedReason;
}

export interface BatchOutcome {
  readonly charged: readonly OrderDelivery[];
  readonly suppressed: readonly Suppressed[];
  readonly parked: readonly ParkedDelivery[];
}

/** Identifies a transaction, to find out later if it committed. */
export interface BatchProof {
  readonly xid: string;
  readonly batchId: bigint;
  /** Start of the transaction, microseconds since the epoch by the clock of the database. */
  readonly startedUs: bigint;
  /** Charge that only this transaction can have written. */
  readonly chargeId: string | undefined;
}

export interface WrittenBatch {
  readonly outcome: BatchOutcome;
  readonly proof: BatchProof;
}

/** Sorted, so that transactions that share ids cannot deadlock. The conflict target names no
 *  column: if a table lacks the UNIQUE on order_id, the second charge is inserted, and reconcile
 *  finds it. */
const INSERT_CHARGES = `
INSERT INTO charges (charge_id, order_id, amount_cents)
SELECT charge_id, order_id, amount_cents FROM unnest($1::uuid[], $2::uuid[], $3::bigint[])
  AS given(charge_id, order_id, amount_cents) ORDER BY order_id
ON CONFLICT DO NOTHING RETURNING order_id, charge_id`;

/** Time of a batch, which is now() of its transaction. */
const STARTED_US = '(extract(epoch FROM committed_at) * 1000000)::bigint';

const INSERT_RECORD = `
WITH suppressed AS (
  INSERT INTO payments_suppressed (msg_id, order_id, reason, injected, topic, partition, "offset")
  SELECT * FROM unnest($5::uuid[], $6::uuid[], $7::text[], $8::boolean[], $9::text[], $10::int[], $11::bigint[])
), parked AS (
  INSERT INTO payments_parked (topic, partition, "offset", reason, detail, key, value, digest)
  SELECT * FROM unnest($12::text[], $13::int[], $14::bigint[], $15::text[], $16::text[], $17::bytea[], $18::bytea[], $19::bytea[])
  ON CONFLICT (topic, partition, "offset", digest) DO NOTHING
)
INSERT INTO payments_batches (delivered, inserted, suppressed, injected) VALUES ($1, $2, $3, $4)
RETURNING id, pg_current_xact_id()::text AS xid, ${STARTED_US} AS started_us`;

export interface ApplyOptions {
  readonly ids: UuidV7;
  readonly inbox: Pick<InboxPort, 'claim'>;
  /** Called after the charges and before all that follows, with their number. */
  readonly afterCharges: (charges: number) => Promise<void>;
}

const UNDECIDABLE = 'its msg_id is older than the floor of the inbox, so it is unknown if it was charged';

/** Applies deliveries in their order. Every order delivery is in exactly one list of the outcome.
 */
export async function applyBatch(
  session: SqlSession,
  orders: readonly OrderDelivery[],
  parked: readonly ParkedDelivery[],
  options: ApplyOptions,
): Promise<WrittenBatch> {
  const claim = await options.inbox.claim(
    session,
    orders.map((delivery) => delivery.event.msgId),
  );
  const toPark: ParkedDelivery[] = [...parked];
  const first = new Set<string>();
  const suppressed: Suppressed[] = [];
  const candidates = new Map<string, { readonly chargeId: string; readonly delivery: OrderDelivery }>();
  for (const delivery of orders) {
    const { msgId, orderId } = delivery.event;
    const repeated = first.has(msgId);
    first.add(msgId);
    if (claim.undecidable.has(msgId)) toPark.push(parkedOf(delivery, 'undecidable', UNDECIDABLE));
    else if (repeated) suppressed.push({ delivery, reason: 'same_batch' });
    else if (!claim.unseen.has(msgId)) suppressed.push({ delivery, reason: 'seen' });
    else if (candidates.has(orderId)) suppressed.push({ delivery, reason: 'order_charged' });
    else candidates.set(orderId, { chargeId: options.ids.next(), delivery });
  }
  const inserted = await insertCharges(session, [...candidates.values()]);
  const charged: OrderDelivery[] = [];
  for (const { delivery } of candidates.values()) {
    if (inserted.has(delivery.event.orderId)) charged.push(delivery);
    else suppressed.push({ delivery, reason: 'order_charged' });
  }
  if (charged.length > 0) await options.afterCharges(charged.length);
  const outcome = { charged, suppressed, parked: toPark };
  const { id, xid, started_us: startedUs } = await insertRecord(session, orders, outcome);
  return { outcome, proof: { xid, batchId: id, startedUs, chargeId: inserted.values().next().value } };
}

/** Inserts charges. Returns the charge ids by order id; an order with a charge is absent. */
async function insertCharges(
  session: SqlSession,
  charges: ReadonlyArray<{ readonly chargeId: string; readonly delivery: OrderDelivery }>,
): Promise<ReadonlyMap<string, string>> {
  if (charges.length === 0) return new Map();
  const { rows } = await session.query<{ order_id: string; charge_id: string }>(INSERT_CHARGES, [
    charges.map((charge) => charge.chargeId),
    charges.map((charge) => charge.delivery.event.orderId),
    charges.map((charge) => charge.delivery.event.amountCents),
  ]);
  return new Map(rows.map((row) => [row.order_id, row.charge_id]));
}

interface InsertedRecord extends SqlRow {
  readonly id: bigint;
  readonly xid: string;
  readonly started_us: bigint;
}

async function insertRecord(
  session: SqlSession,
  orders: readonly OrderDelivery[],
  { charged, suppressed, parked }: BatchOutcome,
): Promise<InsertedRecord> {
  const { rows } = await session.query<InsertedRecord>(INSERT_RECORD, [
    orders.length,
    charged.length,
    suppressed.length,
    orders.filter((delivery) => delivery.injected).length,
    suppressed.map(({ delivery }) => delivery.event.msgId),
    suppressed.map(({ delivery }) => delivery.event.orderId),
    suppressed.map(({ reason }) => reason),
    suppressed.map(({ delivery }) => delivery.injected),
    suppressed.map(({ delivery }) => delivery.topic),
    suppressed.map(({ delivery }) => delivery.partition),
    suppressed.map(({ delivery }) => delivery.offset),
    parked.map((record) => record.topic),
    parked.map((record) => record.partition),
    parked.map((record) => record.offset),
    parked.map((record) => record.reason),
    parked.map((record) => record.detail),
    parked.map((record) => truncate(record.key)),
    parked.map((record) => truncate(record.value)),
    parked.map((record) => record.digest),
  ]);
  return rows[0] as InsertedRecord;
}

/** Finds out if a transaction whose COMMIT got no answer committed. The rows that it wrote decide.
 *  The xid status only shows if it may still be running, because an xid that was lost in a crash is
 *  reused. So is the id of a batch, so its time must be that of the transaction too. */
export async function commitState(pool: SqlPool, proof: BatchProof): Promise<CommitState> {
  // Read the status before the rows: rows of a transaction that has ended by then are visible. The
  // status of an unassigned xid is an error.
  const { rows } = await pool.query<{ status: string | null }>(
    `SELECT CASE WHEN $1::text::xid8 < pg_current_xact_id() THEN pg_xact_status($1::text::xid8) END AS status`,
    [proof.xid],
  );
  if (rows[0]?.status === 'in progress') return 'in_progress';
  const { rows: found } =
    proof.chargeId === undefined
      ? await pool.query(`SELECT FROM payments_batches WHERE id = $1 AND ${STARTED_US} = $2::bigint`, [
          proof.batchId,
          proof.startedUs,
        ])
      : await pool.query('SELECT FROM charges WHERE charge_id = $1', [proof.chargeId]);
  return found.length > 0 ? 'committed' : 'absent';
}

/** Rows that may be pruned: batches, and deliveries that were suppressed as expected. A row whose
 *  second charge only UNIQUE(order_id) stopped is kept: it is evidence of a fault for reconcile. */
const PRUNED = {
  payments_batches: { at: 'committed_at', which: 'true' },
  payments_suppressed: { at: 'seen_at', which: `reason <> 'order_charged'` },
} as const;

export type PrunedTable = keyof typeof PRUNED;

export const PRUNED_TABLES = Object.keys(PRUNED) as readonly PrunedTable[];

/** Deletes rows older than this among the oldest `rowsMax`. Returns their number. */
export async function prune(
  session: SqlSession,
  table: PrunedTable,
  olderThanMs: number,
  rowsMax: number,
): Promise<number> {
  const { at, which } = PRUNED[table];
  const { rowCount } = await session.query(
    `DELETE FROM ${table} WHERE id = ANY (ARRAY(SELECT id FROM ${table} WHERE ${which} ORDER BY id LIMIT $2))
       AND ${at} < now() - $1::float8 * interval '1 millisecond'`,
    [olderThanMs, rowsMax],
  );
  return rowCount;
}
