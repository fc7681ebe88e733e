/** Generated types compared with the codecs: a value has the type of outputs exactly when writing
 *  and reading returns it unchanged, and the type of inputs exactly when the encoder accepts it.
 *
 *  The values are decoded ones, and copies with a part of another type. Differences inside one type
 *  of TypeScript, such as the range of an int, are not of this test. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { encodeAvro } from '../../src/formats/avro/codec/encoder.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { encodeProto } from '../../src/formats/protobuf/codec/encoder.ts';
import type { ProtoMessage } from '../../src/formats/protobuf/tree.ts';
import { type AvroSchema, type ProtoSchema, parseSchema } from '../../src/formats/schema.ts';
import { schemaTypes } from '../../src/formats/typescript/types.ts';
import { readerCodec } from '../../src/registry/proof/reader.ts';
import { writerCodec } from '../../src/serde/codec.ts';
import { isFull } from '../tier.ts';
import { datumOf, drawingFrom, type Next, numbers } from './registry-avro-decoder-kit.ts';
import { Maker, randomOf as randomAvro, render } from './registry-avro-draft.ts';
import { avroSchema } from './registry-avro-kit.ts';
import { writerSchema } from './registry-avro-pairs-kit.ts';
import { randomDatum, randomOf, randomText, SYNTAXES } from './registry-proto-decoder-kit.ts';
import { printSchema, randomSchema } from './registry-proto-pairs-kit.ts';
import {
  type Claim,
  checkClaims,
  literalOf,
  MUTANT_ARRAY,
  MUTANT_BYTES,
  mutated,
} from './registry-types-kit.ts';

const RUNS = isFull ? 100 : 25;
const MUTANTS = 10;

interface Codec {
  encode(value: unknown): Buffer;
  decode(bytes: Buffer): unknown;
}

function codecOf(schema: AvroSchema | ProtoSchema, message?: ProtoMessage): Codec {
  const writer = writerCodec(schema, message?.name);
  const decode = readerCodec(schema, schema, message?.path ?? []);
  return {
    encode: (value) => {
      const into = new Payloads(1, 256);
      writer.encode(value, into);
      return Buffer.from(into.bytes.subarray(0, into.used));
    },
    decode: (bytes) => decode(bytes, 0, bytes.length),
  };
}

/** Bytes of a value; undefined where the encoder refuses it. */
function written(codec: Codec, value: unknown): Buffer | undefined {
  try {
    return codec.encode(value);
  } catch {
    return undefined;
  }
}

interface Counts {
  outputs: number;
  inputs: number;
  refused: number;
}
const none = (): Counts => ({ outputs: 0, inputs: 0, refused: 0 });

interface TypeNames {
  readonly output: string;
  readonly input: string;
  readonly isAvro: boolean;
}

interface Expected extends Claim {
  readonly fits: boolean;
}

/** Claims about a decoded value and its mutants. */
function claimsOf(codec: Codec, names: TypeNames, value: unknown, next: Next, counts: Counts): Expected[] {
  const values = [{ value }, ...Array.from({ length: MUTANTS }, () => mutated(value, next))];
  return values.flatMap(({ value: one }): Expected[] => {
    const bytes = written(codec, one);
    const literal = literalOf(one);
    const isOutput = bytes !== undefined && literalOf(codec.decode(bytes)) === literal;
    // The type of bytes does not state their length.
    if (bytes === undefined && [MUTANT_BYTES, MUTANT_ARRAY].some((one) => literal.includes(literalOf(one))))
      return [];
    if (isOutput) counts.outputs++;
    else if (bytes !== undefined) counts.inputs++;
    else counts.refused++;
    return [
      { type: names.output, literal, fits: isOutput },
      { type: names.input, literal, fits: bytes !== undefined },
    ];
  });
}

