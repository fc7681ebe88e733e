/** The relay's check of payloads agrees with JSON.parse on every text, and is fast on hostile
 *  texts. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isJsonText } from '../../../src/outbox/json-text.ts';
import { runs } from '../../tier.ts';

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
function parses(bytes: Uint8Array): boolean {
  try {
    JSON.parse(strict.decode(bytes));
    return true;
  } catch {
    return false;
  }
}
const bytesOf = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));

describe('payload check', () => {
  it.each([
    'null',
    ' true ',
    'false',
    '0',
    '-0',
    '-1.5e+10',
    '1E5',
    '""',
    '"\\u00e9\\n\\/"',
    '[]',
    '{}',
    '[ ]',
    '{ }',
    '[1,[2,[3]]]',
    '{"a":{"b":[{}]},"a":1}',
    '\t\r\n{"é":"ü"}',
    '"\u2028"',
    '"\\ud800"',
  ])('the payload check accepts %j', (text) => {
    expect(parses(bytesOf(text))).toBe(true);
    expect(isJsonText(bytesOf(text))).toBe(true);
  });

  it.each([
    '',
    ' ',
    '{',
    '[',
    '}',
    ']',
    '[1,]',
    '[,1]',
    '{"a":1,}',
    '{,}',
    '{"a"}',
    '{"a":}',
    '{a:1}',
    '[1 2]',
    '[1}',
    '{"a":1]',
    '01',
    '-',
    '1.',
    '.5',
    '1e',
    '+1',
    'nul',
    'nulls',
    'True',
    'NaN',
    'Infinity',
    '"',
    '"\n"',
    '"\\x"',
    '"\\u12g4"',
    '"\\',
    "'a'",
    '1 2',
    '{} {}',
    '\ufeff{}',
    '\u00a01',
    '[1]]',
    'not json',
    '"a"b',
  ])('the payload check refuses %j', (text) => {
    expect(parses(bytesOf(text))).toBe(false);
    expect(isJsonText(bytesOf(text))).toBe(false);
  });

  it('the payload check agrees with JSON.parse on texts, on damaged texts and on any bytes', () => {
    const texts = fc.json().map(bytesOf);
    const damaged = fc
      .tuple(texts, fc.nat(), fc.constantFrom(...bytesOf('{}[]",:\\ 0e-.tnu\n'), 0x80, 0xff))
      .map(([text, at, byte]) => {
        const copy = text.slice();
        copy[at % copy.length] = byte;
        return copy;
      });
    const spaced = fc
      .json({ maxDepth: 3 })
      .map((text) => bytesOf(JSON.stringify(JSON.parse(text), undefined, 2)));
    fc.assert(
      fc.property(fc.oneof(texts, spaced, damaged, fc.uint8Array({ maxLength: 12 })), (bytes) => {
        expect(isJsonText(bytes)).toBe(parses(bytes));
      }),
      { numRuns: runs(3000) },
    );
  });

  it('the payload check accepts a text of any nesting depth', () => {
    const deep = bytesOf('['.repeat(450_000) + ']'.repeat(450_000));
    expect(isJsonText(deep)).toBe(true);
    expect(isJsonText(deep.subarray(1))).toBe(false);
    expect(isJsonText(bytesOf(`${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}`))).toBe(true);
  });
});
