/** Metrics of the engine. Latencies: `accumulate` (each event) is the time from receipt by the
 *  broker client to the update of its accumulator; `step` (each batch) is the time from admission
 *  to firing; `sink` (each result) is the time from the firing of its window until it is durable;
 *  the other stages observe each unit of work. */
import {
  type Counter,
  type Gauge,
  type Histogram,
  LATENCY_BUCKETS_S,
  type Metrics,
} from '../core/metrics.ts';
import { LIMITS, STAGES, type Stages } from './stages.ts';

/** Finer near the limits: 5 ms for an event to reach its accumulator, and some seconds for a large
 *  firing. A quantile is reported as the upper bound of its bucket, so finer buckets make the
 *  comparison with a limit sharper. */
export const STAGE_BUCKETS_S: readonly number[] = [
  ...LATENCY_BUCKETS_S,
  ...[2e-3, 3e-3, 4e-3, 4.5e-3, 6e-3, 7.5e-3, 0.75, 1.5, 2, 3, 4],
].sort((a, b) => a - b);

export interface EngineMetrics {
  readonly events: Counter;
  readonly ingestRate: Gauge;
  readonly filtered: Counter;
  readonly empty: Counter;
  readonly earlyResults: Counter;
  readonly duplicates: Counter;
  readonly dedupIds: Gauge;
  readonly dedupBytes: Gauge;
  readonly invalid: Counter;
  readonly invalidReasons: Counter;
  readonly droppedLate: Counter;
  readonly droppedAfterIdle: Counter;
  readonly futureClamped: Counter;
  readonly lateSent: Counter;
  readonly lateWaiting: Gauge;
  readonly lateKept: Counter;
  readonly quarantined: Counter;
  readonly quarantineWaiting: Gauge;
  readonly watermark: Gauge;
  readonly watermarkLag: Gauge;
  readonly unread: Gauge;
  readonly openWindows: Gauge;
  readonly openKeys: Gauge;
  readonly stateBytes: Gauge;
  readonly keyBytes: Gauge;
  readonly firedBytes: Gauge;
  readonly spillBytes: Counter;
  readonly spilledBytes: Gauge;
  readonly firedWindows: Counter;
  readonly sinkRows: Counter;
  readonly sinkWaiting: Gauge;
  readonly sinkRate: Gauge;
  readonly checkpoints: Counter;
  readonly checkpointSeconds: Histogram;
  readonly checkpointBytes: Gauge;
  readonly checkpointAge: Gauge;
  readonly recoverySeconds: Gauge;
  readonly ready: Gauge;
  readonly stage: Histogram;
  readonly stageQuantile: Gauge;
  /** Exports the stage times. */
  watch(stages: Stages): void;
  /** Runs `collector` before each scrape. */
  onCollect(collector: () => void): void;
}

/** Label values of the stage histogram; `sink` observes the latency of results, not of writes. */
const LATENCIES = ['accumulate', 'step', ...STAGES] as const;
const QUANTILES = [0.5, 0.99, 0.999] as const;

