/** The proof of an open transaction, for clients that do not report their state: what counts as
 *  open, and the number of statements that the proof costs. */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { append, lockAggregates } from '../../src/outbox/append/events.ts';
import { outboxTableSql } from '../../src/outbox/append/table.ts';
import type { OpenTransaction } from '../../src/outbox/database/transaction.ts';
import { Inbox } from '../../src/outbox/inbox/once.ts';
import { idAt, inboxWorld, T0 } from './inbox-kit.ts';

const world = await inboxWorld(1);
const inbox = new Inbox();
await world.pool.query(outboxTableSql('parcels'));
await world.pool.query('CREATE TABLE audit (at timestamptz NOT NULL DEFAULT now())');
let client: pg.Client;
beforeAll(async () => {
  client = await world.client();
});

/** The client without the report of its state, and the statements that it got. */
function silent(over: OpenTransaction = client): { readonly tx: OpenTransaction; readonly sent: string[] } {
  const sent: string[] = [];
  const query: OpenTransaction['query'] = (text, params) => {
    sent.push(text);
    return over.query(text, params);
  };
  return { tx: { query }, sent };
}

const event = () => ({ aggregateId: randomUUID(), eventType: 'parcel.moved.v1', payload: 1 });
const CALLS: Readonly<Record<string, (tx: OpenTransaction) => Promise<unknown>>> = {
  append: (tx) => append(tx, 'parcels', [event()]),
  claim: (tx) => inbox.claim(tx, [idAt(T0)]),
  lockAggregates: (tx) => lockAggregates(tx, 'parcels', [randomUUID()]),
};
const names = Object.keys(CALLS);
const call = (name: string, tx: OpenTransaction) => (CALLS[name] as (typeof CALLS)[string])(tx);
const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'accepted',
    (thrown) => findMillraceError(thrown)?.code ?? thrown,
  );
const rows = async (): Promise<number> => {
  const counted = 'SELECT ((SELECT count(*) FROM parcels) + (SELECT count(*) FROM inbox))::int AS n';
  return (await world.pool.query<{ n: number }>(counted)).rows[0]?.n as number;
};

describe('a client that does not report its state', () => {
  it.each(names)('the call %s runs one statement in a transaction that has written', async (name) => {
    await client.query('BEGIN');
    await client.query('INSERT INTO audit DEFAULT VALUES');
    const { tx, sent } = silent();
    await call(name, tx);
    expect(sent.length).toBe(1);
    await client.query('ROLLBACK');
  });

  it.each(names)(
    'the call %s runs its statement twice as the first that writes, and once afterwards',
    async (name) => {
      await client.query('BEGIN');
      const { tx, sent } = silent();
      await call(name, tx);
      expect([sent.length, sent[0]]).toEqual([2, sent[1]]);
      await call(name, tx);
      expect(sent.length).toBe(3);
      await client.query('ROLLBACK');
    },
  );

  it.each(names)('the call %s is proven again after a rollback to a savepoint', async (name) => {
    await client.query('BEGIN');
    await client.query('SAVEPOINT before');
    const { tx } = silent();
    await call(name, tx);
    await client.query('ROLLBACK TO SAVEPOINT before');
    expect(await codeOf(call(name, tx))).toBe('accepted');
    await client.query('ROLLBACK');
  });

  it.each(names)(
    'the call %s is refused after the end of a transaction in which it was accepted',
    async (name) => {
      const { tx } = silent();
      for (const end of ['COMMIT', 'ROLLBACK']) {
        await client.query('BEGIN');
        await call(name, tx);
        await client.query(end);
        const before = await rows();
        expect(await codeOf(call(name, tx))).toBe('not_in_transaction');
        expect(await rows()).toBe(before);
      }
    },
  );

  it.each(['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])(
    'a transaction is proven at isolation level %s',
    async (level) => {
      await client.query(`BEGIN ISOLATION LEVEL ${level}`);
      for (const name of names) expect(await codeOf(call(name, silent().tx))).toBe('accepted');
      await client.query('ROLLBACK');
    },
  );

  it.each(['append', 'claim'])(
    'the call %s is refused outside of a transaction although a trigger of the table writes first',
    async (name) => {
      const table = name === 'append' ? 'parcels' : 'inbox';
      await world.pool.query(`CREATE FUNCTION write_${table}() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO audit DEFAULT VALUES; RETURN NULL; END'`);
      await world.pool.query(
        `CREATE TRIGGER first BEFORE INSERT ON ${table} FOR EACH STATEMENT EXECUTE FUNCTION write_${table}()`,
      );
      const before = await rows();
      expect(await codeOf(call(name, silent().tx))).toBe('not_in_transaction');
      expect(await rows()).toBe(before);
      await world.pool.query(`DROP TRIGGER first ON ${table}`);
    },
  );

  it.each(names)(
    'the call %s is refused by a pool that gives each statement another connection',
    async (name) => {
      const clients = [await world.client(), await world.client()];
      let turn = 0;
      const pool: OpenTransaction = {
        query: (text, params) => (clients[turn++ % 2] as pg.Client).query(text, params),
      };
      const before = await rows();
      for (let i = 0; i < 3; i++)
        expect(await codeOf(call(name, silent(pool).tx))).toBe('not_in_transaction');
      expect(await rows()).toBe(before);
    },
  );
});

describe('a client of the pg package', () => {
  it.each(names)('the call %s runs one statement, as the first of a transaction too', async (name) => {
    await client.query('BEGIN');
    const sent: string[] = [];
    const spied = new Proxy(client, {
      get: (target, key) =>
        key === 'query'
          ? (text: string, params: unknown[]) => {
              sent.push(text);
              return target.query(text, params);
            }
          : Reflect.get(target, key, target),
    });
    await call(name, spied as unknown as OpenTransaction);
    expect(sent.length).toBe(1);
    expect(sent[0]).not.toContain('guard');
    await client.query('ROLLBACK');
  });

  it.each(names)(
    'the call %s is refused behind a COMMIT in flight, and accepted behind a BEGIN in flight',
    async (name) => {
      const before = await rows();
      await client.query('BEGIN');
      const committing = client.query('COMMIT');
      expect(await codeOf(call(name, client))).toBe('not_in_transaction');
      await committing;
      expect(await rows()).toBe(before);
      const beginning = client.query('BEGIN');
      expect(await codeOf(call(name, client))).toBe('accepted');
      await beginning;
      await client.query('ROLLBACK');
    },
  );
});
