/** Product 2: effects. Orders with idempotency keys, an outbox and its relay, payments with an inbox, and the reconciler
 *  that compares them. */
export { type SessionSettings, withSettings } from './connection.ts';
export { OUTBOX_ERRORS, outboxError } from './errors.ts';
export { UuidV7 } from './ids.ts';
export {
  isFinalStatus,
  type LedgerEntry,
  type LedgerSummary,
  readLedger,
  summarizeLedger,
} from './load/ledger.ts';
export { type Migration, migrate, requireTables } from './migrations.ts';
export { type OrdersHttpOptions, ordersFallbacks, ordersRoutes } from './orders/http.ts';
export { BODY_BYTES_MAX, type CreateRequest } from './orders/request.ts';
export { type CreateAnswer, Orders, type OrdersOptions } from './orders/service.ts';
export { ORDERS_TABLES } from './orders/tables.ts';
export { OrderWriter } from './orders/writer.ts';
export { PaymentsConsumer, type PaymentsConsumerOptions } from './payments/consumer.ts';
export { DuplicateInjector } from './payments/duplicates.ts';
export { type PaymentEvent, readPaymentEvent } from './payments/event.ts';
export { checkTtl, type DedupTtl, type HorizonParts } from './inbox/horizon.ts';
export { type PaymentsMetrics, paymentsMetrics } from './payments/metrics.ts';
export { PAYMENTS_TABLES } from './payments/tables.ts';
export type { LedgerEntries } from './reconcile/ledger.ts';
export { type Delta, type ReconcileOptions, type Reconciliation, reconcile } from './reconcile/reconcile.ts';
export { reconciliationText } from './reconcile/report.ts';
export { ORDER_EVENTS_TOPIC, toRecord } from './relay/event.ts';
export { Relay, type RelayOptions, type RelaySettings } from './relay/relay.ts';
export type { RelayCrashPoint } from './relay/source.ts';
