/** Cases about values: parameters arrive unchanged on the server, and rows return unchanged. */
import { deepEqual, equal } from 'node:assert/strict';
import type { TransactionValue } from '../database/transaction.ts';
import type { AdapterCase, ContractTables } from './harness.ts';

const TEXTS = [
  '',
  ' two  spaces ',
  'NULL',
  'null',
  `'single' "double" \`back\``,
  'C:\\temp\\new \\x41 \\',
  '$1 $2::int $$ ? ?? :name @p1 %s {a,b} {}',
  '-- not a comment; DROP TABLE nothing; /* */',
  'Зелёная 日本 🚚 é',
  '\t\n\r',
  '2026-01-02T03:04:05Z',
  'true',
  '00012',
  '1e3',
  '[1]',
];
const ALL_BYTES = Uint8Array.from({ length: 256 }, (_, byte) => byte);
const BYTES = [new Uint8Array(0), ALL_BYTES, Buffer.from([0x5c, 0x78, 0x34, 0x31]), ALL_BYTES.subarray(250)];
const BIGINTS = [0n, -1n, 9_007_199_254_740_993n, 9_223_372_036_854_775_807n, -9_223_372_036_854_775_808n];
const JSONS = ['null', '"text"', '{"b": 1,  "a":9007199254740993}', '[1,"\\u0000?",{"x":null}]', '-1.50'];
const UUIDS = ['00000000-0000-0000-0000-000000000000', '01890a5d-ac96-774b-bcce-b302099a8057'];

const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** A type, the SQL that shows a value `v` of it exactly as text, and values with those texts. */
interface TypeCase {
  readonly type: string;
  readonly shown: string;
  readonly values: ReadonlyArray<readonly [TransactionValue, string]>;
}

const TYPES: readonly TypeCase[] = [
  { type: 'text', shown: 'v', values: TEXTS.map((text) => [text, text]) },
  {
    type: 'bytea',
    shown: `encode(v, 'hex')`,
    values: BYTES.map((bytes) => [bytes, hexOf(bytes)]),
  },
  {
    type: 'bigint',
    shown: 'v::text',
    values: BIGINTS.flatMap((value) => [
      [value, String(value)],
      [String(value), String(value)],
    ]),
  },
  {
    type: 'int',
    shown: 'v::text',
    values: [0, -1, 2_147_483_647].map((value) => [value, String(value)]),
  },
  { type: 'json', shown: 'v::text', values: JSONS.map((text) => [text, text]) },
  { type: 'uuid', shown: 'v::text', values: UUIDS.map((text) => [text, text]) },
];

async function keepsValues(tables: ContractTables, { type, shown, values }: TypeCase): Promise<void> {
  const sql = `SELECT ${shown} AS shown, (v IS NULL)::text AS missing FROM (SELECT $1::${type} AS v) AS given`;
  await tables.harness.transaction(async (tx) => {
    for (const [value, text] of [...values, [null, null] as const]) {
      const { rows } = await tx.query(sql, [value]);
      deepEqual({ ...rows[0] }, { shown: text, missing: String(value === null) }, `a value of type ${type}`);
    }
  });
}

async function keepsArrays(tables: ContractTables, { type, shown, values }: TypeCase): Promise<void> {
  const sql = `SELECT ${shown} AS shown FROM unnest($1::${type}[]) WITH ORDINALITY AS given(v, place) ORDER BY place`;
  const given = [...values.map(([value]) => value), null, ...values.map(([value]) => value)];
  const texts = [...values.map(([, text]) => text), null, ...values.map(([, text]) => text)];
  await tables.harness.transaction(async (tx) => {
    const { rows } = await tx.query(sql, [given]);
    deepEqual(
      rows.map((row) => row['shown']),
      texts,
      `an array of type ${type}`,
    );
    const counted = `SELECT coalesce(cardinality($1::${type}[])::text, 'missing') AS count`;
    for (const [array, count] of [
      [[], '0'],
      [[null], '1'],
      [null, 'missing'],
    ] as const) {
      equal((await tx.query(counted, [array])).rows[0]?.['count'], count, `an array of type ${type}`);
    }
  });
}

/** Parameters are numbered: used twice, in any order, and beyond nine. */
async function numbersParameters(tables: ContractTables): Promise<void> {
  const params = Array.from({ length: 12 }, (_, index) => `p${index + 1}`);
  const order = [12, 1, 10, 2, 1, 11, 3, 4, 5, 6, 7, 8, 9];
  const sql = `SELECT concat_ws(' ', ${order.map((n) => `$${n}::text`).join(', ')}) AS shown`;
  const { rows } = await tables.harness.transaction((tx) => tx.query(sql, params));
  equal(rows[0]?.['shown'], order.map((n) => `p${n}`).join(' '));
}

async function returnsRows(tables: ContractTables): Promise<void> {
  const sql = `SELECT n::text AS number, CASE WHEN n <> 2 THEN 'same' END AS note FROM generate_series(1, $1::int) AS n ORDER BY n DESC`;
  await tables.harness.transaction(async (tx) => {
    const { rows } = await tx.query(sql, [3]);
    const expected = [
      { number: '3', note: 'same' },
      { number: '2', note: null },
      { number: '1', note: 'same' },
    ];
    deepEqual(
      rows.map((row) => ({ ...row })),
      expected,
      'rows are objects by column, in the order of the statement',
    );
    deepEqual([...(await tx.query(sql, [0])).rows], [], 'a statement without rows returns an empty array');
    const many = await tx.query(sql, [5000]);
    equal(many.rows.length, 5000);
  });
}

async function returnsChangedRows(tables: ContractTables): Promise<void> {
  const { notes, harness } = tables;
  const statements = [
    [`INSERT INTO ${notes} VALUES ($1::int, 'a'), ($1::int + 1, 'b') RETURNING note AS shown`, ['a', 'b']],
    [`UPDATE ${notes} SET note = 'c' WHERE id = $1::int RETURNING note AS shown`, ['c']],
    [
      `WITH gone AS (DELETE FROM ${notes} WHERE id = $1::int RETURNING note) SELECT note AS shown FROM gone`,
      ['c'],
    ],
    [`DELETE FROM ${notes} WHERE id >= $1::int AND id < $1::int + 2 RETURNING note AS shown`, ['b']],
    [`DELETE FROM ${notes} WHERE id = $1::int RETURNING note AS shown`, []],
  ] as const;
  await harness.transaction(async (tx) => {
    for (const [sql, shown] of statements) {
      const { rows } = await tx.query(sql, [101]);
      deepEqual(
        rows.map((row) => row['shown']),
        shown,
        sql,
      );
    }
  });
}

export function valueCases(tables: ContractTables): readonly AdapterCase[] {
  return [
    ...TYPES.map((one) => ({
      name: `a parameter of type ${one.type} arrives unchanged, also null`,
      run: () => keepsValues(tables, one),
    })),
    ...TYPES.map((one) => ({
      name: `an array of type ${one.type} arrives unchanged, with nulls, empty and null itself`,
      run: () => keepsArrays(tables, one),
    })),
    {
      name: 'a statement may use a parameter twice, in any order, and more than nine',
      run: () => numbersParameters(tables),
    },
    {
      name: 'a statement returns all of its rows in order, each with its columns and nulls',
      run: () => returnsRows(tables),
    },
    {
      name: 'INSERT, UPDATE and DELETE return the rows of RETURNING',
      run: () => returnsChangedRows(tables),
    },
  ];
}
