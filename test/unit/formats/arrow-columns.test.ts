/** Record batches of apache-arrow as column batches: every type, slices, nulls, foreign columns. */
import * as arrow from 'apache-arrow';
import { describe, expect, it } from 'vitest';
import type { ColumnBatch } from '../../../src/core/columns/batch.ts';
import { findMillraceError } from '../../../src/core/errors.ts';
import { COLUMN_STATUS } from '../../../src/core/layout/layouts.gen.ts';
import { type ArrowBatch, columnsFromArrow } from '../../../src/formats/arrow/columns.ts';
import { toArrow } from '../../../src/formats/arrow/record-batch.ts';
import { encodeAvro } from '../../../src/formats/avro/codec/encoder.ts';
import { avroColumnDecoder } from '../../../src/formats/avro/columns/decoder.ts';
import type { AvroDatum } from '../../../src/formats/datum.ts';
import { bytesOf, columnKernels, parse, spansOf } from '../../differential/avro-columns-kit.ts';

const field = (name: string, type: unknown): object => ({ name, type });
const record = (name: string, ...fields: object[]): object => ({ type: 'record', name, fields });

const SCHEMA = record(
  'R',
  field('b', ['null', 'boolean']),
  field('c', 'boolean'),
  field('i', 'int'),
  field('l', ['long', 'null']),
  field('f', 'float'),
  field('d', 'double'),
  field('s', 'string'),
  field('raw', ['null', 'bytes']),
  field('fix', { type: 'fixed', name: 'F', size: 3 }),
  field('price', { type: 'fixed', name: 'D', size: 4, logicalType: 'decimal', precision: 9, scale: 2 }),
  field('wide', { type: 'fixed', name: 'W', size: 20, logicalType: 'decimal', precision: 40 }),
  field('state', { type: 'enum', name: 'E', symbols: ['A', 'B', 'C'] }),
  field('day', { type: 'int', logicalType: 'date' }),
  field('time', { type: 'long', logicalType: 'time-micros' }),
  field('at', { type: 'long', logicalType: 'timestamp-millis' }),
  field('n', 'null'),
  field('list', { type: 'array', items: ['null', 'int'] }),
  field('map', { type: 'map', values: 'long' }),
  field('inner', ['null', record('In', field('x', 'int'), field('y', { type: 'array', items: 'string' }))]),
  field('any', ['int', 'string', 'null']),
);

const optional = (n: number, at: number, value: AvroDatum): AvroDatum =>
  n % 3 === 0 ? { branch: at, value: null } : { branch: 1 - at, value };

const row = (n: number): AvroDatum => ({
  fields: [
    optional(n, 0, n % 2 === 0),
    n % 2 === 1,
    -n,
    optional(n + 1, 1, BigInt(n) << 40n),
    n / 2,
    n / 3,
    `text ${'ö'.repeat(n % 4)}`,
    optional(n + 2, 0, Buffer.alloc(n % 5, n)),
    Buffer.of(n, 1, 2),
    Buffer.of(0xff, n, 0, 1),
    Buffer.alloc(20, n),
    ['A', 'B', 'C'][n % 3] as string,
    n,
    BigInt(n),
    BigInt(n * 1000),
    null,
    Array.from({ length: n % 4 }, (_, i) => optional(i, 0, i)),
    new Map(Array.from({ length: n % 3 }, (_, i) => [`k${i}`, BigInt(i)])),
    optional(n, 0, { fields: [n, Array.from({ length: n % 3 }, (_, i) => `${n} ${i}`)] }),
    [
      { branch: 0, value: n },
      { branch: 1, value: `${n}` },
      { branch: 2, value: null },
    ][n % 3] as AvroDatum,
  ],
});

function decoded(json: unknown, data: readonly AvroDatum[]): ColumnBatch {
  const schema = parse(json);
  const decoder = avroColumnDecoder(columnKernels[0] as never, schema, schema);
  const batch = decoder.createBatch(Math.max(1, data.length));
  decoder.decode(spansOf(data.map((datum) => encodeAvro(schema.tree, datum))), 0, data.length, batch);
  return batch;
}

/** Values of all rows of a batch. */
function valuesOf(json: unknown, batch: ColumnBatch): unknown[] {
  const rows = avroColumnDecoder(columnKernels[0] as never, parse(json), parse(json)).rows();
  rows.attach(batch);
  return Array.from({ length: batch.rowCount }, (_, at) => rows.value(at));
}

