/** Lines of an input and the rows that they become. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { jsonEncoder } from '../../../../src/formats/json-values.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';
import { keyNames } from '../../../../src/registry/producer/key-names.ts';
import { type InputLine, readLines } from '../../../../src/registry/producer/lines.ts';
import { placedError, rowReader, textKey } from '../../../../src/registry/producer/row.ts';
import { runs } from '../../../tier.ts';

async function* chunksOf(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  let at = 0;
  for (let i = 0; at < bytes.length; i++) {
    const size = sizes[i % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

async function linesOf(text: string, sizes: readonly number[], bytesMax = 1000): Promise<InputLine[]> {
  const found: InputLine[] = [];
  for await (const group of readLines(chunksOf(Buffer.from(text), sizes), bytesMax)) found.push(...group);
  return found;
}

describe('lines of an input', () => {
  it('lines do not depend on the chunks', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.string({ unit: fc.constantFrom('a', 'é', '😀', '\n', '\r\n', ' ') }), { maxLength: 8 }),
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 4 }),
        async (parts, sizes) => {
          const text = parts.join('\n');
          const expected = text
            .split('\n')
            .map((line, index) => ({ number: index + 1, text: line.replace(/\r$/, '') }))
            .filter((line) => line.text !== '');
          const lines = await linesOf(text, sizes);
          expect(lines.map(({ number, bytes }) => ({ number, text: bytes?.toString() }))).toEqual(expected);
        },
      ),
      { numRuns: runs(300) },
    );
  });

  it('a line beyond the limit has a number and no bytes, and the next line is read', async () => {
    const lines = await linesOf(`${'x'.repeat(50)}\nshort\n`, [7], 10);
    expect(lines).toEqual([
      { number: 1, bytes: undefined },
      { number: 2, bytes: Buffer.from('short') },
    ]);
  });
});

const SCHEMA = parseSchema(
  'AVRO',
  JSON.stringify({
    type: 'record',
    name: 'R',
    fields: [
      { name: 'n', type: 'long' },
      { name: 'list', type: { type: 'array', items: ['null', 'int'] }, default: [] },
    ],
  }),
);
const reader = (over: Partial<Parameters<typeof rowReader>[0]> = {}) => {
  const read = rowReader({
    encoder: jsonEncoder(SCHEMA),
    lines: 'value',
    keyField: undefined,
    keyOf: textKey,
    nowMs: () => 0,
    ...over,
  });
  return (line: string) => read(Buffer.from(line));
};

describe('rows', () => {
  it('a key is the text of its field', () => {
    const read = reader({ keyField: [['n']] });
    expect(read('{"n":9007199254740993}').key?.toString()).toBe('9007199254740993');
  });

  it('a line of a record gives key and value, and null is a tombstone', () => {
    const read = reader({ lines: 'record' });
    expect(read('{"key":"k","value":{"n":1},"offset":3}')).toMatchObject({ key: Buffer.from('k') });
    expect(read('{"key":{"base64":"AAE="},"value":null}')).toMatchObject({
      key: Buffer.from([0, 1]),
      payload: null,
    });
  });

  it.each([
    ['{"n":1.5}', 'R.n: 1.5 is not a long'],
    ['{"n":9223372036854775808}', 'R.n: 9223372036854775808 is not a long'],
    ['{}', 'R.n: the field of R is missing, and has no default'],
    ['{"n":1,"m":2}', 'R.m: R has no such field'],
    ['{"n":1,"list":[null,"x"]}', 'R.list[1]: "x" is not an int'],
    ['{"n":1,"n":2}', 'the line is not JSON: the key "n" stands twice'],
    ['{"n":', 'the line is not JSON'],
  ])('the input is refused: %s', (line, why) => {
    try {
      reader()(line);
      expect.unreachable();
    } catch (thrown) {
      const error = placedError(thrown, 'file line 3');
      expect(error?.code).toBe('value_refused');
      expect(error?.message).toContain(`file line 3: ${why}`);
    }
  });

  it('an error that is not about the line has no place', () => {
    expect(placedError(new Error('a bug'), 'line 1')).toBeUndefined();
  });
});

it('a key field of Protobuf is found under its JSON name and its name in the schema', () => {
  const text =
    'syntax = "proto3"; message O { string order_id = 1; Place place_at = 2; } message Place { int32 zip_code = 1; }';
  const schema = parseSchema('PROTOBUF', text);
  const encoder = jsonEncoder(schema);
  for (const path of [
    ['place_at', 'zipCode'],
    ['placeAt', 'zip_code'],
  ]) {
    const read = reader({ encoder, keyField: keyNames(schema, path) });
    for (const line of ['{"placeAt":{"zipCode":7}}', '{"place_at":{"zip_code":7}}'])
      expect(read(line).key?.toString()).toBe('7');
    expect(() => read('{"orderId":"x"}')).toThrow('no member placeAt.zipCode');
  }
});
