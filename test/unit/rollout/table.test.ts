/** Live table of a rollout at every size of a terminal. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fleetTable } from '../../../src/bin/rollout/table.ts';
import type { FleetSlotState } from '../../../src/registry/rollout/model.ts';

const instance = (
  name: string,
  role: 'consumer' | 'producer',
  more: Partial<FleetSlotState> = {},
): FleetSlotState => ({
  slot: { name, role },
  side: 'old',
  state: 'running',
  perSecond: role === 'consumer' ? 1234.4 : 99.6,
  counts: { errors: 0, produced: 5, consumed: 5, lag: 12 },
  ...more,
});
const FLEET: readonly FleetSlotState[] = [
  instance('consumer-g1-1', 'consumer', {
    side: 'new',
    counts: { errors: 42, produced: 0, consumed: 9, lag: 3 },
  }),
  instance('consumer-g1-2', 'consumer', { state: 'replacing' }),
  instance('producer-1', 'producer'),
];

test('the table shows role, version, state, rate, lag and errors of each instance', () => {
  expect(fleetTable('avro 3 to 4', FLEET, { columns: 80, rows: 20 })).toEqual([
    'avro 3 to 4',
    'instance       role      version  state      rate/s  lag  errors',
    'consumer-g1-1  consumer  new      running      1234    3      42',
    'consumer-g1-2  consumer  old      replacing    1234   12       0',
    'producer-1     producer  old      running       100    -       -',
  ]);
});

test('a narrow terminal loses the role first, and keeps name and errors to the end', () => {
  const headAt = (columns: number): string => fleetTable('', FLEET, { columns, rows: 20 })[1] as string;
  expect(headAt(66)).toContain('role');
  expect(headAt(64)).not.toContain('role');
  expect(headAt(64)).toContain('rate/s');
  expect(headAt(50)).toMatch(/^instance\s+version\s+state\s+lag\s+errors$/);
  expect(headAt(24)).toMatch(/^instance\s+errors$/);
});

test('no line is as wide as the terminal, and no table is longer than its room', () => {
  const state = fc.record({
    count: fc.integer({ min: 0, max: 40 }),
    columns: fc.integer({ min: 2, max: 100 }),
    rows: fc.integer({ min: 1, max: 50 }),
  });
  fc.assert(
    fc.property(state, ({ count, columns, rows }) => {
      const fleet = Array.from({ length: count }, (_, at) => ({ ...(FLEET[at % 3] as FleetSlotState) }));
      const lines = fleetTable('a title that is longer than many terminals', fleet, { columns, rows });
      expect(lines.length).toBeLessThanOrEqual(rows);
      for (const line of lines) expect(line.length).toBeLessThan(columns);
    }),
  );
});

test('instances with errors or a change keep their rows, in their order, where not all have one', () => {
  const quiet = (at: number): FleetSlotState => instance(`consumer-g2-${at}`, 'consumer');
  const fleet = [quiet(1), quiet(2), ...FLEET, quiet(3), quiet(4)];
  const lines = fleetTable('', fleet, { columns: 80, rows: 6 });
  expect(lines.slice(2).map((line) => line.split(' ')[0])).toEqual([
    'consumer-g2-1',
    'consumer-g1-1',
    'consumer-g1-2',
    'and',
  ]);
  expect(lines.at(-1)).toBe('and 4 more, running without errors');
});
