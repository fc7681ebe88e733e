/** The reconciler on a real database: its classes equal the sets that an oracle in plain JavaScript
 *  finds in the same rows, and the exit code of the command reports the result. */

import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { command } from '../../src/bin/reconcile.ts';
import type { SqlPool, SqlValue } from '../../src/io/postgres/sql/port.ts';
import { LEDGER_FORMAT, type LedgerEntry, ledgerLine } from '../../src/outbox/reconcile/client-ledger.ts';
import { type Reconciliation, reconcile } from '../../src/outbox/reconcile/run.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { itFull, runs } from '../tier.ts';
import { start } from '../unit/shell/fake-world.ts';
import { realClock } from '../wait.ts';
import { explained } from './explained.ts';

const { postgres } = await sharedStack();
const schema = `reconcile_${randomBytes(5).toString('hex')}`;
const dir = mkdtempSync(join(tmpdir(), 'millrace-reconcile-'));
let pool: SqlPool;

beforeAll(async () => {
  pool = await connectPool(postgres, { schema, name: 'reconcile test' });
  await createTables(pool, schema, 'orders');
  // Without the UNIQUE of charges.order_id, so that a second charge can be inserted.
  await pool.query(
    `CREATE TABLE ${schema}.inbox (msg_id uuid PRIMARY KEY, processed_at timestamptz NOT NULL)`,
  );
  await pool.query(
    `CREATE TABLE ${schema}.charges (charge_id uuid PRIMARY KEY, order_id uuid NOT NULL, amount_cents bigint NOT NULL,
     created_at timestamptz NOT NULL)`,
  );
});
afterAll(async () => {
  await pool.query(`DROP SCHEMA ${schema} CASCADE`);
  await pool.close();
  rmSync(dir, { recursive: true, force: true });
});

