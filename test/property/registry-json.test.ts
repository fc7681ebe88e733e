/** A compatible JSON Schema reader accepts every document that is valid for the writer. Checked
 *  with ajv, over random pairs of schemas and random documents of the writer. */
import { Ajv, type ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseSchema } from '../../src/formats/schema.ts';
import { isCompatible } from '../../src/registry/compatibility/finding.ts';
import { checkPair } from '../../src/registry/compatibility/modes.ts';
import { runs } from '../tier.ts';

const RUNS = Number(process.env['MILLRACE_JSON_RUNS'] ?? runs(100));
const DOCUMENTS = 30;

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Schema = boolean | { [key: string]: Json };

const TYPES = ['null', 'boolean', 'integer', 'number', 'string', 'array', 'object'];
const NAMES = ['a', 'b', 'ab', 'id'];
const few = fc.integer({ min: 0, max: 3 });
const scalar: fc.Arbitrary<Json> = fc.oneof(
  fc.constantFrom<Json>(null, true, false, 'a', 'b', 'ab', '', 0, 1, 2, 3, -1, 1.5, 0.5, 10),
  fc.integer({ min: -4, max: 12 }),
);

const { schema } = fc.letrec<{ schema: Schema; object: Schema }>((tie) => {
  const part = tie('schema');
  const parts = fc.array(part, { minLength: 1, maxLength: 3 });
  const some = (keywords: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<Schema> =>
    fc.record(keywords, { requiredKeys: [] }) as fc.Arbitrary<Schema>;
  const members = fc.dictionary(fc.constantFrom(...NAMES), part, { maxKeys: 3 });
  const type = fc.oneof(
    fc.constantFrom(...TYPES),
    fc.uniqueArray(fc.constantFrom(...TYPES), { minLength: 1, maxLength: 3 }),
  );
  return {
    schema: fc.oneof(
      { maxDepth: 4, depthSize: 'small' },
      { weight: 2, arbitrary: some({ type }) },
      { weight: 1, arbitrary: fc.boolean() },
      { weight: 1, arbitrary: fc.constantFrom('#', '#/$defs/x', '#/$defs/y').map(($ref) => ({ $ref })) },
      {
        weight: 2,
        arbitrary: some({
          type: fc.constantFrom('integer', 'number'),
          minimum: few,
          maximum: few.map((n) => n + 2),
          exclusiveMinimum: few.map((n) => n - 1),
          exclusiveMaximum: few.map((n) => n + 3),
          multipleOf: fc.constantFrom(1, 2, 3, 4, 0.5),
        }),
      },
      {
        weight: 2,
        arbitrary: some({
          type: fc.constant('string'),
          minLength: few,
          maxLength: few,
          pattern: fc.constantFrom('a', '^a', 'b$'),
        }),
      },
      { weight: 2, arbitrary: some({ enum: fc.uniqueArray(scalar, { minLength: 1, maxLength: 4 }), type }) },
      { weight: 1, arbitrary: some({ const: scalar }) },
      {
        weight: 2,
        arbitrary: some({
          type: fc.constant('array'),
          items: part,
          minItems: few,
          maxItems: few,
          uniqueItems: fc.boolean(),
          contains: part,
        }),
      },
      { weight: 6, arbitrary: tie('object') },
      { weight: 2, arbitrary: some({ anyOf: parts, oneOf: parts, allOf: parts, type }) },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      { weight: 1, arbitrary: some({ not: part, if: part, then: part, propertyNames: part }) },
    ),
    object: some({
      type: fc.constantFrom('object', ['object', 'null'] as unknown as string),
      properties: members,
      required: fc.uniqueArray(fc.constantFrom(...NAMES), { maxLength: 2 }),
      additionalProperties: part,
      patternProperties: fc.dictionary(fc.constantFrom('^a', 'b'), part, { maxKeys: 1 }),
      minProperties: few,
      maxProperties: few.map((n) => n + 1),
    }),
  };
});

const rooted = fc
  .tuple(schema as fc.Arbitrary<Schema>, schema as fc.Arbitrary<Schema>, schema as fc.Arbitrary<Schema>)
  .map(([root, x, y]): Schema => (typeof root === 'boolean' ? root : { ...root, $defs: { x, y } }));

/** Makes a few changes inside a schema, because two unrelated schemas would test little. */
function changed(root: Schema, pick: (most: number) => number, other: Schema): Schema {
  const copy = structuredClone(root);
  const places: Array<readonly [{ [key: string]: Json }, string]> = [];
  const visit = (node: Json): void => {
    if (typeof node !== 'object' || node === null) return;
    for (const [key, value] of Object.entries(node)) {
      places.push([node as { [key: string]: Json }, key]);
      visit(value as Json);
    }
  };
  visit(copy as Json);
  const at = places[pick(places.length)];
  if (at === undefined) return other;
  const [holder, key] = at;
  const value = holder[key];
  if (typeof value === 'number') holder[key] = value + pick(3) - 1;
  else if (Array.isArray(holder)) holder.splice(Number(key), 1);
  else if (pick(2) === 0) delete holder[key];
  else if (typeof value === 'object' && value !== null && !Array.isArray(value)) holder[key] = other as Json;
  else if (key === 'type') holder[key] = ['string', 'number', 'integer', 'object'][pick(4)] as string;
  return copy;
}

const document: fc.Arbitrary<Json> = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    { weight: 3, arbitrary: scalar },
    { weight: 2, arbitrary: fc.array(tie('value'), { maxLength: 3 }) },
    { weight: 4, arbitrary: fc.dictionary(fc.constantFrom(...NAMES, 'z'), tie('value'), { maxKeys: 4 }) },
  ),
})).value;

