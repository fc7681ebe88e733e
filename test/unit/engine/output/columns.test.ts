/** The list of columns of a result, and each output's form of it. */
import { describe, expect, it } from 'vitest';
import { keyOfText } from '../../../../src/engine/keys/type.ts';
import {
  columnText,
  type ResultColumn,
  resultColumns,
  resultOfValues,
  resultShape,
} from '../../../../src/engine/output/columns.ts';
import { schemaTextOf } from '../../../../src/engine/output/registered/schemas.ts';
import { KeyColumns } from '../../../../src/engine/output/sink/key-columns.ts';
import { ResultTable, TIMESTAMP_MS_MIN, timestampText } from '../../../../src/engine/output/sink/table.ts';
import type { WindowResult } from '../../../../src/engine/window/accumulator.ts';
import { parseSchema, type Schema } from '../../../../src/formats/schema.ts';

const TUPLE = { input: { format: 'json', key: 'b:bytes,user.id:uuid,count:u64,i:i64,Name:string' } } as const;
const UUID = '00112233-4455-6677-8899-aabbccddeeff';
const RESULT: WindowResult = {
  accountId: 0n,
  windowStart: -10,
  windowEnd: 1_750_000_000_000,
  count: 3n,
  sum: -(1n << 63n),
  min: -9n,
  max: 8n,
  lastUpdateTs: 1_749_999_999_999n,
  overflow: true,
};
const ADDED: ResultColumn = {
  name: 'avg',
  role: 'aggregate',
  type: 'f64',
  nullable: true,
  read: () => 1.5,
};
const tupleResult = (): WindowResult => {
  const { keyType } = resultShape(TUPLE);
  const key = keyOfText(keyType ?? [], `00ff,${UUID},18446744073709551615,-5,a%2Cb`);
  return { ...RESULT, key: key as Uint8Array };
};

describe('columns of results', () => {
  it('a key field has no column of the place of a late event', () => {
    const key = 'source_partition,source_offset,source_element,other';
    const columns = resultColumns({ input: { format: 'json', key } });
    expect(columns.flatMap(({ name, role }) => (role === 'key' ? name : []))).toEqual([
      ...['key_source_partition', 'key_source_offset', 'key_source_element', 'other'],
    ]);
  });

  it('a key of several fields has a column of its own name and type for each field', () => {
    const columns = resultColumns(TUPLE);
    expect(columns.map(({ name, type }) => `${name} ${type}`)).toEqual([
      ...['b bytes', 'id uuid', 'key_count u64', 'i i64', 'Name string'],
      ...['window_start timestamp', 'window_end timestamp', 'count i64', 'sum i64', 'min i64', 'max i64'],
      ...['last_update_ts timestamp', 'overflow bool'],
    ]);
    const result = tupleResult();
    expect(columns.map(({ read }) => columnText(read(result)))).toEqual([
      ...['00ff', UUID, '18446744073709551615', '-5', 'a,b', '-10', '1750000000000'],
      ...['3', String(-(1n << 63n)), '-9', '8', '1749999999999', 'true'],
    ]);
  });

  it.each([
    [{ format: 'binary256' }, 'account_id u64', (1n << 64n) - 2n],
    [{ format: 'json', key: 'user.id' }, 'id i64', -2n],
    [{ format: 'json', key: 'user.id:u64' }, 'id u64', (1n << 64n) - 2n],
    [{ format: 'avro', key: '@key:long' }, 'key i64', -2n],
  ] as const)('an integer key of %j is the column %s', (input, expected, value) => {
    const [key] = resultColumns({ input }) as [ResultColumn];
    expect(`${key.name} ${key.type}`).toBe(expected);
    expect(key.read({ ...RESULT, accountId: (1n << 64n) - 2n })).toBe(value);
  });

  it('values that were read back make the result again', () => {
    const shape = resultShape(TUPLE);
    const result = tupleResult();
    expect(resultOfValues(shape, ({ read }) => read(result))).toEqual(result);
  });
});

describe('columns in PostgreSQL', () => {
  it('a table has the columns of the list, typed or as an earlier version created them', () => {
    const shape = resultShape(TUPLE);
    const typed = ResultTable.fresh(shape);
    expect(typed.definitions).toBe(
      [
        '"b" bytea NOT NULL, "id" uuid NOT NULL, "key_count" numeric(20,0) NOT NULL, "i" int8 NOT NULL',
        '"name" text COLLATE "C" NOT NULL, "window_start" timestamptz(3) NOT NULL',
        '"window_end" timestamptz(3) NOT NULL, "count" int8 NOT NULL, "sum" int8 NOT NULL',
        '"min" int8 NOT NULL, "max" int8 NOT NULL, "last_update_ts" timestamptz(3) NOT NULL',
        '"overflow" bool NOT NULL',
      ].join(', '),
    );
    expect(typed.cells(tupleResult()).slice(3, 8)).toEqual([
      ...[-5n, 'a,b', '1969-12-31T23:59:59.990Z', '2025-06-15T15:06:40.000Z', 3n],
    ]);
    const packed = new ResultTable('packed', KeyColumns.bits(), shape);
    expect(packed.names[0]).toBe('account_id');
    expect(packed.cells({ ...RESULT, accountId: (1n << 64n) - 1n }).slice(0, 3)).toEqual([
      ...[-1n, -10, 1_750_000_000_000],
    ]);
  });

  it('a further aggregate is a column that rows of earlier runs have no value of', () => {
    const shape = resultShape(TUPLE);
    const table = ResultTable.fresh({ ...shape, columns: [...shape.columns, ADDED] });
    expect(table.aggregateNames.at(-1)).toBe('avg');
    expect(table.addedDefinition('avg')).toBe('"avg" float8');
    expect(table.addedDefinition('sum')).toBe('"sum" int8');
    expect(table.cells(tupleResult()).at(-1)).toBe(1.5);
  });

  it('a time is written in every year that timestamptz has', () => {
    expect(timestampText(Date.UTC(2026, 0, 2, 3, 4, 5, 6))).toBe('2026-01-02T03:04:05.006Z');
    expect(timestampText(2 ** 52)).toMatch(/^144683-\d\d-\d\dT/);
    expect(timestampText(Date.parse('0000-06-22T00:00:00Z'))).toBe('0001-06-22T00:00:00.000Z BC');
    expect(timestampText(Date.parse('0001-06-22T00:00:00Z'))).toBe('0001-06-22T00:00:00.000Z');
    expect(timestampText(TIMESTAMP_MS_MIN)).toBe('4714-11-24T00:00:00.000Z BC');
    expect(
      ResultTable.fresh(resultShape(TUPLE)).holds({ ...RESULT, windowStart: TIMESTAMP_MS_MIN - 1 }),
    ).toBe(false);
  });
});

