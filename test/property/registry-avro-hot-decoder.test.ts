/** A decoder that has read many records reads with generated code. It must give the values and the
 *  errors of a new decoder. */
import { inspect } from 'node:util';
import fc from 'fast-check';
import { afterEach, expect, it, vi } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { avroDecoder } from '../../src/formats/avro/codec/decoder.ts';
import { encodeAvro } from '../../src/formats/avro/codec/encoder.ts';
import type { AvroNode } from '../../src/formats/avro/syntax/tree.ts';
import type { Decode } from '../../src/formats/decode.ts';
import type { AvroSchema } from '../../src/formats/schema.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { datumOf, drawingFrom, numbers, widened } from './registry-avro-decoder-kit.ts';
import { avroSchema } from './registry-avro-kit.ts';

/** Reads after which every record that is read has generated code. */
const READS = 250;

afterEach(() => void vi.unstubAllGlobals());

const parse = (json: unknown): AvroSchema => parseSchema('AVRO', JSON.stringify(json)) as AvroSchema;

const lenient = (json: unknown): AvroSchema =>
  parseSchema('AVRO', JSON.stringify(json), { lenient: true }) as AvroSchema;

/** The value with the order of its fields, or the error with its position. */
function outcome(decode: Decode, bytes: Buffer): string {
  try {
    return inspect(decode(bytes, 0, bytes.length), {
      depth: null,
      maxArrayLength: null,
      maxStringLength: null,
    });
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return `${error.code} ${error.message} ${inspect(error.details)}`;
  }
}

/** Decoder that has read the events many times. */
function hotDecoder(reader: AvroNode, writer: AvroNode, events: readonly Buffer[]): Decode {
  const decode = avroDecoder(reader, writer);
  for (let turn = 0; turn < READS; turn++) for (const event of events) outcome(decode, event);
  return decode;
}

/** The event, a part of it, and the event with a changed byte. */
function mutants(event: Buffer, next: (most: number) => number): Buffer[] {
  if (event.length === 0) return [event];
  const changed = Buffer.from(event);
  changed[next(event.length)] = next(256);
  return [event, event.subarray(0, next(event.length)), changed];
}

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
  let errors = 0;
  fc.assert(
    fc.property(avroSchema, numbers, (json, drawn) => {
      const next = drawingFrom(drawn);
      const writer = parse(json);
      const reader = parse(widened(JSON.parse(writer.text), next));
      const events = Array.from({ length: 3 }, () => encodeAvro(writer.tree, datumOf(writer.tree, next)));
      const hot = hotDecoder(reader.tree, writer.tree, events);
      for (const bytes of events.flatMap((event) => mutants(event, next))) {
        const cold = outcome(avroDecoder(reader.tree, writer.tree), bytes);
        expect(outcome(hot, bytes)).toBe(cold);
        if (cold.startsWith('malformed_payload ')) errors++;
      }
    }),
    { numRuns: 200 },
  );
  expect(errors).toBeGreaterThan(20);
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
  const value = hotDecoder(order.tree, order.tree, [event])(event, 0, event.length) as {
    readonly items: readonly object[];
  };
  expect(Object.keys(value)).toEqual(['constructor', 'items']);
  expect(value.items.map((one) => Object.entries(one))).toEqual([[['__proto__', 1n]], [['__proto__', 2n]]]);
  expect(Object.getPrototypeOf(value.items[0])).toBe(Object.prototype);
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
  expect(outcome(hotDecoder(order.tree, order.tree, [event]), event)).toBe(cold);
  expect(refused).toHaveBeenCalled();
});
