/** Reads the coverage of a finished run: duplicates from the tables of payments, and requests from
 *  the report of the load client. */
import type { ChaosCoverage } from '../../chaos/coverage.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';

/** @param load report of the load client; a client without one is counted as zero */
export async function readCoverage(
  pool: SqlPool,
  schema: string,
  load: Readonly<Record<string, unknown>>,
): Promise<ChaosCoverage> {
  const { rows } = await pool.query<{ injected: bigint; others: bigint }>(
    `SELECT count(*) FILTER (WHERE injected) AS injected, count(*) FILTER (WHERE NOT injected) AS others
     FROM ${schema}.payments_suppressed`,
  );
  const reported = (name: string): number => Number(load[name] ?? 0);
  return {
    injected_duplicates: Number(rows[0]?.injected ?? 0n),
    redelivered: Number(rows[0]?.others ?? 0n),
    repeats: reported('repeats'),
    replayed: reported('replayed'),
    answers: reported('acknowledged') + reported('refused'),
    answers_over_grpc: reported('answered_over_grpc'),
  };
}
