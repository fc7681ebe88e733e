/** Column batches as record batches of apache-arrow. */
import * as arrow from 'apache-arrow';
import { describe, expect, it } from 'vitest';
import { toArrow } from '../../../src/formats/arrow/record-batch.ts';
import { encodeAvro } from '../../../src/formats/avro/codec/encoder.ts';
import { avroColumnDecoder } from '../../../src/formats/avro/columns/decoder.ts';
import type { AvroDatum } from '../../../src/formats/datum.ts';
import { columnKernels, parse, spansOf } from '../../differential/avro-columns-kit.ts';

const field = (name: string, type: unknown): object => ({ name, type });
const record = (name: string, ...fields: object[]): object => ({ type: 'record', name, fields });

const SCHEMA = record(
  'R',
  field('b', ['null', 'boolean']),
  field('i', 'int'),
  field('l', 'long'),
  field('f', 'float'),
  field('d', ['double', 'null']),
  field('s', 'string'),
  field('raw', ['null', 'bytes']),
  field('fix', { type: 'fixed', name: 'F', size: 3 }),
  field('price', { type: 'fixed', name: 'D', size: 4, logicalType: 'decimal', precision: 9, scale: 2 }),
  field('state', { type: 'enum', name: 'E', symbols: ['A', 'B', 'C'] }),
  field('day', { type: 'int', logicalType: 'date' }),
  field('at', { type: 'long', logicalType: 'timestamp-millis' }),
  field('local', { type: 'long', logicalType: 'local-timestamp-micros' }),
  field('time', { type: 'int', logicalType: 'time-millis' }),
  field('id', { type: 'string', logicalType: 'uuid' }),
  field('n', 'null'),
  field('list', { type: 'array', items: ['null', 'int'] }),
  field('map', { type: 'map', values: 'long' }),
  field('inner', ['null', record('In', field('x', 'int'), field('y', 'string'))]),
  field('any', ['int', 'string', 'null']),
);

const row = (n: number): AvroDatum => ({
  fields: [
    n % 3 === 0 ? { branch: 0, value: null } : { branch: 1, value: n % 2 === 0 },
    -n,
    2n ** 60n + BigInt(n),
    n / 2,
    n % 2 === 0 ? { branch: 0, value: n * 1.5 } : { branch: 1, value: null },
    `größe ${n}`,
    n % 2 === 0 ? { branch: 0, value: null } : { branch: 1, value: Buffer.of(n, 255) },
    Buffer.of(n, 2, 3),
    Buffer.of(255, 255, 255, 256 - 1 - n),
    'ABC'[n % 3] as string,
    19_000 + n,
    1_700_000_000_000n + BigInt(n),
    5n,
    n,
    `00000000-0000-0000-0000-00000000000${n}`,
    null,
    [
      { branch: 1, value: n },
      { branch: 0, value: null },
    ],
    new Map([
      ['k', BigInt(n)],
      ['', 7n],
    ]),
    n === 1 ? { branch: 0, value: null } : { branch: 1, value: { fields: [n, `y${n}`] } },
    n === 2 ? { branch: 2, value: null } : n === 1 ? { branch: 1, value: 'one' } : { branch: 0, value: n },
  ],
});

function decoded(kernels: (typeof columnKernels)[number]) {
  const schema = parse(SCHEMA);
  const decoder = avroColumnDecoder(kernels, schema, schema);
  const batch = decoder.createBatch(8);
  decoder.decode(spansOf([0, 1, 2, 3].map((n) => encodeAvro(schema.tree, row(n)))), 0, 4, batch);
  decoder.close();
  return { batch, made: toArrow(arrow, batch) };
}

