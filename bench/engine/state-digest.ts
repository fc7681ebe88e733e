/** Digest of the results in a keyed state, as the raw loops of bench/peers print it. */
import type { RowRun, WindowState } from '../../src/addon/window-surface.ts';
import { ACCUMULATOR } from '../../src/core/layout/layouts.gen.ts';

const PAGE_ROWS = 16_384;

/** Digest of results; equal for all sides that fold the same events into the same windows. */
export interface Digest {
  readonly rows: string;
  readonly count: string;
  readonly sum: string;
}

/** Drops all slices of a state. */
export async function drainState(state: WindowState): Promise<void> {
  const starts = new Float64Array(state.slices(new Float64Array(0)));
  state.slices(starts);
  for (const start of starts) (await state.seal(start)).close();
}

/** Drains a state whose events were shifted in time; equal results have equal digests. */
export async function digestOf(state: WindowState, movedMs: number): Promise<Digest> {
  const starts = new Float64Array(state.slices(new Float64Array(0)));
  state.slices(starts);
  const total = { rows: 0, count: 0n, sum: 0n };
  for (const start of starts) addRun(total, await state.seal(start), BigInt(start - movedMs));
  return textOf(total);
}

interface Total {
  rows: number;
  count: bigint;
  sum: bigint;
}

/** Digest of these totals. */
export const textOf = ({ rows, count, sum }: Total): Digest => ({
  rows: `${rows}`,
  count: `${count}`,
  sum: `${BigInt.asUintN(64, sum)}`,
});

/** Adds the rows of a run, with `offset` added to each key, and closes the run. */
export function addRun(total: Total, run: RowRun, offset: bigint): void {
  const page = new ArrayBuffer(PAGE_ROWS * ACCUMULATOR.BYTES);
  const cells = new BigUint64Array(page);
  for (let from = 0; from < run.rowCount; ) {
    const read = run.read(from, page);
    let pageSum = 0n;
    for (let at = 0; at < read * 8; at += 8) {
      total.count += cells[at + 1] as bigint;
      pageSum += (cells[at + 2] as bigint) * ((cells[at] as bigint) + offset);
    }
    total.sum = BigInt.asUintN(64, total.sum + pageSum);
    total.rows += read;
    from += read;
  }
  run.close();
}
