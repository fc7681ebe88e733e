/** Firings of sorted rows: one window over the rows of its slices, or the sessions that ended
 *  together. */

import type { WindowKernels } from '../../addon/window-surface.ts';
import { invariant } from '../../core/errors.ts';
import type { RowForm } from '../../core/layout/row-form.ts';
import { ResultRows } from '../output/sink/rows.ts';
import { turn } from '../turn.ts';
import type { WindowResult } from '../window/accumulator.ts';
import type { FiredBounds } from '../window/firing.ts';
import { mergedRows } from './merged-rows.ts';
import type { StateFiring } from './port.ts';
import type { ReachedTimes } from './reached.ts';
import { foldedRow, type RowStream } from './rows.ts';
import type { HeldRows, HeldStream } from './run.ts';

type Merge = Pick<WindowKernels, 'merge' | 'mergeAhead' | 'form'>;

/** Rows that a search reads between two checks that the firing is still open. */
const SEARCH_ROWS = 4096;

/** Firing that owns one hold of each of its inputs. */
abstract class RowsFiring<H extends HeldStream> implements StateFiring {
  readonly bounds: FiredBounds;
  readonly form: RowForm;
  readonly rowsMax: number;
  readonly firedAtMs: number;
  readonly reached: ReachedTimes | undefined;
  protected readonly kernels: Merge;
  protected held: readonly H[];
  private rows: Promise<RowStream> | undefined;

  constructor(
    kernels: Merge,
    bounds: FiredBounds,
    held: readonly H[],
    firedAtMs: number,
    reached?: ReachedTimes,
  ) {
    this.reached = reached;
    this.kernels = kernels;
    this.form = kernels.form;
    this.bounds = bounds;
    this.held = held;
    this.firedAtMs = firedAtMs;
    this.rowsMax = held.reduce((sum, input) => sum + input.rowCount, 0);
  }

  get isClosed(): boolean {
    return this.held.length === 0;
  }

  async read(into: Uint8Array): Promise<number> {
    invariant(!this.isClosed, 'a closed firing is not read');
    this.rows ??= this.open();
    return (await this.rows).next(into);
  }

  close(): void {
    for (const input of this.held) input.release();
    this.held = [];
    this.rows?.then(
      (rows) => rows.close(),
      () => {},
    );
    this.rows = undefined;
  }

  abstract find(accountId: bigint): Promise<readonly WindowResult[]>;

  protected async open(): Promise<RowStream> {
    return mergedRows(this.kernels, await Promise.all(this.held.map((input) => input.rows())));
  }

  protected resultsOf(rows: Uint8Array, rowCount: number): WindowResult[] {
    const results = new ResultRows({ bounds: this.bounds, form: this.form, rows, rowCount });
    return Array.from({ length: rowCount }, (_, row) => results.result(row));
  }
}

export class WindowFiring extends RowsFiring<HeldRows> {
  async find(accountId: bigint): Promise<readonly WindowResult[]> {
    const held = this.held.map((input) => input.hold());
    try {
      const found = await rowsOfKey(held, accountId, this.form.bytes);
      return this.isClosed || found.length === 0 ? [] : this.resultsOf(foldedRow(this.kernels, found), 1);
    } finally {
      for (const input of held) input.release();
    }
  }
}

/** Returns the rows of a key, one from each input that has it, in the order of the inputs. */
export async function rowsOfKey(
  held: readonly HeldRows[],
  accountId: bigint,
  rowBytes: number,
): Promise<Uint8Array[]> {
  const rows = await Promise.all(
    held.map(async (input) => {
      const row = new Uint8Array(rowBytes);
      return (await input.find(accountId, row)) ? [row] : [];
    }),
  );
  return rows.flat();
}

export class SessionFiring extends RowsFiring<HeldStream> {
  /** Scans all rows, because they are not in the order of keys. */
  async find(accountId: bigint): Promise<readonly WindowResult[]> {
    if (this.isClosed) return [];
    const found: WindowResult[] = [];
    const { bytes } = this.form;
    const page = new Uint8Array(SEARCH_ROWS * bytes);
    const keys = new BigUint64Array(page.buffer);
    const stream = await this.open();
    try {
      while (!this.isClosed) {
        const rows = await stream.next(page);
        if (rows === 0) return found;
        for (let row = 0; row < rows; row++) {
          if (keys[(row * bytes) / 8] === accountId)
            found.push(...this.resultsOf(page.subarray(row * bytes, (row + 1) * bytes), 1));
        }
        await turn();
      }
      return [];
    } finally {
      stream.close();
    }
  }
}
