/** Column schemas and batches: preorder, buffers, growth and limits. */
import { describe, expect, it } from 'vitest';
import { ColumnBatch } from '../../../src/core/columns/batch.ts';
import { type Column, column, mapColumn } from '../../../src/core/columns/column.ts';
import { type ColumnDecoder, decodeColumns } from '../../../src/core/columns/kernel.ts';
import { ColumnSchema } from '../../../src/core/columns/schema.ts';
import { COLUMN_LIMIT, COLUMN_SLOT, COLUMN_STATE } from '../../../src/core/layout/layouts.gen.ts';

const order = new ColumnSchema([
  column('utf8', 'id', false),
  column('list', 'items', true, {
    children: [
      column('struct', 'item', false, {
        children: [column('int32', 'qty', false), column('decimal128', 'price', true)],
      }),
    ],
  }),
  mapColumn('tags', false, column('utf8', 'key', false), column('int64', 'value', true)),
  column('union', 'ref', false, { children: [column('null', '', false), column('bool', 'b', false)] }),
]);

const { VALIDITY, OFFSETS, VALUES } = COLUMN_SLOT;

/** Makes the batch ask for `bytes` in a slot, as a kernel does. */
function need(batch: ColumnBatch, index: number, slot: number, bytes: number): void {
  batch.state[COLUMN_STATE.NEED_SLOT] = index * COLUMN_SLOT.COUNT + slot;
  batch.state[COLUMN_STATE.NEED_BYTES] = bytes;
}

describe('ColumnSchema', () => {
  it('a schema lists its columns in preorder and knows siblings and children', () => {
    const names = order.all.map(({ name }) => name);
    expect(names).toEqual([
      'id',
      'items',
      'item',
      'qty',
      'price',
      'tags',
      'entries',
      'key',
      'value',
      'ref',
      '',
      'b',
    ]);
    expect(order.topIndex).toEqual([0, 1, 5, 9]);
    expect(order.childrenOf(2)).toEqual([3, 4]);
    expect(order.childrenOf(9)).toEqual([10, 11]);
    expect(order.nextOf(1)).toBe(5);
    expect(order.nextOf(9)).toBe(order.all.length);
  });

  it('a schema with columns nested too deep is refused', () => {
    const nested = (depth: number): Column =>
      depth === 1
        ? column('int32', 'leaf', false)
        : column('list', 'list', false, { children: [nested(depth - 1)] });
    expect(() => new ColumnSchema([nested(COLUMN_LIMIT.DEPTH)])).not.toThrow();
    expect(() => new ColumnSchema([nested(COLUMN_LIMIT.DEPTH + 1)])).toThrow('nested deeper than 64');
  });

  it('a schema with too many columns is refused', () => {
    const many = Array.from({ length: COLUMN_LIMIT.COLUMNS + 1 }, (_, i) => column('bool', `c${i}`, false));
    expect(() => new ColumnSchema(many)).toThrow('more than 32768 columns');
  });
});

