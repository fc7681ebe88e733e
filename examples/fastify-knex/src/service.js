// Millrace: the names of its tables, and the service that migrates them and does the work.
import { Service } from 'millrace/outbox';

export const tables = {
  outboxTable: 'order_outbox',
  inbox: 'invoice_inbox',
  parkedTable: 'invoice_parked',
  effectsTable: 'effects',
  idempotencyTable: 'idempotency',
};
export const topic = process.env.ORDERS_TOPIC ?? 'orders';

export const openService = (drivers) =>
  Service.open({
    ...drivers,
    name: 'shop',
    schema: 'public',
    postgres: process.env.DATABASE_URL,
    brokers: process.env.KAFKA_BROKERS,
  });
