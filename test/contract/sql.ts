/** Contract of every SQL driver, run against a real server by test/e2e/sql.test.ts. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { SqlDriver, SqlPool, SqlValue } from '../../src/io/postgres/sql/port.ts';
import { cuttingProxy, failure, heldLock } from './sql-kit.ts';
import { type PoolFace, poolContract } from './sql-pools.ts';

export function sqlContract(driver: SqlDriver, postgres: () => string): void {
  describe(`sql contract: ${driver.name}`, () => {
    const schema = `sql_contract_${randomBytes(6).toString('hex')}`;
    let pool: SqlPool;
    const options = (url: string, connectionsMax = 4) => ({
      url,
      connectionsMax,
      applicationName: 'sql-contract',
      connectTimeoutMs: 60_000,
    });

    beforeAll(async () => {
      pool = await driver.connect(options(postgres()));
      await pool.query(`CREATE SCHEMA ${schema}`);
      await pool.query(
        `CREATE TABLE ${schema}.t (id int8 PRIMARY KEY, note text, data bytea, doc json, at timestamptz)`,
      );
    });
    afterAll(async () => {
      await pool.query(`DROP SCHEMA ${schema} CASCADE`);
      await pool.close();
      await pool.close();
    });

    const face = (of: SqlPool): PoolFace => ({
      run: (sql) => of.query(sql),
      transaction: (work) => of.transaction((session) => work((sql) => session.query(sql))),
      ids: async (sql) => (await of.query<{ id: bigint }>(sql)).rows.map(({ id }) => id),
      close: () => of.close(),
    });
    poolContract({
      postgres,
      connect: async (url, connectionsMax) => face(await driver.connect(options(url, connectionsMax))),
      pool: () => face(pool),
      table: `${schema}.t`,
    });

    it('every type is read as the port declares it', async () => {
      const { rows, rowCount } = await pool.query(
        `SELECT 9223372036854775807::int8 AS big, -1::int4 AS small, '\\x00ff10'::bytea AS bytes, '{"b": 1,  "a":2}'::json AS doc,
                '2026-01-02 03:04:05.678+00'::timestamptz AS at, 12.50::numeric AS num, true AS yes, null::text AS none,
                '{1,NULL,-9223372036854775808}'::int8[] AS bigs, '{"a,b","NULL",NULL,"q\\"\\\\"}'::text[] AS texts,
                1.5::float8 AS real, '0190b7f0-0000-7000-8000-000000000001'::uuid AS id`,
      );
      expect(rowCount).toBe(1);
      expect(rows[0]).toEqual({
        big: 9223372036854775807n,
        small: -1,
        bytes: new Uint8Array([0, 255, 16]),
        doc: '{"b": 1,  "a":2}',
        at: new Date('2026-01-02T03:04:05.678Z'),
        num: '12.50',
        yes: true,
        none: null,
        bigs: [1n, null, -9223372036854775808n],
        texts: ['a,b', 'NULL', null, 'q"\\'],
        real: 1.5,
        id: '0190b7f0-0000-7000-8000-000000000001',
      });
    });

    it('every kind of parameter reaches the server, arrays included', async () => {
      const bytes = new Uint8Array([1, 2, 0, 255]);
      const at = new Date('2026-03-29T01:30:00.123Z');
      const { rows } = await pool.query(
        `SELECT $1::int8 AS a, $2::bytea AS b, $3::timestamptz AS c, $4::text AS d, $5::bool AS e, $6::int8[] AS f, $7::bytea[] AS g,
                $8::text[] AS h, $9::float8 AS i, $10::timestamptz[] AS j`,
        [
          -9223372036854775808n,
          bytes,
          at,
          null,
          false,
          [1n, null, 2n],
          [bytes, new Uint8Array(0)],
          ['', 'a"b\\c,{}', 'NULL'],
          0.1,
          [at],
        ],
      );
      const row = rows[0] as Record<string, unknown>;
      expect(row['a']).toBe(-9223372036854775808n);
      expect(row['b']).toEqual(bytes);
      expect(row['c']).toEqual(at);
      expect(row['d']).toBeNull();
      expect(row['e']).toBe(false);
      expect(row['f']).toEqual([1n, null, 2n]);
      expect(row['g']).toEqual([bytes, new Uint8Array(0)]);
      expect(row['h']).toEqual(['', 'a"b\\c,{}', 'NULL']);
      expect(row['i']).toBe(0.1);
      expect(row['j']).toEqual([at]);
    });

    it('copied rows keep every character that could break the format', async () => {
      const notes = [
        'plain',
        'tab\there',
        'line\nbreak',
        'cr\rhere',
        'back\\slash',
        '\\N',
        '\\.',
        '',
        'ü€😀',
        null,
      ];
      const rows: SqlValue[][] = notes.map((note, i) => [
        BigInt(i),
        note,
        new Uint8Array([i, 92, 10]),
        '{"x":"\\n\\\\"}',
        new Date(i * 1000),
      ]);
      expect(await pool.copyIn(`${schema}.t`, ['id', 'note', 'data', 'doc', 'at'], rows)).toBe(notes.length);
      const back = await pool.query(`SELECT id, note, data, doc, at FROM ${schema}.t ORDER BY id`);
      expect(back.rows.map((row) => [row['id'], row['note'], row['data'], row['doc'], row['at']])).toEqual(
        rows,
      );
      await pool.query(`DELETE FROM ${schema}.t`);
    });

    it('many rows are copied under back-pressure', async () => {
      function* many(): Generator<SqlValue[]> {
        for (let i = 0; i < 50_000; i++) yield [i, 'x'.repeat(100)];
      }
      expect(await pool.copyIn(`${schema}.t`, ['id', 'note'], many())).toBe(50_000);
      const { rows } = await pool.query(`SELECT count(*) AS n, sum(id)::int8 AS s FROM ${schema}.t`);
      expect(rows[0]).toEqual({ n: 50_000n, s: 1_249_975_000n });
      await pool.query(`TRUNCATE ${schema}.t`);
    });

    it('a copy with a refused row or rows that throw copies nothing, and the pool stays usable', async () => {
      const refused = await failure(
        pool.copyIn(
          `${schema}.t`,
          ['id', 'note'],
          [
            [1, 'a'],
            [1, 'b'],
          ],
        ),
      );
      expect(refused.code).toBe('sql_failed');
      expect(refused.details['sqlstate']).toBe('23505');
      function* broken(): Generator<SqlValue[]> {
        yield [7, 'seven'];
        throw new RangeError('no more');
      }
      await expect(pool.copyIn(`${schema}.t`, ['id', 'note'], broken())).rejects.toThrow(RangeError);
      await pool.transaction(async (session) => {
        expect(await session.copyIn(`${schema}.t`, ['id'], [[5]])).toBe(1);
        await expect(session.copyIn(`${schema}.t`, ['id'], [])).resolves.toBe(0);
      });
      expect((await pool.query(`SELECT id FROM ${schema}.t`)).rows).toEqual([{ id: 5n }]);
      await pool.query(`TRUNCATE ${schema}.t`);
    });

    it('a pool replaces lost idle connections and reports each, and a statement in flight on a lost one is unreachable', async () => {
      const lock = await heldLock(pool);
      const proxy = await cuttingProxy(new URL(postgres()));
      let opened = 0;
      const onConnect = (): void => {
        opened++;
      };
      const through = await driver.connect({ ...options(proxy.url), onConnect });
      try {
        expect(opened).toBe(1);
        await proxy.cutAll();
        expect((await through.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
        expect(opened).toBe(2);
        const received = proxy.received(lock.statement);
        const pending = failure(through.query(lock.statement));
        await received;
        await proxy.cutAll();
        expect((await pending).code).toBe('unreachable');
        expect((await through.query('SELECT 2 AS two')).rows).toEqual([{ two: 2 }]);
        const killed = await failure(through.query('SELECT pg_terminate_backend(pg_backend_pid())'));
        expect([killed.code, killed.details['sqlstate']]).toEqual(['unreachable', '57P01']);
      } finally {
        await lock.release();
        await through.close();
        await proxy.close();
      }
    });

    it('a statement with an answer timeout fails when the server does not answer in time', async () => {
      const hasty = await driver.connect({ ...options(postgres(), 1), answerTimeoutMs: 60_000 });
      const soon = { answerTimeoutMs: 3000 };
      const lock = await heldLock(pool);
      try {
        expect((await failure(hasty.query(lock.statement, [], soon))).code).toBe('unreachable');
        const inside = failure(
          hasty.transaction(async (session) => {
            await session.query(`INSERT INTO ${schema}.t (id) VALUES (99)`);
            await session.query(lock.statement, [], soon);
          }),
        );
        expect((await inside).code).toBe('unreachable');
        expect((await hasty.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
        expect((await pool.query(`SELECT id FROM ${schema}.t WHERE id = 99`)).rows).toEqual([]);
      } finally {
        await lock.release();
        await hasty.close();
      }
    });

    it('a pool names the cluster of its server', async () => {
      expect(await pool.systemIdentifier()).toMatch(/^\d{10,20}$/);
    });
  });
}
