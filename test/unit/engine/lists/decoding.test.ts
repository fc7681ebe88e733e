/** Elements of lists as events: JSON, Avro and Protobuf, in both implementations of the
 *  decoders. */
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import { EventIds } from '../../../../src/engine/dedup/ids.ts';
import { LIST_ELEMENTS_MAX, ListRows } from '../../../../src/engine/source/list/rows.ts';
import { json, MemoryRegistry, openedInput, recordsOf, SIDES } from '../input/input-kit.ts';
import { decodedLists, rowsOf } from './lists-kit.ts';

const JOB = { format: 'json', key: 'id:i64', time: 't:ms', value: 'items[].qty' } as const;

const ITEM = {
  type: 'record',
  name: 'Item',
  fields: [
    { name: 'sku', type: 'string' },
    { name: 'qty', type: 'int' },
  ],
};
const orderSchema = (items: unknown, ...more: readonly unknown[]): string =>
  JSON.stringify({
    type: 'record',
    name: 'Order',
    fields: [
      { name: 'id', type: 'long' },
      { name: 'items', type: items },
      { name: 't', type: 'long' },
      ...more,
    ],
  });

describe.each(SIDES)('decoder of lists in JSON, %s', (side) => {
  const opened = (over: object = {}) => openedInput({ ...JOB, ...over }, { side }).input;

  it('each element is an event with the fields of its record', async () => {
    const records = recordsOf([
      json({ id: 7, t: 10, items: [{ qty: 1 }, { qty: 2, more: [[{}], '],['] }] }),
      json('{"t":11,"items" : [ {"qty" : -3} ] ,"id":8}'),
    ]);
    expect(await rowsOf(opened(), records)).toEqual(['0.0: 7 10 1', '0.1: 7 10 2', '1.0: 8 11 -3']);
  });

  it('key and time may be those of the element, and strings and escapes end elements nowhere', async () => {
    const items = [
      { sku: 'a"]', qty: 1, at: 5 },
      { sku: '\\', qty: 2, at: 6 },
      { sku: ',{', qty: 3, at: 7 },
    ];
    const input = opened({ key: 'items[].sku:string', time: 'items[].at:ms' });
    const rows = await rowsOf(input, recordsOf([json({ id: 1, items })]));
    expect(rows.map((row) => row.split(' ').slice(2).join(' '))).toEqual(['5 1', '6 2', '7 3']);
  });

  it('elements may be scalars, in a list below other records', async () => {
    const input = opened({ value: 'order.counts[]' });
    const values = [1, '2', null, 3.5, true].map((one) => json({ id: 1, t: 2, order: { counts: [4, one] } }));
    expect(
      await rowsOf(input, recordsOf([json({ id: 1, t: 2, order: { counts: [9, 10] } }), ...values])),
    ).toEqual([
      '0.0: 1 2 9',
      '0.1: 1 2 10',
      ...['1.0: 1 2 4', '1.1: 1 2 1'],
      ...['2.0: NO_EVENT', '2.1: BAD_VALUE'],
      ...['3.0: NO_EVENT', '3.1: MISSING_FIELD'],
      ...['4.0: NO_EVENT', '4.1: BAD_VALUE'],
      ...['5.0: NO_EVENT', '5.1: BAD_VALUE'],
    ]);
  });

  it('a record without an element has no event, and one whose list is no list is invalid', async () => {
    const records = recordsOf([
      json({ id: 1, t: 1, items: [] }),
      json({ id: 1, t: 1, items: null }),
      json({ id: 1, t: 1 }),
      json('{"id":1,"t":1,"items":[ ]}'),
      null,
      json({ id: 1, t: 1, items: { qty: 1 } }),
      json('{"items":[{"qty":1}'),
      Buffer.of(0, 1),
    ]);
    const [batch] = await decodedLists(opened(), records);
    expect(batch?.rows).toEqual([
      ...['0.-1: NO_EVENT', '1.-1: NO_EVENT', '2.-1: NO_EVENT', '3.-1: NO_EVENT'],
      ...['4.-1: NULL', '5.-1: BAD_LIST', '6.-1: MALFORMED_PAYLOAD', '7.-1: TRUNCATED_FRAME'],
    ]);
    expect(batch?.faults[1]).toBe('items[] is {"qty":1}');
  });

  it('a record is invalid as a whole, with the fault of its first invalid element', async () => {
    const items = [{ qty: 1 }, { qty: 'x' }, { qty: 2 }, { qty: {} }];
    const [batch] = await decodedLists(opened(), recordsOf([json({ id: 1, t: 1, items })]));
    expect(batch?.rows).toEqual(['0.0: NO_EVENT', '0.1: BAD_VALUE', '0.2: NO_EVENT', '0.3: NO_EVENT']);
    expect(batch?.faults).toEqual(['element 1: t is 1; id is 1; items[].qty is "x"']);
  });

  it('a condition excludes elements, which need no other field', async () => {
    const input = opened({ where: 'items[].kind = "A" and id > 0' });
    const items = [{ kind: 'A', qty: 1 }, { kind: 'B' }, {}, { kind: 'A', qty: 4 }];
    expect(await rowsOf(input, recordsOf([json({ id: 1, t: 3, items })]))).toEqual([
      ...['0.0: 1 3 1', '0.1: FILTERED', '0.2: FILTERED', '0.3: 1 3 4'],
    ]);
  });

  it('batches are cut between records, and a record with more elements than a batch is invalid', async () => {
    const order = (id: number, count: number) =>
      json({ id, t: 1, items: Array.from({ length: count }, (_, qty) => ({ qty })) });
    const records = recordsOf([3, 2, 4, 5, 0, 4, 1].map((count, id) => order(id, count)));
    const batches = await decodedLists(opened(), records, 4);
    expect(batches.map(({ rows }) => rows.map((row) => row.split(':')[0]))).toEqual([
      ['0.0', '0.1', '0.2'],
      ['1.0', '1.1'],
      ['2.0', '2.1', '2.2', '2.3'],
      ['3.-1', '4.-1'],
      ['5.0', '5.1', '5.2', '5.3'],
      ['6.0'],
    ]);
    expect(batches.flatMap(({ faults }) => faults)).toEqual(['items[] has more than 4 elements']);
  });

  it('a record with more elements than any batch holds is invalid', async () => {
    const text = (count: number): string =>
      `{"id":1,"t":1,"items":[${'{"qty":1},'.repeat(count - 1)}{"qty":1}]}`;
    const records = recordsOf([json(text(LIST_ELEMENTS_MAX)), json(text(LIST_ELEMENTS_MAX + 1))]);
    const batches = await decodedLists(opened(), records);
    expect(batches.map(({ rows }) => rows.length)).toEqual([LIST_ELEMENTS_MAX, 1]);
    expect(batches[1]?.rows).toEqual(['1.-1: BAD_LIST']);
  });

  it('the kind of a key in the list is judged by its elements', async () => {
    const { input } = openedInput({ key: 'items[].sku', time: 't:ms', value: 'items[].qty' }, { side });
    await input.decide(recordsOf([json({ t: 1, items: [{ sku: 'a', qty: 1 }] }), json({ items: [] })]));
    expect(input.definition.key).toBe('items[].sku:string');
    const numbers = openedInput({ key: 'tags[]', time: 't:ms' }, { side }).input;
    await numbers.decide(recordsOf([json({ t: 1, tags: [1, 2, 'x'] })]));
    expect(numbers.definition.key).toBe('tags[]');
  });

  it('an identifier of the record is one for each of its elements', async () => {
    const ids = async (dedup: string): Promise<readonly string[]> => {
      const input = opened({ dedup });
      const lists = ListRows.create(8, 4096);
      const events = EventBatch.create(8);
      const items = [
        { qty: 1, line: 'x' },
        { qty: 2, line: 'y' },
      ];
      await input.split(recordsOf([json({ id: 5, t: 1, items })]), 0, lists);
      await input.decode(lists.records, events);
      return [0, 1].map((row) => EventIds.of(events).text(row));
    };
    expect(await ids('id')).toEqual(['i5#0', 'i5#1']);
    expect(await ids('items[].line')).toEqual(['sx', 'sy']);
  });
});

