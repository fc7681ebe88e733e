/** Contract of every driver of TextPool, run against a real server by test/e2e/sql.test.ts. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type {
  SqlPool,
  TextDriver,
  TextOptions,
  TextPool,
  TextRows,
  TextStatement,
} from '../../src/io/postgres/sql/port.ts';
import { gate } from './http-harness.ts';
import { cuttingProxy, failure, heldLock } from './sql-kit.ts';
import { type PoolFace, poolContract } from './sql-pools.ts';

const statement = (text: string, paramCount = 0): TextStatement => ({ text, paramCount });

const table = (rows: TextRows): Array<Array<string | null>> =>
  Array.from({ length: rows.rowCount }, (_, row) =>
    Array.from({ length: rows.columnCount }, (_, column) => rows.text(row, column)),
  );
const count = (rows: TextRows): number => rows.rowCount;

export function textContract(driver: TextDriver, postgres: () => string): void {
  describe(`text sql contract: ${driver.name}`, () => {
    const schema = `text_contract_${driver.name.replace('-', '_')}_${randomBytes(6).toString('hex')}`;
    let plain: SqlPool;
    let pool: TextPool;
    const INSERT = statement(`INSERT INTO ${schema}.t (id, note) VALUES ($1, $2)`, 2);
    const IDS = statement(`SELECT id FROM ${schema}.t ORDER BY id`);
    const options = (url: string, over: Partial<TextOptions> = {}): TextOptions => ({
      url,
      connectionsMax: 3,
      applicationName: `text-contract-${driver.name}`,
      connectTimeoutMs: 60_000,
      answerTimeoutMs: 20_000,
      ...over,
    });
    const backends = async (applicationName: string): Promise<number> => {
      const { rows } = await plain.query<{ n: bigint }>(
        'SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = $1',
        [applicationName],
      );
      return Number(rows[0]?.n);
    };

    beforeAll(async () => {
      plain = await pgDriver.connect({
        url: postgres(),
        connectionsMax: 2,
        applicationName: 'text-contract-plain',
        connectTimeoutMs: 60_000,
      });
      await plain.query(`CREATE SCHEMA ${schema}`);
      await plain.query(`CREATE TABLE ${schema}.t (id int8 PRIMARY KEY, note text)`);
      pool = await driver.connect(options(postgres()));
    });
    afterAll(async () => {
      await pool.close();
      await pool.close();
      await plain.query(`DROP SCHEMA ${schema} CASCADE`);
      await plain.close();
    });

    const face = (of: TextPool): PoolFace => ({
      run: (sql) => of.execute(statement(sql), [], count),
      transaction: (work) =>
        of.transaction((session) => work((sql) => session.execute(statement(sql), [], count))),
      ids: (sql) => of.execute(statement(sql), [], (rows) => table(rows).map(([id]) => BigInt(id as string))),
      close: () => of.close(),
    });
    poolContract({
      postgres,
      connect: async (url, connectionsMax) => face(await driver.connect(options(url, { connectionsMax }))),
      pool: () => face(pool),
      table: `${schema}.t`,
    });

    it('a pool opens as many connections as its limit and no more', async () => {
      const one = statement('SELECT 1');
      let begun = 0;
      const together = gate();
      await Promise.all(
        Array.from({ length: 9 }, () =>
          pool.transaction(async (session) => {
            // The first three transactions wait for each other, so they need three connections.
            if (++begun === 3) together.open();
            await together.opened;
            await session.execute(one, [], count);
          }),
        ),
      );
      expect(pool.connected()).toBe(3);
    });

    it('every value is read as the server writes it, and texts and nulls are sent as they are', async () => {
      const rows = await pool.execute(
        statement(
          `SELECT 9223372036854775807::int8, '\\x00ff'::bytea, '{"b": 1,  "a":2}'::json, true, null::text, ''::text, '{1,NULL}'::int8[],
                  $1::text, $2::text, $3::uuid[], $4::bytea`,
          4,
        ),
        ['ü€😀 \'"\\ {},', null, '{0190b7f0-0000-7000-8000-000000000001}', '\\x5c00'],
        table,
      );
      expect(rows).toEqual([
        [
          '9223372036854775807',
          '\\x00ff',
          '{"b": 1,  "a":2}',
          't',
          null,
          '',
          '{1,NULL}',
          'ü€😀 \'"\\ {},',
          null,
          '{0190b7f0-0000-7000-8000-000000000001}',
          '\\x5c00',
        ],
      ]);
    });

    it('a statement reports how many rows it returned or changed', async () => {
      expect(await pool.execute(INSERT, ['1', 'one'], count)).toBe(1);
      expect(await pool.execute(INSERT, ['2', null], count)).toBe(1);
      expect(await pool.execute(IDS, [], table)).toEqual([['1'], ['2']]);
      const update = statement(`UPDATE ${schema}.t SET note = $1`, 1);
      expect(await pool.execute(update, ['x'], count)).toBe(2);
      expect(await pool.execute(statement(`SELECT 1 WHERE false`), [], count)).toBe(0);
      expect(await pool.execute(statement(`DELETE FROM ${schema}.t`), [], count)).toBe(2);
    });

    it('megabytes pass in both directions', async () => {
      const big = 'a"\\é'.repeat(1_000_000);
      const [[length, back]] = (await pool.execute(statement('SELECT length($1), $1', 1), [big], table)) as [
        [string, string],
      ];
      expect(Number(length)).toBe(4_000_000);
      expect(back === big).toBe(true);
    });

    it('a statement is prepared once per connection, and again if the server dropped it', async () => {
      const one = await driver.connect(options(postgres(), { connectionsMax: 1 }));
      try {
        const seen = statement('SELECT count(*) FROM pg_prepared_statements');
        const first = await one.execute(seen, [], table);
        expect(await one.execute(seen, [], table)).toEqual(first);
        await one.transaction(async (session) => {
          await session.execute(statement('DEALLOCATE ALL'), [], () => undefined);
        });
        await one.execute(seen, [], table);
        expect(await one.execute(seen, [], table)).toEqual(await one.execute(seen, [], table));
      } finally {
        await one.close();
      }
    });

    it('an error of the reader of the rows reaches the caller, and the pool stays usable', async () => {
      const thrown = pool.execute(statement('SELECT 1'), [], () => {
        throw new RangeError('mine');
      });
      await expect(thrown).rejects.toThrow(RangeError);
      expect(await pool.execute(statement('SELECT 2'), [], table)).toEqual([['2']]);
    });

    it('a parameter that the protocol would truncate is refused', async () => {
      const error = await failure(pool.execute(statement('SELECT $1', 1), ['a\0b'], table));
      expect(error.code).toBe('bad_value');
    });

    it('a pool replaces lost connections, and its errors distinguish a loss before the statement, a loss in flight and a killed session', async () => {
      const proxy = await cuttingProxy(new URL(postgres()));
      const through = await driver.connect(options(proxy.url));
      const lock = await heldLock(plain);
      try {
        await proxy.cutAll();
        expect(await through.execute(statement('SELECT 1'), [], table)).toEqual([['1']]);
        const received = proxy.received(lock.statement);
        const pending = failure(through.execute(statement(lock.statement), [], count));
        await received;
        await proxy.cutAll();
        const lost = await pending;
        expect([lost.code, lost.details['sent'], lost.details['sqlstate']]).toEqual([
          'unreachable',
          true,
          undefined,
        ]);
        expect(await through.execute(statement('SELECT 2'), [], table)).toEqual([['2']]);
        const suicide = statement('SELECT pg_terminate_backend(pg_backend_pid())');
        const killed = await failure(through.execute(suicide, [], count));
        expect([killed.code, killed.details['sqlstate']]).toEqual(['unreachable', '57P01']);
        const inside = await failure(
          through.transaction(async (session) => {
            await session.execute(suicide, [], count).catch(() => {});
            await session.execute(statement('SELECT 3'), [], count);
          }),
        );
        expect([inside.code, inside.details['sent']]).toEqual(['unreachable', false]);
        await proxy.close();
        const refused = await failure(through.execute(statement('SELECT 4'), [], count));
        expect(refused.code).toBe('unreachable');
        const again = await failure(through.execute(statement('SELECT 5'), [], count));
        expect([again.code, again.details['sent']]).toEqual(['unreachable', false]);
        expect(through.connected()).toBe(0);
      } finally {
        await lock.release();
        await through.close();
      }
    });

    it('a server that does not answer in time is treated as lost together with its connection', async () => {
      const one = await driver.connect(options(postgres(), { connectionsMax: 1, answerTimeoutMs: 6000 }));
      const lock = await heldLock(plain);
      try {
        const error = await failure(one.execute(statement(lock.statement), [], count));
        expect([error.code, error.details['sent']]).toEqual(['unreachable', true]);
        expect(error.message).toContain('no answer within 6000 ms');
        expect(await one.execute(statement('SELECT 1'), [], table)).toEqual([['1']]);
      } finally {
        await lock.release();
        await one.close();
      }
    });

    it('a cancelled statement is ended by the server, and no other statement is ended', async () => {
      const one = await driver.connect(options(postgres(), { connectionsMax: 1 }));
      const lock = await heldLock(plain);
      try {
        const stop = new AbortController();
        const waiting = failure(one.execute(statement(lock.statement), [], count, { cancel: stop.signal }));
        await lock.waiting();
        stop.abort();
        const error = await waiting;
        expect([error.code, error.details['sqlstate']]).toEqual(['sql_failed', '57014']);
        for (let i = 0; i < 20; i++) {
          // The statement runs long enough for a late cancellation to hit it.
          const long = statement('SELECT count(*) FROM generate_series(1, 50000)');
          expect(await one.execute(long, [], count)).toBe(1);
        }
      } finally {
        await lock.release();
        await one.close();
      }
    });

    it('a close waits for the statements in flight, and leaves no backend', async () => {
      const applicationName = `text-contract-close-${driver.name}`;
      const one = await driver.connect(options(postgres(), { applicationName }));
      const lock = await heldLock(plain);
      const under = one.execute(statement(`${lock.statement}, 7`), [], (rows) => rows.text(0, 1));
      await lock.waiting();
      expect(await backends(applicationName)).toBe(1);
      const closing = one.close();
      await lock.release();
      await closing;
      expect(await under).toBe('7');
      expect((await failure(one.execute(statement('SELECT 1'), [], count))).code).toBe('unreachable');
      await expect.poll(() => backends(applicationName)).toBe(0);
    });
  });
}