function demandExact(schema: AvroSchema | ProtoSchema, claims: readonly Expected[]): void {
  const module = schemaTypes(schema, ['A random schema.']);
  const { errors, misfits } = checkClaims(module, claims);
  expect(errors, module).toEqual([]);
  for (const [i, { type, literal, fits }] of claims.entries()) {
    const claim = `${literal} ${fits ? 'is' : 'is not'} ${type}`;
    expect(misfits[i] === undefined, `${claim}\n${misfits[i] ?? ''}\n${schema.text}\n${module}`).toBe(fits);
  }
}

function demandMany({ outputs, inputs, refused }: Counts): void {
  expect(outputs).toBeGreaterThan(RUNS);
  expect(inputs).toBeGreaterThan(RUNS / 20);
  expect(refused).toBeGreaterThan(RUNS);
}

function checkAvro(json: unknown, next: Next, counts: Counts): void {
  const schema = usable(() => parseSchema('AVRO', JSON.stringify(json)) as AvroSchema);
  if (schema === undefined) return;
  const codec = usable(() => codecOf(schema));
  if (codec === undefined) return;
  const bytes = finite(() => encodeAvro(schema.tree, datumOf(schema.tree, next)));
  if (bytes === undefined) return;
  demandExact(schema, claimsOf(codec, rootNames(schema), codec.decode(bytes), next, counts));
}

/** Undefined for a draft with a default that does not fit, or that avsc cannot hold. */
function usable<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (thrown) {
    if (/default|not defined before/.test((thrown as Error).message)) return undefined;
    throw thrown;
  }
}

/** Undefined for a record that contains itself without end. */
function finite<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (thrown) {
    if (thrown instanceof RangeError) return undefined;
    throw thrown;
  }
}

/** Names of the types of a schema; equal where it has one for both. */
function rootNames(schema: AvroSchema): TypeNames {
  const exported = [...schemaTypes(schema, []).matchAll(/^export (?:interface|type) (\w+)/gm)];
  const [output, input] = exported.map(([, name]) => name) as [string, string | undefined];
  return { output, input: input === `${output}Input` ? input : output, isAvro: true };
}

it('a value of an Avro schema has the type exactly when the codec returns or accepts it', () => {
  const counts = none();
  const plain = avroSchema.map((json) => () => json);
  const draft = fc.nat().map((seed) => () => render(new Maker(randomAvro(seed)).draft()));
  const unions = fc.constant(writerSchema);
  fc.assert(
    fc.property(fc.oneof(plain, draft, unions), numbers, (make, drawn) => {
      const next = drawingFrom(drawn);
      checkAvro(make(next), next, counts);
    }),
    { numRuns: RUNS },
  );
  demandMany(counts);
});

function checkProto(text: string, next: Next, counts: Counts): void {
  const schema = parseSchema('PROTOBUF', text) as ProtoSchema;
  const claims = schema.tree.messages.slice(0, 3).flatMap((message) => {
    if (requiresItself(message)) return [];
    const codec = codecOf(schema, message);
    const output = message.name.replace(/^p\./, '').replaceAll('.', '_');
    const value = codec.decode(encodeProto(message, randomDatum(next, message)));
    return claimsOf(codec, { output, input: `${output}Input`, isAvro: false }, value, next, counts);
  });
  demandExact(schema, claims);
}

/** True for a message of which no value is finite. */
function requiresItself(message: ProtoMessage, around: readonly ProtoMessage[] = []): boolean {
  if (around.includes(message)) return true;
  return message.fields.some(
    (field) =>
      field.required && field.message !== undefined && requiresItself(field.message, [...around, message]),
  );
}

it('a value of a Protobuf schema has the type exactly when the codec returns or accepts it', () => {
  const counts = none();
  fc.assert(
    fc.property(fc.nat(), fc.constantFrom(undefined, ...SYNTAXES), (seed, syntax) => {
      const next = randomOf(seed);
      const text =
        syntax === undefined ? printSchema(randomSchema(next)) : randomText(seed, syntax, { required: true });
      checkProto(text, next, counts);
    }),
    { numRuns: RUNS },
  );
  demandMany(counts);
});
