/** The simulated database (test/property/effects-world) against PostgreSQL: the product's own
 *  functions run random scripts on both, and each result must be equal. So a simulated answer is
 *  one that the server gives. */
import { randomBytes } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { pgTextDriver } from '../../src/io/postgres/sql/pg-text.ts';
import type { SqlPool, TextPool, TextSession } from '../../src/io/postgres/sql/port.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { UuidV7 } from '../../src/outbox/ids.ts';
import { Inbox } from '../../src/outbox/inbox/once.ts';
import {
  insertOrders,
  insertParts,
  type NewOrder,
  readOrder,
  readStored,
  setLockTimeout,
} from '../../src/outbox/orders/write/store.ts';
import {
  applyBatch,
  commitState,
  type OrderDelivery,
  type WrittenBatch,
} from '../../src/outbox/payments/store.ts';
import { SeededRandom, VirtualClock } from '../../src/sim/clock.ts';
import { createTables, openPool } from '../fixtures/database.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { ORDERS_LOCK_MS, sqlPoolOf, textPoolOf } from '../property/effects-world/sessions.ts';
import { Tables } from '../property/effects-world/tables.ts';
import { Transactions } from '../property/effects-world/transactions.ts';
import { OutboxDatabase } from '../property/relay-world/database.ts';
import { SimProcess } from '../property/relay-world/process.ts';
import { runs } from '../tier.ts';

const CREATED_AT = '2026-11-21T10:00:00.000Z';
const KEYS = 6;
const TABLES =
  'idempotency_keys, orders, outbox, inbox, charges, payments_suppressed, payments_parked, payments_batches';
const DAY_MS = 86_400_000;
/** Rollback that a script asks for. */
const UNDO = new Error('undo');

interface Server {
  readonly text: TextPool;
  readonly sql: SqlPool;
  /** Runs a script to its end. */
  run<T>(script: Promise<T>): Promise<T>;
  /** Returns the rows of all tables, in an order that does not depend on time. */
  content(): Promise<unknown>;
  /** Forgets the inbox rows below an id, as the keeper does. */
  drop(below: string): Promise<void>;
}

interface RealServer extends Server {
  /** Removes all rows. */
  clear(): Promise<void>;
  close(): Promise<void>;
}

function simulated(hasUniqueOrder: boolean): Server {
  const clock = new VirtualClock();
  const random = new SeededRandom(1);
  const outbox = new OutboxDatabase({
    nowMs: () => clock.wallNowMs(),
    after: (ms, run) => clock.after(ms, run),
    delay: async () => {},
    isLost: () => false,
    onMark: () => {},
    onStatement: () => {},
    hasSequence: true,
  });
  const transactions = new Transactions({ clock, random, outbox, log: [], flushMs: () => 1 });
  const hooks = { wallMs: () => clock.wallNowMs(), onOrder: () => {}, onCharge: () => {} };
  const tables = new Tables(transactions, hooks, hasUniqueOrder);
  const session = {
    travel: async () => {},
    isLost: () => false,
    isDown: () => false,
    onStep: () => {},
    after: (ms: number, run: () => void) => clock.after(ms, run),
    onUnknownCommit: () => {},
  };
  const parts = { tables, transactions, hooks: session };
  const process = new SimProcess(clock);
  return {
    text: textPoolOf(parts, process),
    sql: sqlPoolOf(parts, process),
    run: (script) => clock.run(script),
    content: async () => ({
      keys: [...tables.keys].map(([key, { hash, orderId }]) => `${key} ${hash} ${orderId}`).sort(),
      orders: [...tables.orders.keys()].sort(),
      outbox: outbox
        .pending()
        .map(({ aggregateId, msgId, payload }) => `${aggregateId} ${msgId} ${Buffer.from(payload)}`)
        .sort(),
      inbox: [...tables.inbox].sort(),
      charges: [...tables.charges.values()].map(({ chargeId, orderId }) => `${chargeId} ${orderId}`).sort(),
      suppressed: tables.suppressed.map(({ msgId, reason }) => `${msgId} ${reason}`).sort(),
      parked: tables.parked.map(({ offset, reason }) => `${offset} ${reason}`).sort(),
    }),
    drop: async (below) => tables.dropInbox(below),
  };
}

