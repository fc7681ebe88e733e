/** Tumbling and sliding windows: [k * slide, k * slide + size) for every integer k, including
 *  negative k. A tumbling window slides by its size. An event is folded into each window that
 *  contains it. */
import { type Aggregate, aggregateOf, fold, rowOf } from './aggregate.ts';
import type { OracleRow } from './rules.ts';

function floorDivide(a: bigint, b: bigint): bigint {
  const quotient = a / b;
  return a % b < 0n ? quotient - 1n : quotient;
}

export class FixedWindows {
  private readonly sizeMs: bigint;
  private readonly slideMs: bigint;
  /** By start, then by account. */
  private readonly windows = new Map<bigint, Map<bigint, Aggregate>>();

  constructor(sizeMs: bigint, slideMs: bigint) {
    this.sizeMs = sizeMs;
    this.slideMs = slideMs;
  }

  add(accountId: bigint, value: bigint, eventTs: bigint): void {
    const lastStart = floorDivide(eventTs, this.slideMs) * this.slideMs;
    for (let start = lastStart; eventTs < start + this.sizeMs; start -= this.slideMs) {
      let keys = this.windows.get(start);
      if (keys === undefined) {
        keys = new Map();
        this.windows.set(start, keys);
      }
      const aggregate = keys.get(accountId);
      if (aggregate === undefined) keys.set(accountId, aggregateOf(value, eventTs));
      else fold(aggregate, value, eventTs);
    }
  }

  /** Rows ascending by (window_end, account_id). */
  *rows(): Iterable<OracleRow> {
    const starts = [...this.windows.keys()].sort((a, b) => (a < b ? -1 : 1));
    for (const start of starts) {
      const keys = this.windows.get(start) as Map<bigint, Aggregate>;
      for (const accountId of BigUint64Array.from(keys.keys()).sort())
        yield rowOf(accountId, start, start + this.sizeMs, keys.get(accountId) as Aggregate);
    }
  }
}
