/** Metrics of payments. The tables are authoritative for effects; metrics are for monitoring. */
import {
  type Counter,
  type Gauge,
  type Histogram,
  LATENCY_BUCKETS_S,
  type Metrics,
} from '../../core/metrics.ts';
import { PARK_REASONS } from '../inbox/port.ts';
import type { BatchOutcome } from './store.ts';

export interface PaymentsMetrics {
  readonly messages: Counter;
  readonly injected: Counter;
  readonly ignored: Counter;
  readonly charges: Counter;
  readonly duplicates: Counter;
  readonly parked: Counter;
  readonly batchSeconds: Histogram;
  readonly commitToEffect: Histogram;
  readonly waiting: Gauge;
  readonly lag: Gauge;
  readonly ttlMargin: Gauge;
}

/** Buckets with a bound at the required limit of 2 s. */
export const EFFECT_BUCKETS_S: readonly number[] = [...LATENCY_BUCKETS_S, 2].sort((a, b) => a - b);

export function paymentsMetrics(metrics: Metrics): PaymentsMetrics {
  const parked = metrics.counter('payments_parked_total', 'Deliveries parked in payments_parked.', [
    'reason',
  ]);
  // A counter that begins with its first record has no increase that an alert could see.
  for (const reason of PARK_REASONS) parked.series(reason);
  return {
    messages: metrics.counter('payments_messages_total', 'Records read from the topic.'),
    injected: metrics.counter('payments_injected_total', 'Injected duplicates of records.'),
    ignored: metrics.counter('payments_ignored_total', 'Deliveries of an event type that charges nothing.'),
    charges: metrics.counter('payments_charges_total', 'Charges committed.'),
    duplicates: metrics.counter(
      'payments_duplicates_total',
      'Deliveries that charged nothing because their order was charged already.',
      ['kind'],
    ),
    parked,
    batchSeconds: metrics.histogram(
      'payments_batch_seconds',
      'Time of one batch transaction, commit included.',
    ),
    commitToEffect: metrics.histogram(
      'payments_commit_to_effect_seconds',
      'From the created_at of an order to the commit of its charge.',
      [],
      EFFECT_BUCKETS_S,
    ),
    waiting: metrics.gauge('payments_database_waiting', '1 while payments waits for its database.'),
    lag: metrics.gauge('consumer_lag_records', 'Records between the next one to read and the end.', [
      'topic',
      'partition',
    ]),
    ttlMargin: metrics.gauge('dedup_ttl_margin_seconds', 'Dedup TTL less the redelivery horizon.'),
  };
}

export function countOutcome(
  metrics: PaymentsMetrics,
  outcome: BatchOutcome,
  seconds: number,
  wallNowMs: number,
): void {
  metrics.batchSeconds.observe(seconds);
  metrics.charges.add(outcome.charged.length);
  for (const { event } of outcome.charged) {
    // The clocks of the processes may differ; the latency is never negative.
    if (event.createdMs !== undefined)
      metrics.commitToEffect.observe(Math.max(0, wallNowMs - event.createdMs) / 1000);
  }
  for (const { reason } of outcome.suppressed) metrics.duplicates.add(1, metrics.duplicates.series(reason));
  for (const { reason } of outcome.parked) metrics.parked.add(1, metrics.parked.series(reason));
}
