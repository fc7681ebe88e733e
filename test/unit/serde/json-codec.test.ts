/** Values of JSON Schemas: what a writer accepts, and what a reader returns. */
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../src/core/errors.ts';
import { Payloads } from '../../../src/formats/payloads.ts';
import { type JsonSchema, parseSchema } from '../../../src/formats/schema.ts';
import { jsonReader, jsonWriter } from '../../../src/serde/json-codec.ts';
import type { JsonValidator } from '../../../src/serde/json-validator.ts';

const schemaOf = (json: unknown, references: JsonSchema['references'] = []): JsonSchema =>
  parseSchema('JSON', JSON.stringify(json), { references }) as JsonSchema;

const ORDER = schemaOf({
  type: 'object',
  required: ['cents'],
  properties: { cents: { type: 'integer', minimum: 1 }, note: { type: 'string' } },
  additionalProperties: false,
});

/** Bytes of a value, or the code, message and path of its error. */
function written(schema: JsonSchema, value: unknown, validator?: JsonValidator): unknown {
  const payloads = new Payloads(1, 4);
  try {
    jsonWriter(schema, validator).encode(value, payloads);
    return payloads.bytes.toString('utf8', 0, payloads.used);
  } catch (thrown) {
    const error = findMillraceError(thrown);
    return [error?.code, error?.message, error?.details['path']];
  }
}

function read(reader: JsonSchema | undefined, text: string | Buffer): unknown {
  const bytes = Buffer.from(text as string);
  try {
    return jsonReader(reader, undefined)(bytes, 0, bytes.length);
  } catch (thrown) {
    const error = findMillraceError(thrown);
    return [error?.code, error?.row.reason, error?.message];
  }
}

describe('a writer of a JSON Schema', () => {
  it('a value that fits is written as its JSON text', () => {
    expect(written(ORDER, { cents: 5, note: 'ü' })).toBe('{"cents":5,"note":"ü"}');
  });

  it('the written text is validated, after toJSON and without undefined properties', () => {
    const dated = schemaOf({ properties: { at: { type: 'string' } }, additionalProperties: false });
    expect(written(dated, { at: new Date(0), gone: undefined })).toBe('{"at":"1970-01-01T00:00:00.000Z"}');
    expect(written(ORDER, { cents: Number.NaN })).toEqual([
      'value_refused',
      '/cents must be integer',
      '/cents',
    ]);
  });

  it.each([
    ['a missing property', {}, "the value must have required property 'cents'", ''],
    ['a value of another type', { cents: '5' }, '/cents must be integer', '/cents'],
    ['a value out of range', { cents: 0 }, '/cents must be >= 1', '/cents'],
    ['an unknown property', { cents: 1, x: 1 }, 'the value must NOT have additional properties: "x"', ''],
    ['a bigint', { cents: 5n }, 'the value is not a JSON value: Do not know how to serialize a BigInt', ''],
    ['a function', () => 1, 'the value is not a JSON value: function', ''],
  ])('the writer refuses %s with its path', (_what, value, message, path) => {
    expect(written(ORDER, value)).toEqual(['value_refused', message, path]);
  });

  it('each dialect has its own keywords', () => {
    const tuple = { prefixItems: [{ type: 'string' }] };
    const draft2020 = { ...tuple, $schema: 'https://json-schema.org/draft/2020-12/schema' };
    expect(written(schemaOf(draft2020), [1])).toEqual(['value_refused', '/0 must be string', '/0']);
    expect(written(schemaOf({ ...tuple, $schema: 'http://json-schema.org/draft-07/schema#' }), [1])).toBe(
      '[1]',
    );
    const draft2019 = {
      $schema: 'https://json-schema.org/draft/2019-09/schema',
      properties: { a: true },
      unevaluatedProperties: false,
    };
    expect(written(schemaOf(draft2019), { b: 1 })).toEqual([
      'value_refused',
      'the value must NOT have unevaluated properties',
      '',
    ]);
    expect(written(schemaOf({ $schema: 'http://json-schema.org/draft-06/schema#' }), 1)).toBe('1');
    expect(written(schemaOf({ $schema: 'http://json-schema.org/draft-04/schema#' }), 1)).toEqual(
      expect.arrayContaining(['invalid_schema']),
    );
  });

  it('references of all levels are resolved by their names', () => {
    const city = {
      name: 'city.json',
      subject: 'c',
      version: 1,
      format: 'JSON',
      text: '{"type":"string"}',
      references: [],
    } as const;
    const place = {
      ...{ name: 'place.json', subject: 'p', version: 1, format: 'JSON' as const },
      text: '{"properties":{"city":{"$ref":"city.json"}}}',
      references: [city],
    } as const;
    const schema = schemaOf({ properties: { to: { $ref: 'place.json' } } }, [place]);
    expect(written(schema, { to: { city: 'Kiel' } })).toBe('{"to":{"city":"Kiel"}}');
    expect(written(schema, { to: { city: 1 } })).toEqual([
      'value_refused',
      '/to/city must be string',
      '/to/city',
    ]);
    expect(written(schemaOf({ $ref: 'absent.json' }), 1)).toEqual(expect.arrayContaining(['invalid_schema']));
  });

  it('a validator of the service decides in place of Ajv', () => {
    const validator: JsonValidator = ({ schema }) => {
      if (schema === false) throw new Error('never valid');
      return (value) => (value === 1 ? undefined : { path: '', message: 'is not 1' });
    };
    expect(written(schemaOf({}), 1, validator)).toBe('1');
    expect(written(schemaOf({}), 2, validator)).toEqual(['value_refused', 'the value is not 1', '']);
    expect(written(schemaOf(false), 2, validator)).toEqual(expect.arrayContaining(['invalid_schema']));
  });
});

describe('a reader of JSON records', () => {
  it('every JSON value is read without a reader schema, and large integers stay exact', () => {
    expect(read(undefined, '{"n":9007199254740993,"m":1.5}')).toEqual({ n: 9007199254740993n, m: 1.5 });
  });

  it('a record that the reader schema refuses is incompatible', () => {
    expect(read(ORDER, '{"cents":5}')).toEqual({ cents: 5 });
    expect(read(ORDER, '{"cents":"5"}')).toEqual([
      'incompatible_schema',
      'incompatible_schema',
      "the reader's schema cannot read this record: /cents must be integer",
    ]);
  });

  it('bytes that are not JSON in UTF-8 are malformed', () => {
    expect(read(undefined, '{')).toEqual(expect.arrayContaining(['malformed_payload']));
    expect(read(undefined, Buffer.from([0x22, 0xff, 0x22]))).toEqual(
      expect.arrayContaining(['malformed_payload']),
    );
  });

  it('a reader schema of another format refuses every record', () => {
    const avro = parseSchema('AVRO', '"string"');
    expect(() => jsonReader(avro, undefined)).toThrow(
      expect.objectContaining({ code: 'incompatible_schema' }),
    );
  });
});