async function real(postgres: string, hasUniqueOrder: boolean): Promise<RealServer> {
  const schema = `effects_${randomBytes(6).toString('hex')}`;
  const sql = await openPool(postgres, { schema, connections: 4 });
  await createTables(sql, schema, 'orders', 'payments');
  if (!hasUniqueOrder) await sql.query('ALTER TABLE charges DROP CONSTRAINT charges_order_id_key');
  const text = await pgTextDriver.connect({
    url: withSettings(postgres, { schema, more: { lock_timeout: String(ORDERS_LOCK_MS) } }),
    connectionsMax: 4,
    applicationName: 'effects-statements',
    connectTimeoutMs: 60_000,
    answerTimeoutMs: 60_000,
  });
  const lines = async (columns: string, table: string): Promise<readonly string[]> => {
    const { rows } = await sql.query<{ line: string }>(
      `SELECT concat_ws(' ', ${columns}) AS line FROM ${table}`,
    );
    return rows.map(({ line }) => line).sort();
  };
  return {
    text,
    sql,
    run: (script) => script,
    content: async () => ({
      keys: await lines(`idem_key, encode(request_hash, 'hex'), order_id`, 'idempotency_keys'),
      orders: await lines('order_id', 'orders'),
      outbox: await lines(`aggregate_id, msg_id, convert_from(payload, 'UTF8')`, 'outbox'),
      inbox: await lines('msg_id', 'inbox'),
      charges: await lines('charge_id, order_id', 'charges'),
      suppressed: await lines('msg_id, reason', 'payments_suppressed'),
      parked: await lines('"offset", reason', 'payments_parked'),
    }),
    drop: async (below) => {
      await sql.query('DELETE FROM inbox WHERE msg_id < $1::uuid', [below]);
      await sql.query('UPDATE inbox_floor SET floor = greatest(floor, $1::uuid)', [below]);
    },
    clear: async () => {
      await sql.query(`TRUNCATE ${TABLES}`);
      await sql.query(`UPDATE inbox_floor SET floor = DEFAULT`);
    },
    close: () => text.close(),
  };
}

/** Ids whose order is that of their numbers; the first 48 bits are a plausible time. */
const idOf = (kind: number, n: number): string =>
  `0193${kind.toString(16).padStart(4, '0')}-${n.toString(16).padStart(4, '0')}-7000-8000-000000000000`;
