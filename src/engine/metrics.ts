/** The engine's metrics. Stages: `accumulate` is batch received to accumulators updated, counted for every event; `step`
 *  the operator's part of it, for every batch; `sink` window fired to result durable, for every result. */
import type { Counter, Gauge, Histogram, Metrics } from '../core/metrics.ts';

export interface EngineMetrics {
  readonly events: Counter;
  readonly ingestRate: Gauge;
  readonly invalid: Counter;
  readonly droppedLate: Counter;
  readonly watermark: Gauge;
  readonly watermarkLag: Gauge;
  readonly openWindows: Gauge;
  readonly openKeys: Gauge;
  readonly stateBytes: Gauge;
  readonly spillBytes: Counter;
  readonly firedWindows: Counter;
  readonly sinkRows: Counter;
  readonly sinkWaiting: Gauge;
  readonly sinkRate: Gauge;
  readonly checkpoints: Counter;
  readonly checkpointSeconds: Histogram;
  readonly checkpointBytes: Gauge;
  readonly recoverySeconds: Gauge;
  readonly stage: Histogram;
  readonly stageQuantile: Gauge;
}

const STAGES = ['accumulate', 'step', 'sink'] as const;
const QUANTILES = [0.5, 0.99, 0.999] as const;

export function engineMetrics(metrics: Metrics): EngineMetrics {
  const made: EngineMetrics = {
    events: metrics.counter('engine_events_total', 'Events consumed, restored count included.'),
    ingestRate: metrics.gauge(
      'engine_ingest_events_per_second',
      'Events consumed a second, over the last second.',
    ),
    invalid: metrics.counter(
      'engine_invalid_events_total',
      'Events that could not be read: wrong length, null, timestamp out of range.',
    ),
    droppedLate: metrics.counter(
      'dropped_late',
      'Events older than their watermark by more than the lateness.',
    ),
    watermark: metrics.gauge(
      'engine_watermark_ms',
      'Least watermark over the partitions, ms since the epoch; NaN before every partition had an event.',
    ),
    watermarkLag: metrics.gauge('engine_watermark_lag_ms', 'Wall time minus watermark.'),
    openWindows: metrics.gauge(
      'engine_open_windows',
      'Windows that hold at least one key and have not fired.',
    ),
    openKeys: metrics.gauge('engine_open_keys', 'Accumulators held, one a (key, window).'),
    stateBytes: metrics.gauge('engine_state_bytes', 'Bytes of the tables of open windows.'),
    spillBytes: metrics.counter(
      'engine_spill_bytes_total',
      'Bytes of state written to disk for want of memory; memory state writes none.',
    ),
    firedWindows: metrics.counter('engine_fired_windows_total', 'Windows fired.'),
    sinkRows: metrics.counter('engine_sink_rows_total', 'Results durable in the sink.'),
    sinkWaiting: metrics.gauge('engine_sink_waiting_rows', 'Results fired and not yet durable.'),
    sinkRate: metrics.gauge(
      'engine_sink_rows_per_second',
      'Results made durable a second, over the last second.',
    ),
    checkpoints: metrics.counter('engine_checkpoints_total', 'Checkpoints completed.'),
    checkpointSeconds: metrics.histogram('engine_checkpoint_duration_seconds', 'Cut to durable manifest.'),
    checkpointBytes: metrics.gauge('engine_checkpoint_bytes', 'Bytes of the newest checkpoint.'),
    recoverySeconds: metrics.gauge(
      'engine_recovery_seconds',
      'Start of the restore to the first batch asked for.',
    ),
    stage: metrics.histogram('engine_stage_seconds', 'Latency of a stage.', ['stage']),
    stageQuantile: metrics.gauge(
      'engine_stage_quantile_seconds',
      'Upper bound of the quantile of a stage, since start.',
      ['stage', 'quantile'],
    ),
  };
  metrics.onCollect(() => {
    for (const stage of STAGES) {
      for (const quantile of QUANTILES) {
        const value = made.stage.quantile(quantile, made.stage.series(stage));
        made.stageQuantile.set(value, made.stageQuantile.series(stage, String(quantile)));
      }
    }
  });
  return made;
}
