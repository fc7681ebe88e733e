/** Fields of a job beside a schema: each kind of aggregate is judged by what it reads. */
import { describe, expect, it } from 'vitest';
import { loadColumnKernels } from '../../../src/addon/codec.ts';
import { checkFields } from '../../../src/bin/engine/jobfile/fields.ts';
import { parseSchema } from '../../../src/formats/schema.ts';

const FIELDS = [
  { name: 'sku', type: 'string' },
  { name: 'amount', type: 'long' },
];
const SCHEMAS = [
  parseSchema('AVRO', JSON.stringify({ type: 'record', name: 'R', fields: FIELDS })),
  parseSchema('PROTOBUF', 'syntax = "proto3"; message R { string sku = 1; int64 amount = 2; }'),
];

describe.each(SCHEMAS)('aggregated fields beside a schema of $format', (schema) => {
  const faults = (aggregate: string) =>
    checkFields({ format: 'undecided', aggregate }, schema, loadColumnKernels('reference')).faults.map(
      ({ field }) => field,
    );

  it('a text can be counted by its values, and not summed', () => {
    expect(faults('topk(sku,10),distinct(sku),sum(amount),topk(amount,3) as amounts')).toEqual([]);
    expect(faults('sum(sku),sum(amount),distinct(sku)')).toEqual(['sku']);
  });

  it('a field that the schema lacks is a fault of its own', () => {
    expect(faults('topk(skus,10),count(amounts)')).toEqual(['skus', 'amounts']);
  });
});

const ORDER = {
  type: 'record',
  name: 'R',
  fields: [
    { name: 'id', type: 'long' },
    {
      name: 'items',
      type: {
        type: 'array',
        items: { type: 'record', name: 'I', fields: [{ name: 'qty', type: 'long' }] },
      },
    },
  ],
};
const LISTS = [
  parseSchema('AVRO', JSON.stringify(ORDER)),
  parseSchema(
    'PROTOBUF',
    'syntax = "proto3"; message R { int64 id = 1; repeated I items = 2; } message I { int64 qty = 1; }',
  ),
  parseSchema(
    'JSON',
    JSON.stringify({
      ...{ type: 'object', additionalProperties: false },
      properties: {
        id: { type: 'integer' },
        items: {
          type: 'array',
          items: { type: 'object', properties: { qty: {} }, additionalProperties: false },
        },
      },
    }),
  ),
];

describe.each(LISTS)('elements of a list beside a schema of $format', (schema) => {
  const faults = (definition: object) =>
    checkFields({ format: 'undecided', ...definition }, schema, loadColumnKernels('reference')).faults.map(
      ({ field }) => field,
    );

  it('a field of an element is found, and one that elements lack is a fault', () => {
    expect(faults({ key: 'id', value: 'items[].qty', where: 'items[].qty > 0' })).toEqual([]);
    expect(faults({ aggregate: 'sum(items[].qty),max(items[].price)' })).toEqual(['items[].price']);
  });
});

describe('fields of a job beside a Protobuf schema of several messages', () => {
  const schema = parseSchema(
    'PROTOBUF',
    'syntax = "proto3"; message Audit { string who = 1; } message Shop { message Order { int64 id = 1; string sku = 2; } message Refund { int64 id = 1; } }',
  );
  const check = (definition: object) =>
    checkFields({ format: 'undecided', ...definition }, schema, loadColumnKernels('reference'));

  it('fields that only a nested message has are accepted, and the message is named', () => {
    expect(check({ key: 'id', dedup: 'sku' })).toEqual({ faults: [], messages: ['Shop.Order'] });
  });

  it('fields of several messages are accepted, and all of these messages are named', () => {
    expect(check({ key: 'id' }).messages).toEqual(['Shop.Order', 'Shop.Refund']);
  });

  it('fields that no message has together are faults of the message that has most of them', () => {
    const { faults, messages } = check({ key: 'who', value: 'id', dedup: 'sku' });
    expect(messages).toEqual([]);
    expect(faults).toEqual([
      {
        ...{ setting: 'key', field: 'who' },
        message: '-key names who, which the message Shop.Order does not have',
        next: 'its fields are id, sku',
      },
    ]);
  });

  it('a job that names no field names no message', () => {
    expect(check({}).messages).toEqual([]);
  });
});
