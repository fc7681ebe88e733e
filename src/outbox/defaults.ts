/** Default settings that fit most services. Callers spread them under their own; the classes of the
 *  library assume none. */
import type { InboxConsumerOptions } from './inbox/consumer.ts';
import type { RelaySettings } from './relay/instance.ts';
import type { WalSourceOptions } from './relay/wal/source.ts';

/** Options of a relay in poll mode, except its addresses, table, topic and name. */
export const RELAY_DEFAULTS = {
  schema: 'public',
  mode: 'poll',
  shards: 16,
  leaseMs: 10_000,
  fence: 'mark',
  rowsMax: 1000,
  pollIntervalMs: 20,
  readEveryMs: 5,
  rescanMs: 60_000,
  inFlightBytesMax: 64 * 1024 * 1024,
  answerTimeoutMs: 30_000,
  deliveryTimeoutMs: 30_000,
  horizonWarnMs: 60_000,
  createTopic: { partitions: 4, replicationFactor: 0, retentionMs: 24 * 3_600_000 },
  exitWhenDrained: false,
} as const satisfies Partial<RelaySettings>;

/** Options of a relay in wal mode, except its driver and address. */
export const WAL_DEFAULTS = {
  names: {},
  connectTimeoutMs: 5000,
  heartbeatMs: 5000,
  auditMs: 30_000,
  messageBytesMax: 64 * 1024 * 1024,
} as const satisfies Partial<WalSourceOptions>;

/** Options of a consumer: up to 1,000 records a transaction, four attempts at a record that the
 *  database refuses, five minutes of retries for an effect that fails outside the database. */
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
  /** Far above the duration of a batch or a partition change; detects a database host that vanished
   *  without closing its connections. */
  answerTimeoutMs: 60_000,
  /** The default of bin/payments: three heartbeats of the broker client may be missed. */
  sessionTimeoutMs: 10_000,
} as const;

/** The defaults of bin/payments. The redelivery horizon is their sum plus the topic's retention. */
export const HORIZON_DEFAULTS = {
  relayOutageMs: 12 * 3_600_000,
  consumerOutageMs: 12 * 3_600_000,
  clockSkewMs: 5 * 60_000,
} as const;

/** Options of an inbox keeper: partitions of one hour, created two hours ahead, a check every 30 s.
 */
export const KEEPER_DEFAULTS = {
  widthMs: 3_600_000,
  aheadMs: 2 * 3_600_000,
  everyMs: 30_000,
  unsafe: false,
} as const;
