/** A decoder that has read many records reads with generated code. It must give the values and the
 *  errors of a new decoder. */
import fc from 'fast-check';
import { afterEach, expect, it, vi } from 'vitest';
import { avroDecoder } from '../../src/formats/avro/codec/decoder.ts';
import { encodeAvro } from '../../src/formats/avro/codec/encoder.ts';
import type { AvroSchema } from '../../src/formats/schema.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { demandSame, hotDecoder, MUTANTS, outcome } from './hot-decoder-kit.ts';
import { datumOf, widened } from './registry-avro-decoder-kit.ts';
import { avroSchema } from './registry-avro-kit.ts';
import { randomOf } from './registry-proto-decoder-kit.ts';

afterEach(() => void vi.unstubAllGlobals());

const parse = (json: unknown): AvroSchema => parseSchema('AVRO', JSON.stringify(json)) as AvroSchema;

const lenient = (json: unknown): AvroSchema =>
  parseSchema('AVRO', JSON.stringify(json), { lenient: true }) as AvroSchema;

it('a decoder gives the same values and errors after many records as before', () => {
  const made = vi.fn();
  const Real = Function;
  vi.stubGlobal(
    'Function',
    class extends Real {
      constructor(...words: string[]) {
        made();
        super(...words);
      }
    },
  );
  const seen = { values: 0, errors: 0 };
  fc.assert(
    fc.property(avroSchema, fc.nat(), (json, seed) => {
      const next = randomOf(seed);
      const writer = parse(json);
      const reader = parse(widened(JSON.parse(writer.text), next));
      const events = Array.from({ length: 3 }, () => encodeAvro(writer.tree, datumOf(writer.tree, next)));
      const { values, errors } = demandSame(() => avroDecoder(reader.tree, writer.tree), events, next);
      seen.values += values;
      seen.errors += errors;
    }),
    { numRuns: 200 },
  );
  expect(seen.values).toBeGreaterThan(MUTANTS * 100);
  expect(seen.errors).toBeGreaterThan(MUTANTS * 100);
  expect(made.mock.calls.length).toBeGreaterThan(50);
});

const item = { type: 'record', name: 'Item', fields: [{ name: '__proto__', type: 'long' }] };
/** Lenient, as schemas from a registry are: another client registered them. */
const order = lenient({
  type: 'record',
  name: 'Order',
  fields: [
    { name: 'constructor', type: 'string' },
    { name: 'items', type: { type: 'array', items: item } },
  ],
});
/** `new` and two items, 1 and 2. */
const event = Buffer.from([6, 0x6e, 0x65, 0x77, 4, 2, 4, 0]);

it('names of fields that have a meaning in JavaScript are own fields of the value', () => {
  const value = hotDecoder(() => avroDecoder(order.tree, order.tree), [event])(event, 0, event.length) as {
    readonly items: readonly object[];
  };
  expect(Object.keys(value)).toEqual(['constructor', 'items']);
  expect(value.items.map((one) => Object.entries(one))).toEqual([[['__proto__', 1n]], [['__proto__', 2n]]]);
  expect(Object.getPrototypeOf(value.items[0])).toBe(Object.prototype);
});

const tree = parse({
  type: 'record',
  name: 'Tree',
  fields: [
    { name: 'nothing', type: 'null' },
    { name: 'children', type: { type: 'array', items: 'Tree' } },
    { name: 'nulls', type: { type: 'array', items: 'null' } },
  ],
});

it('blocks with their bytes, nesting and values without bytes are bounded as before', () => {
  const nested = (depth: number): Buffer => {
    let body = Buffer.from([0, 0]);
    for (let i = 0; i < depth; i++) body = Buffer.concat([Buffer.of(2), body, Buffer.of(0, 0)]);
    return body;
  };
  const events = [
    nested(0),
    nested(100),
    nested(127),
    nested(128),
    // Blocks of one child with its two bytes, with one byte too many and with one too few.
    Buffer.from([1, 4, 0, 0, 0, 0]),
    Buffer.from([1, 6, 0, 0, 0, 0]),
    Buffer.from([1, 2, 0, 0, 0, 0]),
    // 65,534 and 65,536 nulls beside those of the record, and 2^31 of them.
    Buffer.from([0, 0xfc, 0xff, 7, 0]),
    Buffer.from([0, 0x80, 0x80, 8, 0]),
    Buffer.from([0, 0x80, 0x80, 0x80, 0x80, 0x10, 0]),
    // 2^28 children in eight bytes.
    Buffer.from([0x80, 0x80, 0x80, 0x80, 2, 0, 0, 0]),
  ];
  const make = (): ReturnType<typeof avroDecoder> => avroDecoder(tree.tree, tree.tree);
  const hot = hotDecoder(make, events);
  const outcomes = events.map((bytes) => outcome(make(), bytes));
  expect(events.map((bytes) => outcome(hot, bytes))).toEqual(outcomes);
  expect(outcomes.filter((said) => said.startsWith('malformed_payload')).length).toBe(6);
});

it('a process without code generation from strings reads the same values', () => {
  const cold = outcome(avroDecoder(order.tree, order.tree), event);
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
  expect(
    outcome(
      hotDecoder(() => avroDecoder(order.tree, order.tree), [event]),
      event,
    ),
  ).toBe(cold);
  expect(refused).toHaveBeenCalled();
});
