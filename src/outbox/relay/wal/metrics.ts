/** What the wal mode counts and shows. */
import type { Metrics } from '../../../core/metrics.ts';
import type { SlotState } from './slot.ts';

const STATUSES = ['reserved', 'extended', 'unreserved', 'lost'] as const;

export type WalMetrics = ReturnType<typeof walMetrics>;

export function walMetrics(metrics: Metrics) {
  const status = metrics.gauge(
    'relay_slot_wal_status',
    'wal_status of the replication slot: 1 for the one it has.',
    ['status'],
  );
  const series = STATUSES.map((name) => status.series(name));
  const lag = metrics.gauge('relay_wal_lag_bytes', 'Log written and not yet confirmed by the relay.');
  const retained = metrics.gauge('relay_slot_retained_bytes', 'Log that the server keeps for the slot.');
  const safe = metrics.gauge(
    'relay_slot_safe_wal_bytes',
    'safe_wal_size: log that may still be written before the slot is in danger; +Inf without max_slot_wal_keep_size.',
  );
  return {
    active: metrics.gauge('relay_wal_active', '1 while this process reads the slot, 0 on standby.'),
    transactions: metrics.counter(
      'relay_wal_transactions_total',
      'Committed transactions received, with rows of the outbox or without.',
    ),
    rows: metrics.counter('relay_wal_rows_total', 'Outbox rows received, repeats included.'),
    reconnects: metrics.counter(
      'relay_wal_reconnects_total',
      'Streams that ended without being asked to and were started again.',
    ),
    heartbeats: metrics.counter('relay_wal_heartbeats_total', 'Messages written so that the slot moves.'),
    pauses: metrics.counter(
      'relay_wal_pauses_total',
      'Times the stream was not read because enough was waiting.',
    ),
    recreated: metrics.counter('relay_wal_slot_recreated_total', 'Slots made anew, by why.', ['reason']),
    swept: metrics.counter(
      'relay_wal_swept_total',
      'Rows published by row because the stream could not show them, by why.',
      ['reason'],
    ),
    oversize: metrics.counter(
      'relay_wal_oversize_total',
      'Messages of the stream above the largest size; their rows stay pending.',
    ),
    parked: metrics.gauge(
      'relay_wal_parked_keys',
      'Keys of which the broker keeps refusing a row, tried again by row while the stream goes on.',
    ),
    sweeperFound: metrics.counter(
      'sweeper_found_total',
      'Pending rows that only the sweep found; 0 in health.',
    ),
    /** Undefined: there is no slot. */
    show(slot: SlotState | undefined): void {
      for (const [i, name] of STATUSES.entries()) status.set(slot?.walStatus === name ? 1 : 0, series[i]);
      if (slot === undefined) return;
      lag.set(Number(slot.currentLsn > slot.confirmed ? slot.currentLsn - slot.confirmed : 0n));
      retained.set(slot.retainedBytes);
      safe.set(slot.safeWalBytes ?? Number.POSITIVE_INFINITY);
    },
  };
}
