/** View of the rows of a fired page as results: the bounds come from the page, everything else from
 *  the row. Built once per page; allocates an object per row only for `result`. */
import { ACCUMULATOR } from '../../../core/layout/layouts.gen.ts';
import { CELL, RowForm } from '../../../core/layout/row-form.ts';
import { fromWords } from '../../../core/time.ts';
import { type AggregateResults, type ResultReader, readerOf } from '../../aggregate/results.ts';
import type { KeyColumn } from '../../keys/column.ts';
import { isEarlyRow, type WindowResult } from '../../window/accumulator.ts';
import type { FiredBounds, FiredPage } from '../../window/firing.ts';

const KEY = ACCUMULATOR.ACCOUNT_ID / 8;
const COUNT = ACCUMULATOR.COUNT / 8;
const SUM_LOW = ACCUMULATOR.SUM_LOW / 8;
const SUM_HIGH = ACCUMULATOR.SUM_HIGH / 8;
const MIN = ACCUMULATOR.MIN / 8;
const MAX = ACCUMULATOR.MAX / 8;
const LAST = ACCUMULATOR.LAST_UPDATE_TS / 8;
const START = ACCUMULATOR.SPARE / 8;

export class ResultRows {
  readonly rowCount: number;
  /** The rows as 32-bit words. */
  readonly words: Int32Array;
  /** Words of a row. */
  readonly rowWords: number;
  private readonly reader: ResultReader | undefined;
  private readonly view: DataView;
  /** Cells of 8 bytes of a row. */
  private readonly stride: number;
  private readonly bounds: FiredBounds;
  private readonly keys: KeyColumn | undefined;
  private readonly signed: BigInt64Array;
  private readonly unsigned: BigUint64Array;

  constructor(page: FiredPage) {
    const { buffer, byteOffset } = page.rows;
    const { form = RowForm.HEADS } = page;
    const cells = form.bytes / CELL;
    this.reader = readerOf(form);
    this.view = new DataView(buffer, byteOffset, page.rowCount * form.bytes);
    this.stride = cells;
    this.rowWords = cells * 2;
    this.rowCount = page.rowCount;
    this.bounds = page.bounds;
    this.keys = page.keys;
    this.words = new Int32Array(buffer, byteOffset, page.rowCount * cells * 2);
    this.signed = new BigInt64Array(buffer, byteOffset, page.rowCount * cells);
    this.unsigned = new BigUint64Array(buffer, byteOffset, page.rowCount * cells);
  }

  accountId(row: number): bigint {
    return this.unsigned[row * this.stride + KEY] as bigint;
  }
  /** Borrows the canonical bytes of a key that is no integer. REQUIRES: the page has keys */
  key(row: number): Uint8Array {
    return (this.keys as KeyColumn).key(row);
  }
  /** Bytes of such a key. */
  keyLength(row: number): number {
    return (this.keys as KeyColumn).length(row);
  }
  /** Copies such a key. Returns the end of the copy. */
  copyKey(row: number, into: Uint8Array, at: number): number {
    return (this.keys as KeyColumn).copy(row, into, at);
  }
  /** The 64 bits of the key as a signed number, as PostgreSQL's int8 stores them. */
  accountIdBits(row: number): bigint {
    return this.signed[row * this.stride + KEY] as bigint;
  }
  windowStart(row: number): number {
    return this.bounds.kind === 'window' ? this.bounds.start : this.time(row * this.stride + START);
  }
  windowEnd(row: number): number {
    return this.bounds.kind === 'window'
      ? this.bounds.end
      : this.time(row * this.stride + LAST) + this.bounds.gapMs;
  }
  count(row: number): bigint {
    return this.unsigned[row * this.stride + COUNT] as bigint;
  }
  /** Low 64 bits, two's complement. */
  sum(row: number): bigint {
    return this.signed[row * this.stride + SUM_LOW] as bigint;
  }
  /** True if the exact sum does not fit 64 bits: its high half is not the sign extension of its low
   *  half. */
  overflow(row: number): boolean {
    if (this.reader !== undefined) return this.aggregated(row)?.overflow === true;
    const at = (row * this.stride + SUM_LOW) * 2;
    const sign = (this.words[at + 1] as number) >> 31;
    const high = (SUM_HIGH - SUM_LOW) * 2;
    return this.words[at + high] !== sign || this.words[at + high + 1] !== sign;
  }
  min(row: number): bigint {
    return this.signed[row * this.stride + MIN] as bigint;
  }
  max(row: number): bigint {
    return this.signed[row * this.stride + MAX] as bigint;
  }
  lastUpdateTs(row: number): bigint {
    return this.signed[row * this.stride + LAST] as bigint;
  }

  /** Results of the job's aggregates; undefined: the results are those of the head. */
  aggregated(row: number): AggregateResults | undefined {
    return this.reader?.read(this.view, row * this.stride * CELL, this.windowStart(row));
  }

  result(row: number): WindowResult {
    const aggregated = this.aggregated(row);
    return {
      ...(aggregated === undefined ? {} : { aggregates: aggregated.values }),
      ...(this.keys === undefined ? {} : { key: this.key(row).slice() }),
      accountId: this.accountId(row),
      windowStart: this.windowStart(row),
      windowEnd: this.windowEnd(row),
      count: this.count(row),
      sum: this.sum(row),
      min: this.min(row),
      max: this.max(row),
      lastUpdateTs: this.lastUpdateTs(row),
      overflow: aggregated?.overflow ?? this.overflow(row),
      ...(this.bounds.kind === 'window' && isEarlyRow(this.view, row * this.stride * CELL)
        ? { isEarly: true as const }
        : {}),
    };
  }

  private time(cell: number): number {
    return fromWords(this.words[cell * 2] as number, this.words[cell * 2 + 1] as number);
  }
}
