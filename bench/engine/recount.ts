/** Independent recount of the results of a generated stream: which events count, and the totals of
 *  every tumbling window. It shares no module with the engine.
 *
 *  The stream is reproducible from its options, so only the number of sent events must be kept.
 *  Totals suffice to detect any differing row: `weighted` binds each sum to its account. Memory:
 *  one bit for each account and window, and all rows of the sampled accounts. */

import type { GenKernels } from '../../src/addon/gen-surface.ts';
import { invariant } from '../../src/core/errors.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import type { EventOptions } from '../../src/gen/event-options.ts';
import { EventGenerator } from '../../src/gen/events.ts';
import { partitionOfKey } from '../../src/sim/murmur2.ts';
import { FixedWindows } from '../peers/oracle/fixed-windows.ts';
import type { OracleRow } from '../peers/oracle/rules.ts';

/** Rows of a batch; small enough that sums of value * account_id are exact in a double. */
const ROWS = 512;
const PRODUCT_MAX = Number.MAX_SAFE_INTEGER / ROWS;
const TWO_32 = 4_294_967_296;
/** Batches between two yields to the event loop, which check the abort signal. */
const BATCHES_PER_YIELD = 2000;

export interface RecountRules {
  readonly sizeMs: number;
  readonly skewMs: number;
  readonly latenessMs: number;
}

/** Selects the accounts that are compared row by row. */
export interface Sample {
  readonly every: number;
  readonly offset: number;
}
export const isSampled = (sample: Sample, account: bigint): boolean =>
  account % BigInt(sample.every) === BigInt(sample.offset);

export interface RecountOptions {
  /** An infinite stream; account_base must be 0 or more, and all accounts below 2^32. */
  readonly stream: EventOptions;
  readonly kernels: GenKernels;
  /** Number of events of the stream that were sent. */
  readonly events: number;
  readonly partitions: number;
  readonly rules: RecountRules;
  readonly sample: Sample;
  /** Record key of an account; absent: that of the fixed layout. */
  readonly keyOf?: KeyOf;
  readonly signal: AbortSignal;
}

/** Totals of one window over all its accounts. */
export interface WindowTotals {
  rows: number;
  count: number;
  sum: bigint;
  /** Sum of sum * account_id. */
  weighted: bigint;
}

export const noTotals = (): WindowTotals => ({ rows: 0, count: 0, sum: 0n, weighted: 0n });
export const sameTotals = (a: WindowTotals, b: WindowTotals): boolean =>
  a.rows === b.rows && a.count === b.count && a.sum === b.sum && a.weighted === b.weighted;

export interface Recount {
  readonly accepted: number;
  readonly droppedLate: number;
  /** By window start. */
  readonly windows: ReadonlyMap<number, WindowTotals>;
  /** Rows of the sampled accounts. */
  readonly rows: readonly OracleRow[];
}

/** Record key of an account; the bytes may be changed by the next call. */
export type KeyOf = (account: number) => Uint8Array;

const number = new Uint8Array(8);
const numberView = new DataView(number.buffer);
/** Record key of the fixed layout: the account as 8 bytes, little-endian. */
export const fixedKey: KeyOf = (account) => {
  numberView.setUint32(0, account, true);
  return number;
};

/** Partition of each account, by its distance from the first account. */
export function partitionsOf(stream: EventOptions, partitions: number, keyOf = fixedKey): Uint8Array {
  invariant(partitions <= 256, 'partition numbers must fit a byte');
  const first = Number(stream.accountBase);
  invariant(first + stream.accounts <= TWO_32, 'accounts must fit 32 bits');
  const partitionOf = new Uint8Array(stream.accounts);
  for (let at = 0; at < partitionOf.length; at++)
    partitionOf[at] = partitionOfKey(keyOf(first + at), partitions);
  return partitionOf;
}

interface OpenWindow {
  readonly totals: WindowTotals;
  /** One bit for each account. */
  readonly seenAccounts: Uint8Array;
  /** Sums of the current batch. */
  sum: number;
  weighted: number;
}

