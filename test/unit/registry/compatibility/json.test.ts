/** Verdicts on JSON Schemas in both directions, with the position of each finding. */

import { describe, expect, it } from 'vitest';
import { positionOf } from '../../../../src/formats/json/text.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';
import { isCompatible } from '../../../../src/registry/compatibility/finding.ts';
import { checkPair } from '../../../../src/registry/compatibility/modes.ts';
import { worked } from '../../../work.ts';

const parsed = (schema: unknown) =>
  parseSchema('JSON', typeof schema === 'string' ? schema : JSON.stringify(schema));
/** Returns refusing rules with their paths; empty if compatible. */
const refused = (reader: unknown, writer: unknown): string[] =>
  checkPair(parsed(reader), parsed(writer))
    .filter((one) => !isCompatible([one]))
    .map(({ rule, path }) => (path === '' ? rule : `${rule} ${path}`));
const object = (properties: object, more: object = {}): object => ({ type: 'object', properties, ...more });
const closed = { additionalProperties: false };
const text = { type: 'string' };
const int = { type: 'integer' };

describe('JSON Schema changes in both directions', () => {
  it.each<readonly [what: string, next: unknown, last: unknown, backward: string[], forward: string[]]>([
    ['a type', int, text, ['JSON_TYPE_NARROWED'], ['JSON_TYPE_NARROWED']],
    ['a type widened', { type: 'number' }, int, [], ['JSON_TYPE_NARROWED']],
    ['a type more', { type: ['string', 'null'] }, text, [], ['JSON_TYPE_NARROWED']],
    ['any type', {}, text, [], ['JSON_TYPE_NARROWED']],
    ['nothing', false, text, ['JSON_NEVER_VALID'], []],
    ['a listed value more', { enum: ['a', 'b'] }, { enum: ['a'] }, [], ['JSON_ENUM_VALUE_REMOVED']],
    ['values listed', { enum: ['a'] }, text, ['JSON_ENUM_VALUE_REMOVED'], []],
    ['a constant of a list', { enum: ['a', 1] }, { const: 1.0 }, [], ['JSON_CONST_CHANGED']],
    ['both booleans', { enum: [false, true] }, { type: 'boolean' }, [], []],
    ['a range', { minimum: 1, maximum: 9 }, { minimum: 2, maximum: 9 }, [], ['JSON_RANGE_NARROWED']],
    ['an open end', { exclusiveMinimum: 1 }, { minimum: 1 }, ['JSON_RANGE_NARROWED'], []],
    [
      'a range of listed values',
      { minimum: 1, type: 'integer' },
      { enum: [1, 2] },
      [],
      ['JSON_ENUM_VALUE_REMOVED'],
    ],
    [
      'large numbers',
      '{"maximum":9007199254740993}',
      '{"maximum":9007199254740992}',
      [],
      ['JSON_RANGE_NARROWED'],
    ],
    ['multiples', { multipleOf: 5 }, { multipleOf: 10 }, [], ['JSON_MULTIPLE_OF_CHANGED']],
    ['a length', { maxLength: 9 }, { maxLength: 5 }, [], ['JSON_LENGTH_NARROWED']],
    ['a length that no type has', { ...int, maxLength: 1 }, int, [], []],
    ['a pattern', { ...text, pattern: 'a' }, text, ['JSON_PATTERN_CHANGED'], []],
    [
      'another pattern',
      { pattern: 'a' },
      { pattern: 'b' },
      ['JSON_PATTERN_CHANGED'],
      ['JSON_PATTERN_CHANGED'],
    ],
    ['items', { type: 'array', items: int }, { type: 'array' }, ['JSON_TYPE_NARROWED []'], []],
    ['no repetition', { uniqueItems: true }, {}, ['JSON_UNIQUE_ADDED'], []],
    [
      'a property of an open schema',
      object({ a: text, b: int }),
      object({ a: text }),
      ['JSON_PROPERTY_ADDED_TO_OPEN b'],
      [],
    ],
    ['an unbounded property of an open schema', object({ a: text, b: {} }), object({ a: text }), [], []],
    [
      'a property of a closed schema',
      object({ a: text, b: int }, closed),
      object({ a: text }, closed),
      [],
      ['JSON_PROPERTY_NOT_TAKEN b'],
    ],
    ['content closed', object({}, closed), object({}), ['JSON_CONTENT_CLOSED'], []],
    [
      'content of one type',
      object({ a: int }, { additionalProperties: int }),
      object({ a: int, b: text }, { additionalProperties: int }),
      ['JSON_PROPERTY_NOT_TAKEN b'],
      // By the new schema's `additionalProperties`, `b` may be an integer.
      ['JSON_TYPE_NARROWED b'],
    ],
    [
      'a required property',
      object({ a: int }, { required: ['a'] }),
      object({ a: int }),
      ['JSON_REQUIRED_ADDED a'],
      [],
    ],
    [
      'a nested property',
      object({ a: object({ b: { type: 'array', items: object({ c: int }) } }) }),
      object({ a: object({ b: { type: 'array', items: object({ c: text }) } }) }),
      ['JSON_TYPE_NARROWED a.b[].c'],
      ['JSON_TYPE_NARROWED a.b[].c'],
    ],
    ['a nullable value', { oneOf: [{ type: 'null' }, text] }, text, [], ['JSON_TYPE_NARROWED']],
    [
      'an additional alternative',
      { anyOf: [text, int] },
      { anyOf: [text] },
      [],
      ['JSON_COMBINATION_CHANGED'],
    ],
    [
      'alternatives that overlap',
      { oneOf: [{ type: 'number' }, int] },
      { oneOf: [{ type: 'number' }] },
      ['JSON_COMBINATION_CHANGED'],
      [],
    ],
    [
      'all of',
      { allOf: [text, { maxLength: 9 }] },
      { allOf: [text, { maxLength: 5 }] },
      [],
      ['JSON_COMBINATION_CHANGED'],
    ],
    [
      'all of, combined',
      { ...text, maxLength: 5 },
      { allOf: [text, { maxLength: 5 }] },
      ['JSON_TYPE_NARROWED', 'JSON_LENGTH_NARROWED'],
      [],
    ],
    ['not', { not: int }, { not: text }, ['JSON_KEYWORD_NOT_JUDGED'], ['JSON_KEYWORD_NOT_JUDGED']],
    [
      'not, together with a change',
      { ...text, not: { const: 'x' } },
      { type: ['string', 'null'], not: { const: 'x' } },
      ['JSON_TYPE_NARROWED'],
      [],
    ],
    ['words alone', { ...text, title: 'a', description: 'b', 'x-owner': 1 }, text, [], []],
    [
      'a dialect',
      { $schema: 'https://json-schema.org/draft/2020-12/schema' },
      {},
      ['JSON_DIALECT_CHANGED'],
      ['JSON_DIALECT_CHANGED'],
    ],
  ])('the findings of a change match in both directions: %s', (_what, next, last, backward, forward) => {
    expect({ backward: refused(next, last), forward: refused(last, next) }).toEqual({ backward, forward });
  });
});

