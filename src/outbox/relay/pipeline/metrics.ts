/** What the pipeline counts. */
import type { Metrics } from '../../../core/metrics.ts';

export const publishingMetrics = (metrics: Metrics) => ({
  published: metrics.counter(
    'relay_published_total',
    'Outbox rows acknowledged by the broker, repeats included.',
  ),
  flights: metrics.counter('relay_flights_total', 'Batches handed to the broker.'),
  failed: metrics.counter(
    'relay_publish_failed_total',
    'Rows the broker did not acknowledge; they stay pending.',
  ),
  oversize: metrics.counter(
    'relay_oversize_total',
    'Attempts at rows that are larger than a record may be; they stay pending.',
  ),
  deadLetters: metrics.counter(
    'relay_dead_letters_total',
    'Outbox rows set aside in relay_dead_letters because they can never be published.',
  ),
  gaps: metrics.counter(
    'relay_order_gaps_total',
    'Rows acknowledged though a row of their key before them was not; stays 0.',
  ),
  seconds: metrics.histogram(
    'relay_publish_seconds',
    'From a flight to the acknowledgement of its last row.',
  ),
  underWay: metrics.gauge('relay_under_way_rows', 'Rows accepted and not yet marked.'),
  underWayBytes: metrics.gauge('relay_under_way_bytes', 'Memory of the rows accepted and not yet marked.'),
  held: metrics.gauge(
    'relay_held_keys',
    'Keys that publish nothing until what failed of them is tried again.',
  ),
});
