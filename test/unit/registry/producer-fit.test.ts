import { describe, expect, test } from 'vitest';
import { Payloads } from '../../../src/formats/payloads.ts';
import { parseSchema } from '../../../src/formats/schema.ts';
import { logicalOrder } from '../../../src/gen/order.ts';
import {
  candidatesOf,
  ORDER_VERSIONS,
  orderAsWritten,
  orderSchema,
} from '../../../src/gen/order-versions.ts';
import { fitOf } from '../../../src/registry/producer/fit.ts';
import { differenceOf } from '../../../src/registry/proof/same.ts';
import { readerUnjudged, writerCodec } from '../../../src/serde/codec.ts';

const sample = logicalOrder(1n, 0);

describe.each(['avro', 'protobuf'] as const)('values of the producer for %s', (format) => {
  test.each([...ORDER_VERSIONS, ...candidatesOf(format)])(
    'a generated order is written with the schema %s, whatever its number types',
    (shape) => {
      const schema = parseSchema(format === 'avro' ? 'AVRO' : 'PROTOBUF', orderSchema(shape, format));
      const codec = writerCodec(schema);
      const decode = readerUnjudged(schema, schema, [0]);
      const convert = fitOf(schema, sample) ?? ((value: unknown) => value);
      const payloads = new Payloads(1, 4096);
      for (let i = 0; i < 50; i++) {
        const order = logicalOrder(2n, i);
        payloads.clear();
        codec.encode(convert(order), payloads);
        const read = decode(Buffer.from(payloads.bytes.subarray(0, payloads.used)), 0, payloads.used);
        expect(differenceOf(orderAsWritten(order, shape), read)).toBeUndefined();
      }
    },
  );

  test('orders pass unchanged where no number type differs', () => {
    expect(fitOf(parseSchema(format === 'avro' ? 'AVRO' : 'PROTOBUF', orderSchema(1, format)), sample)).toBe(
      undefined,
    );
  });
});

test('a number that is no whole number stays as it is', () => {
  const convert = fitOf(
    parseSchema('AVRO', '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'),
    { a: 1 },
  );
  expect(convert?.({ a: 1.5 })).toEqual({ a: 1.5 });
  expect(convert?.({ a: 2 })).toEqual({ a: 2n });
});
