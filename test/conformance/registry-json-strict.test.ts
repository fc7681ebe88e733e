/** Compares JSON Schema verdicts for tuples, `not` and `propertyNames` with the existing registries
 *  under BACKWARD. PROVEN gives the same verdict where that verdict is proven. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Conformance } from './registry-http-kit.ts';

type Row = readonly [title: string, stored: unknown, sent: unknown, compatible: boolean];

const int = { type: 'integer' };
const text = { type: 'string' };
const number = { type: 'number' };
const list = (items: unknown, additionalItems?: unknown): object => ({
  type: 'array',
  items,
  ...(additionalItems === undefined ? {} : { additionalItems }),
});
const NEW = 'https://json-schema.org/draft/2020-12/schema';
const prefixed = (prefixItems: unknown, items?: unknown): object => ({
  $schema: NEW,
  type: 'array',
  prefixItems,
  ...(items === undefined ? {} : { items }),
});
const not = (part: unknown): object => ({ type: 'string', not: part });
const named = (propertyNames?: unknown): object => ({
  type: 'object',
  ...(propertyNames === undefined ? {} : { propertyNames }),
});

/** Source: ArraySchemaDiff.java and SchemaDiff.java of confluentinc/schema-registry. */
const BOTH: readonly Row[] = [
  ['the same tuple with additional items', list([int], text), list([int], text), true],
  ['additional items allowed', list([int], false), list([int]), true],
  ['additional items allowed in words', list([int], false), list([int], true), true],
  ['additional items allowed of one type', list([int], false), list([int], text), true],
  ['additional items forbidden', list([int]), list([int], false), false],
  ['additional items of one type forbidden', list([int], text), list([int], false), false],
  ['additional items narrowed', list([int]), list([int], text), false],
  ['additional items widened to anything', list([int], text), list([int]), true],
  ['additional items widened', list([int], int), list([int], number), true],
  ['additional items of another type', list([int], int), list([int], text), false],
  ['an item widened', list([int, text], false), list([number, text], false), true],
  ['an item narrowed', list([number, text], false), list([int, text], false), false],
  ['an item added to a closed tuple', list([int], false), list([int, text], false), true],
  ['an item added to an open tuple', list([int]), list([int, text]), false],
  ['an item without constraints added to an open tuple', list([int]), list([int, {}]), true],
  ['an item added that the additional items cover', list([int], int), list([int, number], int), true],
  ['an item added that the additional items do not cover', list([int], int), list([int, text], int), false],
  ['an item removed from an open tuple', list([int, text]), list([int]), true],
  ['an item removed from a closed tuple', list([int, text], false), list([int], false), false],
  ['an item removed that the additional items cover', list([int, int], int), list([int], number), true],
  ['an item removed that the additional items do not cover', list([int, text], int), list([int], int), false],
  [
    'an item that accepts no value removed from a closed tuple',
    list([int, false], false),
    list([int], false),
    true,
  ],
  [
    'prefixItems: an item added to a closed tuple',
    prefixed([int], false),
    prefixed([int, text], false),
    true,
  ],
  ['prefixItems: an item added to an open tuple', prefixed([int]), prefixed([int, text]), false],
  ['prefixItems: the rest allowed', prefixed([int], false), prefixed([int], text), true],
  ['prefixItems: the rest narrowed', prefixed([int], number), prefixed([int], int), false],
  ['not true as not {}', not({}), not(true), true],
  ['not {} as not true', not(true), not({}), true],
  ['an exclusion that is narrowed', not({ enum: ['a', 'b'] }), not({ enum: ['a'] }), true],
  ['an exclusion that is widened', not({ enum: ['a'] }), not({ enum: ['a', 'b'] }), false],
  [
    'an exclusion of a range that is narrowed',
    { not: { ...number, minimum: 5 } },
    { not: { ...number, minimum: 7 } },
    true,
  ],
  [
    'an exclusion of a range that is widened',
    { not: { ...number, minimum: 5 } },
    { not: { ...number, minimum: 3 } },
    false,
  ],
  ['an exclusion of another type', { not: int }, { not: text }, false],
  ['an exclusion that is removed', not({ enum: ['a'] }), text, true],
  [
    'the same exclusion by a reference',
    { $defs: { a: int }, not: { $ref: '#/$defs/a' } },
    { not: int },
    true,
  ],
];

