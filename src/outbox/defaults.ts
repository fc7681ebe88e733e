/** Settings that fit most services, for spreading under one's own; the library itself assumes none.
 */
import type { InboxConsumerOptions } from './inbox/consumer.ts';
import type { RelaySettings } from './relay/instance.ts';
import type { WalSourceOptions } from './relay/wal/source.ts';

/** Of a relay that polls, beside its addresses, table, topic and name. */
export const RELAY_DEFAULTS = {
  schema: 'public',
  mode: 'poll',
  shards: 16,
  leaseMs: 10_000,
  fence: 'mark',
  rowsMax: 1000,
  pollIntervalMs: 20,
  rescanMs: 60_000,
  inFlightBytesMax: 64 * 1024 * 1024,
  answerTimeoutMs: 30_000,
  deliveryTimeoutMs: 30_000,
  horizonWarnMs: 60_000,
  createTopic: { partitions: 4, replicationFactor: 1, retentionMs: 24 * 3_600_000 },
  exitWhenDrained: false,
} as const satisfies Partial<RelaySettings>;

/** Options of a relay in wal mode, beside its driver and address. */
export const WAL_DEFAULTS = {
  names: {},
  connectTimeoutMs: 5000,
  heartbeatMs: 5000,
  auditMs: 30_000,
  messageBytesMax: 64 * 1024 * 1024,
} as const satisfies Partial<WalSourceOptions>;

/** Defaults of a consumer: up to 1,000 records a transaction, four attempts at a record that the
 *  database refuses, five minutes for an effect that fails by itself. */
export const CONSUMER_DEFAULTS = {
  batchRows: 1000,
  batchBytes: 8 * 1024 * 1024,
  batchWaitMs: 100,
  attempts: 4,
  retry: {
    firstDelayMs: 100,
    maxDelayMs: 30_000,
    budgetMs: 5 * 60_000,
    waitingRowsMax: 10_000,
    waitingBytesMax: 64 * 1024 * 1024,
  },
} as const satisfies Partial<InboxConsumerOptions>;

export const SERVICE_DEFAULTS = {
  /** Far above what a batch or a partition takes, and an end to a host that vanished without a
   *  word. */
  answerTimeoutMs: 60_000,
  /** As bin/payments has it: three heartbeats of the broker client may be missed. */
  sessionTimeoutMs: 10_000,
} as const;

/** What bin/payments takes where it is told nothing: the horizon is the sum, with the topic's
 *  retention. */
export const HORIZON_DEFAULTS = {
  relayOutageMs: 12 * 3_600_000,
  consumerOutageMs: 12 * 3_600_000,
  clockSkewMs: 5 * 60_000,
} as const;

/** Of a keeper: partitions of an hour, two ahead, a look every half minute. */
export const KEEPER_DEFAULTS = {
  widthMs: 3_600_000,
  aheadMs: 2 * 3_600_000,
  everyMs: 30_000,
  unsafe: false,
} as const;
