/** Columns of the client library against a running registry: several writer schemas in one batch,
 *  rows with errors, projection, apache-arrow, and columns back to records. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import * as arrow from 'apache-arrow';
import { beforeAll, expect, test } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { openMetricsPage } from '../../src/drivers.ts';
import {
  type ColumnRecords,
  type RecordColumnDecoder,
  recordFaultOf,
  SchemaRegistry,
} from '../../src/registry/index.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';

/** The second pass of the suite runs on the reference implementation. */
const NATIVE = { native: process.env['MILLRACE_NATIVE'] === 'off' ? 'off' : 'on' } as const;

const own = launcher();
let url = '';
beforeAll(async () => {
  url = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
});

const field = (name: string, type: unknown, more: object = {}): object => ({ name, type, ...more });
const record = (name: string, ...fields: object[]): object => ({
  type: 'record',
  name,
  namespace: 'shop',
  fields,
});
const CITY = record('City', field('name', 'string'), field('zip', 'int'));
const V1 = record(
  'Parcel',
  field('id', 'long'),
  field('state', { type: 'enum', name: 'State', symbols: ['NEW', 'SENT'] }),
  field('to', CITY),
  field('tags', { type: 'map', values: 'string' }),
);
const V2 = record(
  'Parcel',
  field('id', 'long'),
  field('state', { type: 'enum', name: 'State', symbols: ['NEW', 'SENT'] }),
  field('to', CITY),
  field('tags', { type: 'map', values: 'string' }),
  field('weight', ['null', 'double'], { default: null }),
);

interface Parcel {
  readonly id: bigint;
  readonly state: string;
  readonly to: { readonly name: string; readonly zip: number };
  readonly tags: Readonly<Record<string, string>>;
  readonly weight?: number | null;
}
const parcel = (id: bigint, more: Partial<Parcel> = {}): Parcel => ({
  id,
  state: 'SENT',
  to: { name: `größe ${id}`, zip: Number(id) },
  tags: { a: 'b' },
  ...more,
});

const codeOf = async (work: () => unknown): Promise<string | undefined> => {
  try {
    await work();
    return undefined;
  } catch (thrown) {
    return findMillraceError(thrown)?.code;
  }
};

async function recordsOf(registry: SchemaRegistry, topic: string): Promise<Array<Buffer | null>> {
  const one = await registry.serializer<Parcel>({ topic, schema: V1, autoRegister: true }).prefetch();
  const two = await registry.serializer<Parcel>({ topic, schema: V2, autoRegister: true }).prefetch();
  const unknown = Buffer.from(one.serialize(parcel(9n)));
  unknown.writeUInt32BE(4_000_000, 1);
  return [
    one.serialize(parcel(1n)),
    two.serialize(parcel(2n, { weight: 2.5 })),
    null,
    Buffer.from('not a record'),
    unknown,
    one.serialize(parcel(3n)).subarray(0, 9),
    one.serialize(parcel(4n)),
  ];
}

test('records of several writer schemas become one batch, and a bad record costs its row', async () => {
  const registry = new SchemaRegistry({ url });
  const records = await recordsOf(registry, 'columns');
  const decoder = registry.columnDecoder<Parcel>({ ...NATIVE, readerSchema: V2 });
  const batch = await decoder.decode(records);
  const deserialized = await registry.deserializer<Parcel>({ readerSchema: V2 }).deserializeBatch(records);
  expect(batch.rowCount).toBe(records.length);
  expect(batch.names).toEqual(['id', 'state', 'to', 'tags', 'weight']);
  const states = records.map((_, row) => batch.stateOf(row));
  expect(states).toEqual(['ok', 'ok', 'null', 'error', 'error', 'error', 'ok']);
  deserialized.forEach(({ value, error }, row) => {
    if (error === undefined) {
      expect(batch.value(row)).toEqual(value);
      return;
    }
    // The facts are those of a deserializer.
    expect(recordFaultOf(batch.errorOf(row))).toEqual(recordFaultOf(error));
    expect(() => batch.row(row)).toThrow(error.message);
  });
  expect(() => batch.stateOf(records.length)).toThrow(RangeError);
  const view = batch.row(1) as Parcel;
  expect([view.id, view.weight, view.to.name]).toEqual([2n, 2.5, 'größe 2']);
  expect([...batch.column('id').values].filter((id) => id !== 0n)).toEqual([1n, 2n, 4n]);
  decoder.close();
});

