/** The JSON reader with positions against JSON.parse, and its printer against Java's rules for
 *  numbers. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type JsonNode,
  JsonTextError,
  printDecimal,
  printDouble,
  printFloat,
  printJson,
  readJson,
} from '../../src/formats/json/text.ts';
import { runs } from '../tier.ts';

const STRICT = { comments: false, repeatedKeys: true };

function plainOf(node: JsonNode): unknown {
  switch (node.kind) {
    case 'null':
      return null;
    case 'number':
      return Number(node.digits);
    case 'boolean':
    case 'string':
      return node.value;
    case 'array':
      return node.items.map(plainOf);
    case 'object':
      return Object.fromEntries([...node.members].map(([key, { value }]) => [key, plainOf(value)]));
  }
}

const outcome = (run: () => unknown): { readonly value?: unknown; readonly refused: boolean } => {
  try {
    return { value: run(), refused: false };
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError || thrown instanceof SyntaxError)) throw thrown;
    return { refused: true };
  }
};

/** Texts near JSON: its own characters in any order, or a document with a part removed or inserted.
 */
const PIECES = [
  '{',
  '}',
  '[',
  ']',
  ':',
  ',',
  '"',
  '\\',
  '"a"',
  '1',
  '-',
  '0',
  '.',
  'e',
  'E',
  '+',
  'true',
  'null',
  'fals',
  ' ',
  '\n',
  '\t',
  '\u0000',
  '\\u00',
  '\\ud83d',
  'é',
  '/',
  '//',
  '/*',
  '*/',
  '\ufeff',
  '1.5e3',
  '"a":',
];
const piece = fc.constantFrom(...PIECES);
const soup = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(''));
const edited = fc.tuple(fc.json(), fc.nat(), fc.nat(3), piece).map(([text, at, cut, put]) => {
  const from = at % (text.length + 1);
  return text.slice(0, from) + put + text.slice(from + cut);
});

