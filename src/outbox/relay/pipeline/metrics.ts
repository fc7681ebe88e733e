/** Metrics of the pipeline. */
import type { Metrics } from '../../../core/metrics.ts';

export const publishingMetrics = (metrics: Metrics) => ({
  published: metrics.counter(
    'relay_published_total',
    'Outbox rows acknowledged by the broker, repeats included.',
  ),
  flights: metrics.counter('relay_flights_total', 'Batches sent to the broker.'),
  failed: metrics.counter(
    'relay_publish_failed_total',
    'Rows that the broker did not acknowledge; they stay pending.',
  ),
  oversize: metrics.counter(
    'relay_oversize_total',
    'Attempts to send rows that exceed the record limit; the rows stay pending.',
  ),
  deadLetters: metrics.counter(
    'relay_dead_letters_total',
    'Outbox rows copied into relay_dead_letters because they can never be published.',
  ),
  gaps: metrics.counter(
    'relay_order_gaps_total',
    'Rows acknowledged although an earlier row of their key was not; stays 0.',
  ),
  seconds: metrics.histogram(
    'relay_publish_seconds',
    'Time from sending a batch to the acknowledgement of its last row.',
  ),
  inFlight: metrics.gauge('relay_under_way_rows', 'Rows accepted and not yet marked.'),
  inFlightBytes: metrics.gauge('relay_under_way_bytes', 'Memory of the rows accepted and not yet marked.'),
  held: metrics.gauge(
    'relay_held_keys',
    'Blocked keys: they publish nothing until their failed rows are retried.',
  ),
});