test('a batch keeps its rows while the decoder makes another, and its memory is used again on request', async () => {
  const registry = new SchemaRegistry({ url });
  const records = await recordsOf(registry, 'reuse');
  const decoder: RecordColumnDecoder<Parcel> = await registry
    .columnDecoder<Parcel>({ ...NATIVE, readerSchema: V2 })
    .prefetch();
  const first = await decoder.decode(records);
  const view = first.row(0) as Parcel;
  const second = decoder.decodeSync([records[6], records[0]]);
  expect([view.id, (second.row(0) as Parcel).id]).toEqual([1n, 4n]);
  const again: ColumnRecords<Parcel> = decoder.decodeSync([records[1], null], second);
  expect(again).toBe(second);
  expect(again.rowCount).toBe(2);
  expect((again.row(0) as Parcel).id).toBe(2n);
  expect(again.row(1)).toBeNull();
});

test('requested fields alone become columns, and their paths lead to the buffers', async () => {
  const registry = new SchemaRegistry({ url });
  const records = await recordsOf(registry, 'fields');
  const decoder = registry.columnDecoder<Parcel>({ ...NATIVE, readerSchema: V2, fields: ['to.zip', 'tags'] });
  const batch = await decoder.decode([records[0], records[1]]);
  expect(batch.value(0)).toEqual({ to: { zip: 1 }, tags: { a: 'b' } });
  expect([...batch.column('to.zip').values]).toEqual([1, 2]);
  expect(batch.column('tags').offsets).toEqual(Int32Array.of(0, 1, 2));
  expect(Buffer.from(batch.column('tags.value').values as Uint8Array).toString()).toBe('bb');
  expect(await codeOf(() => batch.column('to.name'))).toBe('bad_option');
  expect(
    await codeOf(() =>
      registry.columnDecoder({ ...NATIVE, readerSchema: V2, fields: ['to.town'] }).decode(records),
    ),
  ).toBe('unknown_field');
});

test('all records of a batch without a reader schema have one writer schema', async () => {
  const registry = new SchemaRegistry({ url });
  const records = await recordsOf(registry, 'writer');
  const decoder = registry.columnDecoder<Parcel>(NATIVE);
  const batch = await decoder.decode([records[0], null, records[3], records[6]]);
  expect(batch.names).toEqual(['id', 'state', 'to', 'tags']);
  expect([0, 1, 2, 3].map((row) => batch.stateOf(row))).toEqual(['ok', 'null', 'error', 'ok']);
  expect(await codeOf(() => decoder.decode(records))).toBe('bad_option');
  const none = await registry.columnDecoder(NATIVE).decode([null, Buffer.from('x')]);
  expect([none.stateOf(0), none.stateOf(1), none.names.length]).toEqual(['null', 'error', 0]);
});

test('records of several writer schemas become a batch for each schema, in the columns of that schema', async () => {
  const registry = new SchemaRegistry({ url });
  const records = await recordsOf(registry, 'by-writer');
  const decoder = registry.columnDecoder<Parcel>(NATIVE);
  const groups = await decoder.decodeByWriter([null, ...records]);
  expect(groups.map(({ positions }) => positions)).toEqual([
    [0, 1, 6, 7],
    [2, 3, 4, 5],
  ]);
  expect(groups.map(({ records: { names } }) => names)).toEqual([
    ['id', 'state', 'to', 'tags'],
    ['id', 'state', 'to', 'tags', 'weight'],
  ]);
  const deserialized = await registry.deserializer<Parcel>({}).deserializeBatch([null, ...records]);
  for (const { positions, records: batch, schemaId } of groups)
    positions.forEach((position, row) => {
      const { value, error } = deserialized[position] as (typeof deserialized)[number];
      if (error !== undefined) expect(recordFaultOf(batch.errorOf(row))).toEqual(recordFaultOf(error));
      else expect(batch.value(row)).toEqual(value);
      if (batch.stateOf(row) === 'ok') expect(records[position - 1]?.readUInt32BE(1)).toBe(schemaId);
    });
  // All schemas are loaded now.
  const [one, two] = decoder.decodeByWriterSync([records[0], records[1], records[6]]);
  expect([one?.positions, two?.positions]).toEqual([[0, 2], [1]]);
  expect(one?.records.toArrow(arrow).numRows).toBe(2);
  expect(two?.records.row(0)?.weight).toBe(2.5);
  decoder.close();
});

test('records without a readable schema are one batch without columns, and no records are none', async () => {
  const registry = new SchemaRegistry({ url });
  const decoder = registry.columnDecoder(NATIVE);
  const [only, ...rest] = await decoder.decodeByWriter([null, Buffer.from('x')]);
  expect(rest).toEqual([]);
  expect([only?.schemaId, only?.positions, only?.records.names]).toEqual([undefined, [0, 1], []]);
  expect([only?.records.stateOf(0), only?.records.stateOf(1)]).toEqual(['null', 'error']);
  expect(await decoder.decodeByWriter([])).toEqual([]);
});

