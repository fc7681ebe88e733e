/** Reads the rows of firings, cell by cell, in the form that the tests compare with the oracle. */
import type { OracleRow } from '../../bench/peers/oracle/rules.ts';
import { SweptFiring } from '../../src/engine/state/sweeper.ts';
import type { FiredBounds, FiredPage, Firing } from '../../src/engine/window/firing.ts';

const ROW_BYTES = 64;
const CELL_BYTES = 8;

/** Reads the heads of the rows. */
export function rowsOfPage({ bounds, form, rows, rowCount }: FiredPage): OracleRow[] {
  const stride = (form?.bytes ?? ROW_BYTES) / CELL_BYTES;
  const cells = new BigInt64Array(rows.buffer, rows.byteOffset, rowCount * stride);
  return Array.from({ length: rowCount }, (_, row) => {
    const [accountId, count, sum, sumHigh, min, max, last, spare] = cells.subarray(row * stride);
    if (bounds.kind === 'window' && spare !== 0n)
      throw new Error(`the spare cell contains ${spare} instead of 0`);
    return {
      accountId: BigInt.asUintN(64, accountId as bigint),
      ...boundsOf(bounds, spare as bigint, last as bigint),
      count: BigInt.asUintN(64, count as bigint),
      sum: sum as bigint,
      min: min as bigint,
      max: max as bigint,
      lastUpdateTs: last as bigint,
      overflow: sumHigh !== ((sum as bigint) < 0n ? -1n : 0n),
    };
  });
}

function boundsOf(bounds: FiredBounds, start: bigint, last: bigint) {
  return bounds.kind === 'window'
    ? { windowStart: BigInt(bounds.start), windowEnd: BigInt(bounds.end) }
    : { windowStart: start, windowEnd: last + BigInt(bounds.gapMs) };
}

/** Reads each firing to its end, `pageRows` rows at a time, and closes it. */
export async function rowsOfFirings(firings: readonly Firing[], pageRows = 3): Promise<OracleRow[]> {
  const found: OracleRow[] = [];
  const page = new Uint8Array(pageRows * ROW_BYTES);
  for (const firing of firings) {
    let rows = 0;
    for (;;) {
      const rowCount = await firing.read(page);
      if (rowCount === 0) break;
      rows += rowCount;
      found.push(...rowsOfPage({ bounds: firing.bounds, rows: page, rowCount }));
    }
    firing.close();
    firing.close();
    // Only a swept firing may be empty: its rows are known only after the sweep.
    const mayBeNone = firing instanceof SweptFiring;
    if ((rows === 0 && !mayBeNone) || rows > firing.rowsMax)
      throw new Error(`a firing of at most ${firing.rowsMax} rows has ${rows}`);
  }
  return found;
}