describe('JSON reader', () => {
  it('the JSON reader accepts what JSON.parse accepts, and reads the same value', () => {
    let taken = 0;
    fc.assert(
      fc.property(fc.oneof(fc.json(), soup, edited), (text) => {
        // The reader under test skips a leading byte order mark.
        fc.pre(!text.startsWith('\ufeff'));
        const mine = outcome(() => plainOf(readJson(text, STRICT)));
        expect(mine).toEqual(outcome(() => JSON.parse(text)));
        if (!mine.refused) taken++;
      }),
      { numRuns: runs(3_000) },
    );
    expect(taken).toBeGreaterThan(runs(500));
  });

  it('the JSON reader gives each value the position of its text', () => {
    const visit = (text: string, node: JsonNode): void => {
      const first = text[node.at] as string;
      if (node.kind === 'object') expect(first).toBe('{');
      else if (node.kind === 'array') expect(first).toBe('[');
      else if (node.kind === 'string') expect(first).toBe('"');
      else if (node.kind === 'number') expect(text.startsWith(node.digits, node.at)).toBe(true);
      else expect(text.startsWith(node.kind === 'null' ? 'null' : String(node.value), node.at)).toBe(true);
      if (node.kind === 'array') for (const item of node.items) visit(text, item);
      if (node.kind === 'object')
        for (const [key, { keyAt, value }] of node.members) {
          const end = keyAt + 1 + (/^(?:[^"\\]|\\.)*"/s.exec(text.slice(keyAt + 1))?.[0].length ?? 0);
          expect(JSON.parse(text.slice(keyAt, end))).toBe(key);
          visit(text, value);
        }
    };
    fc.assert(
      fc.property(fc.jsonValue(), fc.integer({ min: 0, max: 3 }), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        visit(text, readJson(text, STRICT));
      }),
      { numRuns: runs(500) },
    );
  });

  it('the JSON reader reports a position inside the text, or its end, for every refusal', () => {
    fc.assert(
      fc.property(fc.oneof(soup, edited), fc.boolean(), (text, comments) => {
        try {
          readJson(text, { comments, repeatedKeys: false });
        } catch (thrown) {
          expect(thrown).toBeInstanceOf(JsonTextError);
          const { at } = thrown as JsonTextError;
          expect(at).toBeGreaterThanOrEqual(0);
          expect(at).toBeLessThanOrEqual(text.length);
        }
      }),
      { numRuns: runs(2_000) },
    );
  });

  it('the JSON reader treats comments as white space if they are allowed', () => {
    const space = fc.constantFrom('', ' ', '/**/', '/* { " */', '// "\n', '/***/ //\n');
    fc.assert(
      fc.property(fc.array(space, { minLength: 7, maxLength: 7 }), (spaces) => {
        const tokens = ['{', '"a"', ':', '[', '1', ']', '}'];
        const text = tokens.map((token, i) => `${spaces[i]}${token}`).join('');
        expect(plainOf(readJson(text, { comments: true, repeatedKeys: false }))).toEqual({ a: [1] });
        if (text.includes('/')) expect(outcome(() => readJson(text, STRICT)).refused).toBe(true);
      }),
    );
  });
});

describe('JSON printer', () => {
  it('the JSON printer prints a text that reads as the same value and prints to itself', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = printJson(readJson(JSON.stringify(value), STRICT));
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
        expect(printJson(readJson(text, STRICT))).toBe(text);
        const sorted = printJson(readJson(text, STRICT), true);
        expect(JSON.parse(sorted)).toEqual(JSON.parse(text));
        expect(printJson(readJson(sorted, STRICT), true)).toBe(sorted);
      }),
      { numRuns: runs(500) },
    );
  });

  /** Recorded from jackson-databind 2.17.2 with USE_BIG_DECIMAL_FOR_FLOATS and exact big decimals.
   */
  it.each([
    ['1.50', '1.50'],
    ['1e3', '1E+3'],
    ['1.5e-10', '1.5E-10'],
    ['0.000001', '0.000001'],
    ['0.0000001', '1E-7'],
    ['-0.0', '0.0'],
    ['0e5', '0E+5'],
    ['0.00', '0.00'],
    ['-0', '0'],
    ['1E400', '1E+400'],
    ['12345678901234567890.123456789', '12345678901234567890.123456789'],
    ['1.0e2', '1.0E+2'],
    ['100e-2', '1.00'],
    ['0.00001e-3', '1E-8'],
    ['1.5E+3', '1.5E+3'],
    ['-2.50e1', '-25.0'],
    ['5e0', '5'],
    ['0e-9', '0E-9'],
  ])('the JSON printer prints the decimal %s as Java does, %s', (source, printed) => {
    const print = (text: string): string => printJson(readJson(text, STRICT), false, printDecimal);
    expect(print(source)).toBe(printed);
    expect(print(printed)).toBe(printed);
  });

  it('the JSON printer prints any decimal without loss, and its output prints to itself', () => {
    const parts = fc.tuple(
      fc.constantFrom('', '-'),
      fc.nat(),
      fc.option(fc.nat(), { nil: undefined }),
      fc.option(fc.integer({ min: -30, max: 30 }), { nil: undefined }),
    );
    fc.assert(
      fc.property(parts, ([sign, whole, fraction, power]) => {
        const text = `${sign}${whole}${fraction === undefined ? '' : `.${fraction}`}${power === undefined ? '' : `e${power}`}`;
        const printed = printJson(readJson(text, STRICT), false, printDecimal);
        expect(Number(printed)).toBe(Number(text) + 0);
        expect(printJson(readJson(printed, STRICT), false, printDecimal)).toBe(printed);
      }),
    );
  });

  it("the JSON printer prints a double in Java's form and without loss", () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
        const text = printDouble(value);
        expect(Object.is(Number(text), value)).toBe(true);
        expect(text).toMatch(/^-?(\d+\.\d+|[1-9]\.\d+E-?\d+)$/);
        const size = Math.abs(value);
        expect(text.includes('E')).toBe(size !== 0 && (size < 1e-3 || size >= 1e7));
      }),
      { numRuns: runs(1_000) },
    );
  });

  it('the JSON printer prints a float in the fewest digits that identify it', () => {
    fc.assert(
      fc.property(fc.float({ noNaN: true, noDefaultInfinity: true }), (value) => {
        const text = printFloat(value);
        expect(Object.is(Math.fround(Number(text)), value)).toBe(true);
        const digits = text
          .replace(/E.*$/, '')
          .replace(/^-?0\.0*|[-.]/g, '')
          .replace(/0+$/, '');
        expect(digits.length).toBeLessThanOrEqual(9);
      }),
      { numRuns: runs(1_000) },
    );
  });
});
