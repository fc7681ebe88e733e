/** Compares the results of a soak in the sink with the recount of its stream: every window by its
 *  totals, and every row of the sampled accounts. */
import { FIRED_FAMILIES, readFired } from '../../src/engine/output/fired/store.ts';
import type { WindowResult } from '../../src/engine/window/accumulator.ts';
import type { KvDriver } from '../../src/io/rocksdb/port.ts';
import { rowText } from '../peers/oracle/difference.ts';
import { accountOf } from './engine-run.ts';
import { isSampled, noTotals, type Recount, type Sample, sameTotals, type WindowTotals } from './recount.ts';

const STORE_BUDGET_BYTES = 64 * 1024 * 1024;

export interface Stored {
  readonly rows: number;
  readonly windows: ReadonlyMap<number, WindowTotals>;
  readonly sampled: readonly WindowResult[];
}

/** Reads a whole store; sampled results have the number of their account. @throws AbortError */
export async function readStored(
  driver: KvDriver,
  folder: string,
  sample: Sample,
  signal: AbortSignal,
): Promise<Stored> {
  const options = { budgetBytes: STORE_BUDGET_BYTES, families: FIRED_FAMILIES, missing: 'refuse' } as const;
  const store = await driver.open(folder, options);
  const windows = new Map<number, WindowTotals>();
  const sampled: WindowResult[] = [];
  let rows = 0;
  try {
    for await (const page of readFired(store)) {
      signal.throwIfAborted();
      for (const row of page) {
        const accountId = accountOf(row);
        let totals = windows.get(row.windowStart);
        if (totals === undefined) {
          totals = noTotals();
          windows.set(row.windowStart, totals);
        }
        totals.rows++;
        totals.count += Number(row.count);
        totals.sum += row.sum;
        totals.weighted += row.sum * accountId;
        if (isSampled(sample, accountId)) sampled.push({ ...row, accountId });
      }
      rows += page.length;
    }
  } finally {
    await store.close();
  }
  return { rows, windows, sampled };
}

export interface Differences {
  /** Windows that only one side has, or whose totals differ. */
  readonly windows: number;
  /** Rows of sampled accounts that only one side has; two rows of one key with different values
   *  count as two. */
  readonly rows: number;
}

export function differencesOf(stored: Stored, recounted: Recount): Differences {
  const starts = new Set([...stored.windows.keys(), ...recounted.windows.keys()]);
  let windows = 0;
  for (const start of starts) {
    const [ours, theirs] = [stored.windows.get(start), recounted.windows.get(start)];
    if (ours === undefined || theirs === undefined || !sameTotals(ours, theirs)) windows++;
  }
  const ours = new Set(stored.sampled.map(rowText));
  const theirs = new Set(recounted.rows.map(rowText));
  const missing = [...theirs].filter((row) => !ours.has(row)).length;
  const surplus = [...ours].filter((row) => !theirs.has(row)).length;
  return { windows, rows: missing + surplus };
}
