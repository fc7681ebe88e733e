/** Compares the codec compiled from our tree with avsc's reading of the same text, over random
 *  schemas and values. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeAvro } from '../../src/formats/avro/codec/encoder.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import type { AvroSchema } from '../../src/formats/schema.ts';
import { parseSchema, type Schema } from '../../src/formats/schema.ts';
import { readerCodec } from '../../src/registry/proof/reader.ts';
import { writerCodec } from '../../src/serde/codec.ts';
import { runs } from '../tier.ts';
import { avscOf } from './registry-avro-avsc-kit.ts';
import { datumOf, drawingFrom, hasProto, numbers } from './registry-avro-decoder-kit.ts';
import { avroSchema } from './registry-avro-kit.ts';

const decode = (schema: Schema, bytes: Buffer): unknown =>
  readerCodec(schema, schema, [])(bytes, 0, bytes.length);

function encode(schema: Schema, value: unknown): Buffer {
  const into = new Payloads(1, 256);
  writerCodec(schema).encode(value, into);
  return Buffer.from(into.bytes.subarray(0, into.used));
}

describe('Avro codec', () => {
  it('the codec reads and writes values of a random schema as avsc does', () => {
    let judged = 0;
    fc.assert(
      fc.property(avroSchema, numbers, (json, drawn) => {
        const schema = parseSchema('AVRO', JSON.stringify(json)) as AvroSchema;
        const type = avscOf(schema.text);
        if (type === undefined) return;
        const next = drawingFrom(drawn);
        for (let i = 0; i < 3; i++) {
          const bytes = encodeAvro(schema.tree, datumOf(schema.tree, next));
          if (hasProto(bytes)) continue;
          const value = decode(schema, bytes);
          expect(value).toEqual(type.fromBuffer(bytes));
          expect(encode(schema, value)).toEqual(type.toBuffer(type.fromBuffer(bytes)));
          judged++;
        }
      }),
      { numRuns: runs(200) },
    );
    expect(judged).toBeGreaterThan(runs(150));
  });
});
