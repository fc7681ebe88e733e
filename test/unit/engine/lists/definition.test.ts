/** Paths that name the elements of a list, in every setting of the input. */
import { describe, expect, it } from 'vitest';
import { Aggregates } from '../../../../src/engine/aggregate/definition.ts';
import { demandSayable } from '../../../../src/engine/flink/refuse.ts';
import { resultShape } from '../../../../src/engine/output/columns.ts';
import {
  checkDefinition,
  fieldsOf,
  type InputDefinition,
  inputChanges,
  keySpec,
  keyText,
  listIn,
} from '../../../../src/engine/source/input/definition.ts';

const JOB: InputDefinition = { format: 'json', key: 'id:i64', time: 't:ms' };

const refusal = (over: Partial<InputDefinition>): string => {
  try {
    checkDefinition({ ...JOB, ...over });
    return '';
  } catch (thrown) {
    return String((thrown as Error).message);
  }
};

describe('paths with a list', () => {
  it('any setting may name the list', () => {
    for (const over of [
      { key: 'items[].sku' },
      { time: 'items[].at:ms' },
      { value: 'items[].qty' },
      { value: 'items[].price:decimal2' },
      { where: 'items[].qty > 0' },
      { dedup: 'items[].line' },
      { aggregate: 'count,p99(items[].price),topk(items[].sku,3)' },
    ]) {
      expect(refusal(over), JSON.stringify(over)).toBe('');
      expect(listIn({ ...JOB, ...over }), JSON.stringify(over)).toEqual(['items[]']);
    }
    expect(listIn(JOB)).toBeUndefined();
    expect(listIn({ ...JOB, value: 'order.items[].qty' })).toEqual(['order', 'items[]']);
    expect(listIn({ ...JOB, value: 'tags[]' })).toEqual(['tags[]']);
  });

  it('texts keep the brackets, and names of columns have none', () => {
    expect(keyText(keySpec('items[].sku:string,id'))).toBe('items[].sku:string,id');
    expect(Aggregates.of('sum(items[].qty),p99(a.b[])').specs.map(({ name }) => name)).toEqual([
      ...['sum_items_qty', 'p99_a_b'],
    ]);
    const { columns, hasElements } = resultShape({ input: { ...JOB, key: 'items[].sku:string,tags.x' } });
    expect(columns.slice(0, 2).map(({ name }) => name)).toEqual(['sku', 'x']);
    expect(hasElements).toBe(true);
  });

  it('elements of two lists, of a list in a list, and a list without its mark are refused', () => {
    expect(refusal({ value: 'a[].x', dedup: 'b[].y' })).toContain(
      '-dedup=b[].y names the list b[], and -value=a[].x names a[]: an event is an element of one list',
    );
    expect(refusal({ value: 'a[].b[].c' })).toContain('names the elements of a list inside a list');
    expect(refusal({ aggregate: 'sum(a[].b[].c)' })).toContain('names the elements of a list inside a list');
    expect(refusal({ where: 'a[].b[].c > 1' })).toContain('names the elements of a list inside a list');
    expect(refusal({ value: 'items[].qty', key: 'items.sku' })).toContain(
      '-key=items.sku names items as a record, and -value=items[].qty names it as a list',
    );
    expect(refusal({ aggregate: 'count(items),sum(items[].qty)' })).toContain('names items as a record');
    expect(refusal({ value: 'items[0].qty' })).toContain('is not the path of a field');
    expect(refusal({ value: '[].qty' })).toContain('is not the path of a field');
    expect(refusal({ where: 'items[0].qty > 1' })).toContain('-where cannot read');
  });

  it('a name in backquotes may end like a list, where the job names none', () => {
    const { where, list } = fieldsOf({ ...JOB, where: '`tags[]` = 1' });
    expect(list).toBeUndefined();
    expect(where?.fields[0]?.steps).toEqual(['tags[]']);
    expect(refusal({ where: '`tags[]` = 1', value: 'items[].qty' })).toContain('whose name ends with []');
  });

  it('the fixed layout has no lists', () => {
    expect(() => checkDefinition({ format: 'binary256', value: 'items[].qty' })).toThrow(/fixed layout/);
  });

  it('a run may add an aggregate of the same list, and no first path of a list', () => {
    const saved = { ...JOB, aggregate: 'count,sum(items[].qty)' };
    const changes = (asked: string, was = saved) =>
      inputChanges(was, { ...JOB, aggregate: asked }).map(({ isSafe }) => isSafe);
    expect(changes('count,sum(items[].qty),max(items[].qty)')).toEqual([true]);
    expect(changes('count,sum(items[].qty)', { ...JOB, aggregate: 'count' })).toEqual([false]);
  });

  it('a job with a list is not submitted to Flink', () => {
    expect(() =>
      demandSayable(
        {
          ...{ topic: 't', window: 'tumbling', sizeMs: 1, skewMs: 0, latenessMs: 0, watermark: 'partition' },
          input: { ...JOB, value: 'items[].qty' },
        },
        { windows: 1, 'late-topic': undefined, 'exit-at-end': false },
      ),
    ).toThrow(/makes each element of items\[\] an event/);
  });
});
