/** Fired rows for tests: pages and firings from plain numbers, and results as comparable text. */
import { ACCUMULATOR } from '../../src/core/layout/layouts.gen.ts';
import { ResultRows } from '../../src/engine/output/sink/rows.ts';
import type { ReachedTimes } from '../../src/engine/state/reached.ts';
import type { WindowResult } from '../../src/engine/window/accumulator.ts';
import type { FiredBounds, FiredPage, Firing } from '../../src/engine/window/firing.ts';

const CELLS = ACCUMULATOR.BYTES / 8;

export interface RowSpec {
  readonly accountId: bigint;
  readonly count?: bigint;
  /** Sum, 128 bits. */
  readonly sum?: bigint;
  readonly min?: bigint;
  readonly max?: bigint;
  readonly last?: bigint;
  /** Start of a session. */
  readonly start?: bigint;
}

function rowsOf(specs: readonly RowSpec[]): Uint8Array {
  const cells = new BigInt64Array(specs.length * CELLS);
  specs.forEach(({ accountId, count = 1n, sum = 5n, min = -1n, max = 9n, last = 0n, start = 0n }, row) => {
    const values = [accountId, count, sum, sum >> 64n, min, max, last, start];
    cells.set(
      values.map((one) => BigInt.asIntN(64, one)),
      row * CELLS,
    );
  });
  return new Uint8Array(cells.buffer);
}

export const windowBounds = (start: number, end: number): FiredBounds => ({ kind: 'window', start, end });
export const sessionBounds = (gapMs: number): FiredBounds => ({ kind: 'sessions', gapMs });

export function pageOf(bounds: FiredBounds, specs: readonly RowSpec[]): FiredPage {
  return { bounds, rows: rowsOf(specs), rowCount: specs.length };
}

/** Rows that differ from each other in every cell, ascending by account_id over the whole unsigned
 *  range. */
export function manyRows(count: number, seed = 1): Uint8Array {
  const rows = new Uint8Array(count * ACCUMULATOR.BYTES);
  const words = new Uint32Array(rows.buffer);
  const step = Math.floor(2 ** 32 / count);
  let noise = seed >>> 0 || 1;
  const next = (): number => {
    noise ^= noise << 13;
    noise ^= noise >>> 17;
    noise ^= noise << 5;
    return noise >>> 0;
  };
  for (let row = 0; row < count; row++) {
    const at = row * CELLS * 2;
    for (let word = 0; word < 14; word++) words[at + word] = next();
    words[at + 1] = row * step;
    words[at + 2] = 1 + (next() & 255);
    words[at + 3] = 0;
    // Most sums are exact; some overflow.
    const sign = (words[at + 5] as number) >>> 31 === 1 ? 0xffff_ffff : 0;
    if (row % 7 !== 0) words[at + 6] = words[at + 7] = sign;
    words[at + 13] = 0x0000_0197;
  }
  return rows;
}

/** Firing that serves given rows and records whether it was closed. */
export class TestFiring implements Firing {
  readonly bounds: FiredBounds;
  readonly rowsMax: number;
  readonly firedAtMs: number;
  readonly reached: ReachedTimes | undefined;
  closed = 0;
  private readonly rows: Uint8Array;
  private readonly readMax: number;
  private at = 0;

  /** @param readMax most rows of one read; `rowsMax` may exceed the number of rows */
  constructor(
    page: FiredPage,
    options: { firedAtMs?: number; readMax?: number; rowsMax?: number; reached?: ReachedTimes } = {},
  ) {
    this.reached = options.reached;
    this.bounds = page.bounds;
    this.rows = page.rows.subarray(0, page.rowCount * ACCUMULATOR.BYTES);
    this.rowsMax = options.rowsMax ?? page.rowCount;
    this.firedAtMs = options.firedAtMs ?? 0;
    this.readMax = options.readMax ?? Number.POSITIVE_INFINITY;
  }

  async read(into: Uint8Array): Promise<number> {
    if (this.closed > 0) throw new Error('a closed firing is read');
    const left = (this.rows.length - this.at) / ACCUMULATOR.BYTES;
    const rows = Math.min(left, Math.floor(into.length / ACCUMULATOR.BYTES), this.readMax);
    into.set(this.rows.subarray(this.at, this.at + rows * ACCUMULATOR.BYTES));
    this.at += rows * ACCUMULATOR.BYTES;
    return rows;
  }

  close(): void {
    this.closed++;
  }
}

export const resultText = (r: WindowResult): string =>
  [r.accountId, r.windowStart, r.windowEnd, r.count, r.sum, r.min, r.max, r.lastUpdateTs, r.overflow].join(
    ',',
  );

export function textsOf(pages: readonly FiredPage[]): string[] {
  return pages.flatMap((page) => {
    const rows = new ResultRows(page);
    return Array.from({ length: page.rowCount }, (_, row) => resultText(rows.result(row)));
  });
}
