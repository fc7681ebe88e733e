/** Values of a batch for one of several windows: those of its own aggregates, whatever the order in
 *  which the input reads the fields of all windows. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../../src/core/layout/event-batch.ts';
import { Aggregates, valueFields } from '../../../src/engine/aggregate/definition.ts';
import { knownValues, setValues, valuesOf } from '../../../src/engine/aggregate/values.ts';
import { OwnValues } from '../../../src/engine/source/shared/own-values.ts';

const ROWS = 5;
const TEXTS = [
  'count',
  'sum(a)',
  'sum(b),min(a)',
  'last(c),sum(a:double)',
  'topk(a,3),p99(b)',
  'distinct(c),max(d:decimal2)',
] as const;

/** Batch whose value of column c and row r is 100 c + r; null where r is c. */
function batchOf(all: readonly string[]): EventBatch {
  const batch = EventBatch.create(8);
  batch.rowCount = ROWS;
  const { columns } = valueFields(all);
  const values = valuesOf(batch, columns);
  for (let column = 0; column < columns; column++)
    for (let row = 0; row < ROWS; row++) {
      values.cells[column * values.capacity + row] = BigInt(100 * column + row);
      values.valid[column * values.capacity + row] = row === column ? 0 : 1;
    }
  return batch;
}

describe('values of one of several windows', () => {
  it('each window finds every field of its aggregates in its own column, and the batch is as before', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.constantFrom(...TEXTS), { minLength: 1 }), (all) => {
        const batch = batchOf(all);
        const before = knownValues(batch);
        const { fields } = valueFields(all);
        for (const text of all) {
          const own = Aggregates.of(text);
          const restore = new OwnValues(text, all).lend(batch);
          const values = knownValues(batch);
          for (const { path, kind, column } of own.fields) {
            const from =
              fields.find((one) => one.path.join() === path.join() && one.kind === kind)?.column ?? 0;
            for (let row = 0; row < ROWS; row++) {
              const cell = column * (values?.capacity ?? 0) + row;
              expect(values?.cells[cell]).toBe(BigInt(100 * from + row));
              expect(values?.valid[cell]).toBe(row === from ? 0 : 1);
            }
          }
          if (own.needsPlace) expect(values?.cells[values.capacity]).toBe(100n);
          expect(values?.texts).toBe(before?.texts);
          restore();
          expect(knownValues(batch)).toBe(before);
        }
      }),
    );
  });

  it('the fields of all windows are read once, behind the place of a record if any window needs it', () => {
    const { fields, columns, needsPlace } = valueFields(['sum(a),min(b)', 'max(b),last(a),sum(b:double)']);
    expect(needsPlace).toBe(true);
    expect(columns).toBe(5);
    expect(fields.map(({ path, kind, column }) => [path.join('.'), kind, column])).toEqual([
      ['a', 'long', 2],
      ['b', 'long', 3],
      ['b', 'double', 4],
    ]);
  });

  it('a batch without values stays without', () => {
    const batch = EventBatch.create(1);
    new OwnValues('sum(a)', ['sum(b)', 'sum(a)']).lend(batch)();
    expect(knownValues(batch)).toBeUndefined();
    const values = valuesOf(batch, 1);
    setValues(batch, undefined);
    expect(knownValues(batch)).toBeUndefined();
    setValues(batch, values);
    expect(knownValues(batch)).toBe(values);
  });
});
