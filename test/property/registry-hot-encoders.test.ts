/** Encoders that have written many values have code of their own. They must write the bytes and
 *  give the errors of new encoders. */
import { inspect } from 'node:util';
import { afterEach, expect, it, vi } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { encodeAvro } from '../../src/formats/avro/codec/encoder.ts';
import type { Encode } from '../../src/formats/decode.ts';
import { encodeProto } from '../../src/formats/protobuf/codec/encoder.ts';
import { type AvroSchema, type ProtoSchema, parseSchema, type Schema } from '../../src/formats/schema.ts';
import { COMPILED_CODECS } from '../../src/serde/codec.ts';
import { encodedBy } from './payloads-kit.ts';
import { datumOf } from './registry-avro-decoder-kit.ts';
import { writerSchema } from './registry-avro-pairs-kit.ts';
import { randomDatum, randomOf, randomText, SYNTAXES } from './registry-proto-decoder-kit.ts';
import { mutated } from './registry-types-kit.ts';

const SCHEMAS = 50;
const VALUES = 4;
const MUTANTS = 20;
/** Writes after which an encoder has code of its own. */
const HOT_WRITES = 250;

afterEach(() => void vi.unstubAllGlobals());

function outcome(encode: Encode, value: unknown): string {
  try {
    return encodedBy(encode, value).toString('hex');
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return `${error.code} ${error.message} ${inspect(error.details)}`;
  }
}

/** Compares an encoder that has written `first` many times with a new one. @param parse parses the
 *  schema anew, because encoders of one tree share their parts */
function demandSame(
  parse: () => Schema,
  values: readonly unknown[],
  next: (below: number) => number,
): number {
  const hot = COMPILED_CODECS.writer(parse()).encode;
  for (let i = 0; i < HOT_WRITES; i++) outcome(hot, values[0]);
  const cold = COMPILED_CODECS.writer(parse()).encode;
  let refused = 0;
  for (const value of values)
    for (let i = 0; i <= MUTANTS; i++) {
      const one = i === 0 ? value : mutated(value, next).value;
      const expected = outcome(cold, one);
      expect(outcome(hot, one)).toBe(expected);
      if (expected.startsWith('value_refused')) refused++;
    }
  return refused;
}

it('an Avro encoder writes the same bytes and refuses the same values after many values', () => {
  let refused = 0;
  for (let seed = 1; seed <= SCHEMAS; seed++) {
    const next = randomOf(seed * 41);
    const text = JSON.stringify(writerSchema(next));
    const parse = (): AvroSchema => parseSchema('AVRO', text, { lenient: true }) as AvroSchema;
    const schema = parse();
    const values = Array.from({ length: VALUES }, () => {
      const bytes = encodeAvro(schema.tree, datumOf(schema.tree, next));
      return COMPILED_CODECS.reader(schema, schema, [])(bytes, 0, bytes.length);
    });
    refused += demandSame(parse, values, next);
  }
  expect(refused).toBeGreaterThan(SCHEMAS * VALUES);
});

it.each(SYNTAXES)('%s: an encoder writes the same bytes and refuses the same values after many', (syntax) => {
  let refused = 0;
  for (let seed = 1; seed <= SCHEMAS; seed++) {
    const next = randomOf(seed * 43);
    const text = randomText(seed * 43, syntax, { required: true });
    const parse = (): ProtoSchema => parseSchema('PROTOBUF', text) as ProtoSchema;
    const schema = parse();
    const [message] = schema.tree.messages;
    if (message === undefined) throw new Error('the schema has a message');
    const values = Array.from({ length: VALUES }, () => {
      const bytes = encodeProto(message, randomDatum(next, message));
      return COMPILED_CODECS.reader(schema, schema, [0])(bytes, 0, bytes.length);
    });
    refused += demandSame(parse, values, next);
  }
  expect(refused).toBeGreaterThan(SCHEMAS * VALUES);
});

const NAMES = ['constructor', '__proto__', 'toString', 'plain'];
const named = (): AvroSchema =>
  parseSchema(
    'AVRO',
    JSON.stringify({
      type: 'record',
      name: 'R',
      fields: NAMES.map((name) => ({ name, type: ['null', 'long'], default: null })),
    }),
    { lenient: true },
  ) as AvroSchema;
const own = Object.fromEntries(NAMES.map((name, index) => [name, index]));

it('properties that every object inherits are absent for a hot encoder too', () => {
  const hot = COMPILED_CODECS.writer(named()).encode;
  for (let i = 0; i < HOT_WRITES; i++) outcome(hot, own);
  expect(outcome(hot, {})).toBe('00000000');
  expect(outcome(hot, { plain: 3 })).toBe('0000000206');
  expect(outcome(hot, own)).toBe(outcome(COMPILED_CODECS.writer(named()).encode, own));
});

it('a process without code generation from strings writes the same values', () => {
  const refused = vi.fn();
  vi.stubGlobal(
    'Function',
    class {
      constructor() {
        refused();
        throw new EvalError('Code generation from strings disallowed for this context');
      }
    },
  );
  const encode = COMPILED_CODECS.writer(named()).encode;
  for (let i = 0; i < HOT_WRITES; i++) expect(outcome(encode, { plain: i })).toMatch(/^00000002/);
  expect(refused).toHaveBeenCalled();
});