describe.each(SIDES)('decoder of lists in Avro, %s', (side) => {
  const opened = (registry: MemoryRegistry, over: object = {}) =>
    openedInput({ ...JOB, format: 'avro', ...over }, { side, registry }).input;

  it('each element is an event, whatever its writer', async () => {
    const registry = new MemoryRegistry();
    const first = registry.add('AVRO', orderSchema({ type: 'array', items: ITEM }));
    const nullable = registry.add('AVRO', orderSchema(['null', { type: 'array', items: ['null', ITEM] }]));
    const records = recordsOf([
      registry.frame(first, {
        id: 1,
        t: 5,
        items: [
          { sku: 'a', qty: 2 },
          { sku: 'b', qty: 3 },
        ],
      }),
      registry.frame(nullable, { id: 2, t: 6, items: null }),
      registry.frame(nullable, { id: 3, t: 7, items: [{ sku: 'c', qty: 4 }] }),
      registry.frame(first, { id: 4, t: 8, items: [] }),
      registry.frame(nullable, { id: 5, t: 9, items: [{ sku: 'd', qty: 5 }, null] }),
      registry.frame(first, { id: 6, t: 9, items: [{ sku: 'e', qty: 6 }] }),
    ]);
    expect(await rowsOf(opened(registry), records)).toEqual([
      ...['0.0: 1 5 2', '0.1: 1 5 3', '1.-1: NO_EVENT', '2.0: 3 7 4', '3.-1: NO_EVENT'],
      ...['4.0: NO_EVENT', '4.1: MISSING_FIELD', '5.0: 6 9 6'],
    ]);
  });

  it('texts, conditions and fields of both levels are those of the element', async () => {
    const registry = new MemoryRegistry();
    const more = { name: 'ok', type: ['boolean', 'null'] };
    const id = registry.add('AVRO', orderSchema({ type: 'array', items: ITEM }, more));
    const input = opened(registry, { key: 'items[].sku:string', where: 'items[].qty > 1 and ok = true' });
    const items = [
      { sku: 'long text '.repeat(9), qty: 2 },
      { sku: '', qty: 1 },
      { sku: 'é', qty: 3 },
    ];
    const frame = (ok: boolean | null) => registry.frame(id, { id: 1, t: 5, items, ok });
    const rows = await rowsOf(input, recordsOf([frame(true), frame(null)]));
    expect(rows.map((row) => row.replace(/: \d+ /, ': '))).toEqual([
      ...['0.0: 5 2', '0.1: FILTERED', '0.2: 5 3'],
      ...['1.0: FILTERED', '1.1: FILTERED', '1.2: FILTERED'],
    ]);
  });

  it('blocks with sizes are read, and hostile blocks make their record invalid', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', orderSchema({ type: 'array', items: 'int' }));
    const framed = (...bytes: readonly number[]): Buffer => Buffer.from([0, 0, 0, 0, id, ...bytes]);
    const records = recordsOf([
      // id 1; a block of -2 elements in 2 bytes: 3, 4; a block of 1: 5; the end; t 6.
      framed(2, 3, 4, 6, 8, 2, 10, 0, 12),
      // A block of 2^62 elements.
      framed(2, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1, 2),
      framed(2, 4, 2),
      framed(2, 3, 0x7f, 2, 4, 0, 12),
      framed(2, 0, 12),
    ]);
    const input = opened(registry, { value: 'items[]' });
    expect(await rowsOf(input, records)).toEqual([
      ...['0.0: 1 6 3', '0.1: 1 6 4', '0.2: 1 6 5'],
      ...['1.-1: MALFORMED_PAYLOAD', '2.-1: MALFORMED_PAYLOAD', '3.-1: MALFORMED_PAYLOAD', '4.-1: NO_EVENT'],
    ]);
  });

  it('a list beyond the limit makes its record invalid, and the others are cut between records', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', orderSchema({ type: 'array', items: 'int' }));
    const frame = (count: number): Buffer =>
      registry.frame(id, { id: count, t: 1, items: Array.from({ length: count }, () => 1) });
    const records = recordsOf([3, 5, 2, 2, 0, 1].map(frame));
    const batches = await decodedLists(opened(registry, { value: 'items[]' }), records, 4);
    expect(batches.flatMap(({ rows }) => rows)).toEqual([
      ...['0.0: 3 1 1', '0.1: 3 1 1', '0.2: 3 1 1', '1.-1: BAD_LIST'],
      ...['2.0: 2 1 1', '2.1: 2 1 1', '3.0: 2 1 1', '3.1: 2 1 1', '4.-1: NO_EVENT', '5.0: 1 1 1'],
    ]);
    expect(batches.every(({ rows }) => rows.length <= 4)).toBe(true);
    expect(batches.flatMap(({ faults }) => faults)).toEqual([
      `schema ${id}: items[] has 5 elements, more than 4`,
    ]);
  });

  it('the schema of the reader resolves fields of elements by their defaults', async () => {
    const registry = new MemoryRegistry();
    const bare = { type: 'record', name: 'Item', fields: [] };
    const id = registry.add('AVRO', orderSchema({ type: 'array', items: bare }));
    const full = {
      ...ITEM,
      fields: [{ name: 'qty', type: 'int', default: 7 }],
    };
    const reader = new MemoryRegistry();
    reader.add('AVRO', orderSchema({ type: 'array', items: full }));
    const { input } = openedInput({ ...JOB, format: 'avro' }, { side, registry, reader: reader.schemas[0] });
    expect(await rowsOf(input, recordsOf([registry.frame(id, { id: 1, t: 2, items: [{}, {}] })]))).toEqual([
      ...['0.0: 1 2 7', '0.1: 1 2 7'],
    ]);
  });

  it('a schema without the list makes its records invalid, and one whose field is no list too', async () => {
    const registry = new MemoryRegistry();
    const none = registry.add('AVRO', orderSchema('string'));
    const [batch] = await decodedLists(
      opened(registry, { value: undefined, where: 'items[].qty > 1' }),
      recordsOf([registry.frame(none, { id: 1, t: 2, items: 'x' })]),
    );
    expect(batch?.rows).toEqual(['0.-1: MISSING_FIELD']);
    expect(batch?.faults[0]).toContain('its schema has no field items[].qty (-where)');
  });
});