/** Words of the columns of a batch, which the recount reads without making a bigint a row. */
function wordsOf({ columns: { accountId, value, eventTs } }: EventBatch) {
  const low = (column: BigInt64Array | BigUint64Array): Uint32Array =>
    new Uint32Array(column.buffer, column.byteOffset, ROWS * 2);
  const high = (column: BigInt64Array): Int32Array =>
    new Int32Array(column.buffer, column.byteOffset, ROWS * 2);
  return {
    accounts: low(accountId),
    valueLow: low(value),
    timeLow: low(eventTs),
    valueHigh: high(value),
    timeHigh: high(eventTs),
  };
}

/** Window that starts at `from`; added if it is new. */
function windowAt(windows: Map<number, OpenWindow>, from: number, accounts: number): OpenWindow {
  let window = windows.get(from);
  if (window === undefined) {
    const seenAccounts = new Uint8Array(Math.ceil(accounts / 8));
    window = { totals: noTotals(), seenAccounts, sum: 0, weighted: 0 };
    windows.set(from, window);
  }
  return window;
}

/** Adds the sums of the current batch to the totals. */
function addSums(windows: Iterable<OpenWindow>): void {
  for (const window of windows) {
    if (window.weighted === 0 && window.sum === 0) continue;
    window.totals.sum += BigInt(window.sum);
    window.totals.weighted += BigInt(window.weighted);
    window.sum = 0;
    window.weighted = 0;
  }
}

/** @throws AbortError */
export async function recount(options: RecountOptions): Promise<Recount> {
  const { stream, events, partitions, rules, sample } = options;
  const { sizeMs } = rules;
  const delayMs = rules.skewMs + rules.latenessMs;
  const first = Number(stream.accountBase);
  const largest = Math.max(Math.abs(stream.valueMin), Math.abs(stream.valueMax));
  invariant(largest * (first + stream.accounts) <= PRODUCT_MAX, 'sums of a batch must be exact');
  const partitionOf = partitionsOf(stream, partitions, options.keyOf);
  const seen = new Float64Array(partitions).fill(Number.NEGATIVE_INFINITY);
  const windows = new Map<number, OpenWindow>();
  const sampled = new FixedWindows(BigInt(sizeMs), BigInt(sizeMs));
  const generator = new EventGenerator(stream, options.kernels);
  const batch = EventBatch.create(ROWS);
  const { accountId, value, eventTs } = batch.columns;
  const { accounts, valueLow, valueHigh, timeLow, timeHigh } = wordsOf(batch);
  let accepted = 0;
  let current: OpenWindow | undefined;
  let start = Number.NaN;
  const fold = (rows: number): void => {
    for (let row = 0; row < rows; row++) {
      const account = accounts[2 * row] as number;
      const ts = (timeHigh[2 * row + 1] as number) * TWO_32 + (timeLow[2 * row] as number);
      const partition = partitionOf[account - first] as number;
      if (ts > (seen[partition] as number)) seen[partition] = ts;
      if (ts < (seen[partition] as number) - delayMs) continue;
      accepted++;
      if (current === undefined || !(ts >= start && ts < start + sizeMs)) {
        start = Math.floor(ts / sizeMs) * sizeMs;
        current = windowAt(windows, start, stream.accounts);
      }
      const amount = (valueHigh[2 * row + 1] as number) * TWO_32 + (valueLow[2 * row] as number);
      const { totals, seenAccounts } = current;
      const at = (account - first) >>> 3;
      const bit = 1 << ((account - first) & 7);
      if (((seenAccounts[at] as number) & bit) === 0) {
        seenAccounts[at] = (seenAccounts[at] as number) | bit;
        totals.rows++;
      }
      totals.count++;
      current.sum += amount;
      current.weighted += amount * account;
      if (account % sample.every === sample.offset)
        sampled.add(accountId[row] as bigint, value[row] as bigint, eventTs[row] as bigint);
    }
    addSums(windows.values());
  };
  let remaining = events;
  for (let turn = 0; remaining > 0; turn++) {
    if (turn % BATCHES_PER_YIELD === 0) {
      await new Promise((resolve) => setImmediate(resolve));
      options.signal.throwIfAborted();
    }
    const rows = generator.fillEvents(batch, remaining);
    invariant(rows > 0, 'the stream must be infinite');
    fold(rows);
    remaining -= rows;
  }
  return {
    accepted,
    droppedLate: events - accepted,
    windows: new Map([...windows].map(([from, { totals }]) => [from, totals])),
    rows: [...sampled.rows()],
  };
}