/** Source: ObjectSchemaDiff.java ignores the keyword. A reader with the keyword refuses documents,
 *  so PROVEN differs. */
const STRICT_ONLY: readonly Row[] = [
  ['names demanded', named(), named({ pattern: '^[a-z]+$' }), true],
  ['another pattern of names', named({ pattern: '^a' }), named({ pattern: '^b' }), true],
  ['a length of names demanded', named(), named({ maxLength: 3 }), true],
  ['a shorter length of names', named({ maxLength: 9 }), named({ maxLength: 3 }), true],
  ['no name allowed', named(), named(false), true],
  ['names listed', named({ pattern: '^a' }), named({ enum: ['a'] }), true],
  [
    'names demanded inside',
    { properties: { o: named() } },
    { properties: { o: named({ minLength: 1 }) } },
    true,
  ],
  [
    'names demanded, and a property retyped',
    { ...named(), properties: { a: int } },
    { ...named(false), properties: { a: text } },
    false,
  ],
];

let api: Conformance;
beforeAll(async () => {
  api = await Conformance.start();
});
afterAll(() => api.close());

let subjects = 0;
async function verdict(stored: unknown, sent: unknown, verdictPolicy: string): Promise<unknown> {
  const subject = `s-${++subjects}`;
  await api.register(subject, JSON.stringify(stored), { schemaType: 'JSON' });
  await api.call('PUT', `/config/${subject}`, { body: { verdictPolicy } });
  const body = { schema: JSON.stringify(sent), schemaType: 'JSON' };
  const path = `/compatibility/subjects/${subject}/versions/latest`;
  return ((await api.call('POST', path, { body })).body as { is_compatible: boolean }).is_compatible;
}

describe('both policies', () => {
  it.each(BOTH)(
    'PROVEN and STRICT give the recorded verdict for %s',
    async (_title, stored, sent, compatible) => {
      for (const policy of ['STRICT', 'PROVEN'])
        expect(await verdict(stored, sent, policy), policy).toBe(compatible);
    },
  );
});

describe('property names under STRICT', () => {
  it.each(STRICT_ONLY)(
    'STRICT accepts schemas that PROVEN refuses, because STRICT compares no property names: %s',
    async (_title, stored, sent, compatible) => {
      expect(await verdict(stored, sent, 'STRICT')).toBe(compatible);
      expect(await verdict(stored, sent, 'PROVEN')).toBe(false);
    },
  );
  it('PROVEN accepts a schema with the same property names', async () => {
    const stored = named({ pattern: '^a' });
    expect(await verdict(stored, { ...stored, title: 'new' }, 'PROVEN')).toBe(true);
  });
});

describe('undecidable schemas', () => {
  it.each<Row>([
    [
      'an exclusion of itself',
      { $defs: { a: { not: { $ref: '#/$defs/a' } } }, $ref: '#/$defs/a' },
      { $defs: { a: { not: { $ref: '#/$defs/a' }, title: 'x' } }, $ref: '#/$defs/a' },
      false,
    ],
    [
      'a tuple in the keyword of another dialect',
      { type: 'array', prefixItems: [int] },
      { type: 'array', prefixItems: [number] },
      false,
    ],
    ['additional items without items', { type: 'array' }, { type: 'array', additionalItems: false }, false],
  ])(
    'PROVEN and STRICT refuse a change that cannot be decided: %s',
    async (_title, stored, sent, compatible) => {
      for (const policy of ['STRICT', 'PROVEN']) expect(await verdict(stored, sent, policy)).toBe(compatible);
    },
  );
});