describe.each(SIDES)('decoder of lists in Protobuf, %s', (side) => {
  const PROTO = `syntax = "proto3";
message Order {
  message Item { string sku = 1; int32 qty = 2; }
  int64 id = 1; int64 t = 2; repeated Item items = 3; repeated int64 counts = 4; int64 n = 5;
}`;
  const opened = (registry: MemoryRegistry, over: object = {}) =>
    openedInput({ ...JOB, format: 'protobuf', ...over }, { side, registry }).input;

  it('each element is an event, and an absent list has none', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('PROTOBUF', PROTO);
    const records = recordsOf([
      registry.frame(id, { id: 1, t: 5, items: [{ sku: 'a', qty: 2 }, { sku: 'b' }] }),
      registry.frame(id, { id: 2, t: 6 }),
      registry.frame(id, { id: 3, t: 7, items: [{}] }),
    ]);
    expect(await rowsOf(opened(registry), records)).toEqual([
      ...['0.0: 1 5 2', '0.1: 1 5 0', '1.-1: NO_EVENT', '2.0: 3 7 0'],
    ]);
  });

  it('scalars are read packed and unpacked, and wherever they are written', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('PROTOBUF', PROTO);
    const framed = (...bytes: readonly number[]): Buffer => Buffer.from([0, 0, 0, 0, id, 0, ...bytes]);
    const records = recordsOf([
      // counts 7; id 1; counts packed 8, 300; t 2; counts 9.
      framed(0x20, 7, 0x08, 1, 0x22, 3, 8, 0xac, 0x02, 0x10, 2, 0x20, 9),
      framed(0x08, 1, 0x22, 5, 8),
    ]);
    expect(await rowsOf(opened(registry, { value: 'counts[]' }), records)).toEqual([
      ...['0.0: 1 2 7', '0.1: 1 2 8', '0.2: 1 2 300', '0.3: 1 2 9', '1.-1: MALFORMED_PAYLOAD'],
    ]);
  });

  it('a list without its mark and a mark without a list are refused by name', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('PROTOBUF', PROTO);
    const records = () => recordsOf([registry.frame(id, { id: 1, t: 5, items: [{ qty: 1 }] })]);
    for (const [value, why] of [
      ['items.qty', 'in a list or a map'],
      ['n[]', 'no list'],
    ] as const) {
      const input = opened(registry, { value });
      const decoding = async () =>
        input.list === undefined ? input.decode(records(), EventBatch.create(1)) : rowsOf(input, records());
      await expect(decoding(), value).rejects.toMatchObject({
        code: 'unsupported_field',
        message: expect.stringContaining(why),
      });
    }
  });
});
