/** Edge between rows that have expired by rule and rows that must exist. */
import type { SqlSession } from '../../../io/postgres/sql/port.ts';
import type { Pair, PairPools } from './pair.ts';
import { epochMs, type PairSide } from './side.ts';

/** Margin at the edge of expired rows: rows of one transaction differ slightly in time. */
const MARGIN_MS = 60_000;

async function oldestMs(session: SqlSession, side: PairSide): Promise<number | undefined> {
  const { rows } = await session.query<{ ms: number | null }>(
    `SELECT ${epochMs(`min(${side.time})`)} AS ms FROM ${side.table.sql}`,
  );
  return rows[0]?.ms ?? undefined;
}

/** Time from which on a row that is missing is a delta. Where one side begins later than the other,
 *  its older rows have expired. */
export function retainedFromMs(left: number | undefined, right: number | undefined): number | undefined {
  if (left === undefined || right === undefined) return undefined;
  return Math.abs(left - right) > MARGIN_MS ? Math.max(left, right) + MARGIN_MS : undefined;
}

/** Reads that time for a pair whose rows expire by a rule that is not known here. */
export async function readRetainedFromMs(
  pair: Pair,
  pools: PairPools,
  nowMs: number,
): Promise<number | undefined> {
  if (pair.keepMs !== undefined) return nowMs - pair.keepMs;
  const [left, right] = await Promise.all([
    oldestMs(pools.left, pair.left),
    oldestMs(pools.right, pair.right),
  ]);
  return retainedFromMs(left, right);
}
