/** Filters on decoded records: the fields that they find, by the names of the printed line. */
import { expect, it } from 'vitest';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { Payloads } from '../../../../src/formats/payloads.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';
import type { DecodedRow } from '../../../../src/registry/consumer/decoder.ts';
import { valueForm } from '../../../../src/registry/consumer/form.ts';
import {
  budgetCells,
  recordBudget,
  recordFilter,
  SelectingDecoder,
} from '../../../../src/registry/consumer/selection.ts';
import { readerUnjudged, writerCodec } from '../../../../src/serde/codec.ts';

const RECORD = parseSchema(
  'AVRO',
  '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}',
);

function selecting(text: string, values: readonly unknown[]) {
  const form = valueForm(RECORD, [], {});
  const decoded = values.map((value, row) => ({ row, value, form }) as unknown as DecodedRow);
  const inner = {
    prepare: () => Promise.resolve(),
    decode: () => ({ decoded, failed: [], skipped: 0, end: values.length }),
  };
  const decoder = new SelectingDecoder(inner as never, {
    filter: recordFilter(text),
    budget: recordBudget(budgetCells(0)),
    line: {} as never,
  });
  const batch = decoder.decode(RecordBatch.create(1, 16));
  return { selected: batch.decoded.length, unseen: decoder.unseenFields };
}

it('a field behind a condition that decides is not reported as missing', () => {
  const values = [
    { a: 2, b: 5 },
    { a: 3, b: 6 },
  ];
  expect(selecting('a = 1 and b = 5', values)).toEqual({ selected: 0, unseen: [] });
  expect(selecting('a = 1 and nope = 5', values)).toEqual({ selected: 0, unseen: ['nope'] });
  expect(selecting('a = 2 and b = 5', values)).toEqual({ selected: 1, unseen: [] });
});

it('a filter reads the JSON form of google.protobuf types, by the names of the printed line', () => {
  const schema = parseSchema(
    'PROTOBUF',
    `syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/any.proto";
     import "google/protobuf/wrappers.proto";
     message M { google.protobuf.Struct meta = 1; google.protobuf.Value v = 2; google.protobuf.ListValue l = 3;
       google.protobuf.Any any = 4; map<string, google.protobuf.Struct> by = 5; google.protobuf.Int64Value w = 6; string s = 7; }`,
  );
  if (schema.format !== 'PROTOBUF') throw new Error('no Protobuf');
  const number = (value: number) => ({ number_value: value });
  const struct = {
    fields: { a: { list_value: { values: [number(1), { string_value: 'x' }] } }, fields: number(2) },
  };
  const payloads = new Payloads(4, 64);
  const { encode } = writerCodec(schema);
  encode({ s: 'in' }, payloads);
  const inner = Buffer.from(payloads.bytes.subarray(0, payloads.used));
  payloads.clear();
  encode(
    {
      meta: struct,
      v: { struct_value: struct },
      l: { values: [number(7)] },
      any: { type_url: 'types/M', value: inner },
      by: { k: struct },
      w: { value: 2n ** 60n },
    },
    payloads,
  );
  const bytes = Buffer.from(payloads.bytes.subarray(0, payloads.used));
  const value = readerUnjudged(schema, schema, [0])(bytes, 0, bytes.length);
  const { field } = valueForm(schema, [0], {});
  expect(field(value, ['meta', 'a', 1])).toBe('x');
  expect(field(value, ['meta', 'fields'])).toBe(2);
  expect(field(value, ['v', 'a', 0])).toBe(1);
  expect(field(value, ['l', 0])).toBe(7);
  expect(field(value, ['any', 's'])).toBe('in');
  expect(field(value, ['any', '@type'])).toBe('types/M');
  expect(field(value, ['by', 'k', 'a', 1])).toBe('x');
  expect(field(value, ['w'])).toBe(2n ** 60n);
  expect(field(value, ['meta', 'missing'])).toBeUndefined();
});
