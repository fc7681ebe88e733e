import type { OpenTransaction } from '../database/transaction.ts';
import { positional, type TextRow } from './text-params.ts';

/** Transaction of knex: the argument of `knex.transaction`. */
export interface KnexTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: the client's own types of bindings and results
  raw(text: string, bindings: any): PromiseLike<any>;
}

/** Adapts a transaction of knex.
 *  @example
 *  await knex.transaction(async (trx) => {
 *    await trx('parcels').where({ id: parcelId }).update({ state: 'sent' });
 *    await append(knexTransaction(trx), 'outbox', [event]);
 *  });
 */
export function knexTransaction(trx: KnexTransaction): OpenTransaction {
  // All transactions of a knex instance share its configuration.
  const { client } = trx as { readonly client?: { readonly config?: object } };
  return {
    catalog: client?.config ?? trx,
    async query(text, params) {
      const { parts, values } = positional(text, params);
      // A question mark is a parameter, and with a backslash it is itself.
      const raw = parts.map((part) => part.replaceAll('?', '\\?')).join('?');
      const result: { readonly rows: TextRow[] } = await trx.raw(raw, values);
      return { rows: result.rows };
    },
  };
}
