/** Measures the cost of statements in units that the server counts, which do not depend on the
 *  machine's speed. */
import type { SqlPool, SqlRow, SqlSession, SqlValue } from '../../src/io/postgres/sql/port.ts';

export interface Cost {
  /** Pages read, from memory or disk. */
  readonly pages: number;
  /** Rows that the plan nodes read, including rows removed by filters. */
  readonly rows: number;
}

interface Step {
  readonly Plans?: readonly Step[];
  readonly [name: string]: unknown;
}

const COUNTED = [
  'Actual Rows',
  'Rows Removed by Filter',
  'Rows Removed by Join Filter',
  'Rows Removed by Index Recheck',
];
const number = (step: Step, name: string): number => Number(step[name] ?? 0);

const rowsOf = (step: Step): number =>
  COUNTED.reduce((sum, name) => sum + number(step, name), 0) * number(step, 'Actual Loops') +
  (step.Plans ?? []).reduce((sum, inner) => sum + rowsOf(inner), 0);

/** Returns a pool that runs EXPLAIN ANALYZE for each SELECT before the statement itself, with the
 *  same parameters in the same session. */
export function explained(pool: SqlPool): { readonly pool: SqlPool; readonly cost: () => Cost } {
  let cost: Cost = { pages: 0, rows: 0 };
  const wrap = (session: SqlSession): SqlSession => ({
    async query<R extends SqlRow>(
      text: string,
      params?: readonly SqlValue[],
      limits?: Parameters<SqlSession['query']>[2],
    ) {
      const select = text.replace(/^\s*CREATE TEMP TABLE \w+ ON COMMIT DROP AS\s/, '');
      if (/^\s*(SELECT|WITH)\b/.test(select)) {
        const { rows } = await session.query<{ 'QUERY PLAN': string }>(
          `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ${select}`,
          params,
        );
        const [{ Plan: plan }] = JSON.parse(rows[0]?.['QUERY PLAN'] ?? '') as [{ Plan: Step }];
        const pages = number(plan, 'Shared Hit Blocks') + number(plan, 'Shared Read Blocks');
        cost = { pages: cost.pages + pages, rows: cost.rows + rowsOf(plan) };
      }
      return session.query<R>(text, params, limits);
    },
    copyIn: (table, columns, rows) => session.copyIn(table, columns, rows),
  });
  return {
    pool: {
      ...wrap(pool),
      transaction: (work) => pool.transaction((session) => work(wrap(session))),
      systemIdentifier: () => pool.systemIdentifier(),
      close: () => pool.close(),
    },
    cost: () => cost,
  };
}
