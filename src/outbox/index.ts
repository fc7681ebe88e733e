/** Product 2: effects. For a service of one's own: an outbox to append to, a relay over it, an inbox around a consumer; docs/outbox.md
 *  says how they fit together, and `millrace/drivers` what to hand in. Beside them what orders, payments and the reconciler share
 *  with whoever judges them.
 */

// The outbox: events in the transaction that makes them true.
export {
  APPEND_BYTES_MAX,
  append,
  EVENTS_MAX,
  type Json,
  lockAggregates,
  type MessageIds,
  type OutboxEvent,
  PAYLOAD_BYTES_MAX,
} from './append/events.ts';
export { outboxJsonSql, outboxTableSql } from './append/table.ts';
// Every part.
export { type SessionSettings, withSettings } from './database/connection.ts';
export { migrationsOf } from './database/migration-files.ts';
export { type Migration, migrate, requireTables } from './database/migrations.ts';
export type { ServiceParts } from './database/parts.ts';
export type { OpenTransaction } from './database/transaction.ts';
export {
  CONSUMER_DEFAULTS,
  HORIZON_DEFAULTS,
  KEEPER_DEFAULTS,
  RELAY_DEFAULTS,
  SERVICE_DEFAULTS,
  WAL_DEFAULTS,
} from './defaults.ts';
export { OUTBOX_ERRORS, outboxError } from './errors.ts';
export { canonicalUuid, UuidV7 } from './ids.ts';
// The inbox: each message's effect once.
export { InboxConsumer, type InboxConsumerOptions } from './inbox/consumer.ts';
export { type InboxNames, inboxNames } from './inbox/names.ts';
export { CLAIM_IDS_MAX, Inbox, once } from './inbox/once.ts';
export type { Claim, InboxPort, InboxRecord, Once, ParkReason, RecordPlace } from './inbox/port.ts';
export { type Redriven, type RedriveOptions, redriveParked } from './inbox/redrive.ts';
export { checkTtl, type DedupTtl, type HorizonParts } from './inbox/retention/horizon.ts';
export {
  InboxKeeper,
  type InboxKeeperOptions,
  type Kept,
  readDatabaseNowMs,
  readOldestUnmarkedMs,
} from './inbox/retention/keeper.ts';
export {
  type HorizonBound,
  type HorizonReading,
  type HorizonSources,
  type LiveHorizon,
  liveHorizon,
  type TopicReading,
} from './inbox/retention/live-horizon.ts';
export { readTopicAges, type TopicAgesOptions } from './inbox/retention/topic-ages.ts';
export type { RetrySettings } from './inbox/retries.ts';
export { inboxTableSql, parkedDigestSql, parkedTableSql } from './inbox/table.ts';
// What the load kept of its intents, and the comparison with what the tables have.
export {
  isFinalStatus,
  type LedgerEntry,
  type LedgerSummary,
  readLedger,
  summarizeLedger,
} from './reconcile/client-ledger.ts';
export type { LedgerEntries } from './reconcile/ledger.ts';
export { reconciliationText } from './reconcile/report.ts';
export { type Delta, type ReconcileOptions, type Reconciliation, reconcile } from './reconcile/run.ts';
export { Relay, type RelayOptions, type RelaySettings } from './relay/instance.ts';
// The relay: from the table to the broker.
export { ORDER_EVENTS_TOPIC, toRecord } from './relay/pipeline/event.ts';
export type { RelayCrashPoint } from './relay/source.ts';
export { WalSource, type WalSourceOptions } from './relay/wal/source.ts';
export { Service, type ServiceConsumer, type ServiceOptions, type ServiceRelay } from './service.ts';