describe('references', () => {
  const tree = (leaf: object): object => ({
    $ref: '#/definitions/node',
    definitions: { node: object({ leaf, next: { $ref: '#/definitions/node' } }, closed) },
  });
  it('references are followed, including recursive ones', () => {
    expect(refused(tree({ type: 'number' }), tree(int))).toEqual([]);
    expect(refused(tree(int), tree({ type: 'number' }))).toEqual(['JSON_TYPE_NARROWED leaf']);
  });
  it('unchanged references are compared by their targets', () => {
    const one = (a: object): object => ({ not: { $ref: '#/$defs/a' }, $defs: { a } });
    expect(refused(one(text), one(text))).toEqual([]);
    expect(refused(one(text), one(int))).toEqual(['JSON_KEYWORD_NOT_JUDGED']);
  });
  it('references without a target or to themselves get no verdict', () => {
    expect(refused({ $ref: '#/$defs/none' }, text)).toEqual(['JSON_REFERENCE_UNRESOLVED']);
    expect(refused({ $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/a' } } }, text)).toEqual([
      'JSON_REFERENCE_UNRESOLVED',
    ]);
    expect(refused({ anyOf: [text, { $ref: '#' }] }, int)).toEqual(['JSON_COMBINATION_CHANGED']);
    expect(refused({ $ref: '#/$defs/a', minLength: 1, $defs: { a: {} } }, text)).toEqual([
      'JSON_KEYWORD_NOT_JUDGED',
    ]);
  });
  it('references into a part with its own identifier get no verdict', () => {
    const inner = (a: object): object => ({
      properties: { x: { $id: 'x', $ref: '#/$defs/a' } },
      $defs: { a },
    });
    expect(refused(inner(text), inner(int))).toEqual(['JSON_REFERENCE_UNRESOLVED x']);
  });
});

it('a finding gives the places in both texts', () => {
  const source = '{\n  "type": "object",\n  "properties": {\n    "a": {"type": "integer"}\n  }\n}';
  const [finding] = checkPair(parsed(source), parsed(object({ a: text })));
  expect(finding?.reader).toEqual({ at: source.indexOf('"integer"') });
  expect(positionOf(source, source.indexOf('"integer"'))).toEqual({ line: 4, column: 19 });
  expect(finding?.message).toBe('the reader takes integer only, and the writer may write string');
});

it('a comparison ends in bounded time, whatever the schemas are', () => {
  // Each definition refers to the next one twice.
  const wide = (type: string): object => ({
    $ref: '#/definitions/d0',
    definitions: Object.fromEntries(
      Array.from({ length: 60 }, (_, i) => [
        `d${i}`,
        i === 59
          ? { type }
          : object({ a: { $ref: `#/definitions/d${i + 1}` }, b: { $ref: `#/definitions/d${i + 1}` } }),
      ]),
    ),
  });
  const tangled = (min: number): object => ({
    anyOf: Array.from({ length: 300 }, (_, i) => ({
      anyOf: Array.from({ length: 30 }, (_, j) => ({ minimum: min + i * j })),
    })),
  });
  const { calls } = worked(() => {
    expect(refused(wide('number'), wide('integer'))).toEqual([]);
    expect(refused(wide('integer'), wide('number')).length).toBeGreaterThan(0);
    refused(tangled(1), tangled(0));
  });
  expect(calls).toBeLessThan(20_000_000);
});
