/** Metrics of wal mode. */
import type { Metrics } from '../../../core/metrics.ts';
import type { SlotState } from './slot.ts';

const STATUSES = ['reserved', 'extended', 'unreserved', 'lost'] as const;

export type WalMetrics = ReturnType<typeof walMetrics>;

export function walMetrics(metrics: Metrics) {
  const status = metrics.gauge(
    'relay_slot_wal_status',
    'wal_status of the replication slot: 1 for its current status.',
    ['status'],
  );
  const series = STATUSES.map((name) => status.series(name));
  const lag = metrics.gauge('relay_wal_lag_bytes', 'WAL written and not yet confirmed by the relay.');
  const retained = metrics.gauge('relay_slot_retained_bytes', 'WAL that the server retains for the slot.');
  const safe = metrics.gauge(
    'relay_slot_safe_wal_bytes',
    'safe_wal_size: WAL that may still be written before the slot is in danger; +Inf without max_slot_wal_keep_size.',
  );
  return {
    active: metrics.gauge('relay_wal_active', '1 while this process reads the slot, 0 on standby.'),
    transactions: metrics.counter(
      'relay_wal_transactions_total',
      'Committed transactions received, with rows of the outbox or without.',
    ),
    rows: metrics.counter('relay_wal_rows_total', 'Outbox rows received, repeats included.'),
    skipped: metrics.counter(
      'relay_wal_skipped_total',
      'Outbox rows received that were published before the stream began, and so are not published again.',
    ),
    reconnects: metrics.counter(
      'relay_wal_reconnects_total',
      'Streams that ended unexpectedly and were started again.',
    ),
    heartbeats: metrics.counter('relay_wal_heartbeats_total', 'Messages written so that the slot moves.'),
    pauses: metrics.counter(
      'relay_wal_pauses_total',
      'Times the stream was paused because too many rows were waiting.',
    ),
    recreated: metrics.counter('relay_wal_slot_recreated_total', 'Slots created again, by reason.', [
      'reason',
    ]),
    swept: metrics.counter(
      'relay_wal_swept_total',
      'Rows published from the table because the stream could not deliver them, by reason.',
      ['reason'],
    ),
    oversize: metrics.counter(
      'relay_wal_oversize_total',
      'Messages of the stream above the size limit; their rows stay pending.',
    ),
    parked: metrics.gauge(
      'relay_wal_parked_keys',
      'Parked keys: the broker refuses a row of each, which is retried from the table while the stream continues.',
    ),
    sweeperFound: metrics.counter(
      'sweeper_found_total',
      'Pending rows that only a sweep or an audit of the table found; 0 in normal operation.',
    ),
    /** Shows the state of the slot; undefined: the slot does not exist. */
    show(slot: SlotState | undefined): void {
      for (const [i, name] of STATUSES.entries()) status.set(slot?.walStatus === name ? 1 : 0, series[i]);
      if (slot === undefined) return;
      lag.set(Number(slot.currentLsn > slot.confirmed ? slot.currentLsn - slot.confirmed : 0n));
      retained.set(slot.retainedBytes);
      safe.set(slot.safeWalBytes ?? Number.POSITIVE_INFINITY);
    },
  };
}
