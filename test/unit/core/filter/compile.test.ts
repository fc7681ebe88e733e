/** Filter language: an oracle evaluates random filters over random records, and mistakes are
 *  reported with their position. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Decimal } from '../../../../src/core/decimal/exact.ts';
import { compileFilter, valueAt } from '../../../../src/core/filter/compile.ts';
import { runs } from '../../../tier.ts';

type Value = string | number | bigint | boolean | null | undefined;
type Row = Readonly<Record<string, Value>>;

const holds = (text: string, row: unknown): boolean => {
  const { fields, matches } = compileFilter(text);
  return matches((field) => valueAt(row, fields[field]?.steps ?? []));
};

/** Condition as a tree: the oracle evaluates it, and the language prints it. */
type Tree =
  | { readonly kind: 'and' | 'or'; readonly parts: readonly Tree[] }
  | { readonly kind: 'not'; readonly part: Tree }
  | { readonly kind: 'compare'; readonly field: string; readonly sign: string; readonly to: Value }
  | { readonly kind: 'null'; readonly field: string; readonly negated: boolean }
  | {
      readonly kind: 'in';
      readonly field: string;
      readonly negated: boolean;
      readonly among: readonly Value[];
    };

const field = fc.constantFrom('a', 'b', 'c');
const literal: fc.Arbitrary<Value> = fc.oneof(
  fc.constantFrom('', 'a', 'b', "it's", 'say "x"', 'back\\slash', 'z\n'),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.constantFrom(0n, 1n, 2n ** 53n, 2n ** 53n + 1n),
  fc.constantFrom(0.5, -1.5, 1e21, 2 ** 53, 2 ** 60),
  fc.boolean(),
);
const tree: fc.Arbitrary<Tree> = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.record({
      kind: fc.constant('compare' as const),
      field,
      sign: fc.constantFrom('=', '!=', '<', '<=', '>', '>='),
      to: literal,
    }),
    fc.record({ kind: fc.constant('null' as const), field, negated: fc.boolean() }),
    fc.record({
      kind: fc.constant('in' as const),
      field,
      negated: fc.boolean(),
      among: fc.array(fc.oneof(literal, fc.constant(null)), { minLength: 1, maxLength: 3 }),
    }),
    fc.record({ kind: fc.constant('not' as const), part: tie('tree') }),
    fc.record({
      kind: fc.constantFrom('and' as const, 'or' as const),
      parts: fc.array(tie('tree'), { minLength: 2, maxLength: 3 }),
    }),
  ),
})).tree;
const row: fc.Arbitrary<Row> = fc.record(
  { a: fc.oneof(literal, fc.constant(null)), b: literal, c: literal },
  { requiredKeys: ['b'] },
);

function literalText(value: Value): string {
  if (typeof value === 'string') return JSON.stringify(value);
  // `String` rounds the digits of a large number.
  return Number.isInteger(value) ? String(BigInt(value as number)) : String(value);
}

function print(node: Tree): string {
  switch (node.kind) {
    case 'and':
    case 'or':
      return `(${node.parts.map(print).join(` ${node.kind} `)})`;
    case 'not':
      return `not ${print(node.part)}`;
    case 'compare':
      return `${node.field} ${node.sign} ${literalText(node.to)}`;
    case 'null':
      return `${node.field} is ${node.negated ? 'not ' : ''}null`;
    case 'in':
      return `${node.field} ${node.negated ? 'not ' : ''}in (${node.among.map(literalText).join(', ')})`;
  }
}

/** Order of two values of one type by exact arithmetic; undefined for different types. Numbers are
 *  compared as fractions of bigints. */
