/** Tables of orders and payments in the simulated database, with the statements of both services.
 *  A characteristic part of its text identifies a statement; an unknown statement is an error.
 *  `charges` has no UNIQUE(order_id) unless a test asks for it, so that only the inbox prevents a
 *  second charge. test/differential/effects-statements.test.ts holds these statements against
 *  PostgreSQL.
 */
import { responseOf } from '../../../src/outbox/orders/write/store.ts';
import type { Transactions, Tx } from './transactions.ts';

export interface StoredKey {
  readonly hash: string;
  readonly orderId: string;
  readonly createdMs: number;
}

export interface StoredOrder {
  readonly key: string;
  readonly accountId: bigint;
  readonly amountCents: bigint;
  readonly createdAt: Date;
  readonly msgId: string;
}

export interface StoredCharge {
  readonly chargeId: string;
  readonly orderId: string;
  readonly amountCents: bigint;
}

export interface TableHooks {
  readonly wallMs: () => number;
  readonly onOrder: (orderId: string, order: StoredOrder) => void;
  readonly onCharge: (charge: StoredCharge) => void;
}

export type Values = readonly unknown[];
export type Row = Readonly<Record<string, unknown>>;
type Statement = (tx: Tx, values: Values) => readonly Row[] | Promise<readonly Row[]>;

const textOf = new TextEncoder();
const listOf = (text: unknown): readonly string[] => {
  const inner = String(text).slice(1, -1);
  return inner === '' ? [] : inner.split(',');
};

/** Lowest id that no expiry has dropped: every id. */
const FLOOR_START = '00000000-0000-0000-0000-000000000000';

export class Tables {
  readonly keys = new Map<string, StoredKey>();
  readonly orders = new Map<string, StoredOrder>();
  readonly inbox = new Set<string>();
  readonly charges = new Map<string, StoredCharge>();
  /** Number of charges by order. */
  readonly chargesOf = new Map<string, number>();
  readonly parked: Row[] = [];
  readonly suppressed: Row[] = [];
  /** Start of the transaction of each batch, by its id. */
  private readonly batches = new Map<bigint, bigint>();
  private lastBatch = 0n;
  private floor = FLOOR_START;
  private readonly transactions: Transactions;
  private readonly hooks: TableHooks;
  private readonly hasUniqueOrder: boolean;

  constructor(transactions: Transactions, hooks: TableHooks, hasUniqueOrder: boolean) {
    this.transactions = transactions;
    this.hooks = hooks;
    this.hasUniqueOrder = hasUniqueOrder;
  }

  /** Drops the inbox rows below an id and raises the floor, as the keeper does with whole
   *  partitions. */
  dropInbox(below: string): void {
    for (const id of this.inbox) if (id < below) this.inbox.delete(id);
    if (below > this.floor) this.floor = below;
  }

  /** Runs a statement of orders; rows are texts by column. */
  async text(tx: Tx, statement: string, params: Values): Promise<ReadonlyArray<readonly string[]>> {
    if (statement.includes('INSERT INTO idempotency_keys') && statement.includes('unnest'))
      return this.insertOrders(tx, params);
    if (statement.includes("set_config('lock_timeout'")) {
      tx.lockTimeoutMs = Number(params[0]);
      return [];
    }
    if (statement.includes('FROM idempotency_keys WHERE')) return this.stored(listOf(params[0]));
    throw new Error(`the simulated tables do not know: ${statement}`);
  }

  /** Runs a statement of payments, of its inbox, or a read of orders. */
  async row(tx: Tx, statement: string, values: Values): Promise<readonly Row[]> {
    let run = this.known.get(statement);
    if (run === undefined) {
      run = this.statements.find(([part]) => statement.includes(part))?.[1];
      if (run === undefined) throw new Error(`the simulated tables do not know: ${statement}`);
      this.known.set(statement, run);
    }
    return run(tx, values);
  }

  /** Statements that were executed before, by text. */
  private readonly known = new Map<string, Statement>();

  private readonly statements: ReadonlyArray<readonly [string, Statement]> = [
    ['INSERT INTO inbox (msg_id)', (tx, [ids]) => this.claim(tx, ids as readonly string[])],
    ['AS isolation FROM inbox_floor', () => [{ floor: this.floor, isolation: 'read committed' }]],
    ['DELETE FROM inbox WHERE', (tx, [ids]) => this.unclaim(tx, ids as readonly string[])],
    ['INSERT INTO charges', (tx, values) => this.charge(tx, values)],
    ['INSERT INTO payments_batches', (tx, values) => this.record(tx, values)],
    ['pg_xact_status', (_, [xid]) => [{ status: this.transactions.statusOf(BigInt(xid as string)) }]],
    [
      'FROM payments_batches WHERE id',
      (_, [id, startedUs]) => (this.batches.get(id as bigint) === startedUs ? [{}] : []),
    ],
    ['FROM charges WHERE charge_id', (_, [id]) => (this.charges.has(id as string) ? [{}] : [])],
    ['FROM orders WHERE order_id', (_, [id]) => this.order(id as string)],
  ];

