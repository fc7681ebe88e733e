/** Contract of pools through both SQL ports, SqlPool and TextPool: their errors, and which rows are
 *  committed. */
import { expect, it } from 'vitest';
import { cuttingProxy, failure } from './sql-kit.ts';

/** Runs one statement without parameters. */
type Run = (sql: string) => Promise<unknown>;

/** Common part of both ports. */
export interface PoolFace {
  readonly run: Run;
  transaction<T>(work: (run: Run) => Promise<T>): Promise<T>;
  /** Rows of a statement with one column of int8. */
  ids(sql: string): Promise<readonly bigint[]>;
  close(): Promise<void>;
}

export interface PoolSubject {
  postgres(): string;
  connect(url: string, connectionsMax: number): Promise<PoolFace>;
  /** Open pool. `table` is the table that these tests fill and empty: id int8 PRIMARY KEY,
   *  constraint t_pkey. */
  pool(): PoolFace;
  readonly table: string;
}

export function poolContract({ postgres, connect, pool, table }: PoolSubject): void {
  const insert = (id: number): string => `INSERT INTO ${table} (id) VALUES (${id})`;
  const kept = (): Promise<readonly bigint[]> => pool().ids(`SELECT id FROM ${table} ORDER BY id`);
  const empty = (): Promise<unknown> => pool().run(`TRUNCATE ${table}`);

  it('the error of a refused statement has its sqlstate and its constraint', async () => {
    await pool().run(insert(1));
    const error = await failure(pool().run(insert(1)));
    expect([error.code, error.details['sqlstate'], error.details['constraint']]).toEqual([
      'sql_failed',
      '23505',
      't_pkey',
    ]);
    const syntax = await failure(pool().run('SELEC 1'));
    expect([syntax.code, syntax.details['sqlstate']]).toEqual(['sql_failed', '42601']);
    // The server sent rows before the error.
    const late = await failure(pool().run('SELECT 1/(n-5) FROM generate_series(1,9) n'));
    expect([late.code, late.details['sqlstate']]).toEqual(['sql_failed', '22012']);
    await empty();
  });

  it.each(['53100', '53200', '58030', '25006'])(
    'a statement that the server refuses with %s can succeed later, so its error is no bug',
    async (state) => {
      const error = await failure(
        pool().run(`DO $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '${state}'; END $$`),
      );
      expect([error.code, error.kind, error.details['sqlstate']]).toEqual([
        ...['sql_unavailable', 'unavailable'],
        state,
      ]);
      expect(await kept()).toEqual([]);
    },
  );

  it('a transaction that settles is committed, and one that throws is rolled back', async () => {
    const value = await pool().transaction(async (run) => {
      await run(insert(1));
      return 'kept';
    });
    expect(value).toBe('kept');
    await expect(
      pool().transaction(async (run) => {
        await run(insert(2));
        throw new RangeError('mine');
      }),
    ).rejects.toThrow(RangeError);
    const swallowed = await failure(
      pool().transaction(async (run) => {
        await run(insert(3));
        await run('SELECT 1/0').catch(() => {});
      }),
    );
    expect([swallowed.code, swallowed.details['sqlstate']]).toEqual(['sql_failed', '25P02']);
    expect(await kept()).toEqual([1n]);
    await empty();
  });

  it('a pool runs all transactions, and no more at the same time than it has connections', async () => {
    const small = await connect(postgres(), 2);
    let now = 0;
    let most = 0;
    let done = 0;
    let meet = (): void => {};
    const both = new Promise<void>((resolve) => {
      meet = resolve;
    });
    await Promise.all(
      Array.from({ length: 9 }, () =>
        small.transaction(async (run) => {
          most = Math.max(most, ++now);
          // The first transaction waits for the second: opening a connection may take longer than
          // nine short transactions.
          if (now === 2) meet();
          await both;
          for (let i = 0; i < 3; i++) await run('SELECT 1');
          now--;
          done++;
        }),
      ),
    );
    expect([most, done]).toEqual([2, 9]);
    await small.close();
  });

  it('a pool is unreachable when no server listens or the database is missing', async () => {
    const dead = new URL(postgres());
    dead.hostname = '127.0.0.1';
    dead.port = '1';
    expect((await failure(connect(dead.toString(), 1))).code).toBe('unreachable');
    const missing = new URL(postgres());
    missing.pathname = '/no_such_database';
    const error = await failure(connect(missing.toString(), 1));
    expect([error.code, error.details['sqlstate']]).toEqual(['unreachable', '3D000']);
    expect(error.message).toMatch(/refuses the connection: .*no_such_database/);
    expect((await failure(connect('not a url', 1))).code).toBe('bad_value');
    expect((await failure(connect('mysql://h/db', 1))).code).toBe('bad_value');
  });

  it('a lost answer to COMMIT is commit_unknown, and the committed rows exist', async () => {
    const proxy = await cuttingProxy(new URL(postgres()));
    const through = await connect(proxy.url, 2);
    try {
      proxy.cutOn('COMMIT');
      const error = await failure(through.transaction((run) => run(insert(77))));
      expect([error.code, error.kind]).toEqual(['commit_unknown', 'unavailable']);
      expect(await kept()).toEqual([77n]);
      proxy.cutOn('INSERT');
      const before = await failure(through.transaction((run) => run(insert(78))));
      expect(before.code).toBe('unreachable');
      expect(await kept()).toEqual([77n]);
    } finally {
      await through.close();
      await proxy.close();
      await empty();
    }
  });
}
