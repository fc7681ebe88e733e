/** Metrics of effects. The table is authoritative; metrics are for monitoring. */
import {
  type Counter,
  type Gauge,
  type Histogram,
  LATENCY_BUCKETS_S,
  type Metrics,
} from '../../core/metrics.ts';

export interface EffectMetrics {
  readonly attempts: Counter;
  readonly seconds: Histogram;
  readonly rows: Gauge;
  readonly open: Gauge;
}

export function effectMetrics(metrics: Metrics): EffectMetrics {
  return {
    attempts: metrics.counter(
      'effect_attempts_total',
      'Attempts at effects by outcome: done, retry, dead, or lost to another runner.',
      ['name', 'outcome'],
    ),
    seconds: metrics.histogram(
      'effect_attempt_seconds',
      'Time of one attempt at an effect.',
      ['name'],
      LATENCY_BUCKETS_S,
    ),
    rows: metrics.gauge(
      'effect_rows',
      'Effects that are not done, by state: waiting, running, dead (blocks its key), or released.',
      ['name', 'state'],
    ),
    open: metrics.gauge('effect_breaker_open', '1 while the circuit breaker of a handler is open.', ['name']),
  };
}
