/** A text that only resembles a JSON Schema is refused with its position; everything that a dialect
 *  allows is accepted. */
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../../src/core/errors.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';

function refusal(schema: unknown): string {
  try {
    parseSchema('JSON', typeof schema === 'string' ? schema : JSON.stringify(schema));
    return '';
  } catch (thrown) {
    const error = findMillraceError(thrown);
    expect(error?.code).toBe('invalid_schema');
    return String(error?.message);
  }
}

describe('JSON Schema shape', () => {
  it.each([
    [{ type: 'nonsense' }, '"type" must be one of null, boolean, integer'],
    [{ type: [] }, '"type" must be one of'],
    [{ properties: 5 }, '"properties" must be an object of schemas'],
    [{ properties: { a: 5 } }, '"properties" must be an object of schemas'],
    [{ required: 'x' }, '"required" must be a list of texts'],
    [{ properties: { a: { items: 7 } } }, '"items" must be a schema'],
    [{ anyOf: [] }, '"anyOf" must be a list of schemas'],
    [{ $defs: { a: { minLength: -1 } } }, '"minLength" must be a whole number, not negative'],
    [{ maximum: '5' }, '"maximum" must be a number'],
    [{ not: 'x' }, '"not" must be a schema'],
    [{ enum: 'a' }, '"enum" must be a list of values'],
  ])('the JSON Schema %j is refused with its place', (schema, message) => {
    expect(refusal(schema)).toContain(message);
    expect(refusal(schema)).toContain('at line 1, column ');
  });

  it.each([
    [true],
    [{}],
    [{ type: ['string', 'null'], properties: {}, required: [], additionalProperties: false }],
    [{ items: [{ type: 'string' }, true], additionalItems: { type: 'integer' } }],
    [{ properties: { type: { const: { type: 'nonsense' } } }, default: { type: 'nonsense' } }],
    [{ properties: { a: { required: true } }, exclusiveMinimum: true, minimum: 0.5 }],
    [{ 'x-mine': { properties: 5 }, dependencies: { a: ['b'] }, if: true, else: {}, $ref: '#/$defs/a' }],
  ])('the JSON Schema %j is accepted', (schema) => {
    expect(refusal(schema)).toBe('');
  });

  it('a JSON Schema that a registry once accepted is read unchanged', () => {
    expect(parseSchema('JSON', '{"type":"nonsense"}', { lenient: true }).text).toBe('{"type":"nonsense"}');
  });
});
