/** Entry point `millrace/outbox`: an outbox to append to, a relay that publishes it, and an inbox
 *  that applies each message once, for any service. docs/how-to/outbox.md shows how the parts fit
 *  together. `millrace/drivers` has the drivers and the metrics that the options take.
 */

// The outbox: appends events in the transaction of the change that they report.
export {
  AGGREGATE_ID_BYTES_MAX,
  type CloudEventFields,
  type EventSchema,
  HEADERS_BYTES_MAX,
  HEADERS_MAX,
  type JsonValue,
  type OutboxEvent,
  PAYLOAD_BYTES_MAX,
  type PayloadEvent,
  type SchemaEvent,
} from './append/event.ts';
export {
  APPEND_BYTES_MAX,
  append,
  EVENTS_MAX,
  lockAggregates,
  type MessageIds,
} from './append/events.ts';
export { derivedAggregateId, type HeaderValue } from './append/record-columns.ts';
export { outboxJsonSql, outboxRecordSql, outboxTableSql } from './append/table.ts';
export { type Migration, migrate } from './database/migrations.ts';
export type { ServiceParts } from './database/parts.ts';
export type { OpenTransaction, TransactionValue } from './database/transaction.ts';
export {
  CONSUMER_DEFAULTS,
  HORIZON_DEFAULTS,
  KEEPER_DEFAULTS,
  RELAY_DEFAULTS,
  SERVICE_DEFAULTS,
  WAL_DEFAULTS,
} from './defaults.ts';
// Effects: calls to third parties that a transaction decided on.
export { EFFECT_INPUT_BYTES_MAX, effect, type NewEffect } from './effects/add.ts';
export type { BreakerSettings } from './effects/breaker.ts';
export {
  type DeadEffect,
  type DeadFilter,
  listDeadEffects,
  redriveEffects,
  releaseEffects,
} from './effects/dead.ts';
export {
  EFFECT_DEFAULTS,
  type Effect,
  type EffectHandler,
  type EffectRetry,
  effectNotDone,
  effectRefused,
} from './effects/handler.ts';
export type { DeadReason } from './effects/retry.ts';
export { EFFECT_TIMES, EffectRunner, type EffectRunnerOptions } from './effects/runner.ts';
export {
  effectsOneRunningSql,
  effectsRunnerEndsSql,
  effectsTableSql,
  effectsTraceSql,
} from './effects/table.ts';
export { OUTBOX_ERRORS } from './errors.ts';
// Idempotent endpoints: one effect for each key that a client sends.
export {
  ANSWER_BYTES_MAX,
  type EndpointAnswer,
  REPLAYED_HEADERS,
  storedByDefault,
} from './idempotency/answer.ts';
export {
  IdempotentEndpoints,
  idempotency,
  idempotencySteps,
  type TransactionContext,
} from './idempotency/endpoints.ts';
export { type FingerprintPart, fingerprint } from './idempotency/fingerprint.ts';
export { KEY_CHARS_MAX, readKey } from './idempotency/key.ts';
export {
  IDEMPOTENCY_DEFAULTS,
  type IdempotencyOptions,
  type SelectedRequest,
} from './idempotency/options.ts';
export { type Idempotent, type IdempotentRequest, idempotent } from './idempotency/record.ts';
export type { TransactionSource } from './idempotency/source.ts';
export { STEP_BYTES_MAX, STEPS_MAX, type Steps } from './idempotency/steps.ts';
export { idempotencyTableSql } from './idempotency/table.ts';
export { canonicalUuid, UuidV7 } from './ids.ts';
// The inbox: applies each message once.
export type { TransactionRunner } from './inbox/client-transaction.ts';
export { InboxConsumer, type InboxConsumerOptions } from './inbox/consumer.ts';
export { type InboxNames, inboxNames } from './inbox/names.ts';
export { CLAIM_IDS_MAX, Inbox, once } from './inbox/once.ts';
export type { Claim, InboxPort, InboxRecord, Once, ParkReason, RecordPlace } from './inbox/port.ts';
export { type Redriven, type RedriveOptions, redriveParked } from './inbox/redrive.ts';
export { InboxKeeper, type InboxKeeperOptions } from './inbox/retention/keeper.ts';
export type { RetrySettings } from './inbox/retries.ts';
export { inboxTableSql, parkedDigestSql, parkedTableSql } from './inbox/table.ts';
// The relay: publishes the table to the broker.
export { Relay, type RelayOptions, type RelaySettings } from './relay/instance.ts';
export type { TopicSettings } from './relay/pipeline/topic-client.ts';
export { WalSource, type WalSourceOptions } from './relay/wal/source.ts';
export {
  Service,
  type ServiceConsumer,
  type ServiceEffects,
  type ServiceOptions,
  type ServiceRelay,
} from './service.ts';
