/** Reading accumulator rows: 64 bytes each, laid out as `Accumulator`, in a table, a snapshot or a fired window. */
import { ACCUMULATOR } from '../core/layout/layouts.gen.ts';

export const ROW_BYTES = ACCUMULATOR.BYTES;
export const ROW_WORDS = ROW_BYTES / 4;

/** One window's result: absolute values, so that writing it twice changes nothing. */
export interface WindowResult {
  /** Unsigned. */
  readonly accountId: bigint;
  readonly windowStart: number;
  readonly windowEnd: number;
  readonly count: bigint;
  /** Low 64 bits, two's complement; exact unless `overflow`. */
  readonly sum: bigint;
  readonly min: bigint;
  readonly max: bigint;
  readonly lastUpdateTs: bigint;
  /** The exact sum does not fit 64 bits. */
  readonly overflow: boolean;
}

/** The accumulators of one window, ascending by account_id (unsigned), no key twice. */
export interface FiredWindow {
  readonly windowStart: number;
  readonly windowEnd: number;
  readonly rowCount: number;
  /** `rowCount` rows. Owned by the holder; never changed. */
  readonly rows: ArrayBuffer;
}

const CELLS = ROW_BYTES / 8;
const KEY = ACCUMULATOR.ACCOUNT_ID / 8;
const COUNT = ACCUMULATOR.COUNT / 8;
const SUM_LOW = ACCUMULATOR.SUM_LOW / 8;
const SUM_HIGH = ACCUMULATOR.SUM_HIGH / 8;
const MIN = ACCUMULATOR.MIN / 8;
const MAX = ACCUMULATOR.MAX / 8;
const LAST = ACCUMULATOR.LAST_UPDATE_TS / 8;

/** Rows as 64-bit cells. Build once a window: it is made of two views. */
export class AccumulatorRows {
  private readonly signed: BigInt64Array;
  private readonly unsigned: BigUint64Array;

  constructor(rows: ArrayBuffer, rowCount: number) {
    this.signed = new BigInt64Array(rows, 0, rowCount * CELLS);
    this.unsigned = new BigUint64Array(rows, 0, rowCount * CELLS);
  }
  accountId(row: number): bigint {
    return this.unsigned[row * CELLS + KEY] as bigint;
  }
  /** The key's 64 bits read as a signed number: the form PostgreSQL's int8 stores. */
  accountIdBits(row: number): bigint {
    return this.signed[row * CELLS + KEY] as bigint;
  }
  count(row: number): bigint {
    return this.unsigned[row * CELLS + COUNT] as bigint;
  }
  sum(row: number): bigint {
    return this.signed[row * CELLS + SUM_LOW] as bigint;
  }
  overflow(row: number): boolean {
    return (this.signed[row * CELLS + SUM_HIGH] as bigint) !== (this.sum(row) < 0n ? -1n : 0n);
  }
  min(row: number): bigint {
    return this.signed[row * CELLS + MIN] as bigint;
  }
  max(row: number): bigint {
    return this.signed[row * CELLS + MAX] as bigint;
  }
  lastUpdateTs(row: number): bigint {
    return this.signed[row * CELLS + LAST] as bigint;
  }
}

export function resultOf(window: FiredWindow, rows: AccumulatorRows, row: number): WindowResult {
  return {
    accountId: rows.accountId(row),
    windowStart: window.windowStart,
    windowEnd: window.windowEnd,
    count: rows.count(row),
    sum: rows.sum(row),
    min: rows.min(row),
    max: rows.max(row),
    lastUpdateTs: rows.lastUpdateTs(row),
    overflow: rows.overflow(row),
  };
}
