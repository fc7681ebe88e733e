/** The contract suite of adapters finds each planted fault, on a real PostgreSQL. */
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, describe, expect, it } from 'vitest';
import type { OpenTransaction } from '../../src/outbox/adapters/index.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { type AdapterHarness, adapterContract } from '../../src/outbox/testing/index.ts';
import { sharedStack } from '../fixtures/stack.ts';

const schema = `contract_${randomBytes(5).toString('hex')}`;
const url = withSettings((await sharedStack()).postgres, { schema });
const pool = new pg.Pool({ connectionString: url, max: 6 });
await pool.query(`CREATE SCHEMA ${schema}`);
afterAll(async () => {
  await pool.query(`DROP SCHEMA ${schema} CASCADE`);
  await pool.end();
});

type Row = Readonly<Record<string, unknown>>;

/** A correct adapter over pg, of which a fault replaces a part. */
interface Parts {
  readonly statement?: (text: string) => string;
  readonly param?: (value: unknown) => unknown;
  readonly rows?: (rows: Row[], result: pg.QueryResult) => unknown;
  readonly run?: (client: pg.ClientBase, text: string, params: unknown[]) => Promise<pg.QueryResult>;
  readonly end?: (client: pg.ClientBase, failed: boolean) => Promise<unknown>;
}

const ask = (client: pg.ClientBase | pg.Pool, text: string, params: unknown[]): Promise<pg.QueryResult> =>
  client.query(text, params);

function harnessOf({ statement, param, rows, run = ask, end }: Parts): AdapterHarness {
  const adapterOf = (client: pg.ClientBase): OpenTransaction => ({
    async query(text, params) {
      const given = param === undefined ? params : params.map(param);
      const result = await run(client, statement?.(text) ?? text, given);
      return { rows: (rows?.(result.rows, result) ?? result.rows) as Row[] };
    },
  });
  const finish = end ?? ((client, failed) => client.query(failed ? 'ROLLBACK' : 'COMMIT'));
  return {
    observer: pool,
    async transaction(work) {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        const value = await work(adapterOf(client));
        await finish(client, false);
        return value;
      } catch (thrown) {
        await finish(client, true);
        throw thrown;
      } finally {
        await client.query('ROLLBACK');
        client.release();
      }
    },
    async outside(work) {
      const client = await pool.connect();
      await work(adapterOf(client)).finally(() => client.release());
    },
  };
}

/** Applies a change to a value and to the elements of an array. */
const each =
  (change: (value: unknown) => unknown) =>
  (value: unknown): unknown =>
    Array.isArray(value) ? value.map(change) : change(value);