  private async insertOrders(tx: Tx, params: Values): Promise<ReadonlyArray<readonly string[]>> {
    const [keys, hashes, ids, accounts, amounts, msgIds] = params.slice(0, 6).map(listOf) as string[][];
    const createdAt = String(params[7]);
    const given = (keys as string[]).map((key, i) => ({
      key,
      hash: hashes?.[i] as string,
      orderId: ids?.[i] as string,
      accountId: BigInt(accounts?.[i] as string),
      amountCents: BigInt(amounts?.[i] as string),
      msgId: msgIds?.[i] as string,
    }));
    this.transactions.lockOutbox(tx);
    const won: typeof given = [];
    for (const one of [...given].sort((a, b) => (a.key < b.key ? -1 : 1))) {
      const createdMs = this.hooks.wallMs();
      const stored = { hash: one.hash, orderId: one.orderId, createdMs };
      const inserted = this.transactions.insert(
        tx,
        `key ${one.key}`,
        () => this.keys.has(one.key),
        () => void this.keys.set(one.key, stored),
      );
      if (typeof inserted === 'boolean' ? inserted : await inserted) won.push(one);
    }
    for (const one of [...won].sort((a, b) => (a.msgId < b.msgId ? -1 : 1))) {
      const order = { ...one, createdAt: new Date(createdAt) };
      const inserted = this.transactions.insert(
        tx,
        `order ${one.orderId}`,
        () => this.orders.has(one.orderId),
        () => {
          this.orders.set(one.orderId, order);
          this.hooks.onOrder(one.orderId, order);
        },
      );
      if (typeof inserted !== 'boolean') await inserted;
      this.transactions.insertOutbox(tx, {
        aggregateId: one.orderId,
        msgId: one.msgId,
        eventType: 'order.created.v1',
        payload: textOf.encode(
          `{"order_id":"${one.orderId}","account_id":"${one.accountId}","amount_cents":"${one.amountCents}","status":"created","created_at":"${createdAt}"}`,
        ),
        createdAt: new Date(this.hooks.wallMs()),
      });
    }
    return won.map(({ orderId }) => [orderId]);
  }

  private stored(keys: readonly string[]): ReadonlyArray<readonly string[]> {
    return keys.flatMap((key) => {
      const found = this.keys.get(key);
      if (found === undefined) return [];
      const { hash, orderId, createdMs } = found;
      return [[key, hash, orderId, '201', responseOf(orderId), String(createdMs)]];
    });
  }

  private order(orderId: string): readonly Row[] {
    const found = this.orders.get(orderId);
    if (found === undefined) return [];
    const { accountId, amountCents, createdAt } = found;
    return [{ account_id: accountId, amount_cents: amountCents, status: 'created', created_at: createdAt }];
  }

  /** An id below the floor has no partition by time any more, so its row is timeless. */
  private async claim(tx: Tx, ids: readonly string[]): Promise<readonly Row[]> {
    const rows: Row[] = [];
    for (const id of [...ids].sort()) {
      const inserted = this.transactions.insert(
        tx,
        `inbox ${id}`,
        () => this.inbox.has(id),
        () => void this.inbox.add(id),
      );
      if (typeof inserted === 'boolean' ? inserted : await inserted)
        rows.push({ id, timeless: String(id < this.floor) });
    }
    return rows;
  }

  private unclaim(tx: Tx, ids: readonly string[]): readonly Row[] {
    const removed = this.transactions.remove(tx, new Set(ids.map((id) => `inbox ${id}`)));
    return Array.from({ length: removed }, () => ({}));
  }

  private async charge(tx: Tx, [chargeIds, orderIds, amounts]: Values): Promise<readonly Row[]> {
    const given = (orderIds as readonly string[]).map((orderId, i) => ({
      orderId,
      chargeId: (chargeIds as readonly string[])[i] as string,
      amountCents: BigInt((amounts as readonly bigint[])[i] as bigint),
    }));
    const rows: Row[] = [];
    for (const charge of given.sort((a, b) => (a.orderId < b.orderId ? -1 : 1))) {
      const { orderId, chargeId } = charge;
      const inserted = this.transactions.insert(
        tx,
        this.hasUniqueOrder ? `charge of ${orderId}` : `charge ${chargeId}`,
        () => this.hasUniqueOrder && this.chargesOf.has(orderId),
        () => this.apply(charge),
      );
      if (typeof inserted === 'boolean' ? inserted : await inserted)
        rows.push({ order_id: orderId, charge_id: chargeId });
    }
    return rows;
  }

  private apply(charge: StoredCharge): void {
    this.charges.set(charge.chargeId, charge);
    this.chargesOf.set(charge.orderId, (this.chargesOf.get(charge.orderId) ?? 0) + 1);
    this.hooks.onCharge(charge);
  }

  private record(tx: Tx, values: Values): readonly Row[] {
    const id = ++this.lastBatch;
    // No two transactions begin within one microsecond.
    const startedUs = tx.xid;
    const column = (at: number): readonly unknown[] => values[at] as readonly unknown[];
    const suppressed = column(4).map((msgId, i) => ({ msgId, reason: column(6)[i], injected: column(7)[i] }));
    const parked = column(11).map((_, i) => ({
      partition: column(12)[i],
      offset: column(13)[i],
      reason: column(14)[i],
      detail: column(15)[i],
    }));
    tx.changes.push({
      apply: () => {
        this.batches.set(id, startedUs);
        this.suppressed.push(...suppressed);
        this.parked.push(...parked);
      },
    });
    return [{ id, xid: String(tx.xid), started_us: startedUs }];
  }
}