describe('columns in schemas of the registry', () => {
  const { columns } = resultShape(TUPLE);
  const textOf = (format: 'AVRO' | 'PROTOBUF' | 'JSON', added: boolean, latest?: string): string =>
    schemaTextOf(
      format,
      'value',
      added ? [...columns.slice(0, 8), ADDED, ...columns.slice(8)] : columns,
      latest === undefined ? undefined : parseSchema(format, latest),
    );

  it('an Avro value reads the records of a job with one aggregate less, and a key has no aggregate', () => {
    const { fields } = JSON.parse(textOf('AVRO', true)) as {
      readonly fields: ReadonlyArray<{ name: string; type: unknown; default?: null }>;
    };
    expect(fields.find(({ name }) => name === 'avg')).toEqual({
      ...{ name: 'avg', type: ['null', 'double'], default: null },
    });
    expect(fields.find(({ name }) => name === 'key_count')?.type).toEqual({
      ...{ type: 'bytes', logicalType: 'decimal', precision: 20, scale: 0 },
    });
    const key = JSON.parse(schemaTextOf('AVRO', 'key', columns, undefined)) as typeof JSON;
    expect(
      (key as unknown as { fields: ReadonlyArray<{ name: string }> }).fields.map(({ name }) => name),
    ).toEqual([...['b', 'id', 'key_count', 'i', 'Name', 'window_start', 'window_end']]);
  });

  it('a Protobuf field keeps its number when an aggregate is added, and no number is used again', () => {
    const first = textOf('PROTOBUF', false);
    expect(first).toContain('optional int64 count = 8;');
    const second = textOf('PROTOBUF', true, first);
    expect(second).toContain('optional int64 count = 8;');
    expect(second).toContain('optional int64 sum = 9;');
    expect(second).toContain('optional double avg = 14;');
    const third = textOf('PROTOBUF', false, second);
    expect(third).toContain('reserved 14;');
    expect(third).toContain('reserved "avg";');
    const fourth = schemaTextOf(
      'PROTOBUF',
      'value',
      [...columns, { ...ADDED, name: 'p50' }],
      parseSchema('PROTOBUF', third),
    );
    expect(fourth).toContain('optional double p50 = 15;');
    expect(fourth).toContain('reserved 14;');
  });

  it('a JSON object is closed, and requires the key and the bounds alone', () => {
    const schema = JSON.parse(textOf('JSON', true)) as {
      readonly required: readonly string[];
      readonly additionalProperties: boolean;
      readonly properties: Readonly<Record<string, unknown>>;
    };
    expect(schema.additionalProperties).toBe(false);
    expect(schema.required).toEqual(['b', 'id', 'key_count', 'i', 'Name', 'window_start', 'window_end']);
    expect(schema.properties['avg']).toEqual({ type: 'number' });
  });

  it('a property of JSON has texts beside numbers if its field is a double, and keeps its type', () => {
    const aggregate = 'sum(d:double),p50(d:double),avg(i),p50(p:decimal2) as p,distinct(d:double) as n';
    const shape = resultShape({ input: { format: 'json', key: 'k', aggregate } });
    const typesOf = (latest?: Schema): Readonly<Record<string, unknown>> => {
      const text = schemaTextOf('JSON', 'value', shape.columns, latest);
      return (JSON.parse(text) as { readonly properties: Readonly<Record<string, unknown>> }).properties;
    };
    const double = {
      oneOf: [{ type: 'number' }, { type: 'string', enum: ['NaN', 'Infinity', '-Infinity'] }],
    };
    const number = { type: 'number' };
    const others = { p50_d_error: number, avg_i: number, p: number, p_error: number, n_error: number };
    expect(typesOf()).toMatchObject({ sum_d: double, p50_d: double, ...others });
    const latestOf = (sum: object): Schema =>
      parseSchema('JSON', JSON.stringify({ type: 'object', properties: { sum_d: sum } }));
    expect(typesOf(latestOf(number))).toMatchObject({ sum_d: number, p50_d: double, ...others });
    expect(typesOf(latestOf(double))).toEqual(typesOf());
    expect(typesOf(parseSchema('JSON', 'true'))).toEqual(typesOf());
  });
});