test('a batch for each writer schema is refused to a decoder that has a reader schema or lacks a field', async () => {
  const registry = new SchemaRegistry({ url });
  const records = await recordsOf(registry, 'by-writer-refused');
  const reader = registry.columnDecoder({ ...NATIVE, readerSchema: V2 });
  expect(await codeOf(() => reader.decodeByWriter(records))).toBe('bad_option');
  expect(await codeOf(() => reader.decodeByWriterSync(records))).toBe('bad_option');
  const weights = registry.columnDecoder({ ...NATIVE, fields: ['weight'] });
  expect(await codeOf(() => weights.decodeByWriter(records))).toBe('unknown_field');
});

test('columns become the records that a serializer writes, also from apache-arrow', async () => {
  const registry = new SchemaRegistry({ url });
  const records = await recordsOf(registry, 'encode');
  const serializer = await registry.serializer<Parcel>({ topic: 'encode', schema: V2 }).prefetch();
  const encoder = registry.columnEncoder({ ...NATIVE, topic: 'encode', schema: V2 });
  const batch = await registry.columnDecoder<Parcel>({ ...NATIVE, readerSchema: V2 }).decode(records);
  expect(await codeOf(() => encoder.encode(batch))).toBe('schema_not_cached');
  await encoder.prefetch();
  expect(encoder.schemaId).toBe(serializer.schemaId);
  const framed = encoder.encode(batch);
  expect(framed.refusedRows()).toEqual([3, 4, 5]);
  for (const row of [0, 1, 6])
    expect(framed.record(row)).toEqual(serializer.serialize(batch.value(row) as Parcel));
  expect(framed.record(2)).toBeNull();
  expect(() => framed.record(3)).toThrow('was not decoded');
  expect(framed.bytes.length).toBe(framed.offsets[7]);
  const page = await (await openMetricsPage(registry.metrics, { process: false })).text();
  for (const operation of ['encode_columns', 'decode_columns'])
    expect(page).toContain(`serde_seconds_count{operation="${operation}"} 1`);

  const table = new arrow.Table([batch.toArrow(arrow)]);
  const fromTable = encoder.encode(table, framed);
  for (const row of [0, 1, 6])
    expect(fromTable.record(row)).toEqual(serializer.serialize(batch.value(row) as Parcel));
  const sliced = encoder.encode(table.slice(1, 7));
  expect(sliced.record(0)).toEqual(serializer.serialize(batch.value(1) as Parcel));
  expect(sliced.record(5)).toEqual(serializer.serialize(batch.value(6) as Parcel));
  encoder.close();
});

test('a symbol that the enum lacks costs its row, and its error names the column', async () => {
  const registry = new SchemaRegistry({ url });
  const schema = record('Event', field('kind', { type: 'enum', name: 'Kind', symbols: ['A', 'B'] }));
  const encoder = await registry
    .columnEncoder({ ...NATIVE, topic: 'symbols', schema, autoRegister: true })
    .prefetch();
  const table = arrow.tableFromArrays({ kind: ['A', 'C', 'B'] });
  const framed = encoder.encode(table);
  expect(framed.refusedRows()).toEqual([1]);
  expect(framed.errorOf(1)).toMatchObject({ code: 'value_refused', details: { path: 'Event.kind', row: 1 } });
  const read = await registry
    .columnDecoder<{ kind: string }>(NATIVE)
    .decode([framed.record(0), framed.record(2)]);
  expect([read.value(0), read.value(1)]).toEqual([{ kind: 'A' }, { kind: 'B' }]);
  expect(await codeOf(() => encoder.encode(arrow.tableFromArrays({ other: ['A'] })))).toBe('value_refused');
  expect(await codeOf(() => encoder.encode(read))).toBeUndefined();
});

const PROTO = `
syntax = "proto3";
package shop;
message Order { int64 id = 1; repeated int32 counts = 2; Item first = 3; oneof pay { string card = 4; bool cash = 5; } }
message Item { string name = 1; }
`;

test('Protobuf records of one message become columns and records again', async () => {
  const registry = new SchemaRegistry({ url });
  const options = { topic: 'proto', format: 'PROTOBUF', schema: PROTO } as const;
  const serializer = await registry.serializer({ ...options, autoRegister: true }).prefetch();
  const items = await registry.serializer({ ...options, message: 'shop.Item' }).prefetch();
  const orders = [
    { id: 1n, counts: [1, 2], first: { name: 'x' }, card: 'c' },
    { id: 0n, counts: [], first: null, cash: false },
  ];
  const records = [...orders.map((order) => serializer.serialize(order)), items.serialize({ name: 'y' })];
  const decoder = registry.columnDecoder({ ...NATIVE, readerSchema: PROTO, format: 'PROTOBUF' });
  const batch = await decoder.decode(records);
  expect(batch.stateOf(2)).toBe('error');
  expect(batch.errorOf(2)?.code).toBe('incompatible_schema');
  expect([...batch.column('counts.item').values]).toEqual([1, 2]);
  const encoder = await registry.columnEncoder({ ...options, ...NATIVE }).prefetch();
  const framed = encoder.encode(batch);
  expect([framed.record(0), framed.record(1)]).toEqual(records.slice(0, 2));
  expect(framed.refusedRows()).toEqual([2]);
});