const errorOf = (work: () => unknown): string | undefined => {
  try {
    work();
    return undefined;
  } catch (thrown) {
    return findMillraceError(thrown)?.message;
  }
};

const rows = Array.from({ length: 20 }, (_, n) => row(n));

describe('columns from apache-arrow', () => {
  it('every type makes the way to apache-arrow and back unchanged', () => {
    const batch = decoded(SCHEMA, rows);
    const back = columnsFromArrow(toArrow(arrow, batch), batch.schema);
    expect(bytesOf(back)).toEqual(bytesOf(batch));
  });

  it('a slice has the values of its rows, wherever it begins', () => {
    const batch = decoded(SCHEMA, rows);
    const table = new arrow.Table([toArrow(arrow, batch)]);
    const values = valuesOf(SCHEMA, batch);
    for (const [from, to] of [
      [1, 20],
      [7, 9],
      [8, 17],
      [5, 5],
    ] as const) {
      const parts = table.slice(from, to).batches.map((part) => columnsFromArrow(part, batch.schema));
      expect(parts.flatMap((part) => valuesOf(SCHEMA, part))).toEqual(values.slice(from, to));
    }
  });

  it('columns of typed arrays, in any order and with others beside them, become a batch', () => {
    const json = record(
      'R',
      field('id', 'long'),
      field('x', ['null', 'double']),
      field('state', { type: 'enum', name: 'E', symbols: ['A', 'B'] }),
      field('word', { type: 'enum', name: 'W', symbols: ['one', 'two'] }),
    );
    const table = new arrow.Table({
      other: arrow.vectorFromArray([1, 2, 3]),
      state: arrow.vectorFromArray(['B', 'A', 'Z'], new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8())),
      word: arrow.vectorFromArray(['two', 'three', 'one'], new arrow.Utf8()),
      x: arrow.vectorFromArray([0.5, null, 2], new arrow.Float64()),
      id: arrow.makeVector(BigInt64Array.of(1n, 2n, 3n)),
    });
    const batch = columnsFromArrow(table.batches[0] as ArrowBatch, decoded(json, []).schema);
    const values = valuesOf(json, batch);
    // A text that is no symbol has an index that the encoder refuses.
    expect(values).toEqual([
      { id: 1n, x: 0.5, state: 'B', word: 'two' },
      { id: 2n, x: null, state: 'A', word: undefined },
      { id: 3n, x: 2, state: undefined, word: 'one' },
    ]);
  });

  it('a null where the schema has none costs its row, and inside a value the batch is refused', () => {
    const json = record('R', field('id', 'int'), field('list', { type: 'array', items: 'int' }));
    const { schema } = decoded(json, []);
    const list = (items: ReadonlyArray<ReadonlyArray<number | null>>): arrow.Vector =>
      arrow.vectorFromArray(items, new arrow.List(new arrow.Field('item', new arrow.Int32(), true)));
    const top = new arrow.Table({
      id: arrow.vectorFromArray([1, null, 3], new arrow.Int32()),
      list: list([[1], [2], []]),
    });
    const batch = columnsFromArrow(top.batches[0] as ArrowBatch, schema);
    expect([...batch.status]).toEqual([COLUMN_STATUS.OK, COLUMN_STATUS.INCOMPATIBLE, COLUMN_STATUS.OK]);
    const inside = new arrow.Table({
      id: arrow.vectorFromArray([1], new arrow.Int32()),
      list: list([[1, null]]),
    });
    expect(errorOf(() => columnsFromArrow(inside.batches[0] as ArrowBatch, schema))).toBe(
      'the column list.item has a null at 1, which the schema does not allow',
    );
  });

  it('a missing column and a column of another type are errors that name it', () => {
    const { schema } = decoded(record('R', field('id', 'long')), []);
    const from = (columns: Record<string, arrow.Vector>) => () =>
      columnsFromArrow(new arrow.Table(columns).batches[0] as ArrowBatch, schema);
    expect(errorOf(from({ no: arrow.vectorFromArray([1]) }))).toBe('the column id is missing');
    expect(errorOf(from({ id: arrow.vectorFromArray([1], new arrow.Int32()) }))).toBe(
      'the column id has another type than int64',
    );
  });
});