function order(value: Value, to: Value): number | undefined {
  const isNumber = (one: Value): boolean => typeof one === 'number' || typeof one === 'bigint';
  if (isNumber(value) && isNumber(to)) {
    const scaled = (one: Value): bigint =>
      typeof one === 'bigint' ? one * 2n : BigInt(Math.round(Number(one) * 2));
    const [x, y] = [scaled(value), scaled(to)];
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (typeof value !== typeof to || value === null || value === undefined) return undefined;
  const [x, y] = [value as string, to as string];
  return x < y ? -1 : x > y ? 1 : 0;
}

const SIGNS: Readonly<Record<string, (order: number) => boolean>> = {
  '=': (by) => by === 0,
  '!=': (by) => by !== 0,
  '<': (by) => by < 0,
  '<=': (by) => by <= 0,
  '>': (by) => by > 0,
  '>=': (by) => by >= 0,
};

function judge(node: Tree, given: Row): boolean {
  switch (node.kind) {
    case 'and':
      return node.parts.every((part) => judge(part, given));
    case 'or':
      return node.parts.some((part) => judge(part, given));
    case 'not':
      return !judge(node.part, given);
    case 'compare': {
      const by = order(given[node.field], node.to);
      return by !== undefined && (SIGNS[node.sign] as (by: number) => boolean)(by);
    }
    case 'null':
      return ((given[node.field] ?? null) === null) !== node.negated;
    case 'in': {
      const value = given[node.field] ?? null;
      const isIn = node.among.some((one) => (one === null ? value === null : order(value, one) === 0));
      return node.negated ? value !== null && !isIn : isIn;
    }
  }
}

describe('filters', () => {
  it('a filter decides as the oracle does', () => {
    fc.assert(
      fc.property(tree, row, (node, given) => {
        expect(holds(print(node), given)).toBe(judge(node, given));
      }),
      { numRuns: runs(3000) },
    );
  });

  it.each([
    ['a.b[1].c = 5', { a: { b: [{}, { c: 5 }] } }, true],
    ['a.b[2].c is null', { a: { b: [{}, { c: 5 }] } }, true],
    ['`odd name`.x = true', { 'odd name': { x: true } }, true],
    ["text = 'it\\'s \\u0041'", { text: "it's A" }, true],
    ['STATUS = "x" AND NOT b IN (1)', { STATUS: 'x', b: 2 }, true],
    ['a = 9007199254740993', { a: 9_007_199_254_740_992 }, false],
    ['a = 9007199254740993', { a: 9_007_199_254_740_993n }, true],
    ['constructor is null', {}, true],
    ['a = 1 or b = 1 and c = 1', { a: 1 }, true],
  ])('the filter %s selects the records that it describes', (text, given, expected) => {
    expect(holds(text, given)).toBe(expected);
  });

  it('a property of the record is a field of its own', () => {
    const { fields } = compileFilter('@offset >= 10 and offset = 3 and @offset < 20');
    expect(fields).toEqual([
      { text: '@offset', isMeta: true, steps: ['offset'], isDecimal: false },
      { text: 'offset', isMeta: false, steps: ['offset'], isDecimal: false },
    ]);
  });

  it.each([
    ['', 1],
    ['a', 2],
    ['a =', 4],
    ['a = PAID', 5],
    ['a = "open', 5],
    ['a = 1 b = 2', 7],
    ['(a = 1', 7],
    ['a in ()', 7],
    ['a < null', 3],
    ['a[x] = 1', 3],
    ['a = "\\q"', 5],
    ['a == 1 && b = 1', 8],
    [`${'('.repeat(65)}a = 1`, 65],
  ])('the mistake of %j is at character %i', (text, at) => {
    expect(() => compileFilter(text)).toThrow(`not valid at character ${at}:`);
  });

  it.each([
    ['a = 0.1', '0.10', true],
    ['a = 0.1', '0.1000000000000000000000000001', false],
    ['a > 0.1', '0.1000000000000000000000000001', true],
    ['a != 0.1', '0.1000000000000000000000000001', true],
    ['a < 9007199254740993', '9007199254740992.999', true],
    ['a >= 9007199254740993', '9007199254740992.999', false],
    ['a in (1, 2.50)', '2.5', true],
    ['a not in (1, 2.50)', '2.5', false],
    ['a = "2.5"', '2.5', false],
    ['a is null', '0', false],
    ['a = 1e-3', '0.001', true],
  ])('the filter %s compares the decimal %s exactly', (text, decimal, expected) => {
    const { matches } = compileFilter(text);
    expect(matches(() => Decimal.parse(decimal))).toBe(expected);
  });

  it('a field is declared as a decimal only where the caller reads decimals', () => {
    const { fields } = compileFilter('a.b:decimal > 1 and a.b = 1 and a.b : DECIMAL < 3', {
      hasDecimals: true,
    });
    expect(fields).toEqual([
      { text: 'a.b', isMeta: false, steps: ['a', 'b'], isDecimal: true },
      { text: 'a.b', isMeta: false, steps: ['a', 'b'], isDecimal: false },
    ]);
    expect(() => compileFilter('a:decimal > 1')).toThrow('not valid at character 2:');
    expect(() => compileFilter('a:double > 1', { hasDecimals: true })).toThrow(
      '"double" stands where decimal is due',
    );
    expect(() => compileFilter(`a = ${'1'.repeat(1001)}`)).toThrow('the number has too many digits');
  });

  it('a filter that is too long is refused', () => {
    expect(() => compileFilter(`a = "${'x'.repeat(9000)}"`)).toThrow('longer than 8192');
  });
});
