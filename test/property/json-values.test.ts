/** JSON lines of random schemas: a decoded value that is printed and encoded again is the same
 *  value, in both formats. */
import { describe, expect, it } from 'vitest';
import { AVRO_CHANGE_NAMES } from '../../bench/compatibility/avro-changes.ts';
import { avroPair } from '../../bench/compatibility/avro-pairs.ts';
import { protoPair } from '../../bench/compatibility/proto-pairs.ts';
import { type AvroJsonOptions, avroJsonPrinter } from '../../src/formats/avro/json/print.ts';
import { readJson } from '../../src/formats/json/text.ts';
import { jsonEncoder, jsonPrinter } from '../../src/formats/json-values.ts';
import { type AvroSchema, type ProtoSchema, parseSchema } from '../../src/formats/schema.ts';
import { avroProof } from '../../src/registry/proof/avro/format.ts';
import { avroJson } from '../../src/registry/proof/avro/json.ts';
import { protoProof } from '../../src/registry/proof/protobuf/format.ts';
import { differenceOf, plainJson } from '../../src/registry/proof/same.ts';
import { readerUnjudged } from '../../src/serde/codec.ts';
import { randomOf } from './registry-avro-draft.ts';

const SCHEMAS = 2 * AVRO_CHANGE_NAMES.length;
const EVENTS = 30;
const STRICT = { comments: false, repeatedKeys: false };

/** A value that changed, with what is needed to see why. */
interface Changed {
  readonly schema: string;
  readonly at: string;
  readonly line: string;
  readonly before: string;
  readonly after: string;
}

function compared(schema: string, line: string, before: unknown, after: unknown): Changed[] {
  const at = differenceOf(before, after);
  return at === undefined ? [] : [{ schema, at, line, before: plainJson(before), after: plainJson(after) }];
}

/** Decoded events of an Avro schema that come back changed from their JSON line. */
function changedAvro(schema: AvroSchema, options: AvroJsonOptions, seed: number): Changed[] {
  const decode = readerUnjudged(schema, schema, []);
  const print = avroJsonPrinter(schema.tree, options);
  const { encode } = jsonEncoder(schema);
  const changed: Changed[] = [];
  for (const event of avroProof.witnesses(schema, { limit: EVENTS, random: randomOf(seed) })) {
    const bytes = avroProof.encoder(schema)(event);
    const before = decode(bytes, 0, bytes.length);
    for (const line of [print(before), avroJson(event, schema.tree)]) {
      expect(line).not.toContain('\n');
      const again = encode(readJson(line, STRICT));
      changed.push(...compared(schema.text, line, before, decode(again, 0, again.length)));
    }
  }
  return changed;
}

/** Replaces what ProtoJSON cannot express in a google.protobuf.Value: a value without a kind and an
 *  unknown number of NullValue are null, and a number that JSON lacks is a text. */
function expressible(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(expressible);
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value;
  const fields = Object.entries(value).map(([key, part]) => [key, expressible(part)] as const);
  const made: Record<string, unknown> = Object.fromEntries(fields);
  if (!('null_value' in made && 'struct_value' in made)) return made;
  const number = made['number_value'];
  if (typeof number === 'number' && !Number.isFinite(number))
    return { ...made, number_value: null, string_value: String(number) };
  const hasKind = fields.some(([key, part]) => key !== 'null_value' && part !== null);
  return hasKind ? made : { ...made, null_value: 'NULL_VALUE' };
}

/** Decoded events of a Protobuf schema that come back changed from their JSON line. */
function changedProto(schema: ProtoSchema, seed: number): Changed[] {
  const changed: Changed[] = [];
  for (const event of protoProof.witnesses(schema, { limit: EVENTS, random: randomOf(seed) })) {
    const path = protoProof.pathOf(event);
    const message = schema.tree.messages.find((one) => one.path.join() === path.join());
    const bytes = protoProof.encoder(schema)(event);
    const decode = readerUnjudged(schema, schema, path);
    const before = decode(bytes, 0, bytes.length);
    const line = jsonPrinter(schema, path)(before);
    expect(line).not.toContain('\n');
    const again = jsonEncoder(schema, message?.name).encode(readJson(line, STRICT));
    const after = decode(again, 0, again.length);
    changed.push(...compared(schema.text, line, expressible(before), expressible(after)));
  }
  return changed;
}

describe('JSON lines of random schemas', () => {
  it.each([{}, { namedUnions: true }])(
    'an Avro value is the same after it was printed and encoded again: %j',
    (options) => {
      const changed: Changed[] = [];
      for (let seed = 0; seed < SCHEMAS; seed++) {
        const schema = parseSchema('AVRO', avroPair(seed).writer, { lenient: true });
        changed.push(...changedAvro(schema as AvroSchema, options, seed));
      }
      expect(changed.slice(0, 3)).toEqual([]);
    },
  );

  it('a Protobuf value is the same after it was printed and encoded again', () => {
    const changed: Changed[] = [];
    for (let seed = 0; seed < SCHEMAS; seed++) {
      const schema = parseSchema('PROTOBUF', protoPair(seed).writer) as ProtoSchema;
      changed.push(...changedProto(schema, seed));
    }
    expect(changed.slice(0, 3)).toEqual([]);
  });
});
