/** The scanner of JSON fields against JSON.parse and the reader with positions. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { JsonScanner } from '../../src/addon/reference/json/scan.ts';
import { JSON_DEPTH_MAX, JSON_VALUE } from '../../src/core/json/finder.ts';
import { type JsonNode, memberOf, readJson } from '../../src/formats/json/text.ts';
import { isJson, jsonTexts } from '../fixtures/json-texts.ts';
import { runs } from '../tier.ts';

const PATHS = [['a'], ['b'], ['a', 'b'], ['a', 'b', 'a'], ['é'], ['']];

function nodeAt(root: JsonNode, path: readonly string[]): JsonNode | undefined {
  let at: JsonNode | undefined = root;
  for (const name of path) at = at?.kind === 'object' ? memberOf(at, name) : undefined;
  return at;
}

const KINDS: Readonly<Record<string, readonly number[]>> = {
  null: [JSON_VALUE.NULL],
  boolean: [JSON_VALUE.TRUE, JSON_VALUE.FALSE],
  number: [JSON_VALUE.NUMBER],
  string: [JSON_VALUE.STRING, JSON_VALUE.ESCAPED],
  object: [JSON_VALUE.OBJECT],
  array: [JSON_VALUE.ARRAY],
};

describe('the scanner of JSON fields', () => {
  it('found fields are those of the parsed document, the last of a repeated key', () => {
    const scanner = new JsonScanner(PATHS);
    fc.assert(
      fc.property(jsonTexts, (text) => {
        const bytes = Buffer.from(`#${text}#`);
        expect(scanner.scan(bytes, 1, bytes.length - 1)).toBe(true);
        const root = readJson(text, { comments: false, repeatedKeys: true });
        PATHS.forEach((path, field) => {
          const node = nodeAt(root, path);
          const kind = scanner.kind[field] as number;
          if (node === undefined) {
            expect(kind).toBe(JSON_VALUE.MISSING);
            return;
          }
          expect(KINDS[node.kind]).toContain(kind);
          const found = bytes.toString('utf8', scanner.start[field], scanner.end[field]);
          expect(JSON.parse(found)).toEqual(JSON.parse(text.slice(node.at, node.at + found.length)));
          if (node.kind === 'number') expect(found).toBe(node.digits);
          if (node.kind === 'string') {
            const text = bytes.toString('utf8', scanner.start[field], scanner.end[field]);
            expect(JSON.parse(text)).toBe(node.value);
          }
          if (node.kind === 'boolean') expect(kind === JSON_VALUE.TRUE).toBe(node.value);
        });
      }),
      { numRuns: runs(1500) },
    );
  });

  it('bytes are accepted exactly when JSON.parse accepts their text', () => {
    const scanner = new JsonScanner(PATHS);
    const bytes = fc
      .tuple(
        jsonTexts,
        fc.array(
          fc.tuple(fc.nat(), fc.constantFrom(...Buffer.from('"\\{}[],:0-.eEtu\n é\u0000')), fc.nat(2)),
        ),
      )
      .map(([text, edits]) => {
        const list = [...Buffer.from(text)];
        for (const [at, byte, what] of edits.slice(0, 3))
          list.splice(at % (list.length + 1), what === 0 ? 1 : 0, ...(what === 1 ? [] : [byte]));
        return Buffer.from(list);
      });
    fc.assert(
      fc.property(
        fc.oneof(
          bytes,
          fc.uint8Array().map((array) => Buffer.from(array)),
        ),
        (value) => {
          expect(scanner.scan(value, 0, value.length)).toBe(isJson(value));
        },
      ),
      { numRuns: runs(4000) },
    );
  });

  it('the scanner never reads beyond the value and bounds the nesting', () => {
    const scanner = new JsonScanner([['a']]);
    for (const text of [
      '{"a":1',
      '"',
      '"\\',
      '"\\u00',
      'tru',
      '-',
      '1.',
      '1e',
      '1e+',
      '[',
      '{',
      '{"a"',
      '{"a":',
      '',
    ]) {
      const bytes = Buffer.from(`${text}1}]"e000`);
      expect(scanner.scan(bytes, 0, Buffer.byteLength(text))).toBe(false);
    }
    const nested = (depth: number): Buffer => Buffer.from('['.repeat(depth) + ']'.repeat(depth));
    const accepted = nested(JSON_DEPTH_MAX);
    expect(scanner.scan(accepted, 0, accepted.length)).toBe(true);
    const deep = nested(1_000_000);
    expect(scanner.scan(deep, 0, deep.length)).toBe(false);
  });
});
