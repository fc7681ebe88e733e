// The service's own tables. `npm run migrate` creates those of Millrace beside them.
import { bigserial, index, integer, pgTable, text, uuid } from 'drizzle-orm/pg-core';

export const orders = pgTable('orders', {
  id: uuid().primaryKey().defaultRandom(),
  customer: text().notNull(),
  cents: integer().notNull(),
});

export const invoices = pgTable(
  'invoices',
  {
    id: bigserial({ mode: 'bigint' }).primaryKey(),
    orderId: uuid('order_id').notNull(),
    cents: integer().notNull(),
    // Id of the payment at the provider; null until it is charged.
    charge: text(),
  },
  (table) => [index('invoices_order_id').on(table.orderId)],
);
