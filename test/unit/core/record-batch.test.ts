/** Copies of record batches. */
import { expect, it } from 'vitest';
import { RecordBatch } from '../../../src/core/layout/record-batch.ts';

it('a copy has every column of the rows, and room for them alone', () => {
  const batch = RecordBatch.create(8, 4096);
  // Each cell has a value of its own, whatever columns the layout has.
  for (const [name, column] of Object.entries(batch.columns)) {
    if (name === 'header') continue;
    const isWide = column instanceof BigInt64Array;
    for (let at = 0; at < column.length; at++)
      (column as unknown as Array<number | bigint>)[at] = isWide ? BigInt(at + 7) : (at + 7) % 100;
  }
  batch.rowCount = 5;
  batch.arenaUsed = 300;
  const copy = batch.copy();
  expect(copy).toMatchObject({ rowCount: 5, arenaUsed: 300, rowCapacity: 5, arenaCapacity: 300 });
  for (const [name, column] of Object.entries(batch.columns))
    if (name !== 'header')
      expect(Object.entries(copy.columns).find(([one]) => one === name)?.[1], name).toEqual(
        column.slice(0, name === 'arena' ? 300 : 5),
      );
});
