/** Plan of the load under faults. */
import { expect, it } from 'vitest';
import { loadCellName, loadCells } from '../../../bench/effects/orders-load.ts';

const sizes = { rate: 5000, warmupSeconds: 5, brokers: 3 };

it('the load under faults has both relay modes with both shares of duplicates, and a kill every minute', () => {
  const cells = loadCells({ ...sizes, seconds: 1200 }, false);
  expect(cells.map(loadCellName)).toEqual([
    'relay=poll, 5% duplicates',
    'relay=poll, 30% duplicates',
    'relay=wal, 5% duplicates',
    'relay=wal, 30% duplicates',
  ]);
  for (const { rate, brokers, faults } of cells)
    expect({ rate, brokers, faults }).toEqual({
      rate: 5000,
      brokers: 3,
      faults: { everySeconds: 60, forSeconds: 15 },
    });
});

it('a short load under faults still kills each of the three processes once', () => {
  for (const seconds of [4, 60, 240]) {
    const [cell] = loadCells({ ...sizes, seconds }, true);
    expect(seconds / (cell?.faults.everySeconds ?? 0)).toBe(4);
  }
});
