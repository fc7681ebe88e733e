/** Aggregates of a job: their texts, names, and the form of their rows. */
import { describe, expect, it } from 'vitest';
import { AGGREGATE } from '../../../src/core/layout/layouts.gen.ts';
import { Aggregates, aggregateSpecs, isSameAggregates } from '../../../src/engine/aggregate/definition.ts';
import { checkDefinition } from '../../../src/engine/source/input/definition.ts';

const long = (path: string) => ({ path: path.split('.'), kind: 'long' });
const double = (path: string) => ({ path: path.split('.'), kind: 'double' });

describe('texts of aggregates', () => {
  it.each([
    ['count', [{ function: 'count', name: 'count' }]],
    ['count()', [{ function: 'count', name: 'count' }]],
    [
      'count(user_id), sum(amount)',
      [
        { function: 'count', field: long('user_id'), name: 'count_user_id' },
        { function: 'sum', field: long('amount'), name: 'sum_amount' },
      ],
    ],
    [
      'avg( price.amount:double )',
      [{ function: 'avg', field: double('price.amount'), name: 'avg_price_amount' }],
    ],
    ['last(status-code) as code', [{ function: 'last', field: long('status-code'), name: 'code' }]],
    ['min(t:long)', [{ function: 'min', field: long('t'), name: 'min_t' }]],
  ])('the text %s is read', (text, expected) => {
    expect(aggregateSpecs(text)).toEqual(expected);
  });

  it.each([
    ['', 'which is no aggregate'],
    ['median(x)', 'which is no aggregate'],
    ['sum', 'sum without a field'],
    ['sum()', 'sum without a field'],
    ['sum(a,b)', 'not the path of a field'],
    ['sum(items[].qty)', 'not the path of a field'],
    ['sum(a) as', 'which is no aggregate'],
    ['sum(a) as 1x', 'has the name "1x"'],
    ['sum(a) as window_end', 'has the name "window_end"'],
    ['sum(a),sum(b) as sum_a', 'has the name sum_a twice'],
    ['sum(a.b),sum(a_b)', 'has the name sum_a_b twice'],
    ['sum((a))', 'which is no aggregate'],
    [Array.from({ length: 65 }, (_, i) => `sum(f${i})`).join(), 'has 65 aggregates'],
    [Array.from({ length: 60 }, (_, i) => `first(f${i})`).join(), 'rows of more than 2 KiB'],
  ])('the text %s is refused with what is wrong', (text, why) => {
    expect(() => Aggregates.of(text)).toThrowError(
      expect.objectContaining({ code: 'bad_setting', message: expect.stringContaining(why) }),
    );
  });

  it('blanks make no difference, and a name does', () => {
    expect(isSameAggregates('count,sum(a)', ' count , sum( a )')).toBe(true);
    expect(isSameAggregates('sum(a)', 'sum(a) as sum_a')).toBe(true);
    expect(isSameAggregates('sum(a)', 'sum(a) as total')).toBe(false);
    expect(isSameAggregates('sum(a)', 'sum(a:double)')).toBe(false);
  });

  it('a definition has a value or aggregates', () => {
    expect(() => checkDefinition({ format: 'json', value: 'a', aggregate: 'sum(b)' })).toThrowError(
      expect.objectContaining({
        code: 'bad_setting',
        next: expect.stringContaining('-aggregate=sum(b),sum(a)'),
      }),
    );
    expect(() => checkDefinition({ format: 'binary256', aggregate: 'count' })).toThrowError(
      expect.objectContaining({
        code: 'bad_setting',
        message: expect.stringContaining('-aggregate has no meaning'),
      }),
    );
  });
});

describe('rows of aggregates', () => {
  it('aggregates of one field share its cells', () => {
    const { fields, steps, bytes, columns } = Aggregates.of('sum(a),avg(a),count(a),max(a),count');
    expect(fields).toEqual([{ ...long('a'), column: 0 }]);
    expect(steps.map(({ kind }) => kind)).toEqual([AGGREGATE.COUNT, AGGREGATE.SUM, AGGREGATE.MAX]);
    expect([bytes, columns]).toEqual([128, 1]);
  });

  it('a field of two kinds has two columns', () => {
    const { fields } = Aggregates.of('sum(a),sum(a:double) as other');
    expect(fields.map(({ kind, column }) => [kind, column])).toEqual([
      ['long', 0],
      ['double', 1],
    ]);
  });

  it('the place of an event has columns only for first and last', () => {
    expect(Aggregates.of('last(a),sum(b)')).toMatchObject({ columns: 4, needsPlace: true });
    expect(Aggregates.of('sum(b)')).toMatchObject({ columns: 1, needsPlace: false });
    expect(Aggregates.of('count')).toMatchObject({ columns: 0, bytes: 64 });
  });
});
