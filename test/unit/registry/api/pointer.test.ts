/** Position of a finding in the text of an Avro schema. */
import { expect, it } from 'vitest';
import { avroPointer } from '../../../../src/registry/api/messages/pointer.ts';

const ITEM = {
  type: 'record',
  name: 'Item',
  fields: [
    { name: 'sku', type: 'string' },
    { name: 'qty', type: 'int' },
  ],
};
const ORDER = JSON.stringify({
  type: 'record',
  name: 'Order',
  namespace: 'shop',
  fields: [
    { name: 'id', type: 'string' },
    { name: 'items', type: { type: 'array', items: ITEM } },
    { name: 'byName', type: { type: 'map', values: 'shop.Item' } },
    { name: 'first', type: { type: 'Item' } },
    { name: 'state', type: { type: 'enum', name: 'State', symbols: ['A'] } },
  ],
});

it.each<readonly [path: string, field: boolean, pointer: string | undefined]>([
  ['Order', false, '/'],
  ['Order.id', false, '/fields/0/type'],
  ['Order.id', true, '/fields/0'],
  ['Order.items[]', false, '/fields/1/type/items'],
  ['Order.items[].qty', false, '/fields/1/type/items/fields/1/type'],
  ['Order.items[].qty', true, '/fields/1/type/items/fields/1'],
  ['Order.byName{}.sku', false, '/fields/1/type/items/fields/0/type'],
  ['Order.state', false, '/fields/4/type'],
  ['Order.nothing', false, undefined],
  ['Order.id.deeper', false, undefined],
  ['Order.id[]', false, undefined],
])('the path %s (field: %s) has its pointer into the schema', (path, field, pointer) => {
  expect(avroPointer(ORDER, path, field)).toBe(pointer);
});

it('invalid JSON has no pointer, and a recursive type ends the search', () => {
  expect(avroPointer('{', 'R.f', false)).toBeUndefined();
  expect(avroPointer('"R"', 'R.f', false)).toBeUndefined();
  const loop = '{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}';
  expect(avroPointer(loop, `R${'.r'.repeat(50)}`, true)).toBe('/fields/0');
});
