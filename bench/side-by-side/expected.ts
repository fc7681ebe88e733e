/** Results that a stream must have, computed from the generator alone: the events of each account
 *  in order of time, cut by the definition of each window. It shares no module with the engine, and
 *  test/unit/bench/side-by-side.test.ts holds it against bench/peers/oracle, which is too slow for
 *  the events of a cell.
 *
 *  Memory: 20 bytes an event. */
import type { GenKernels } from '../../src/addon/gen-surface.ts';
import { invariant } from '../../src/core/errors.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import type { EventOptions } from '../../src/gen/event-options.ts';
import { EventGenerator } from '../../src/gen/events.ts';
import { type Kind, WINDOWS } from './cells.ts';
import { type Results, ROW_WORDS, RowsDigest } from './rows.ts';

const ROWS = 4096;
const TWO_32 = 4_294_967_296;
const INT32_MAX = 2_147_483_647;

export interface Expected extends Results {
  /** Sum over all rows of sum * (account + start), modulo 2^64: the digest of the bare loops. */
  readonly weighted: bigint;
}

/** Events of a stream in columns. */
interface Columns {
  /** Distance from the first account. @shape u32[events] */
  readonly accounts: Uint32Array;
  /** Time since the base of the stream, ms. @shape u32[events] */
  readonly times: Uint32Array;
  readonly values: Int32Array;
}

function columnsOf(stream: EventOptions, kernels: GenKernels): Columns {
  const { count, accountBase, baseMs, valueMin, valueMax } = stream;
  invariant(stream.order === 'true', 'the events must be in order of time');
  invariant(Math.max(-valueMin, valueMax) <= INT32_MAX, 'values must fit 32 bits');
  const accounts = new Uint32Array(count);
  const times = new Uint32Array(count);
  const values = new Int32Array(count);
  const generator = new EventGenerator(stream, kernels);
  const batch = EventBatch.create(ROWS);
  const { accountId, eventTs, value } = batch.columns;
  // Words of the columns, so that no row makes a bigint.
  const ids = new Uint32Array(accountId.buffer, accountId.byteOffset, ROWS * 2);
  const words = new Uint32Array(eventTs.buffer, eventTs.byteOffset, ROWS * 2);
  const amounts = new Int32Array(value.buffer, value.byteOffset, ROWS * 2);
  const first = Number(accountBase);
  let at = 0;
  for (let rows = generator.fillEvents(batch); rows > 0; rows = generator.fillEvents(batch)) {
    for (let row = 0; row < rows; row++, at++) {
      accounts[at] = (ids[2 * row] as number) - first;
      times[at] = (words[2 * row + 1] as number) * TWO_32 + (words[2 * row] as number) - baseMs;
      values[at] = amounts[2 * row] as number;
    }
  }
  invariant(at === count, 'the generator must return every event');
  return { accounts, times, values };
}

/** Positions of the events by account; those of an account stay in order of time. */
function byAccount(accounts: Uint32Array, total: number): Uint32Array {
  const starts = new Uint32Array(total + 1);
  for (let at = 0; at < accounts.length; at++) {
    const next = (accounts[at] as number) + 1;
    starts[next] = (starts[next] as number) + 1;
  }
  for (let account = 1; account <= total; account++)
    starts[account] = (starts[account] as number) + (starts[account - 1] as number);
  const sorted = new Uint32Array(accounts.length);
  for (let at = 0; at < accounts.length; at++) {
    const account = accounts[at] as number;
    const to = starts[account] as number;
    sorted[to] = at;
    starts[account] = to + 1;
  }
  return sorted;
}

/** Collects rows. Sums of a row are exact below 2^53. */
class Rows {
  readonly digest = new RowsDigest();
  weighted = 0n;
  private readonly cells = new BigInt64Array(ROW_WORDS / 2);
  private readonly words = new Uint32Array(this.cells.buffer);

