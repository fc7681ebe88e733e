import type { OpenTransaction } from '../database/transaction.ts';
import { positional, type TextRow } from './text-params.ts';

/** Transaction of drizzle-orm: the argument of `db.transaction`. */
export interface DrizzleTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: a query of the `sql` below
  execute(query: any): PromiseLike<unknown>;
}

/** Template tag `sql` of drizzle-orm. */
// biome-ignore lint/suspicious/noExplicitAny: the tag accepts any value
export type DrizzleSql = (strings: TemplateStringsArray, ...values: any[]) => unknown;

/** Adapts a transaction of drizzle-orm, over node-postgres or postgres.js.
 *  @param sql the tag `sql` of drizzle-orm
 *  @example
 *  await db.transaction(async (tx) => {
 *    await tx.update(parcels).set({ state: 'sent' }).where(eq(parcels.id, parcelId));
 *    await append(drizzleTransaction(tx, sql), 'outbox', [event]);
 *  });
 */
export function drizzleTransaction(tx: DrizzleTransaction, sql: DrizzleSql): OpenTransaction {
  // All transactions of a database object share its dialect.
  const { dialect } = tx as { readonly dialect?: object };
  return {
    catalog: dialect ?? tx,
    async query(text, params) {
      const { parts, values } = positional(text, params);
      const strings = Object.assign(parts, { raw: parts }) as unknown as TemplateStringsArray;
      const result = await tx.execute(sql(strings, ...values));
      // Over postgres.js the result is the array of rows itself.
      return { rows: Array.isArray(result) ? [...result] : (result as { readonly rows: TextRow[] }).rows };
    },
  };
}