describe('ColumnBatch', () => {
  it('a new batch has room for its rows in every buffer of a top column', () => {
    const batch = ColumnBatch.create(order, 100);
    expect(batch.rowCount).toBe(0);
    expect(batch.status).toHaveLength(100);
    expect(batch.errorAt).toHaveLength(100);
    const capacity = (index: number, slot: number): number =>
      batch.state[
        COLUMN_STATE.HEAD + order.all.length + 2 * (index * COLUMN_SLOT.COUNT + slot) + 1
      ] as number;
    expect(capacity(0, VALIDITY)).toBe(0);
    expect(capacity(0, OFFSETS)).toBeGreaterThanOrEqual(404);
    expect(capacity(1, VALIDITY)).toBeGreaterThanOrEqual(13);
    expect(capacity(9, OFFSETS)).toBeGreaterThanOrEqual(400);
    expect(capacity(9, VALUES)).toBeGreaterThanOrEqual(100);
    expect(capacity(10, VALUES)).toBe(0);
    for (let i = 0; i < order.all.length; i++)
      for (const slot of [VALIDITY, OFFSETS, VALUES]) expect(batch.offsetOf(i, slot) % 64).toBe(0);
  });

  it('growing keeps the used bytes of every buffer', () => {
    const batch = ColumnBatch.create(order, 8);
    batch.status[3] = 2;
    batch.errorAt[3] = 77;
    const offsets = new Int32Array(batch.buffer, batch.offsetOf(0, OFFSETS), 3);
    offsets.set([0, 3, 5]);
    new Uint8Array(batch.buffer, batch.offsetOf(0, VALUES), 5).set(Buffer.from('abcde'));
    batch.state[COLUMN_STATE.HEAD] = 2;
    batch.state[COLUMN_STATE.ROW_COUNT] = 2;
    need(batch, 0, VALUES, 100_000);
    expect(batch.grow()).toBe(true);
    expect(batch.buffer.byteLength).toBeGreaterThan(100_000);
    expect(Buffer.from(batch.bytesOf(0, VALUES)).toString()).toBe('abcde');
    expect([...new Int32Array(batch.buffer, batch.offsetOf(0, OFFSETS), 3)]).toEqual([0, 3, 5]);
    expect([batch.status[3], batch.errorAt[3]]).toEqual([2, 77]);
  });

  it('a batch at its byte limit refuses to grow and stays as it was', () => {
    const batch = ColumnBatch.create(order, 8, 100_000);
    const before = batch.buffer;
    need(batch, 0, VALUES, 200_000);
    expect(batch.grow()).toBe(false);
    expect(batch.buffer).toBe(before);
  });

  it('a batch without rows, with too many rows or too small a limit is refused', () => {
    expect(() => ColumnBatch.create(order, 0)).toThrow('takes 1 to');
    expect(() => ColumnBatch.create(order, 2 ** 25)).toThrow('takes 1 to');
    expect(() => ColumnBatch.create(order, 8, 0)).toThrow('at most');
    expect(() => ColumnBatch.create(order, 1000, 1000)).toThrow('need');
  });
});

describe('decodeColumns', () => {
  const spans = (count: number) => ({
    bytes: new Uint8Array(count),
    start: new Uint32Array(count),
    length: new Int32Array(count),
  });
  /** Decoder of rows that have a text of `bytes` each. */
  const texts = (bytes: number): ColumnDecoder => ({
    decode(_payloads, from, to, into, skips) {
      for (let row = from; row < to; row++) {
        const rows = into.rowCount;
        const end = skips ? rows * bytes : (rows + 1) * bytes;
        const capacity = into.state[COLUMN_STATE.HEAD + 1 + 2 * VALUES + 1] as number;
        if (end > capacity) {
          need(into, 0, VALUES, end);
          return row - from;
        }
        new Int32Array(into.buffer, into.offsetOf(0, OFFSETS))[rows + 1] = end;
        into.state[COLUMN_STATE.HEAD] = rows + 1;
        into.state[COLUMN_STATE.ROW_COUNT] = rows + 1;
      }
      return to - from;
    },
    close() {},
  });
  const schema = new ColumnSchema([column('utf8', 'text', false)]);

  it('a batch grows until all payloads are decoded', () => {
    const batch = ColumnBatch.create(schema, 64);
    expect(decodeColumns(texts(1000), spans(64), 0, 64, batch)).toBe(64);
    expect(batch.bytesOf(0, VALUES)).toHaveLength(64_000);
  });

  it('decoding stops at the row capacity, and at the byte limit', () => {
    expect(decodeColumns(texts(1), spans(64), 0, 64, ColumnBatch.create(schema, 10))).toBe(10);
    expect(decodeColumns(texts(1000), spans(64), 0, 64, ColumnBatch.create(schema, 64, 8000))).toBe(7);
  });

  it('a row that exceeds the byte limit of an empty batch is skipped', () => {
    const batch = ColumnBatch.create(schema, 64, 8000);
    expect(decodeColumns(texts(9000), spans(1), 0, 1, batch)).toBe(1);
    expect(batch.rowCount).toBe(1);
  });

  it('payloads outside the spans are refused', () => {
    expect(() => decodeColumns(texts(1), spans(3), 1, 4, ColumnBatch.create(schema, 4))).toThrow('1 to 4');
  });
});
