import type { OpenTransaction } from '../database/transaction.ts';
import { numbered, type TextRow } from './text-params.ts';

/** Transaction of kysely: the argument of `db.transaction().execute`, or a controlled transaction.
 */
export interface KyselyTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: a CompiledQuery of the client
  executeQuery(query: any): PromiseLike<{ readonly rows: readonly unknown[] }>;
}

/** Adapts a transaction of kysely.
 *  @example
 *  await db.transaction().execute(async (trx) => {
 *    await trx.updateTable('parcels').set({ state: 'sent' }).where('id', '=', parcelId).execute();
 *    await append(kyselyTransaction(trx), 'outbox', [event]);
 *  });
 */
export function kyselyTransaction(trx: KyselyTransaction): OpenTransaction {
  // All transactions of a kysely instance share its adapter of the dialect.
  const { getExecutor } = trx as { getExecutor?(): { readonly adapter?: object } };
  return {
    catalog: getExecutor?.call(trx).adapter ?? trx,
    async query(text, params) {
      const given = numbered(text, params);
      // The form of CompiledQuery.raw, a public type of the client.
      const { rows } = await trx.executeQuery({
        sql: given.text,
        parameters: given.values,
        query: { kind: 'RawNode', sqlFragments: [given.text], parameters: [] },
        queryId: { queryId: 'millrace' },
      });
      return { rows: rows as readonly TextRow[] };
    },
  };
}