/** Metrics of the input and of the progress of event time. */
function inputMetrics(metrics: Metrics) {
  return {
    events: metrics.counter('engine_events_total', 'Events consumed, restored count included.'),
    ingestRate: metrics.gauge(
      'engine_ingest_events_per_second',
      'Events consumed per second, over the last second.',
    ),
    filtered: metrics.counter(
      'engine_filtered_events_total',
      'Events that this process read and -where excludes; they are accepted, advance the watermark, and are in no window.',
    ),
    empty: metrics.counter(
      'engine_empty_records_total',
      'Records that this process read and whose list has no element, so that they have no event.',
    ),
    earlyResults: metrics.counter(
      'engine_early_results_total',
      'Early results of open windows that were sent to the sinks (-emit=updates).',
    ),
    duplicates: metrics.counter(
      'engine_duplicate_events_total',
      'Events that this process read and did not fold, because an open window of their key has their identifier (-dedup).',
    ),
    invalid: metrics.counter(
      'engine_invalid_events_total',
      'Records that are no event: the reasons are those of engine_invalid_records_total.',
    ),
    invalidReasons: metrics.counter(
      'engine_invalid_records_total',
      'Invalid records that this process read, by reason (docs/reference/engine-results.md).',
      ['reason'],
    ),
    droppedLate: metrics.counter(
      'dropped_late',
      'Events older than their watermark by more than the lateness.',
    ),
    droppedAfterIdle: metrics.counter(
      'engine_dropped_after_idle_total',
      'Dropped events that only the frontier made late: their partition had been idle.',
    ),
    futureClamped: metrics.counter(
      'engine_future_clamped_total',
      'Events beyond their append time + -max-future; they move the watermark only up to that sum.',
    ),
    watermark: metrics.gauge(
      'engine_watermark_ms',
      'Least watermark over the partitions, ms since the epoch; NaN before every partition had an event.',
    ),
    watermarkLag: metrics.gauge('engine_watermark_lag_ms', 'Wall time minus watermark.'),
    unread: metrics.gauge(
      'engine_unread_events',
      'Records of the topic not consumed yet; the broker is asked every second.',
    ),
  };
}

/** Metrics of the side outputs. */
function sideMetrics(metrics: Metrics) {
  return {
    lateSent: metrics.counter(
      'engine_late_sent_total',
      'Copies of late events that -late-topic has acknowledged to this process; after a crash some are sent again.',
    ),
    lateWaiting: metrics.gauge(
      'engine_late_waiting',
      'Copies of late events that -late-topic has not acknowledged yet.',
    ),
    lateKept: metrics.counter(
      'engine_late_kept_total',
      'Late events that this process stored for GET /late; each partition keeps its newest, -late-keep of them.',
    ),
    quarantined: metrics.counter(
      'engine_quarantined_total',
      'Invalid records that the quarantine has acknowledged to this process; after a crash some are sent again.',
    ),
    quarantineWaiting: metrics.gauge(
      'engine_quarantine_waiting',
      'Invalid records that the quarantine has not acknowledged yet.',
    ),
  };
}

/** Metrics of open windows, in memory and on disk. */
function stateMetrics(metrics: Metrics) {
  return {
    openWindows: metrics.gauge(
      'engine_open_windows',
      'Slices of windows, or sessions, that hold at least one key and have not fired.',
    ),
    openKeys: metrics.gauge(
      'engine_open_keys',
      'Accumulators held: one for each (key, slice) or session, and on disk one in each sorted run that holds a part of it.',
    ),
    stateBytes: metrics.gauge(
      'engine_state_bytes',
      'Bytes of memory in the tables and sorted runs of open windows.',
    ),
    dedupIds: metrics.gauge('engine_dedup_ids', 'Identifiers of open windows (-dedup).'),
    dedupBytes: metrics.gauge(
      'engine_dedup_bytes',
      'Approximate bytes of memory of the identifiers of open windows.',
    ),
    keyBytes: metrics.gauge(
      'engine_key_bytes',
      'Bytes of memory of the dictionary of keys; 0 if keys are integers.',
    ),
    firedBytes: metrics.gauge(
      'engine_fired_bytes',
      'Bytes on disk of the store of fired windows, refreshed every second.',
    ),
    spillBytes: metrics.counter(
      'engine_spill_bytes_total',
      'Bytes of state spilled to disk because memory is limited; 0 with -state=mem.',
    ),
    spilledBytes: metrics.gauge('engine_spilled_bytes', 'Bytes of the rows of state on disk.'),
  };
}