const keyOf = (n: number): string => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`;

/** A script: the same calls on either server, in an order that a seed draws. */
class Script {
  private readonly server: Server;
  private readonly random: SeededRandom;
  private readonly results: unknown[] = [];
  private readonly inbox = new Inbox();
  private readonly ids: UuidV7;
  private made = 0;

  constructor(server: Server, seed: number) {
    this.server = server;
    this.random = new SeededRandom(seed);
    this.ids = new UuidV7(new VirtualClock(), new SeededRandom(seed));
  }

  async run(): Promise<readonly unknown[]> {
    for (let step = 0; step < 12; step++) {
      const kind = this.below(7);
      if (kind === 0) await this.batch();
      else if (kind === 1) await this.parts();
      else if (kind === 2) await this.contention();
      else if (kind === 3) await this.read();
      else if (kind === 4) await this.drop();
      else await this.payments();
    }
    this.results.push(await this.server.content());
    return this.results;
  }

  private below(count: number): number {
    return Math.floor(this.random.fraction() * count);
  }

  private orders(): NewOrder[] {
    const keys = new Set(Array.from({ length: 1 + this.below(4) }, () => this.below(KEYS)));
    return [...keys].map((n) => {
      const made = ++this.made;
      return {
        key: keyOf(n),
        requestHash: made.toString(16).padStart(64, '0'),
        orderId: idOf(1, made),
        msgId: idOf(2, made),
        accountId: BigInt(made),
        amountCents: BigInt(made * 10),
        traceparent: undefined,
        tracestate: undefined,
      };
    });
  }

  private note(result: unknown): void {
    const plain = (value: unknown): unknown =>
      value instanceof Set || value instanceof Map ? [...value.keys()].sort() : value;
    this.results.push(plain(result));
  }

  /** Outcome of a call: its result, or the SQLSTATE of its error. */
  private async outcomeOf<T>(call: Promise<T>): Promise<T | string> {
    return call.catch((thrown: unknown) => {
      if (thrown === UNDO) return 'undone';
      const { details } = thrown as { details?: { sqlstate?: string } };
      if (details?.sqlstate === undefined) throw thrown;
      return `error ${details.sqlstate}`;
    });
  }

  private async batch(): Promise<void> {
    this.note(await this.outcomeOf(insertOrders(this.server.text, this.orders(), CREATED_AT)));
  }

  private async parts(): Promise<void> {
    const [first, second] = [this.orders(), this.orders()];
    const undoes = this.below(2) === 0;
    const call = this.server.text.transaction(async (session) => {
      await setLockTimeout(session, 1000);
      const one = await insertParts(session, first, CREATED_AT, () => true);
      const two = await insertOrders(session, second, CREATED_AT);
      this.note(one.won);
      this.note(two);
      if (undoes) throw UNDO;
      return 'committed';
    });
    this.note(await this.outcomeOf(call));
  }

  /** A second session inserts a key that the first holds: it waits, or its lock timeout ends it. */
  private async contention(): Promise<void> {
    const { text } = this.server;
    const orders = this.orders();
    const others = this.orders();
    const [ends, waits] = [this.below(2) === 0, this.below(2) === 0];
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    let inserted = (): void => {};
    const isInserted = new Promise<void>((resolve) => {
      inserted = resolve;
    });
    const first = this.outcomeOf(
      text.transaction(async (session) => {
        const won = await insertOrders(session, orders, CREATED_AT);
        inserted();
        await gate;
        if (ends) throw UNDO;
        return won;
      }),
    );
    await isInserted;
    const insert = async (session: TextSession): Promise<unknown> => {
      await setLockTimeout(session, waits ? 60_000 : 1);
      return insertOrders(session, others, CREATED_AT);
    };
    const second = this.outcomeOf(text.transaction(insert));
    if (waits) open();
    const [blocked] = await Promise.all([second.finally(open), first.then((won) => this.note(won))]);
    this.note(blocked);
  }

  private async read(): Promise<void> {
    const keys = [keyOf(this.below(KEYS)), keyOf(this.below(KEYS + 2))];
    const stored = await readStored(this.server.text, [...new Set(keys)], DAY_MS);
    this.note(
      [...stored]
        .map(([key, { orderId, responseBody, responseCode }]) => [key, orderId, responseBody, responseCode])
        .sort(),
    );
    const order = await readOrder(this.server.sql, idOf(1, 1 + this.below(this.made + 1)));
    this.note(
      order === undefined
        ? 'none'
        : [order.orderId, order.accountId, order.amountCents, order.createdAt.toISOString()],
    );
  }

  private async drop(): Promise<void> {
    await this.server.drop(idOf(3, this.below(8)));
  }

  private async payments(): Promise<void> {
    const deliveries = Array.from({ length: 1 + this.below(6) }, (_, i) => this.delivery(i));
    const undoes = this.below(3) === 0;
    let written: WrittenBatch | undefined;
    const call = this.server.sql.transaction(async (session) => {
      written = await applyBatch(session, deliveries, [], {
        ids: this.ids,
        inbox: this.inbox,
        afterCharges: async () => {},
      });
      if (undoes) throw UNDO;
    });
    this.note(await this.outcomeOf(call));
    const { outcome, proof } = written as unknown as WrittenBatch;
    this.note(outcome.charged.map(({ event }) => event.msgId));
    this.note(outcome.suppressed.map(({ delivery, reason }) => [delivery.event.msgId, reason]));
    this.note(outcome.parked.map(({ offset, reason }) => [offset, reason]));
    this.note(await commitState(this.server.sql, proof));
  }

  private delivery(row: number): OrderDelivery {
    const n = this.below(10);
    return {
      topic: 't',
      partition: 0,
      offset: BigInt(++this.made * 10 + row),
      key: null,
      value: null,
      injected: false,
      event: {
        kind: 'order',
        msgId: idOf(3, n),
        // Two messages of one order, so that the order is charged already.
        orderId: idOf(4, n >> 1),
        amountCents: BigInt(n + 1),
        createdMs: undefined,
      },
    };
  }
}

const SEEDS = Array.from({ length: runs(30) }, (_, i) => i + 1);

describe.each([true, false])(
  'the simulated database beside PostgreSQL, UNIQUE(order_id): %s',
  (hasUnique) => {
    let own: RealServer;
    beforeAll(async () => {
      own = await real((await sharedStack()).postgres, hasUnique);
      return () => own.close();
    });

    it('every statement of orders and payments has the same result, and leaves the same rows', async () => {
      for (const seed of SEEDS) {
        const server = simulated(hasUnique);
        const expected = await server.run(new Script(server, seed).run());
        await own.clear();
        expect({ seed, results: expected }).toEqual({ seed, results: await new Script(own, seed).run() });
      }
    });
  },
);