interface World {
  intents: Array<{ intent: number; key: string; account: number; amount: number }>;
  replies: Array<{ intent: number; status: number; sha256: string }>;
  keys: Array<{ key: string; orderId: string; code: number; body: string }>;
  orders: Array<{ orderId: string; account: number; amount: number }>;
  outbox: Array<{ orderId: string; msgId: string; published: boolean }>;
  inbox: Array<{ msgId: string; at: number }>;
  charges: Array<{ orderId: string; amount: number; at: number }>;
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Returns a run in which every intent is acknowledged, ordered and charged once. */
function cleanRun(intents: number): World {
  const world: World = { intents: [], replies: [], keys: [], orders: [], outbox: [], inbox: [], charges: [] };
  for (let intent = 0; intent < intents; intent++) {
    const [key, orderId, msgId] = [randomUUID(), randomUUID(), randomUUID()];
    // Whitespace and the order of names are part of the stored response.
    const body = `{"status":"created",  "order_id":"${orderId}"}`;
    const [account, amount] = [intent % 3, 100 + intent];
    world.intents.push({ intent, key, account, amount });
    for (let reply = 0; reply <= intent % 2; reply++)
      world.replies.push({ intent, status: 201, sha256: sha256(body) });
    world.keys.push({ key, orderId, code: 201, body });
    world.orders.push({ orderId, account, amount });
    world.outbox.push({ orderId, msgId, published: true });
    world.inbox.push({ msgId, at: intent });
    world.charges.push({ orderId, amount, at: intent });
  }
  return world;
}

/** Faults of a run; `at` picks the row. */
const FAULTS: Readonly<Record<string, (world: World, at: number) => void>> = {
  loseOrder: (w, at) => void w.orders.splice(at % w.orders.length, 1),
  loseKey: (w, at) => void w.keys.splice(at % w.keys.length, 1),
  loseOutbox: (w, at) => void w.outbox.splice(at % w.outbox.length, 1),
  loseInbox: (w, at) => void w.inbox.splice(at % w.inbox.length, 1),
  loseCharge: (w, at) => void w.charges.splice(at % w.charges.length, 1),
  loseIntent: (w, at) => {
    const [lost] = w.intents.splice(at % w.intents.length, 1);
    w.replies = w.replies.filter((reply) => reply.intent !== lost?.intent);
  },
  ghostOrder: (w) => void w.orders.push({ orderId: randomUUID(), account: 1, amount: 1 }),
  ghostCharge: (w, at) => void w.charges.push({ orderId: randomUUID(), amount: 1, at }),
  ghostMessage: (w, at) => void w.inbox.push({ msgId: randomUUID(), at }),
  ghostRow: (w) => void w.outbox.push({ orderId: randomUUID(), msgId: randomUUID(), published: true }),
  twoCharges: (w, at) => void w.charges.push({ ...pick(w.charges, at) }),
  otherCharge: (w, at) => void pick(w.charges, at).amount++,
  otherOrder: (w, at) => void pick(w.orders, at).amount--,
  otherAccount: (w, at) => void pick(w.orders, at).account++,
  pending: (w, at) => {
    pick(w.outbox, at).published = false;
  },
  otherReply: (w, at) => {
    pick(w.replies, at).sha256 = sha256(String(at));
  },
  otherStatus: (w, at) => {
    pick(w.replies, at).status = 200;
  },
  otherStored: (w, at) => {
    pick(w.keys, at).body += ' ';
  },
  refused: (w, at) => {
    pick(w.replies, at).status = 409;
  },
  noAnswer: (w, at) => void w.replies.splice(at % w.replies.length, 1),
  neverArrived: (w, at) =>
    void w.intents.push({ intent: 1000 + at + w.intents.length, key: randomUUID(), account: 1, amount: 1 }),
  sharedOrder: (w, at) => {
    pick(w.keys, at).orderId = pick(w.keys, at + 1).orderId;
  },
};

const pick = <T>(all: readonly T[], at: number): T => all[at % all.length] as T;

async function store(world: World): Promise<void> {
  const time = (at: number): Date => new Date(Date.UTC(2026, 0, 1) + at * 1000);
  await pool.query('TRUNCATE orders, idempotency_keys, outbox, inbox, charges');
  const copy = (table: string, columns: string, rows: SqlValue[][]): Promise<number> =>
    pool.copyIn(table, columns.split(' '), rows);
  await copy(
    'orders',
    'order_id account_id amount_cents status',
    world.orders.map((o) => [o.orderId, o.account, o.amount, 'created']),
  );
  await copy(
    'idempotency_keys',
    'idem_key request_hash order_id response_code response_body',
    world.keys.map((k) => [k.key, new Uint8Array(1), k.orderId, k.code, k.body]),
  );
  await copy(
    'outbox',
    'aggregate_id msg_id event_type payload published_at',
    world.outbox.map((x) => [
      x.orderId,
      x.msgId,
      'order.created.v1',
      new Uint8Array(1),
      x.published ? time(0) : null,
    ]),
  );
  await copy(
    'inbox',
    'msg_id processed_at',
    world.inbox.map((i) => [i.msgId, time(i.at)]),
  );
  await copy(
    'charges',
    'charge_id order_id amount_cents created_at',
    world.charges.map((c) => [randomUUID(), c.orderId, c.amount, time(c.at)]),
  );
}

function ledgerOf(world: World): LedgerEntry[] {
  const entries: LedgerEntry[] = [
    {
      type: 'start',
      format: LEDGER_FORMAT,
      target: 'http://127.0.0.1:1',
      seed: '1',
      started_ms: realClock.wallNowMs(),
    },
  ];
  for (const { intent, key, account, amount } of world.intents) {
    entries.push({ type: 'intent', intent, key, account_id: account, amount_cents: amount, due_ms: 0 });
    // Entries that settle nothing must not count as an answer.
    entries.push({ type: 'failure', intent, kind: 'first', error: 'ECONNRESET' });
    entries.push({
      type: 'reply',
      intent,
      kind: 'resend',
      status: 503,
      sha256: sha256('busy'),
      replayed: null,
      latency_ms: 1,
    });
  }
  for (const reply of world.replies)
    entries.push({ type: 'reply', kind: 'repeat', replayed: true, latency_ms: 1, ...reply });
  return entries;
}

function groupBy<T>(all: readonly T[], keyOf: (one: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of all) groups.set(keyOf(one), [...(groups.get(keyOf(one)) ?? []), one]);
  return groups;
}

/** Computes the same classes in JavaScript, from the requirements. */
function oracle(w: World, hasLedger: boolean): Record<string, string[]> {
  const found = new Map<string, Set<string>>();
  const add = (name: string, id: string): void =>
    void found.set(name, (found.get(name) ?? new Set()).add(id));
  const order = new Map(w.orders.map((one) => [one.orderId, one]));
  const charged = groupBy(w.charges, (one) => one.orderId);
  const messages = groupBy(w.outbox, (one) => one.orderId);
  const processed = new Set(w.inbox.map((one) => one.msgId));
  const keyed = groupBy(w.keys, (one) => one.orderId);
  const stored = new Map(w.keys.map((one) => [one.key, one]));
  const explained = new Set<string>();
  for (const { key, orderId } of w.keys) {
    if (!order.has(orderId)) add('lost_order', key);
    if ((keyed.get(orderId)?.length ?? 0) > 1) add('shared_order', orderId);
    if (!hasLedger) explained.add(orderId);
  }
  for (const { intent, key, account, amount } of hasLedger ? w.intents : []) {
    const replies = w.replies.filter((reply) => reply.intent === intent);
    const good = replies.filter(({ status }) => status >= 200 && status < 300);
    const answers = new Set(good.map(({ status, sha256: body }) => `${status} ${body}`));
    const storedKey = stored.get(key);
    if (good.length > 0 && storedKey === undefined) add('lost_order', key);
    if (good.length > 0 && (answers.size > 1 || replies.length > good.length)) add('differing_replies', key);
    if (good.length === 0 && replies.length > 0) continue;
    if (storedKey === undefined) continue;
    explained.add(storedKey.orderId);
    const made = order.get(storedKey.orderId);
    if (made !== undefined && (made.account !== account || made.amount !== amount))
      add('order_amount_differs', storedKey.orderId);
    const first = [...answers].sort()[0];
    if (first !== undefined && first !== `${storedKey.code} ${sha256(storedKey.body)}`)
      add('reply_not_stored', key);
  }
  for (const { orderId, amount } of w.orders) {
    if (!explained.has(orderId)) add('ghost_order', orderId);
    if (!messages.has(orderId)) add('order_without_outbox', orderId);
    if (!charged.has(orderId)) add('order_without_charge', orderId);
    if (charged.get(orderId)?.some((charge) => charge.amount !== amount))
      add('charge_amount_differs', orderId);
  }
  for (const { orderId, msgId, published } of w.outbox) {
    if (!order.has(orderId)) add('outbox_without_order', msgId);
    if (!published) add('pending_outbox', msgId);
    if (processed.has(msgId) && !charged.has(orderId)) add('inbox_without_charge', msgId);
  }
  const oldest = Math.min(...w.inbox.map(({ at }) => at));
  for (const { orderId, at } of w.charges) {
    if (!order.has(orderId)) add('charge_without_order', orderId);
    if ((charged.get(orderId)?.length ?? 0) > 1) add('double_charge', orderId);
    const sent = messages.get(orderId) ?? [];
    const newEnough = w.inbox.length === 0 || at >= oldest;
    if (newEnough && sent.length > 0 && !sent.some(({ msgId }) => processed.has(msgId)))
      add('charge_without_inbox', orderId);
  }
  for (const { msgId } of w.inbox)
    if (!w.outbox.some((row) => row.msgId === msgId)) add('inbox_without_outbox', msgId);
  return Object.fromEntries([...found].sort().map(([name, ids]) => [name, [...ids].sort()]));
}

const found = (result: Reconciliation): Record<string, readonly string[]> =>
  Object.fromEntries(
    result.deltas.map((delta) => [delta.class, delta.ids] as const).sort(([a], [b]) => (a < b ? -1 : 1)),
  );

const compared = (ledgers: LedgerEntry[][], idsMax: number, on = pool): Promise<Reconciliation> =>
  reconcile({
    pool: on,
    ordersSchema: schema,
    paymentsSchema: schema,
    ledgers: ledgers.map((entries) => () => entries),
    idsMax,
  });
const ask = (world: World, hasLedger: boolean, idsMax = 1000): Promise<Reconciliation> =>
  compared(hasLedger ? [ledgerOf(world)] : [], idsMax);

describe('reconcile function', () => {
  it.each([true, false])('reconcile finds nothing in a clean run (ledger: %s)', async (hasLedger) => {
    const world = cleanRun(50);
    await store(world);
    expect(await ask(world, hasLedger)).toMatchObject({
      holds: true,
      intents_from: hasLedger ? 'ledger' : 'idempotency_keys',
      produced_intents: 50,
      distinct_orders: 50,
      distinct_charges: 50,
      unanswered_intents: 0,
      refused_intents: 0,
      deltas: [],
    });
  });

  itFull.each(Object.keys(FAULTS))('reconcile names exactly the rows of one fault: %s', async (fault) => {
    const world = cleanRun(12);
    FAULTS[fault]?.(world, 5);
    await store(world);
    const expected = oracle(world, true);
    const result = await ask(world, true);
    expect(found(result)).toEqual(expected);
    expect(result.holds).toBe(Object.keys(expected).length === 0 && result.produced_intents === 12);
    const harmless = ['noAnswer', 'neverArrived'];
    expect(result.holds).toBe(harmless.includes(fault));
  });

  itFull('reconcile agrees with the oracle on any mixture of faults', { timeout: 300_000 }, async () => {
    const faults = fc.array(fc.tuple(fc.constantFrom(...Object.keys(FAULTS)), fc.nat(40)), {
      minLength: 1,
      maxLength: 6,
    });
    await fc.assert(
      fc.asyncProperty(faults, fc.boolean(), async (some, hasLedger) => {
        const world = cleanRun(12);
        for (const [fault, at] of some) FAULTS[fault]?.(world, at);
        await store(world);
        const result = await ask(world, hasLedger);
        expect(found(result)).toEqual(oracle(world, hasLedger));
        expect(result.distinct_orders).toBe(world.orders.length);
        expect(result.distinct_charges).toBe(new Set(world.charges.map(({ orderId }) => orderId)).size);
      }),
      { numRuns: runs(40) },
    );
  });

  itFull(
    'reconcile counts an order with two charges once, where no UNIQUE stopped the second charge',
    async () => {
      const world = cleanRun(3);
      world.charges.push(pick(world.charges, 1));
      await store(world);
      const result = await ask(world, true);
      expect(result).toMatchObject({ holds: false, distinct_orders: 3, distinct_charges: 3 });
      expect(found(result)).toEqual({ double_charge: [world.orders[1]?.orderId] });
    },
  );

  itFull('reconcile does not report inbox rows that expired as missing', async () => {
    const world = cleanRun(10);
    world.inbox = world.inbox.filter(({ at }) => at >= 6);
    await store(world);
    expect((await ask(world, true)).holds).toBe(true);
    world.inbox = world.inbox.filter(({ at }) => at !== 8);
    await store(world);
    expect(found(await ask(world, true))).toEqual({ charge_without_inbox: [world.orders[8]?.orderId] });
  });

  itFull(
    'an expired idempotency key is no delta, and a key that is missing before its TTL is a delta',
    async () => {
      const world = cleanRun(10);
      const old = world.keys.slice(0, 3).map(({ orderId }) => orderId);
      world.keys.splice(0, 3);
      await store(world);
      await pool.query(
        `UPDATE orders SET created_at = now() - interval '2 days' WHERE order_id = ANY ($1::uuid[])`,
        [old.slice(0, 2)],
      );
      // The remaining keys are older than the third order by more than the margin.
      await pool.query("UPDATE idempotency_keys SET created_at = now() - interval '1 hour'");
      // Without a ledger the stored keys are the intents: the counts differ, and one order has no
      // key.
      expect(found(await ask(world, false))).toEqual({ ghost_order: [old[2]] });
      const entries = ledgerOf(world).map((entry) =>
        entry.type === 'intent' && entry.intent < 2 ? { ...entry, due_ms: -2 * 86_400_000 } : entry,
      );
      const lost = world.intents[2]?.key;
      const result = await compared([entries], 10);
      expect(found(result)).toEqual({ ghost_order: [old[2]], lost_order: [lost] });
      expect(result).toMatchObject({ produced_intents: 10, distinct_orders: 10, distinct_charges: 10 });
    },
  );

  itFull(
    'reconcile reports an order whose record is parked, and counts suppressed and parked records',
    async () => {
      const world = cleanRun(4);
      const [parkedOrder, lostOrder] = world.charges.splice(0, 2).map(({ orderId }) => orderId) as [
        string,
        string,
      ];
      world.inbox.splice(0, 2);
      await store(world);
      await pool.query('CREATE TABLE payments_parked (key bytea, reason text)');
      try {
        await pool.query(
          `INSERT INTO payments_parked VALUES (convert_to($1, 'UTF8'), 'refused'), ('\\xff', 'malformed_payload')`,
          [parkedOrder],
        );
        const result = await ask(world, true);
        expect(found(result)).toEqual({ order_parked: [parkedOrder], order_without_charge: [lostOrder] });
        expect(result.parked).toEqual({ malformed_payload: 1, refused: 1 });
      } finally {
        await pool.query('DROP TABLE payments_parked');
      }
    },
  );

  itFull('reconcile counts all rows and lists only the requested number of ids', async () => {
    const world = cleanRun(30);
    world.charges = [];
    await store(world);
    const { deltas } = await ask(world, true, 3);
    const delta = deltas.find((one) => one.class === 'order_without_charge');
    const ids = world.orders.map(({ orderId }) => orderId).sort();
    expect(delta).toMatchObject({ count: 30, ids: ids.slice(0, 3) });
  });

  itFull(
    'reconcile reports a second charge that only the constraint stopped, if payments recorded it',
    async () => {
      const world = cleanRun(4);
      await store(world);
      expect((await ask(world, true)).classes).not.toContain('charge_attempted_again');
      const orderId = world.orders[1]?.orderId as string;
      await pool.query('CREATE TABLE payments_suppressed (order_id uuid, reason text)');
      try {
        for (const reason of ['seen', 'same_batch', 'order_charged'])
          await pool.query('INSERT INTO payments_suppressed VALUES ($1, $2)', [orderId, reason]);
        const result = await ask(world, true);
        expect(found(result)).toEqual({ charge_attempted_again: [orderId] });
        expect(result.holds).toBe(false);
      } finally {
        await pool.query('DROP TABLE payments_suppressed');
      }
    },
  );

  itFull(
    'reconcile reads a number of rows in proportion to the orders, also on tables without statistics',
    async () => {
      /** Number of rows that the server reads. */
      const costOf = async (intents: number): Promise<number> => {
        const world = cleanRun(intents);
        const entries = ledgerOf({ ...world, replies: [] });
        world.replies.forEach((reply) => {
          entries.push({ type: 'reply', kind: 'first', replayed: false, latency_ms: 1, ...reply });
        });
        await store(world);
        const server = explained(pool);
        const result = await compared([entries], 1, server.pool);
        expect(result).toMatchObject({ holds: true, produced_intents: intents });
        return server.cost().rows;
      };
      const half = await costOf(15_000);
      const whole = await costOf(30_000);
      // A nested loop over two tables would read 10^9 pairs, and four times as many for twice the
      // rows.
      expect(whole).toBeLessThan(30_000 * 1000);
      expect(whole).toBeLessThan(half * 2.5);
    },
  );

  describe('reconcile during load', () => {
    const SETTLE_MS = 600_000;
    /** Rows of orders that were committed, but neither published nor charged. */
    const inFlight = (world: World): World => ({ ...world, inbox: [], charges: [], outbox: pending(world) });
    const pending = (world: World) => world.outbox.map((row) => ({ ...row, published: false }));
    const together = (a: World, b: World): World => {
      const shifted = <T extends { intent: number }>(rows: readonly T[]): T[] =>
        rows.map((row) => ({ ...row, intent: row.intent + a.intents.length }));
      const more: World = { ...b, intents: shifted(b.intents), replies: shifted(b.replies) };
      return Object.fromEntries(
        Object.entries(a).map(([name, rows]) => [name, [...rows, ...more[name as keyof World]]]),
      ) as unknown as World;
    };

    /** Reconciles while the tables and the ledger change between the first comparison and the end
     *  of the settle window. */
    async function whileLoadRuns(before: World, inLedger: World, after: World) {
      await store(before);
      let ledger = ledgerOf(inLedger);
      const waits: number[] = [];
      const result = await reconcile({
        pool,
        ordersSchema: schema,
        paymentsSchema: schema,
        ledgers: [() => ledger],
        idsMax: 100,
        settleMs: SETTLE_MS,
        wait: async (ms) => {
          waits.push(ms);
          const { rows } = await pool.query<{ order_id: string; created_at: Date }>(
            'SELECT order_id, created_at FROM orders',
          );
          await store(after);
          // Rows that existed before keep their creation time.
          for (const { order_id, created_at } of rows) {
            await pool.query('UPDATE orders SET created_at = $2 WHERE order_id = $1', [order_id, created_at]);
            await pool.query('UPDATE outbox SET created_at = $2 WHERE aggregate_id = $1', [
              order_id,
              created_at,
            ]);
          }
          ledger = ledgerOf(after);
        },
      });
      return { result, waits };
    }

    it('an order in flight is no delta, and an order that starts during the comparison is left out', async () => {
      const [old, young, next] = [cleanRun(5), cleanRun(3), cleanRun(2)];
      const settled = together(old, young);
      // The client has not yet written its last requests to the ledger.
      const { result, waits } = await whileLoadRuns(
        together(old, inFlight(young)),
        old,
        together(settled, inFlight(next)),
      );
      expect(result).toMatchObject({
        holds: true,
        comparisons: 2,
        produced_intents: 8,
        distinct_orders: 8,
        distinct_charges: 8,
      });
      expect(waits).toHaveLength(1);
      expect(waits[0]).toBeLessThanOrEqual(SETTLE_MS);
    });

    it('an order that is never charged is a delta, however young it was', async () => {
      const [old, lost] = [cleanRun(5), cleanRun(1)];
      const inLedger = together(old, lost);
      const { result } = await whileLoadRuns(
        together(old, inFlight(lost)),
        inLedger,
        together(old, inFlight(lost)),
      );
      expect(result.holds).toBe(false);
      expect(found(result)).toEqual({
        order_without_charge: [lost.orders[0]?.orderId],
        pending_outbox: [lost.outbox[0]?.msgId],
      });
    });

    it('an order that is dated ahead of the clock of the database is judged by its outbox row', async () => {
      const world = cleanRun(5);
      const [lost, later] = world.orders.slice(3).map(({ orderId }) => orderId) as [string, string];
      for (const rows of [world.charges, world.inbox]) rows.splice(3);
      // An order without its row, and a key without its order, cannot be in flight.
      const alone = randomUUID();
      world.orders.push({ orderId: alone, account: 1, amount: 1 });
      const orphan = { key: randomUUID(), orderId: randomUUID(), code: 201, body: '{}' };
      world.keys.push(orphan, { ...orphan, key: randomUUID(), orderId: alone });
      await store(world);
      for (const table of ['orders', 'idempotency_keys'])
        await pool.query(`UPDATE ${table} SET created_at = now() + interval '1 hour'`);
      await pool.query(`UPDATE outbox SET created_at = now() - interval '1 day'`);
      // This order begins after the comparison.
      await pool.query(
        `UPDATE outbox SET created_at = now() + interval '1 hour' WHERE aggregate_id = $1::uuid`,
        [later],
      );
      const judge = (to?: Date): Promise<Reconciliation> =>
        reconcile({
          pool,
          ordersSchema: schema,
          paymentsSchema: schema,
          ledgers: [],
          idsMax: 100,
          settleMs: SETTLE_MS,
          wait: () => Promise.reject(new Error('nothing is in flight')),
          ...(to === undefined ? {} : { to }),
        });
      const result = await judge();
      expect(found(result)).toEqual({
        lost_order: [orphan.key],
        order_without_charge: [alone, lost].sort(),
        order_without_outbox: [alone],
      });
      expect(result).toMatchObject({ distinct_orders: 5, distinct_charges: 3, comparisons: 1 });
      // A bound of the user is a bound on the dates of orders.
      const now = new Date(realClock.wallNowMs() + 60_000);
      expect(await judge(now)).toMatchObject({ deltas: [], distinct_orders: 0 });
    });

    it('reconcile reports an old difference without a wait', async () => {
      const world = cleanRun(3);
      world.charges.pop();
      world.inbox.pop();
      await store(world);
      await pool.query(`UPDATE outbox SET created_at = now() - interval '1 day'`);
      const result = await reconcile({
        pool,
        ordersSchema: schema,
        paymentsSchema: schema,
        ledgers: [() => ledgerOf(world)],
        idsMax: 100,
        settleMs: SETTLE_MS,
        wait: () => Promise.reject(new Error('nothing is in flight')),
      });
      expect(found(result)).toEqual({ order_without_charge: [world.orders[2]?.orderId] });
      expect(result.comparisons).toBe(1);
    });
  });

  it('reconcile judges only rows of the given time range', async () => {
    const world = cleanRun(4);
    const [uncharged] = world.charges.splice(0, 2);
    await store(world);
    const days = async (table: string, column: string, id: string, ago: number): Promise<void> => {
      await pool.query(
        `UPDATE ${table} SET ${column} = now() - $2::int * interval '1 day' WHERE ${id} = $1::uuid`,
        [world.orders[0]?.orderId as string, ago],
      );
    };
    await days('orders', 'created_at', 'order_id', 2);
    await days('idempotency_keys', 'created_at', 'order_id', 2);
    const judge = (from?: Date, to?: Date): Promise<Reconciliation> =>
      reconcile({
        pool,
        ordersSchema: schema,
        paymentsSchema: schema,
        ledgers: [],
        idsMax: 10,
        ...(from === undefined ? {} : { from }),
        ...(to === undefined ? {} : { to }),
      });
    const yesterday = new Date(realClock.wallNowMs() - 86_400_000);
    const [before, since] = [await judge(undefined, yesterday), await judge(yesterday)];
    expect(before).toMatchObject({ produced_intents: 1, distinct_orders: 1, distinct_charges: 0 });
    expect(found(before)['order_without_charge']).toEqual([uncharged?.orderId]);
    expect(since).toMatchObject({ produced_intents: 3, distinct_orders: 3, distinct_charges: 2 });
    expect(found(since)['order_without_charge']).toEqual([world.orders[1]?.orderId]);
  });

  itFull('reconcile refuses a ledger that was assembled from parts', async () => {
    const world = cleanRun(3);
    await store(world);
    for (const change of [
      (entries: LedgerEntry[]) => entries.filter((one) => one.type !== 'intent'),
      (entries: LedgerEntry[]) => entries.slice(1),
      (entries: LedgerEntry[]) => [...entries, entries[1] as LedgerEntry],
    ]) {
      const ledgers = [change(ledgerOf(world))];
      await expect(compared(ledgers, 1)).rejects.toMatchObject({ code: 'bad_file' });
    }
  });
});

describe('millrace reconcile', () => {
  const ledger = join(dir, 'ledger.jsonl');
  const world = cleanRun(5);
  beforeEach(async () => {
    writeFileSync(ledger, ledgerOf(world).map(ledgerLine).join(''));
    await store(world);
  });

  async function run(...args: readonly string[]) {
    const one = start(command, [`-postgres=${postgres}`, `-schema=${schema}`, '-log-level=warn', ...args]);
    return { code: await one.code, stdout: one.world.stdout(), stderr: one.world.stderr() };
  }

  it('millrace reconcile prints the counts of a clean run and ends with 0', async () => {
    const { code, stdout } = await run(`-ledger=${ledger}`);
    expect(stdout).toMatch(
      /^produced_intents +5 .*\ndistinct_orders +5\ndistinct_charges +5\ndeltas +0\ncompared +rows up to /,
    );
    expect(code).toBe(0);
  });

  it('millrace reconcile lists differences, as text and as a document, and ends with 1', async () => {
    await pool.query('UPDATE charges SET amount_cents = amount_cents + 1 WHERE order_id = $1', [
      world.orders[2]?.orderId as string,
    ]);
    const text = await run(`-ledger=${ledger}`, '-settle=0');
    expect(text.code).toBe(1);
    expect(text.stdout).toContain(`order_id ${world.orders[2]?.orderId}`);
    const { code, stdout } = await run('-json', '-settle=0');
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      holds: false,
      produced_intents: 5,
      deltas: [{ class: 'charge_amount_differs', count: 1, ids: [world.orders[2]?.orderId] }],
    });
  });

