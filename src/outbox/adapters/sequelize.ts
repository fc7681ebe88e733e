import type { OpenTransaction } from '../database/transaction.ts';
import { numbered, type TextRow } from './text-params.ts';

/** Instance of Sequelize. */
export interface SequelizeClient {
  // biome-ignore lint/suspicious/noExplicitAny: the client's own types of options and results
  query(text: string, options: any): PromiseLike<any>;
}

/** Adapts a managed or unmanaged transaction of Sequelize.
 *  @param transaction the argument of `sequelize.transaction`
 *  @example
 *  await sequelize.transaction(async (transaction) => {
 *    await Parcel.update({ state: 'sent' }, { where: { id: parcelId }, transaction });
 *    await append(sequelizeTransaction(sequelize, transaction), 'outbox', [event]);
 *  });
 */
export function sequelizeTransaction(
  sequelize: SequelizeClient,
  transaction: object | null,
): OpenTransaction {
  return {
    catalog: sequelize,
    async query(text, params) {
      const given = numbered(text, params);
      // Without a type, the client derives the form of the result from the text of the statement.
      const options = { transaction, bind: given.values, type: 'RAW' };
      const [rows]: [TextRow[]] = await sequelize.query(given.text, options);
      return { rows };
    },
  };
}
