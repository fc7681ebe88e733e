import type { OpenTransaction } from '../database/transaction.ts';
import { numbered, type TextRow } from './text-params.ts';

/** Transaction of postgres.js: the `sql` of `sql.begin`. */
export interface PostgresJsSql {
  unsafe(
    text: string,
    // biome-ignore lint/suspicious/noExplicitAny: the client's own type of parameters
    values: any[],
    options: { readonly prepare: boolean },
  ): PromiseLike<Iterable<unknown>>;
}

/** Adapts a transaction of postgres.js.
 *  @example
 *  await sql.begin(async (tx) => {
 *    await tx`UPDATE parcels SET state = ${'sent'} WHERE id = ${parcelId}`;
 *    await append(postgresJsTransaction(tx), 'outbox', [event]);
 *  });
 */
export function postgresJsTransaction(sql: PostgresJsSql): OpenTransaction {
  return {
    catalog: sql,
    async query(text, params) {
      const given = numbered(text, params);
      // An unprepared statement with parameters costs a second round trip for their types.
      const rows = await sql.unsafe(given.text, given.values, { prepare: true });
      return { rows: [...rows] as TextRow[] };
    },
  };
}