  itFull(
    'millrace reconcile names a missing or invalid input in one line and with the right exit code',
    async () => {
      const lines = async (args: readonly string[]): Promise<readonly [number, string]> => {
        const one = start(command, args);
        const code = await one.code;
        const errors = one.world
          .stderr()
          .split('\n')
          .filter((line) => line.startsWith('error:'));
        expect(errors).toHaveLength(1);
        return [code, errors[0] as string];
      };
      const [gone, why] = await lines(['-postgres=postgres://me:secret@127.0.0.1:1/none']);
      expect(gone).toBe(3);
      expect(why).toMatch(/not reachable/);
      expect(why).not.toContain('secret');
      expect((await lines([`-postgres=${postgres}`, '-schema=no_such_schema']))[0]).toBe(3);
      expect((await lines([`-postgres=${postgres}`, '-schema=x"y']))[0]).toBe(2);
      expect(await lines([`-postgres=${postgres}`, '-from=yesterday'])).toEqual([
        2,
        expect.stringContaining('-from=yesterday is not a time'),
      ]);
      const swapped = ['-from=2026-01-02T00:00:00Z', '-to=2026-01-01T00:00:00Z'];
      expect(await lines([`-postgres=${postgres}`, ...swapped])).toEqual([
        2,
        expect.stringContaining('-from is later than -to'),
      ]);
      expect((await lines([`-postgres=${postgres}`, `-schema=${schema}`, '-payments-schema=a b']))[0]).toBe(
        2,
      );
      expect(await lines([`-postgres=${postgres}`, `-ledger=${dir}/none`])).toEqual([
        2,
        expect.stringContaining('none'),
      ]);
      expect((await lines([`-postgres=${postgres}`, `-ledger=${dir}`]))[0]).toBe(2);
      writeFileSync(ledger, 'not a ledger\n');
      expect(await lines([`-postgres=${postgres}`, `-schema=${schema}`, `-ledger=${ledger}`])).toEqual([
        2,
        expect.stringContaining('line 1'),
      ]);
    },
  );
});