const isJson = (value: unknown): boolean => typeof value === 'string' && /^[[{"]/.test(value);

const FAULTS: ReadonlyArray<readonly [fault: string, parts: Parts, found: RegExp]> = [
  [
    'commits each statement by itself',
    { run: (_, text, params) => ask(pool, text, params) },
    /visible to others after its commit and not before/,
  ],
  [
    'runs each statement in a transaction of its own',
    {
      async run(client, text, params) {
        await client.query('COMMIT');
        await client.query('BEGIN');
        const result = await ask(client, text, params).catch(async (thrown) => {
          await client.query('ROLLBACK');
          throw thrown;
        });
        await client.query('COMMIT');
        return result;
      },
    },
    /run on one connection in one transaction/,
  ],
  [
    'commits a transaction that failed',
    { end: (client) => client.query('COMMIT') },
    /a transaction that fails leaves no row/,
  ],
  ['rolls back a finished transaction', { end: (client) => client.query('ROLLBACK') }, /visible to others/],
  [
    'hides the error of a statement',
    {
      run: (client, text, params) =>
        ask(client, text, params).catch(() => ({ rows: [] }) as unknown as pg.QueryResult),
    },
    /a statement that fails rejects/,
  ],
  [
    'reads bytes as text',
    { param: each((value) => (value instanceof Uint8Array ? Buffer.from(value).toString() : value)) },
    /type bytea/,
  ],
  [
    'writes bytes of an array as JSON',
    {
      param: (value) =>
        Array.isArray(value)
          ? value.map((one) => (one instanceof Uint8Array ? JSON.stringify([...one]) : one))
          : value,
    },
    /array of type bytea/,
  ],
  [
    'rounds 64-bit integers',
    { param: each((value) => (typeof value === 'bigint' ? Number(value) : value)) },
    /type bigint/,
  ],
  [
    'encodes JSON a second time',
    { param: each((value) => (isJson(value) ? JSON.stringify(value) : value)) },
    /type json/,
  ],
  [
    'parses JSON and writes it again',
    {
      param: each((value) =>
        isJson(value) ? JSON.stringify(JSON.parse(`[${JSON.stringify(value)}]`)[0].trim()) : value,
      ),
    },
    /type json/,
  ],
  ['writes null as an empty text', { param: (value) => value ?? '' }, /also null/],
  [
    'writes null in an array as a text',
    { param: (value) => (Array.isArray(value) ? value.map((one) => one ?? 'null') : value) },
    /with nulls, empty and null itself/,
  ],
  [
    'writes an empty array as null',
    { param: (value) => (Array.isArray(value) && value.length === 0 ? null : value) },
    /with nulls, empty and null itself/,
  ],
  [
    'joins arrays without quotes',
    { param: (value) => (Array.isArray(value) ? `{${value.map((one) => one ?? 'NULL').join(',')}}` : value) },
    /array of type text/,
  ],
  [
    'drops backslashes',
    { param: each((value) => (typeof value === 'string' ? value.replaceAll('\\', '') : value)) },
    /type text/,
  ],
  [
    'trims texts',
    { param: each((value) => (typeof value === 'string' ? value.trim() : value)) },
    /type text/,
  ],
  [
    'reads $10 as $1 and a zero',
    { statement: (text) => text.replace(/\$1([0-9])/g, "($1::text || '$1')") },
    /more than nine/,
  ],
  [
    'numbers parameters by their place',
    {
      statement: (text) => {
        let place = 0;
        return text.replace(/\$\d+/g, () => `$${++place}`);
      },
    },
    /in any order/,
  ],
  ['returns rows in the opposite order', { rows: (rows) => [...rows].reverse() }, /in order/],
  ['returns the first row alone', { rows: (rows) => rows.slice(0, 1) }, /all of its rows/],
  ['returns rows as arrays', { rows: (rows) => rows.map((row) => Object.values(row)) }, /with its columns/],
  [
    'returns columns in capitals',
    {
      rows: (rows) =>
        rows.map((row) =>
          Object.fromEntries(Object.entries(row).map(([key, value]) => [key.toUpperCase(), value])),
        ),
    },
    /with its columns/,
  ],
  [
    'leaves out columns that are null',
    {
      rows: (rows) =>
        rows.map((row) => Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null))),
    },
    /columns and nulls/,
  ],
  [
    'returns the number of changed rows instead of the rows',
    { rows: (rows, { command, rowCount }) => (/UPDATE|DELETE/.test(command) ? [rows, rowCount] : rows) },
    /rows of RETURNING/,
  ],
];

/** Names of the cases that fail. */
async function failures(parts: Parts): Promise<string[]> {
  const { setUp, cases, tearDown } = adapterContract(harnessOf(parts));
  await setUp();
  const failed: string[] = [];
  for (const { name, run } of cases) await run().catch(() => failed.push(name));
  await tearDown();
  return failed;
}

describe('contract suite of adapters', () => {
  it('the suite accepts the adapter that the faults are planted in', async () => {
    expect(await failures({})).toEqual([]);
  });

  it.each(FAULTS)('the suite finds an adapter that %s', async (_, parts, found) => {
    expect((await failures(parts)).join('\n')).toMatch(found);
  });

  it('the suite drops its tables, and its cases are sentences', async () => {
    const { rows } = await pool.query(
      `SELECT relname FROM pg_class WHERE relnamespace = '${schema}'::regnamespace AND relname LIKE 'millrace%'`,
    );
    expect(rows).toEqual([]);
    const names = adapterContract(harnessOf({})).cases.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^[a-zA-Z].* .*[^.]$/);
  });
});
