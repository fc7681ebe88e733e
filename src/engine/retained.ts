/** The engine's own store of fired windows, for GET /windows: kept for a stretch of event time, bounded in bytes.
 *
 *  Invariants: (1) what is kept depends on event time alone until the bound in bytes is met; (2) a window stands here
 *  once, its rows sorted by account_id, so a look-up is one binary search a window.
 */
import { AccumulatorRows, type FiredWindow, resultOf, type WindowResult } from './accumulator.ts';

interface Kept {
  readonly window: FiredWindow;
  readonly rows: AccumulatorRows;
}

export interface RetainLimits {
  /** How far a window's end may lie behind the newest one. */
  readonly retainMs: number;
  readonly bytesMax: number;
}

export interface WindowQuery {
  readonly accountId: bigint;
  /** On window_start: [from, to). */
  readonly from: number;
  readonly to: number;
  readonly limit: number;
}

export class RetainedWindows {
  private readonly limits: RetainLimits;
  /** Ascending by window start. */
  private kept: Kept[] = [];
  private newestEnd = Number.NEGATIVE_INFINITY;
  private size = 0;

  constructor(limits: RetainLimits) {
    this.limits = limits;
  }

  get bytes(): number {
    return this.size;
  }

  /** Windows that end at or before this are no longer kept. */
  get forgetBefore(): number {
    return Math.max(this.newestEnd - this.limits.retainMs, this.evictedEnd);
  }
  private evictedEnd = Number.NEGATIVE_INFINITY;

  /** Windows in order of their end. */
  add(windows: readonly FiredWindow[]): void {
    for (const window of windows) {
      this.newestEnd = Math.max(this.newestEnd, window.windowEnd);
      this.size += window.rows.byteLength;
      this.kept.push({ window, rows: new AccumulatorRows(window.rows, window.rowCount) });
    }
    const horizon = this.newestEnd - this.limits.retainMs;
    let gone = 0;
    while (gone < this.kept.length) {
      const { window } = this.kept[gone] as Kept;
      if (window.windowEnd > horizon && this.size <= this.limits.bytesMax) break;
      this.size -= window.rows.byteLength;
      this.evictedEnd = Math.max(this.evictedEnd, window.windowEnd);
      gone++;
    }
    if (gone > 0) this.kept = this.kept.slice(gone);
  }

  /** Results of one key, ascending by window start. */
  query(query: WindowQuery): readonly WindowResult[] {
    const out: WindowResult[] = [];
    for (const { window, rows } of this.kept) {
      if (window.windowStart < query.from) continue;
      if (window.windowStart >= query.to || out.length >= query.limit) break;
      const row = find(rows, window.rowCount, query.accountId);
      if (row >= 0) out.push(resultOf(window, rows, row));
    }
    return out;
  }
}

function find(rows: AccumulatorRows, rowCount: number, accountId: bigint): number {
  let low = 0;
  let high = rowCount;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows.accountId(middle) < accountId) low = middle + 1;
    else high = middle;
  }
  return low < rowCount && rows.accountId(low) === accountId ? low : -1;
}
