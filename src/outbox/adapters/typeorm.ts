import type { OpenTransaction } from '../database/transaction.ts';
import { numbered, type TextRow } from './text-params.ts';

/** Query runner of TypeORM with a started transaction. */
export interface TypeormQueryRunner {
  /** Data source. */
  readonly connection?: object;
  // biome-ignore lint/suspicious/noExplicitAny: the client's own types of parameters and results
  query(text: string, values: any[], structured: true): Promise<any>;
}

/** Entity manager of TypeORM: the argument of `dataSource.transaction`. */
export interface TypeormManager {
  /** Data source. */
  readonly connection?: object;
  readonly queryRunner?: TypeormQueryRunner | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: the client's own types of parameters and results
  query(text: string, values: any[]): Promise<any>;
}

/** Adapts a transaction of TypeORM.
 *  @param manager the entity manager of a transaction, or a query runner after `startTransaction`
 *  @example
 *  await dataSource.transaction(async (manager) => {
 *    await manager.update(Parcel, parcelId, { state: 'sent' });
 *    await append(typeormTransaction(manager), 'outbox', [event]);
 *  });
 */
export function typeormTransaction(manager: TypeormManager | TypeormQueryRunner): OpenTransaction {
  const runner =
    'queryRunner' in manager && manager.queryRunner !== undefined ? manager.queryRunner : manager;
  return {
    catalog: runner.connection ?? runner,
    async query(text, params) {
      const given = numbered(text, params);
      const result = await (runner as TypeormQueryRunner).query(given.text, given.values, true);
      // A manager without a query runner is in no transaction and returns the rows alone.
      return { rows: Array.isArray(result) ? result : (result as { readonly records: TextRow[] }).records };
    },
  };
}
