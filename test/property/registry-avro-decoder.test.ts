/** Compares the decoder with avsc in cases in which avsc follows the specification, and tests it
 *  with random bytes. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { avroDecoder } from '../../src/formats/avro/codec/decoder.ts';
import { encodeAvro } from '../../src/formats/avro/codec/encoder.ts';
import type { AvroNode } from '../../src/formats/avro/syntax/tree.ts';
import type { AvroSchema } from '../../src/formats/schema.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { stepsOf } from '../steps.ts';
import { runs } from '../tier.ts';
import { avscOf } from './registry-avro-avsc-kit.ts';
import { datumOf, drawingFrom, hasProto, numbers, widened } from './registry-avro-decoder-kit.ts';
import { avroSchema } from './registry-avro-kit.ts';

/** Ten times the steps of the widest of these schemas for six short payloads. */
const STEPS_MAX = 10_000_000;

const parse = (json: unknown): AvroSchema => parseSchema('AVRO', JSON.stringify(json)) as AvroSchema;

describe('Avro decoder against avsc', () => {
  it('an event of a random schema is decoded as avsc reads it', () => {
    let judged = 0;
    fc.assert(
      fc.property(avroSchema, numbers, (json, drawn) => {
        const { text, tree } = parse(json);
        const type = avscOf(text);
        if (type === undefined) return;
        const decode = avroDecoder(tree, parse(json).tree);
        const next = drawingFrom(drawn);
        for (let i = 0; i < 5; i++) {
          const bytes = encodeAvro(tree, datumOf(tree, next));
          if (hasProto(bytes)) continue;
          expect(decode(bytes, 0, bytes.length)).toEqual(type.fromBuffer(bytes));
          judged++;
        }
      }),
      { numRuns: runs(400) },
    );
    expect(judged).toBeGreaterThan(runs(1500));
  });

  it('an event of a random schema is decoded as avsc resolves it for a wider schema', () => {
    let judged = 0;
    let changed = 0;
    fc.assert(
      fc.property(avroSchema, numbers, (json, drawn) => {
        const next = drawingFrom(drawn);
        const writer = parse(json);
        const reader = parse(widened(JSON.parse(writer.text), next));
        const writerType = avscOf(writer.text);
        const readerType = avscOf(reader.text);
        if (writerType === undefined || readerType === undefined) return;
        const resolver = readerType.createResolver(writerType);
        const decode = avroDecoder(reader.tree, writer.tree);
        if (reader.text !== writer.text) changed++;
        for (let i = 0; i < 3; i++) {
          const bytes = encodeAvro(writer.tree, datumOf(writer.tree, next));
          if (hasProto(bytes)) continue;
          const value = decode(bytes, 0, bytes.length);
          expect(value).toEqual(readerType.fromBuffer(bytes, resolver));
          judged++;
        }
      }),
      { numRuns: runs(600) },
    );
    expect(judged).toBeGreaterThan(runs(400));
    expect(changed).toBeGreaterThan(runs(150));
  });
});

/** A value, or a Millrace error with its position; bytes around the payload must not matter. */
function outcome(reader: AvroNode, writer: AvroNode, payload: Uint8Array): string {
  const decode = avroDecoder(reader, writer);
  const outcomes = [0x00, 0x02, 0xff].map((fill) => {
    const around = Buffer.concat([Buffer.alloc(5, fill), payload, Buffer.alloc(40, fill)]);
    try {
      const value = decode(around, 5, 5 + payload.length);
      return JSON.stringify(value, (_key, item: unknown) => (typeof item === 'bigint' ? `${item}n` : item));
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined) throw thrown;
      const { at, path } = error.details as { at: number; path: string };
      expect(['malformed_payload', 'incompatible_schema']).toContain(error.code);
      expect(at).toBeGreaterThanOrEqual(0);
      expect(at).toBeLessThanOrEqual(payload.length);
      expect(path.length).toBeGreaterThan(0);
      return `${error.code}: ${error.message}`;
    }
  });
  expect(new Set(outcomes).size).toBe(1);
  return outcomes[0] as string;
}

describe('random bytes', () => {
  it('random bytes decode to a value or a coded error, within their span and a bounded number of steps', () => {
    let refused = 0;
    fc.assert(
      fc.property(avroSchema, numbers, fc.uint8Array({ maxLength: 120 }), (json, drawn, random) => {
        const next = drawingFrom(drawn);
        const writer = parse(json);
        const reader = parse(widened(JSON.parse(writer.text), next));
        const good = encodeAvro(writer.tree, datumOf(writer.tree, next));
        const steps = stepsOf(() => {
          outcome(reader.tree, writer.tree, random);
          const cut = good.subarray(0, next(good.length));
          if (outcome(reader.tree, writer.tree, cut).startsWith('malformed_payload')) refused++;
          for (let i = 0; i < 4 && good.length > 0; i++) {
            const broken = Buffer.from(good);
            broken[next(broken.length)] = [0x00, 0x01, 0x7f, 0x80, 0xff][next(5)] as number;
            broken[next(broken.length)] = next(256);
            outcome(reader.tree, writer.tree, broken);
          }
        });
        expect(steps).toBeLessThan(STEPS_MAX);
      }),
      { numRuns: runs(400) },
    );
    expect(refused).toBeGreaterThan(runs(300));
  });

  it('bytes of an unrelated schema decode to an error or a value', () => {
    const seen = { value: 0, malformed_payload: 0, incompatible_schema: 0 };
    fc.assert(
      fc.property(avroSchema, avroSchema, numbers, (one, other, drawn) => {
        const writer = parse(one).tree;
        const bytes = encodeAvro(writer, datumOf(writer, drawingFrom(drawn)));
        const said = outcome(parse(other).tree, writer, bytes);
        if (said.startsWith('incompatible_schema')) seen.incompatible_schema++;
        else if (said.startsWith('malformed_payload')) seen.malformed_payload++;
        else seen.value++;
      }),
      { numRuns: runs(1500) },
    );
    expect(seen.incompatible_schema).toBeGreaterThan(50);
    expect(seen.value).toBeGreaterThan(5);
  });
});
