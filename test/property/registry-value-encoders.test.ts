/** Compares the compiled encoders of values with the reference codecs, over random schemas, values
 *  and values with one part of another type: what both write is the same, byte by byte. */
import { expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { encodeAvro } from '../../src/formats/avro/codec/encoder.ts';
import type { Encode } from '../../src/formats/decode.ts';
import { encodeProto } from '../../src/formats/protobuf/codec/encoder.ts';
import { type AvroSchema, type ProtoSchema, parseSchema, type Schema } from '../../src/formats/schema.ts';
import { protoDatum } from '../../src/registry/proof/protobuf/datum.ts';
import { COMPILED_CODECS } from '../../src/serde/codec.ts';
import { REFERENCE_CODECS } from '../../src/serde/reference-codec.ts';
import { encodedBy } from './payloads-kit.ts';
import { datumOf, hasProto } from './registry-avro-decoder-kit.ts';
import { Maker, randomOf as randomDraft, render } from './registry-avro-draft.ts';
import { writerSchema } from './registry-avro-pairs-kit.ts';
import { randomDatum, randomOf, randomText, SYNTAXES } from './registry-proto-decoder-kit.ts';
import { mutated } from './registry-types-kit.ts';

const SCHEMAS = 80;
const MUTANTS = 12;

/** Payload, or the error's code and path. */
function outcome(encode: Encode, value: unknown): Buffer | { readonly code: string; readonly path: unknown } {
  try {
    return encodedBy(encode, value);
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return { code: error.code, path: error.details['path'] };
  }
}

interface Counts {
  written: number;
  refused: number;
}

/** Compares both codecs on a value and its mutants. */
function compare(schema: Schema, value: unknown, next: (below: number) => number, counts: Counts): void {
  const compiled = COMPILED_CODECS.writer(schema).encode;
  const reference = REFERENCE_CODECS.writer(schema).encode;
  const mutants = Array.from({ length: MUTANTS }, () => mutated(value, next).value);
  for (const one of [value, ...mutants]) {
    const ours = outcome(compiled, one);
    const theirs = outcome(reference, one);
    if (Buffer.isBuffer(ours)) {
      expect(theirs, schema.text).toEqual(ours);
      counts.written++;
    } else {
      expect(ours.code).toBe('value_refused');
      expect(ours.path).toEqual(expect.any(String));
      counts.refused++;
    }
  }
}

function demandBoth({ written, refused }: Counts): void {
  expect(written).toBeGreaterThan(SCHEMAS);
  expect(refused).toBeGreaterThan(SCHEMAS);
}

/** Undefined for a draft with a default that does not fit, that avsc cannot hold, or that has no
 *  finite value. */
function usable<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (thrown) {
    const { message } = thrown as Error;
    if (thrown instanceof RangeError || /default|not defined before/.test(message)) return undefined;
    throw thrown;
  }
}

it('the Avro encoder writes what avsc writes, and refuses every other value with its path', () => {
  const counts = { written: 0, refused: 0 };
  for (let seed = 1; seed <= SCHEMAS; seed++) {
    const next = randomOf(seed);
    const json = seed % 2 === 0 ? writerSchema(next) : render(new Maker(randomDraft(seed)).draft());
    const schema = usable(() => parseSchema('AVRO', JSON.stringify(json)) as AvroSchema);
    if (schema === undefined || usable(() => REFERENCE_CODECS.writer(schema)) === undefined) continue;
    const bytes = usable(() => encodeAvro(schema.tree, datumOf(schema.tree, next)));
    // avsc drops entries of this key.
    if (bytes === undefined || hasProto(bytes)) continue;
    const value = COMPILED_CODECS.reader(schema, schema, [])(bytes, 0, bytes.length);
    compare(schema, value, next, counts);
  }
  demandBoth(counts);
});

it.each(SYNTAXES)('the %s encoder writes what protobufjs and the exact encoder write', (syntax) => {
  const counts = { written: 0, refused: 0 };
  for (let seed = 1; seed <= SCHEMAS; seed++) {
    const next = randomOf(seed * 31);
    const schema = parseSchema('PROTOBUF', randomText(seed * 31, syntax, { required: true })) as ProtoSchema;
    const [message] = schema.tree.messages;
    if (message === undefined) throw new Error('the schema has a message');
    const bytes = encodeProto(message, randomDatum(next, message));
    const value = COMPILED_CODECS.reader(schema, schema, [0])(bytes, 0, bytes.length);
    expect(encodedBy(COMPILED_CODECS.writer(schema).encode, value)).toEqual(
      encodeProto(message, protoDatum(message, value)),
    );
    compare(schema, value, next, counts);
  }
  demandBoth(counts);
});

it.each(SYNTAXES)('protobufjs reads what the %s encoder wrote, as the compiled decoder does', (syntax) => {
  for (let seed = 1; seed <= SCHEMAS / 2; seed++) {
    const next = randomOf(seed * 17);
    const schema = parseSchema('PROTOBUF', randomText(seed * 17, syntax, { required: true })) as ProtoSchema;
    const [message] = schema.tree.messages;
    if (message === undefined) throw new Error('the schema has a message');
    const bytes = encodeProto(message, randomDatum(next, message));
    const value = COMPILED_CODECS.reader(schema, schema, [0])(bytes, 0, bytes.length);
    expect(REFERENCE_CODECS.reader(schema, schema, [0])(bytes, 0, bytes.length)).toEqual(value);
  }
});

it('avsc reads what the Avro encoder wrote, as the compiled decoder does', () => {
  let read = 0;
  for (let seed = 1; seed <= SCHEMAS; seed++) {
    const next = randomOf(seed * 13);
    const schema = usable(() => parseSchema('AVRO', JSON.stringify(writerSchema(next))) as AvroSchema);
    if (schema === undefined) continue;
    const bytes = usable(() => encodeAvro(schema.tree, datumOf(schema.tree, next)));
    // avsc drops entries of this key.
    if (bytes === undefined || hasProto(bytes)) continue;
    const value = COMPILED_CODECS.reader(schema, schema, [])(bytes, 0, bytes.length);
    expect(REFERENCE_CODECS.reader(schema, schema, [])(bytes, 0, bytes.length)).toEqual(value);
    read++;
  }
  expect(read).toBeGreaterThan(SCHEMAS / 2);
});
