/** The addon's finder of JSON fields against the TypeScript reference implementation, and both
 *  against JSON.parse. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadJsonKernels } from '../../src/addon/json.ts';
import { FoundFields, JSON_DEPTH_MAX, JSON_VALUE, type JsonFinder } from '../../src/core/json/finder.ts';
import { isJson, jsonTexts } from '../fixtures/json-texts.ts';
import { runs } from '../tier.ts';

const PATHS = [['a'], ['b'], ['a', 'b'], ['a', 'b', 'a'], ['é'], [''], ['long name of a field', 'b']];
const SIDES = ['native', 'reference'] as const;
const [native, reference] = SIDES.map((side) => loadJsonKernels(side).openFinder(PATHS)) as [
  JsonFinder,
  JsonFinder,
];

/** Documents in one buffer, behind bytes that belong to none of them. */
function spansOf(documents: readonly (Uint8Array | null)[], gap = 3) {
  const bytes = Buffer.alloc(
    documents.reduce((sum, one) => sum + (one?.length ?? 0) + gap, 0),
    '"',
  );
  const start = new Uint32Array(documents.length);
  const length = new Int32Array(documents.length);
  let at = 0;
  documents.forEach((one, index) => {
    start[index] = at;
    length[index] = one === null ? -1 : one.length;
    if (one !== null) bytes.set(one, at);
    at += (one?.length ?? 0) + gap;
  });
  return { bytes, start, length };
}

/** Answers of a finder for each document: 0 for other bytes, or kind, text and integer of each
 *  field. */
function found(finder: JsonFinder, documents: readonly (Uint8Array | null)[], gap?: number) {
  const spans = spansOf(documents, gap);
  const into = new FoundFields(PATHS.length, documents.length);
  into.isDocument.fill(7);
  finder.find(spans, 0, documents.length, into);
  return documents.map((_, row) => {
    if (into.isDocument[row] !== 1) return into.isDocument[row];
    return PATHS.map((_path, field) => {
      const cell = row * PATHS.length + field;
      const kind = into.kind[cell] as number;
      if (kind === JSON_VALUE.MISSING) return 'missing';
      const text = spans.bytes.subarray(into.start[cell], into.end[cell]).toString('latin1');
      return { kind, text, ...(kind === JSON_VALUE.INTEGER ? { integer: into.integer[cell] } : {}) };
    });
  });
}

const same = (documents: readonly (Uint8Array | null)[], gap?: number): void => {
  expect(found(native, documents, gap)).toEqual(found(reference, documents, gap));
};

describe('the finders of JSON fields', () => {
  it('the addon and the reference implementation find the same in any documents', () => {
    fc.assert(
      fc.property(fc.array(fc.option(jsonTexts), { maxLength: 6 }), fc.nat(40), (texts, gap) => {
        same(
          texts.map((text) => (text === null ? null : Buffer.from(text))),
          gap,
        );
      }),
      { numRuns: runs(3000) },
    );
  });

  it('the finders agree on documents with changed, missing and further bytes', () => {
    const change = fc.record({ at: fc.nat(200), byte: fc.nat(255), how: fc.nat(2) });
    fc.assert(
      fc.property(jsonTexts, fc.array(change, { minLength: 1, maxLength: 3 }), (text, changes) => {
        let bytes = Buffer.from(text);
        for (const { at, byte, how } of changes) {
          const place = bytes.length === 0 ? 0 : at % bytes.length;
          const rest = bytes.subarray(how === 2 ? place : place + 1);
          bytes = Buffer.concat([bytes.subarray(0, place), ...(how === 1 ? [] : [Buffer.of(byte)]), rest]);
        }
        same([bytes]);
        expect(found(native, [bytes])[0] === 0).toBe(!isJson(bytes));
      }),
      { numRuns: runs(20_000) },
    );
  });

  it('the finders agree on integers at the edges of 64 bits', () => {
    const numbers = ['9223372036854775807', '9223372036854775808', '-9223372036854775808']
      .concat(['-9223372036854775809', '18446744073709551616', '0', '-0', '-1', '1e3', '1.0', '007', '-'])
      .concat([`${'9'.repeat(40)}`, '1E+5', '1e', '1.', '.5', '0123', '-01', '0', '10']);
    const rows = numbers.map((number) => Buffer.from(`{"a":${number}}`));
    same(rows);
    const integers = found(native, rows).map((row) => (Array.isArray(row) ? row[0] : row));
    expect(integers[0]).toMatchObject({ integer: 9223372036854775807n });
    expect(integers[1]).toMatchObject({ kind: JSON_VALUE.NUMBER });
    expect(integers[2]).toMatchObject({ integer: -9223372036854775808n });
    expect(integers[6]).toMatchObject({ kind: JSON_VALUE.NUMBER });
  });

  it('the finders agree on escaped names, surrogates included, and on repeated keys', () => {
    const texts = [
      '{"\\u0061":1}',
      '{"a":{"b":1},"\\u0061":{"c":2}}',
      '{"\\u00e9":1}',
      '{"\\ud800":1,"a":2}',
    ];
    same([...texts, '{"\\ud83d\\ude00":1}', '{"a":1,"a":"x"}', '{"\\/":1}'].map((text) => Buffer.from(text)));
    const [first, second] = found(
      native,
      texts.map((text) => Buffer.from(text)),
    );
    expect(first).toMatchObject([
      { integer: 1n },
      'missing',
      'missing',
      'missing',
      'missing',
      'missing',
      'missing',
    ]);
    expect((second as unknown[]).slice(0, 3)).toMatchObject([
      { kind: JSON_VALUE.OBJECT, text: '{"c":2}' },
      'missing',
      'missing',
    ]);
  });

  it('the finders accept the greatest nesting and refuse one level more', () => {
    const nested = (depth: number): Buffer => Buffer.from(`${'['.repeat(depth)}${']'.repeat(depth)}`);
    const rows = [nested(JSON_DEPTH_MAX), nested(JSON_DEPTH_MAX + 1), nested(JSON_DEPTH_MAX + 2)];
    same(rows);
    expect(found(native, rows).map((row) => row !== 0)).toEqual([true, true, false]);
  });

  it.each(SIDES)('the finder (%s) refuses spans outside the bytes and too few rows', (side) => {
    const finder = loadJsonKernels(side).openFinder([['a']]);
    const payloads = {
      bytes: Buffer.from('{"a":1}'),
      start: Uint32Array.of(0, 3),
      length: Int32Array.of(7, 5),
    };
    const code = (from: number, to: number, into: FoundFields): unknown => {
      try {
        finder.find(payloads, from, to, into);
        return undefined;
      } catch (error) {
        return (error as { code?: unknown }).code;
      }
    };
    const into = new FoundFields(1, 1);
    expect(code(0, 1, into)).toBeUndefined();
    expect(code(1, 2, into)).toBe('out_of_range');
    expect(code(0, 3, new FoundFields(1, 3))).toBe('out_of_range');
    expect(code(0, 2, into)).toBe('out_of_range');
    finder.close();
    finder.close();
  });
});