  add(account: number, startMs: number, endMs: number, count: number, sum: number): void {
    invariant(Number.isSafeInteger(sum), 'a sum must be exact');
    this.cells[0] = BigInt(account);
    this.cells[1] = BigInt(startMs);
    this.cells[2] = BigInt(endMs);
    this.cells[3] = BigInt(count);
    this.cells[4] = BigInt(sum);
    this.digest.add(this.words, 0);
    this.weighted = BigInt.asUintN(64, this.weighted + BigInt(sum) * BigInt(account + startMs));
  }
}

/** Windows of whole slides of one account after the other. */
class FixedWindows {
  private readonly rows: Rows;
  private readonly slideMs: number;
  private readonly slides: number;
  private readonly counts: Float64Array;
  private readonly sums: Float64Array;
  private newest = Number.NEGATIVE_INFINITY;

  constructor(rows: Rows, sizeMs: number, slideMs: number) {
    this.rows = rows;
    this.slideMs = slideMs;
    this.slides = sizeMs / slideMs;
    this.counts = new Float64Array(this.slides);
    this.sums = new Float64Array(this.slides);
  }

  add(account: number, timeMs: number, value: number): void {
    const slide = Math.floor(timeMs / this.slideMs);
    if (slide > this.newest) this.close(account, slide - this.slides);
    this.newest = slide;
    for (let first = slide - this.slides + 1; first <= slide; first++) {
      const at = first % this.slides;
      this.counts[at] = (this.counts[at] as number) + 1;
      this.sums[at] = (this.sums[at] as number) + value;
    }
  }

  /** Emits the windows that begin with this slide or an earlier one. */
  private close(account: number, last: number): void {
    if (this.newest === Number.NEGATIVE_INFINITY) return;
    for (let first = this.newest - this.slides + 1; first <= Math.min(last, this.newest); first++) {
      const at = first % this.slides;
      const [count, sum] = [this.counts[at] as number, this.sums[at] as number];
      const startMs = first * this.slideMs;
      if (count > 0) this.rows.add(account, startMs, startMs + this.slides * this.slideMs, count, sum);
      this.counts[at] = 0;
      this.sums[at] = 0;
    }
  }

  end(account: number): void {
    this.close(account, Number.POSITIVE_INFINITY);
    this.newest = Number.NEGATIVE_INFINITY;
  }
}

/** Sessions of one account after the other: an event less than the gap after the one before it
 *  continues the session. */
class Sessions {
  private readonly rows: Rows;
  private readonly gapMs: number;
  private count = 0;
  private sum = 0;
  private startMs = 0;
  private lastMs = 0;

  constructor(rows: Rows, gapMs: number) {
    this.rows = rows;
    this.gapMs = gapMs;
  }

  add(account: number, timeMs: number, value: number): void {
    if (this.count > 0 && timeMs - this.lastMs >= this.gapMs) this.end(account);
    if (this.count === 0) this.startMs = timeMs;
    this.lastMs = timeMs;
    this.count++;
    this.sum += value;
  }

  end(account: number): void {
    if (this.count > 0) this.rows.add(account, this.startMs, this.lastMs + this.gapMs, this.count, this.sum);
    this.count = 0;
    this.sum = 0;
  }
}

/** Results of all windows of the stream. */
export function expectedOf(stream: EventOptions, kind: Kind, kernels: GenKernels): Expected {
  const { accounts, times, values } = columnsOf(stream, kernels);
  const sorted = byAccount(accounts, stream.accounts);
  const rows = new Rows();
  const { sizeMs, slideMs } = WINDOWS[kind];
  const windows = kind === 'session' ? new Sessions(rows, sizeMs) : new FixedWindows(rows, sizeMs, slideMs);
  const first = Number(stream.accountBase);
  let account = -1;
  for (let at = 0; at < sorted.length; at++) {
    const event = sorted[at] as number;
    const own = accounts[event] as number;
    if (own !== account && account >= 0) windows.end(first + account);
    account = own;
    windows.add(first + own, stream.baseMs + (times[event] as number), values[event] as number);
  }
  if (account >= 0) windows.end(first + account);
  return { ...rows.digest.results(), weighted: rows.weighted };
}