/** Metrics of results, checkpoints and recovery. */
function outputMetrics(metrics: Metrics) {
  return {
    firedWindows: metrics.counter(
      'engine_fired_windows_total',
      'Windows fired; for sessions, the number of firings.',
    ),
    sinkRows: metrics.counter('engine_sink_rows_total', 'Results durable in the sink.'),
    sinkWaiting: metrics.gauge('engine_sink_waiting_rows', 'Results fired and not yet durable.'),
    sinkRate: metrics.gauge(
      'engine_sink_rows_per_second',
      'Results made durable per second, over the last second.',
    ),
    checkpoints: metrics.counter('engine_checkpoints_total', 'Checkpoints completed.'),
    checkpointSeconds: metrics.histogram(
      'engine_checkpoint_duration_seconds',
      'Time from the cut of the state until the manifest is durable.',
    ),
    checkpointBytes: metrics.gauge('engine_checkpoint_bytes', 'Bytes of the newest checkpoint.'),
    checkpointAge: metrics.gauge(
      'engine_checkpoint_age_seconds',
      'Time since the newest checkpoint, or since the start if there is none.',
    ),
    ready: metrics.gauge(
      'engine_ready',
      '1 if the engine has restored and reaches its sinks and its side outputs; else 0.',
    ),
    recoverySeconds: metrics.gauge(
      'engine_recovery_seconds',
      'Time from the start of the restore until the first batch is requested.',
    ),
  };
}

/** Registers the metrics of an engine; call it once for each registry of metrics.
 *  @example
 *  const metrics = engineMetrics(new Metrics());
 */
export function engineMetrics(metrics: Metrics): EngineMetrics {
  const registered: EngineMetrics = {
    ...inputMetrics(metrics),
    ...sideMetrics(metrics),
    ...stateMetrics(metrics),
    ...outputMetrics(metrics),
    stage: metrics.histogram('engine_stage_seconds', 'Latency of a stage.', ['stage'], STAGE_BUCKETS_S),
    stageQuantile: metrics.gauge(
      'engine_stage_quantile_seconds',
      'Upper bound of the quantile of a stage, since start.',
      ['stage', 'quantile'],
    ),
    watch: (stages) => {
      const stageTimes = stageTimeMetrics(metrics);
      const series = new Map(STAGES.map((stage) => [stage, registered.stage.series(stage)]));
      series.delete('sink');
      stages.onWorkDone = (stage, ms) => {
        const at = series.get(stage);
        if (at !== undefined) registered.stage.observe(ms / 1000, at);
      };
      metrics.onCollect(() => stageTimes(stages));
    },
    onCollect: (collector) => metrics.onCollect(collector),
  };
  metrics.onCollect(() => {
    for (const stage of LATENCIES) {
      for (const quantile of QUANTILES) {
        const value = registered.stage.quantile(quantile, registered.stage.series(stage));
        registered.stageQuantile.set(value, registered.stageQuantile.series(stage, String(quantile)));
      }
    }
  });
  return registered;
}

function stageTimeMetrics(metrics: Metrics): (stages: Stages) => void {
  const busy = metrics.counter('engine_stage_busy_seconds_total', 'Time in which the stage was working.', [
    'stage',
  ]);
  const blocked = metrics.counter(
    'engine_stage_blocked_seconds_total',
    'Time in which the stage had work but waited for another stage.',
    ['stage'],
  );
  const idle = metrics.counter('engine_stage_idle_seconds_total', 'Time in which the stage had no work.', [
    'stage',
  ]);
  const limited = metrics.counter(
    'engine_limited_seconds_total',
    'Time of the loop by the stage that it worked in or waited for; the largest share limits the engine.',
    ['by'],
  );
  return (stages) => {
    const { wallMs, busyMs, blockedMs, limitMs } = stages.times();
    for (const stage of STAGES) {
      const idleMs = Math.max(0, wallMs - busyMs[stage] - blockedMs[stage]);
      busy.setTotal(busyMs[stage] / 1000, busy.series(stage));
      blocked.setTotal(blockedMs[stage] / 1000, blocked.series(stage));
      idle.setTotal(idleMs / 1000, idle.series(stage));
    }
    for (const by of LIMITS) limited.setTotal(limitMs[by] / 1000, limited.series(by));
  };
}