describe.each(columnKernels)('record batches over columns of the $name kernel', (kernels) => {
  it('each column has its Arrow type', () => {
    const { made } = decoded(kernels);
    const types = made.schema.fields.map((one) => `${one.name}: ${one.type}${one.nullable ? '?' : ''}`);
    expect(types).toEqual([
      'b: Bool?',
      'i: Int32',
      'l: Int64',
      'f: Float32',
      'd: Float64?',
      's: Utf8',
      'raw: Binary?',
      'fix: FixedSizeBinary[3]',
      'price: Decimal[9e+2]',
      'state: Dictionary<Int32, Utf8>',
      'day: Date32<DAY>',
      'at: Timestamp<MILLISECOND, UTC>',
      'local: Timestamp<MICROSECOND>',
      'time: Time32<MILLISECOND>',
      'id: Utf8',
      'n: Null?',
      'list: List<Int32>',
      'map: Map<{key:Utf8, value:Int64}>',
      'inner: Struct<{x:Int32, y:Utf8}>?',
      expect.stringContaining('any: '),
    ]);
    expect(made.schema.fields[14]?.metadata.get('millrace.logical')).toBe('uuid');
  });

  it('the record batch has the values of the rows', () => {
    const { made } = decoded(kernels);
    expect(made.numRows).toBe(4);
    const column = (name: string): unknown[] => [...(made.getChild(name) as Iterable<unknown>)];
    expect(column('b')).toEqual([null, false, true, null]);
    expect(column('l')).toEqual([0, 1, 2, 3].map((n) => 2n ** 60n + BigInt(n)));
    expect(column('d')).toEqual([0, null, 3, null]);
    expect(column('s')).toEqual([0, 1, 2, 3].map((n) => `größe ${n}`));
    expect(column('raw')).toEqual([null, Uint8Array.of(1, 255), null, Uint8Array.of(3, 255)]);
    expect(column('state')).toEqual(['A', 'B', 'C', 'A']);
    expect(column('at').map(Number)).toEqual([0, 1, 2, 3].map((n) => 1_700_000_000_000 + n));
    expect(column('n')).toEqual([null, null, null, null]);
    expect(column('any')).toEqual([0, 'one', null, 3]);
    const plain = (value: unknown): unknown =>
      JSON.parse(JSON.stringify(value, (_, one) => Number(one) || one));
    expect(column('list').map((items) => [...(items as Iterable<unknown>)])).toEqual(
      [0, 1, 2, 3].map((n) => [n, null]),
    );
    expect(column('map').map((entries) => [...(entries as Iterable<[string, bigint]>)])).toEqual(
      [0, 1, 2, 3].map((n) => [
        ['k', BigInt(n)],
        ['', 7n],
      ]),
    );
    expect(column('inner').map((one) => plain(one))).toEqual([
      { x: 0, y: 'y0' },
      null,
      { x: 2, y: 'y2' },
      { x: 3, y: 'y3' },
    ]);
    const price = made.getChild('price')?.get(2) as Uint32Array;
    expect(new BigInt64Array(Uint32Array.from(price).buffer)[0]).toBe(-3n);
  });

  it('no column is copied, and the batch is written as an Arrow file that reads back', () => {
    const { batch, made } = decoded(kernels);
    const buffers = made.data.children.flatMap((data) => [data.values, data.valueOffsets, data.typeIds]);
    const used = buffers.filter((one) => one !== undefined && one.length > 0);
    expect(used.length).toBeGreaterThan(20);
    for (const one of used) expect(one?.buffer).toBe(batch.buffer);
    const back = arrow.tableFromIPC(arrow.tableToIPC(new arrow.Table([made])));
    expect(back.numRows).toBe(4);
    expect([...(back.getChild('s') as Iterable<unknown>)]).toEqual([
      ...(made.getChild('s') as Iterable<unknown>),
    ]);
    expect([...(back.getChild('state') as Iterable<unknown>)]).toEqual(['A', 'B', 'C', 'A']);
  });

  it('a module that lacks a class is refused', () => {
    const { batch } = decoded(kernels);
    const { Bool: _, ...less } = arrow;
    expect(() => toArrow(less as typeof arrow, batch)).toThrow('no class Bool');
  });
});
