/** The codec made from our tree against avsc's own reading of the same text, over random schemas and values. */
import avsc from 'avsc';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseSchema, readerCodec, type Schema, writerCodec } from '../../src/registry/index.ts';
import { Payloads } from '../../src/registry/serde/payloads.ts';
import { avroSchema } from './registry-avro-kit.ts';

const decode = (schema: Schema, bytes: Buffer): unknown =>
  readerCodec(schema, schema, [])(bytes, 0, bytes.length);

function encode(schema: Schema, value: unknown): Buffer {
  const into = new Payloads(1, 256);
  writerCodec(schema).encode(value, into);
  return Buffer.from(into.bytes.subarray(0, into.used));
}

/** avsc takes neither a text for a float default nor numbers twice in a union. */
function plainAvsc(text: string): avsc.Type | undefined {
  try {
    return avsc.Type.forSchema(JSON.parse(text) as avsc.Schema, { omitRecordMethods: true });
  } catch (thrown) {
    if (/incompatible field default|invalid field default/.test((thrown as Error).message)) return undefined;
    throw thrown;
  }
}

describe('a random schema', () => {
  it('is read and written as avsc does', () => {
    let judged = 0;
    fc.assert(
      fc.property(avroSchema, (json) => {
        const schema = parseSchema('AVRO', JSON.stringify(json));
        const type = plainAvsc(schema.text);
        if (type === undefined) return;
        for (let i = 0; i < 3; i++) {
          const bytes = type.toBuffer(type.random());
          const value = decode(schema, bytes);
          expect(encode(schema, value)).toEqual(bytes);
        }
        judged++;
      }),
      { numRuns: 200 },
    );
    expect(judged).toBeGreaterThan(50);
  });
});
