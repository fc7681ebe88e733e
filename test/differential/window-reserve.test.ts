/** Space reserved before a load: rows loaded in the order of their ranges give the same state, in a
 *  table that does not grow. */
import { describe, expect, it } from 'vitest';
import { COVER_RANGES } from '../../src/addon/window-surface.ts';
import { admitAll, batchesOf, deltasOf, emptied, outcome, ROW_BYTES, SIDES } from './window-kit.ts';

const KEYS = 2700;

describe.each(SIDES)('reserved space of $name', (kernels) => {
  const rowsOf = (): { readonly rows: Uint8Array; readonly count: number } => {
    const state = kernels.open(10, 1);
    const batches = batchesOf(
      Array.from({ length: KEYS }, (_, i) => ({
        accountId: BigInt(i) * 7_368_787n,
        value: BigInt(i),
        eventTs: 3n,
      })),
    );
    admitAll(batches, 10n);
    state.accumulate(batches.events, batches.admitted);
    expect(deltasOf(state).length).toBeGreaterThan(KEYS);
    const rows = new Uint8Array(KEYS * ROW_BYTES);
    let count = 0;
    for (let range = 0; range < COVER_RANGES; range++)
      count += state.copyRange(range, 0, new Float64Array(1), rows.subarray(count * ROW_BYTES));
    state.close();
    return { rows, count };
  };

  it('reserved space changes only the positions of rows', async () => {
    const { rows, count } = rowsOf();
    expect(count).toBe(KEYS);
    const plain = kernels.open(10, 3);
    plain.load(20, rows, count);
    const roomy = kernels.open(10, 3);
    roomy.reserve(20, count);
    const bytes = roomy.bytes();
    roomy.load(20, rows, count);
    expect(roomy.bytes()).toBe(bytes);
    roomy.reserve(20, 100 * count);
    roomy.reserve(30, 0);
    expect(roomy.bytes()).toBe(bytes);
    const contents = async (state: typeof roomy) =>
      (await emptied(state)).map(([start, n, , hex]) => [start, n, hex]);
    expect(await contents(roomy)).toEqual(await contents(plain));
  });

  it('reserved space is allocated immediately, however many rows are announced', () => {
    const rows = 1_000_000;
    const state = kernels.open(10, 2);
    state.reserve(0, rows);
    expect(state.bytes()).toBeGreaterThan(rows * ROW_BYTES);
    state.close();
    const sessions = kernels.openSessions(10, 2);
    sessions.reserve(rows);
    expect(sessions.bytes()).toBeGreaterThan(rows * ROW_BYTES);
    sessions.close();
  });

  it('unused reserved space is not treated as rows', async () => {
    const keys = 300_000;
    const state = kernels.open(10, 1);
    const row = new BigInt64Array(keys * (ROW_BYTES / 8));
    // Only account_id and a count matter here; the other cells are arbitrary.
    for (let i = 0; i < keys; i++) row.fill(BigInt(i) + 1n, i * 8, i * 8 + 8);
    const rows = new Uint8Array(row.buffer);
    state.load(0, rows, keys);
    const whole = await state.seal(0);
    expect(whole.rowCount).toBe(keys);
    // `close` releases the memory.
    whole.close();
    state.reserve(10, keys);
    state.load(10, rows, 1);
    const small = await state.seal(10);
    expect(small.rowCount).toBe(1);
    small.close();
    state.close();
  });

  it('session states reserve space in the same way', async () => {
    const sessions = kernels.openSessions(5, 2);
    sessions.reserve(5000);
    const bytes = sessions.bytes();
    expect(bytes).toBeGreaterThan(5000 * ROW_BYTES);
    const { rows, count } = rowsOf();
    const cells = new BigInt64Array(rows.buffer);
    // The spare cell of a session is its start.
    for (let i = 0; i < count; i++) cells[i * 8 + 7] = 3n;
    sessions.load(rows, count);
    expect(sessions.sessionCount()).toBe(count);
    const run = await sessions.fire(100);
    expect(run.rowCount).toBe(count);
  });

  it('reserved space without a slice is refused', () => {
    const state = kernels.open(10, 1);
    expect(outcome(() => state.reserve(5, 1))).toBe('out_of_range');
    expect(outcome(() => state.reserve(10, -1))).toBe('out_of_range');
    expect(outcome(() => state.reserve(10, 0.5))).toBe('out_of_range');
  });
});