test('a Protobuf record that the reader would misread is an error of its row', async () => {
  const registry = new SchemaRegistry({ url });
  const text = (type: string): string => `syntax = "proto3"; package shop; message Count { ${type} n = 1; }`;
  const options = { topic: 'misread', format: 'PROTOBUF', schema: text('int64') } as const;
  const serializer = await registry.serializer({ ...options, autoRegister: true }).prefetch();
  const records = [0n, 1n].map((n) => serializer.serialize({ n }));
  const reader = { readerSchema: text('sint64'), format: 'PROTOBUF' } as const;
  const batch = await registry.columnDecoder<{ n: bigint }>({ ...reader, ...NATIVE }).decode(records);
  const deserialized = await registry.deserializer<{ n: bigint }>(reader).deserializeBatch(records);
  expect(batch.value(0)).toEqual(deserialized[0]?.value);
  expect(deserialized[1]?.error?.code).toBe('incompatible_schema');
  expect(recordFaultOf(batch.errorOf(1))).toEqual(recordFaultOf(deserialized[1]?.error));
});

test('recursive values are decoded on demand, and encoded by the schema that wrote them alone', async () => {
  const registry = new SchemaRegistry({ url });
  const tree = (v: string): object =>
    record('Tree', field('v', v), field('next', ['null', 'shop.Tree'], { default: null }));
  interface Tree {
    readonly v: bigint | number;
    readonly next?: Tree | null;
  }
  const value: Tree = { v: 1n, next: { v: 2n, next: { v: 3n, next: null } } };
  const serializer = await registry
    .serializer<Tree>({ topic: 'trees', schema: tree('long'), autoRegister: true })
    .prefetch();
  const bytes = serializer.serialize(value);
  const encoder = await registry
    .columnEncoder({ ...NATIVE, topic: 'trees', schema: tree('long') })
    .prefetch();
  const same = await registry.columnDecoder<Tree>({ ...NATIVE, readerSchema: tree('long') }).decode([bytes]);
  expect(same.value(0)).toEqual(value);
  expect(encoder.encode(same).record(0)).toEqual(bytes);
  const ints = await registry
    .serializer<Tree>({ topic: 'ints', schema: tree('int'), autoRegister: true })
    .prefetch();
  const small = { v: 1, next: { v: 2, next: null } };
  const promoted = await registry
    .columnDecoder<Tree>({ ...NATIVE, readerSchema: tree('long') })
    .decode([ints.serialize(small)]);
  expect(promoted.value(0)).toEqual({ v: 1n, next: { v: 2n, next: null } });
  expect(await codeOf(() => encoder.encode(promoted))).toBe('bad_option');
});

test('CommonJS loads the columns of the client library', () => {
  const script = `
    const { RecordColumnDecoder, RecordColumnEncoder, SchemaRegistry } = require('millrace/registry');
    const registry = new SchemaRegistry({ url: 'http://127.0.0.1:9' });
    const encoder = registry.columnEncoder({ topic: 't', version: 1 });
    console.log(registry.columnDecoder() instanceof RecordColumnDecoder, encoder instanceof RecordColumnEncoder);`;
  const run = ['--no-warnings', '-e', script];
  expect(execFileSync(process.execPath, run, { cwd: packageRoot(), encoding: 'utf8' })).toBe('true true\n');
});

test('a guid in the headers takes the place of the prefix, read and written', async () => {
  const registry = new SchemaRegistry({ url });
  const options = { topic: 'headers', schema: V1, header: 'headers' } as const;
  const serializer = await registry.serializer<Parcel>({ ...options, autoRegister: true }).prefetch();
  const bytes = serializer.serialize(parcel(5n));
  const batch = await registry
    .columnDecoder<Parcel>({ ...NATIVE, readerSchema: V1 })
    .decode([{ bytes, headers: serializer.headers }]);
  expect(batch.value(0)).toEqual(parcel(5n));
  const framed = (await registry.columnEncoder({ ...options, ...NATIVE }).prefetch()).encode(batch);
  expect(framed.record(0)).toEqual(bytes);
  expect(framed.headers).toEqual(serializer.headers);
});

test('the example of the how-to runs as it is printed', () => {
  const example = join(packageRoot(), 'examples/columns/totals.mjs');
  const output = execFileSync(process.execPath, [example, url], { encoding: 'utf8' });
  expect(output.split('\n').slice(0, -1)).toEqual([
    '0 1n 550n',
    '1 2n 10n',
    '2 3n 0n',
    '3 error bad_magic',
    '4 null undefined',
    'id,items',
    '3 0 true',
  ]);
});
