/** Schemas with invalid parts in any position: strict and lenient parsing, printing, comparing and
 *  compiling them end in a result or a Millrace error. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import type { ResolvedReference } from '../../src/formats/content.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { parseSchema, type Schema, schemaText } from '../../src/formats/schema.ts';
import { checkPair } from '../../src/registry/compatibility/modes.ts';
import { readerCodec } from '../../src/registry/proof/reader.ts';
import { writerCodec } from '../../src/serde/codec.ts';
import { runs } from '../tier.ts';
import { avroSchema } from './registry-avro-kit.ts';

const wrong = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    true,
    -1,
    0.5,
    1e300,
    '',
    'int',
    'record',
    'n.T0',
    '.T',
    'a..b',
    'a-b',
    '__proto__',
    '\ud800',
    [],
    {},
    [[]],
    [null],
    ['null', 'null'],
    { type: 'record' },
    { type: 'enum', name: 'E', symbols: [1] },
    { type: 'fixed', name: 'F', size: 1e10 },
    { type: { type: 'int' } },
    { type: 'map', values: 'T1' },
    { logicalType: 'decimal', type: 'bytes', precision: {} },
  ),
  fc.jsonValue({ maxDepth: 2 }),
);

/** Replaces a part by `by`, or adds it at a new key. */
function broken(value: unknown, steps: readonly number[], by: unknown): unknown {
  const [step, ...rest] = steps;
  if (step === undefined || typeof value !== 'object' || value === null) return by;
  if (Array.isArray(value)) {
    if (value.length === 0) return [by];
    const at = step % value.length;
    return value.map((item, i) => (i === at ? broken(item, rest, by) : item));
  }
  const keys = [...Object.keys(value), 'default', 'aliases', 'namespace', 'logicalType', 'order', 'doc'];
  const key = keys[step % keys.length] as string;
  return { ...value, [key]: broken((value as Record<string, unknown>)[key], rest, by) };
}

const steps = fc.array(fc.nat(50), { minLength: 1, maxLength: 6 });
const brokenSchema = fc
  .tuple(avroSchema, fc.array(fc.tuple(steps, wrong), { minLength: 1, maxLength: 3 }))
  .map(([schema, breaks]) => breaks.reduce((made, [path, by]) => broken(made, path, by), schema));

/** Returns the result of `run`, or undefined for a Millrace error. Other errors are thrown. */
function ours<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined || error.row.kind === 'internal') throw thrown;
    return undefined;
  }
}

describe('broken Avro schema', () => {
  it('a broken schema is refused, or read equally by the strict and the lenient parser', () => {
    let taken = 0;
    let refused = 0;
    fc.assert(
      fc.property(brokenSchema, (json) => {
        const source = JSON.stringify(json);
        const strict = ours(() => parseSchema('AVRO', source));
        const lenient = ours(() => parseSchema('AVRO', source, { lenient: true }));
        if (strict === undefined) refused++;
        else {
          taken++;
          // A schema that may be registered can be read back from the store.
          expect(lenient?.text).toBe(strict.text);
          expect(parseSchema('AVRO', strict.text).text).toBe(strict.text);
        }
        for (const schema of [strict, lenient]) {
          if (schema === undefined) continue;
          expect(parseSchema('AVRO', schema.text, { lenient: true }).text).toBe(schema.text);
          const normal = parseSchema('AVRO', source, { lenient: true, normalize: true }).text;
          expect(parseSchema('AVRO', normal, { lenient: true, normalize: true }).text).toBe(normal);
          expect(schemaText(schema, 'resolved')).toBe(schema.text);
        }
      }),
      { numRuns: runs(600) },
    );
    expect(taken).toBeGreaterThan(runs(100));
    expect(refused).toBeGreaterThan(runs(100));
  });

  it('a broken schema that is accepted compares, compiles and refers like any other', () => {
    const bytes = Buffer.from([2, 0, 4, 97, 98, 0, 0, 2, 1, 0, 0, 0]);
    const use = (schema: Schema, other: Schema): void => {
      ours(() => checkPair(schema, other));
      ours(() => checkPair(other, schema));
      ours(() => writerCodec(schema).encode({}, new Payloads(1, 16)));
      ours(() => readerCodec(schema, schema, [])(bytes, 0, bytes.length));
      ours(() => readerCodec(other, schema, [])(bytes, 0, bytes.length));
    };
    fc.assert(
      fc.property(brokenSchema, brokenSchema, (one, two) => {
        const schemas = [one, two].map((json) =>
          ours(() => parseSchema('AVRO', JSON.stringify(json), { lenient: true })),
        );
        const [first, second] = schemas;
        if (first !== undefined) use(first, second ?? first);
        const reference: ResolvedReference = {
          name: 'n.T0',
          subject: 's',
          version: 1,
          format: 'AVRO',
          text: JSON.stringify(one),
          references: [],
        };
        const using = ours(() =>
          parseSchema('AVRO', JSON.stringify(['null', two]), { references: [reference], lenient: true }),
        );
        if (using !== undefined) {
          const whole = ours(() => schemaText(using, 'resolved'));
          expect(whole).toBeDefined();
          expect(ours(() => parseSchema('AVRO', whole as string, { lenient: true }))?.text).toBe(whole);
        }
      }),
      { numRuns: runs(300) },
    );
  });
});
