/** Lookup of orders whose record payments parked; the key of the record is the order_id. */
import type { SqlSession } from '../../io/postgres/sql/port.ts';
import { exists } from './comparison.ts';
import type { CompareOptions } from './pairs/compare.ts';

/** @returns undefined if payments has no table of parked records */
export async function parkedLookup(
  payments: SqlSession,
  schema: string,
): Promise<CompareOptions['setAside']> {
  const table = `${schema}.payments_parked`;
  if (!(await exists(payments, table))) return undefined;
  return async (session, ids) => {
    const { rows } = await session.query<{ id: string }>(
      `SELECT DISTINCT id FROM unnest($1::text[]) AS id WHERE EXISTS (
         SELECT FROM ${table} p WHERE p.key = convert_to(id, 'UTF8'))`,
      [ids],
    );
    return new Set(rows.map(({ id }) => id));
  };
}
