/** Entry point `millrace/outbox/adapters`: the transaction of each database client as the
 *  OpenTransaction that `append`, `once` and `lockAggregates` take. A client of `pg` needs no
 *  adapter. No adapter imports its client, so it adds no dependency. An adapter is stateless: make
 *  one where it is needed. docs/how-to/database-clients.md has a transaction of each client.
 */
export type { OpenTransaction, TransactionValue } from '../database/transaction.ts';
export { type DrizzleSql, type DrizzleTransaction, drizzleTransaction } from './drizzle.ts';
export { type KnexTransaction, knexTransaction } from './knex.ts';
export { type KyselyTransaction, kyselyTransaction } from './kysely.ts';
export { type PostgresJsSql, postgresJsTransaction } from './postgres-js.ts';
export { type PrismaTransaction, prismaTransaction } from './prisma.ts';
export { type SequelizeClient, sequelizeTransaction } from './sequelize.ts';
export { type TypeormManager, type TypeormQueryRunner, typeormTransaction } from './typeorm.ts';
