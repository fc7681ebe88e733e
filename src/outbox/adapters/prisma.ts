import type { OpenTransaction } from '../database/transaction.ts';
import { numbered, type TextRow } from './text-params.ts';

/** Interactive transaction of Prisma: the argument of `prisma.$transaction`. */
export interface PrismaTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: the client's own types of values and rows
  $queryRawUnsafe(text: string, ...values: any[]): PromiseLike<any>;
}

/** Adapts an interactive transaction of Prisma.
 *  @example
 *  await prisma.$transaction(async (tx) => {
 *    await tx.parcel.update({ where: { id: parcelId }, data: { state: 'sent' } });
 *    await append(prismaTransaction(tx), 'outbox', [event]);
 *  });
 */
export function prismaTransaction(tx: PrismaTransaction): OpenTransaction {
  return {
    catalog: tx,
    async query(text, params) {
      const given = numbered(text, params);
      const rows: TextRow[] = await tx.$queryRawUnsafe(given.text, ...given.values);
      return { rows };
    },
  };
}
