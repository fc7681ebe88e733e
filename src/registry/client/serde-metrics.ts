/** Times of serializers and deserializers, without the time of requests to the registry. */
import type { Timers } from '../../core/clock.ts';
import type { Metrics } from '../../core/metrics.ts';

export interface SerdeTimes {
  nowMs(): number;
  /** Observes one call that started at `startMs`. */
  serialized(startMs: number): void;
  deserialized(startMs: number): void;
  /** Observes one batch of columns. */
  encodedColumns(startMs: number): void;
  decodedColumns(startMs: number): void;
}

/** Registers the metrics of a client library; call it once for each registry of metrics. */
export function serdeTimes(metrics: Metrics, clock: Pick<Timers, 'monotonicMs'>): SerdeTimes {
  const seconds = metrics.histogram(
    'serde_seconds',
    'Time to serialize or deserialize one record, or to encode or decode one batch of columns, without requests to the registry.',
    ['operation'],
  );
  const [serialize, deserialize] = [seconds.series('serialize'), seconds.series('deserialize')];
  const [encode, decode] = [seconds.series('encode_columns'), seconds.series('decode_columns')];
  const nowMs = (): number => clock.monotonicMs();
  return {
    nowMs,
    serialized: (startMs) => seconds.observe((nowMs() - startMs) / 1000, serialize),
    deserialized: (startMs) => seconds.observe((nowMs() - startMs) / 1000, deserialize),
    encodedColumns: (startMs) => seconds.observe((nowMs() - startMs) / 1000, encode),
    decodedColumns: (startMs) => seconds.observe((nowMs() - startMs) / 1000, decode),
  };
}
