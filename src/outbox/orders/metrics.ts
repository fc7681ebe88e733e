/** Metrics of the write path of orders. */
import type { Counter, Gauge, Histogram, Metrics } from '../../core/metrics.ts';
import { LATENCY_BUCKETS_S } from '../../core/metrics.ts';

export interface OrdersMetrics {
  readonly transactionRows: Histogram;
  readonly transactionSeconds: Histogram;
  readonly batchRowsMax: Gauge;
  readonly gatherSeconds: Gauge;
  readonly queued: Gauge;
  readonly inFlight: Gauge;
  readonly readsInFlight: Gauge;
  /** By source of the answer. */
  readonly replays: Counter;
  readonly shed: Counter;
  readonly splits: Counter;
  readonly retries: Counter;
  readonly unknown: Counter;
  readonly held: Counter;
  readonly deadlines: Counter;
  readonly cacheBytes: Gauge;
}

export function ordersMetrics(metrics: Metrics): OrdersMetrics {
  return {
    transactionRows: metrics.histogram(
      'orders_transaction_rows',
      'Orders written by one transaction.',
      [],
      [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
    ),
    transactionSeconds: metrics.histogram(
      'orders_transaction_seconds',
      'Time of a transaction that writes orders, its commit included.',
      [],
      LATENCY_BUCKETS_S,
    ),
    batchRowsMax: metrics.gauge('orders_batch_rows_max', 'Maximum number of orders in the next transaction.'),
    gatherSeconds: metrics.gauge(
      'orders_gather_seconds',
      'Longest time that an order waits for its batch to fill.',
    ),
    queued: metrics.gauge('orders_queued', 'Orders that wait for a transaction.'),
    inFlight: metrics.gauge('orders_in_flight', 'Create requests in flight.'),
    readsInFlight: metrics.gauge('orders_reads_in_flight', 'Reads of orders in flight.'),
    replays: metrics.counter(
      'orders_replays_total',
      'Repeats answered from memory, together with the first request in flight, or from the database.',
      ['source'],
    ),
    shed: metrics.counter('orders_shed_total', 'Requests refused before any work.', ['reason']),
    splits: metrics.counter('orders_batch_splits_total', 'Batches split because one of their orders failed.'),
    retries: metrics.counter('orders_retries_total', 'Transactions retried.', ['reason']),
    unknown: metrics.counter(
      'orders_unknown_commits_total',
      'Transactions with an unknown outcome, which was read back.',
    ),
    held: metrics.counter(
      'orders_held_keys_total',
      'Orders that had to wait because another transaction was writing their key.',
    ),
    deadlines: metrics.counter('orders_deadline_passed_total', 'Requests without an outcome in time.'),
    cacheBytes: metrics.gauge('orders_replay_cache_bytes', 'Memory of the replay cache.'),
  };
}