/** Compiles the schema with ajv; undefined if the schema is invalid or ajv cannot resolve it. */
function validator(draft: string, of: Schema): ValidateFunction | undefined {
  const options = { strict: false, logger: false as const, validateFormats: false };
  try {
    return draft === '2020-12' ? new Ajv2020(options).compile(of) : new Ajv(options).compile(of);
  } catch {
    return undefined;
  }
}
function isValid(validate: ValidateFunction, value: Json): boolean | undefined {
  try {
    return validate(value) as boolean;
  } catch {
    return undefined;
  }
}

describe.each(['draft-07', '2020-12'])('%s', (draft) => {
  const dialect = draft === '2020-12' ? { $schema: 'https://json-schema.org/draft/2020-12/schema' } : {};
  const withDialect = (of: Schema): Schema => (typeof of === 'boolean' ? of : { ...of, ...dialect });
  it('a reader with a compatible verdict refuses no document of the writer', {
    timeout: 300_000,
  }, () => {
    const met = { pairs: 0, compatible: 0, documents: 0 };
    const pairs = fc
      .tuple(rooted, rooted, fc.array(fc.nat(1 << 20), { minLength: 12, maxLength: 12 }), fc.boolean())
      .map(([one, two, numbers, near]) => {
        let at = 0;
        const pick = (most: number): number =>
          most === 0 ? 0 : (numbers[at++ % numbers.length] as number) % most;
        return [withDialect(one), withDialect(near ? changed(one, pick, two) : two)] as const;
      });
    fc.assert(
      fc.property(
        pairs,
        fc.array(document, { minLength: DOCUMENTS, maxLength: DOCUMENTS }),
        (both, documents) => {
          const validators = both.map((one) => validator(draft, one));
          if (validators.some((one) => one === undefined)) return;
          const [first, second] = both.map((one) => parseSchema('JSON', JSON.stringify(one)));
          for (const [r, w] of [
            [0, 1],
            [1, 0],
          ] as const) {
            met.pairs++;
            const findings = checkPair(
              (r === 0 ? first : second) as never,
              (w === 0 ? first : second) as never,
            );
            if (!isCompatible(findings)) continue;
            met.compatible++;
            for (const value of documents) {
              if (isValid(validators[w] as ValidateFunction, value) !== true) continue;
              met.documents++;
              const read = isValid(validators[r] as ValidateFunction, value);
              if (read === false)
                throw new Error(`${JSON.stringify({ reader: both[r], writer: both[w], document: value })}`);
            }
          }
        },
      ),
      { numRuns: RUNS, seed: 20_261_121 },
    );
    // Guards against runs without compatible pairs or without documents.
    expect(met.compatible / met.pairs).toBeGreaterThan(0.1);
    expect(met.documents).toBeGreaterThan(RUNS);
  });
});
