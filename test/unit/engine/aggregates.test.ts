/** Aggregates of a job: their texts, names, the form of their rows and their columns. */
import { describe, expect, it } from 'vitest';
import { AGGREGATE } from '../../../src/core/layout/layouts.gen.ts';
import { Aggregates, aggregateSpecs, isSameAggregates } from '../../../src/engine/aggregate/definition.ts';
import { resultShape, shapeOfKeys } from '../../../src/engine/output/columns.ts';
import { aggregatesIn, checkDefinition } from '../../../src/engine/source/input/definition.ts';

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
    ['p50(ms)', [{ function: 'percentile', field: long('ms'), percent: '50', name: 'p50_ms' }]],
    [
      'p99.9(ms:double) as slow',
      [{ function: 'percentile', field: double('ms'), percent: '99.9', name: 'slow' }],
    ],
    ['p0.001(ms)', [{ function: 'percentile', field: long('ms'), percent: '0.001', name: 'p0_001_ms' }]],
    [
      'distinct(user.id),distinct(a:long),distinct(b:double)',
      [
        { function: 'distinct', field: { path: ['user', 'id'], kind: 'id' }, name: 'distinct_user_id' },
        { function: 'distinct', field: long('a'), name: 'distinct_a' },
        { function: 'distinct', field: double('b'), name: 'distinct_b' },
      ],
    ],
    [
      'topk(sku,10), topk( item.id , 3 ) as best',
      [
        { function: 'topk', field: { path: ['sku'], kind: 'text' }, limit: 10, name: 'topk_sku' },
        { function: 'topk', field: { path: ['item', 'id'], kind: 'text' }, limit: 3, name: 'best' },
      ],
    ],
    [
      'sum(price.total:decimal2),avg(fee:decimal0) as mean',
      [
        {
          ...{ function: 'sum', name: 'sum_price_total' },
          field: { path: ['price', 'total'], kind: 'decimal', scale: 2 },
        },
        { function: 'avg', field: { path: ['fee'], kind: 'decimal', scale: 0 }, name: 'mean' },
      ],
    ],
    ['min(t:long)', [{ function: 'min', field: long('t'), name: 'min_t' }]],
  ])('the text %s is read', (text, expected) => {
    expect(aggregateSpecs(text)).toEqual(expected);
  });

  it.each([
    ['', 'which is no aggregate'],
    ['median(x)', 'which is no aggregate'],
    ['p100(x)', 'which is no aggregate'],
    ['p0(x)', 'which is no aggregate'],
    ['p99.9999(x)', 'which is no aggregate'],
    ['percentile(x)', 'which is no aggregate'],
    ['p99', 'p99 without a field'],
    ['distinct', 'distinct without a field'],
    ['p50(a) as x,sum(b) as x_error', 'has the name x_error twice'],
    [`p50(${'a'.repeat(54)})`, 'has the name p50_'],
    ['topk(sku)', 'has topk(sku)'],
    ['topk(sku,0)', 'has topk(sku,0)'],
    ['topk(sku,101)', 'has topk(sku,101)'],
    ['topk(sku,-1)', 'has topk(sku,-1)'],
    ['topk(,3)', 'has topk(,3)'],
    ['topk(sku:double,3)', 'not the path of a field'],
    ['topk', 'topk without a field'],
    ['topk(a,3),topk(a,5)', 'has the name topk_a twice'],
    ['topk(a,1),topk(b,1),topk(c,1)', 'rows of more than 32 KiB'],
    ['sum', 'sum without a field'],
    ['sum()', 'sum without a field'],
    ['sum(a,b)', 'not the path of a field'],
    ['sum(items[0].qty)', 'not the path of a field'],
    ['sum(a) as', 'which is no aggregate'],
    ['sum(a) as 1x', 'has the name "1x"'],
    ['sum(a) as window_end', 'has the name "window_end"'],
    ['sum(a),sum(b) as sum_a', 'has the name sum_a twice'],
    ['sum(a.b),sum(a_b)', 'has the name sum_a_b twice'],
    ['sum((a))', 'which is no aggregate'],
    ['sum(a:decimal)', 'does not state how many decimal places'],
    ['sum(a:decimal19)', 'does not state how many decimal places'],
    ['sum(a:decimal02)', 'not the path of a field'],
    ['sum(a:decimal-1)', 'not the path of a field'],
    ['topk(a:decimal2,3)', 'not the path of a field'],
    [Array.from({ length: 65 }, (_, i) => `sum(f${i})`).join(), 'has 65 aggregates'],
    [Array.from({ length: 8 }, (_, i) => `p50(f${i})`).join(), 'rows of more than 32 KiB'],
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
    expect(isSameAggregates('sum(a:decimal2) as s', 'sum(a:decimal3) as s')).toBe(false);
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

  it('percentiles of one field share a sketch, which is behind the other cells', () => {
    const { steps, places, cells, sketches, bytes, storedBytes } = Aggregates.of(
      'p50(a),p99(a),sum(a),distinct(b)',
    );
    expect(steps.map(({ kind }) => kind)).toEqual([
      AGGREGATE.BUCKETS,
      AGGREGATE.COUNT,
      AGGREGATE.SUM,
      AGGREGATE.DISTINCT,
    ]);
    expect(places.map(({ first }) => first)).toEqual([3, 0, 1, 3 + 513]);
    expect([cells, sketches]).toEqual([3, [0, 3]]);
    expect([bytes, storedBytes]).toEqual([64 * (1 + 129), 64 * (1 + 3)]);
  });

  it('aggregates topk of one field share a sketch of 2,000 cells, and two fields fit into a row', () => {
    const { fields, steps, places, columns, needsPlace } = Aggregates.of(
      'topk(a,3),topk(a,9) as more,topk(b,1)',
    );
    expect(fields.map(({ path, kind, column }) => [path.join('.'), kind, column])).toEqual([
      ['a', 'text', 2],
      ['b', 'text', 3],
    ]);
    expect(steps).toEqual([
      { kind: AGGREGATE.TOP, column: 2 },
      { kind: AGGREGATE.TOP, column: 3 },
    ]);
    expect(places.map(({ first }) => first)).toEqual([0, 2001]);
    expect([columns, needsPlace]).toEqual([4, true]);
  });

  it('a list is a column of its own type, which is never null', () => {
    const { columns } = shapeOfKeys([{ name: 'k', kind: 'i64' }], 'topk(sku,10) as best');
    expect(columns.slice(3, 5).map(({ name, type, nullable }) => [name, type, nullable])).toEqual([
      ['best', 'top', false],
      ['best_error', 'f64', false],
    ]);
  });

  it('an estimate has a column for its error', () => {
    const { columns, aggregates } = shapeOfKeys(
      [{ name: 'k', kind: 'i64' }],
      'p99(a),distinct(u) as users,sum(a)',
    );
    expect(columns.slice(3).map(({ name, type, nullable }) => [name, type, nullable])).toEqual([
      ['p99_a', 'f64', true],
      ['p99_a_error', 'f64', true],
      ['users', 'i64', false],
      ['users_error', 'f64', false],
      ['sum_a', 'i64', true],
      ['last_update_ts', 'timestamp', false],
      ['overflow', 'bool', false],
    ]);
    expect(aggregates).toEqual(['p99_a', 'p99_a_error', 'users', 'users_error', 'sum_a']);
  });

  it('aggregates of decimals have the cells of integers, and columns with their decimal places', () => {
    const { steps } = Aggregates.of(
      'sum(a:decimal2),min(a:decimal2),last(a:decimal2),p50(a:decimal2),distinct(a:decimal2)',
    );
    const plain = Aggregates.of('sum(a),min(a),last(a),p50(a),distinct(a:long)');
    expect(steps).toEqual(plain.steps);
    const { columns } = shapeOfKeys(
      [{ name: 'k', kind: 'i64' }],
      'sum(a:decimal2),avg(a:decimal2),first(a:decimal18),p50(a:decimal2),count(a:decimal2),distinct(a:decimal2)',
    );
    const shown = columns
      .slice(3, -2)
      .map(({ name, type, scale, nullable }) => [name, type, scale, nullable]);
    expect(shown).toEqual([
      ['sum_a', 'decimal', 2, true],
      ['avg_a', 'decimal', 8, true],
      ['first_a', 'decimal', 18, true],
      ['p50_a', 'f64', undefined, true],
      ['p50_a_error', 'f64', undefined, true],
      ['count_a', 'i64', undefined, false],
      ['distinct_a', 'i64', undefined, false],
      ['distinct_a_error', 'f64', undefined, false],
    ]);
  });

  it('a decimal value stands for count, sum, min and max of it', () => {
    expect(aggregatesIn({ value: 'price:decimal2' })).toBe(
      'count,sum(price:decimal2) as sum,min(price:decimal2) as min,max(price:decimal2) as max',
    );
    expect(aggregatesIn({ value: 'price' })).toBeUndefined();
    expect(aggregatesIn({ aggregate: 'count' })).toBe('count');
    const input = { format: 'json', key: 'k:i64', value: 'price:decimal2' } as const;
    const { columns, valueScale } = resultShape({ input });
    expect(columns.map(({ name, type }) => `${name} ${type}`)).toEqual([
      ...['k i64', 'window_start timestamp', 'window_end timestamp', 'count i64'],
      ...['sum decimal', 'min decimal', 'max decimal', 'last_update_ts timestamp', 'overflow bool'],
    ]);
    expect(valueScale).toBe(2);
    for (const value of ['price:decimal', 'price:decimal19', 'a,b:decimal2', 'a(b):decimal2', 'a b:decimal2'])
      expect(() => checkDefinition({ format: 'json', value }), value).toThrowError(
        expect.objectContaining({ code: 'bad_setting', message: expect.stringContaining(`-value=${value}`) }),
      );
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
