/** Refreshes the gauges of a running engine: at each scrape, also while the loop waits, and once a
 *  second. */
import type { Clock } from '../core/clock.ts';
import type { KeyDictionary } from './keys/dictionary.ts';
import type { EngineMetrics } from './metrics.ts';
import type { SideOutput } from './output/late/side-output.ts';
import type { Outlet } from './output/outlet.ts';
import type { WatermarkGenerator } from './source/admission.ts';
import type { LagWatch } from './source/lag.ts';
import type { StateBackend } from './state/port.ts';

const RATE_MS = 1000;

export interface GaugesParts {
  readonly metrics: EngineMetrics;
  readonly clock: Clock;
  readonly watermarks: Pick<WatermarkGenerator, 'totals' | 'watermark'>;
  readonly lag: Pick<LagWatch, 'unread'>;
  readonly fired: { bytes?(): Promise<number> };
  readonly keys?: Pick<KeyDictionary, 'bytes'> | undefined;
  readonly isReady: () => boolean;
  /** Components that a restore creates; undefined before it is done. */
  readonly running: () =>
    | {
        readonly state: StateBackend;
        readonly outlet: Pick<Outlet, 'waitingRows'>;
        readonly late: Pick<SideOutput, 'waitingCopies'> | undefined;
      }
    | undefined;
}

export class EngineGauges {
  /** Wall time of the newest checkpoint. */
  checkpointedMs = Number.NaN;
  private readonly parts: GaugesParts;
  private rate = { at: 0, events: 0, rows: 0 };

  constructor(parts: GaugesParts) {
    this.parts = parts;
    parts.metrics.onCollect(() => this.refresh());
  }

  /** Updates the rates of the last second once it has passed. */
  refreshRates(now: number): void {
    if (now - this.rate.at < RATE_MS) return;
    const { metrics, watermarks, fired } = this.parts;
    this.refresh();
    const { consumed } = watermarks.totals();
    const rows = metrics.sinkRows.value();
    const seconds = (now - this.rate.at) / 1000;
    if (this.rate.at > 0 && Number.isFinite(seconds)) {
      metrics.ingestRate.set((consumed - this.rate.events) / seconds);
      metrics.sinkRate.set((rows - this.rate.rows) / seconds);
    }
    this.rate = { at: now, events: consumed, rows };
    // A store that is being reopened, or is closed, has no size; the next refresh asks again.
    fired.bytes?.().then(
      (bytes) => metrics.firedBytes.set(bytes),
      () => {},
    );
  }

  private refresh(): void {
    const { metrics, clock, watermarks, lag } = this.parts;
    metrics.ready.set(this.parts.isReady() ? 1 : 0);
    const running = this.parts.running();
    if (running === undefined) return;
    const { state, outlet, late } = running;
    const totals = watermarks.totals();
    metrics.events.setTotal(totals.consumed);
    metrics.droppedLate.setTotal(totals.droppedLate);
    metrics.droppedAfterIdle.setTotal(totals.droppedAfterIdle);
    metrics.futureClamped.setTotal(totals.futureClamped);
    metrics.invalid.setTotal(totals.invalid);
    const { watermark } = watermarks;
    const known = Number.isFinite(watermark);
    metrics.watermark.set(known ? watermark : Number.NaN);
    metrics.watermarkLag.set(known ? clock.wallNowMs() - watermark : Number.NaN);
    metrics.unread.set(lag.unread);
    metrics.openWindows.set(state.openCount());
    metrics.openKeys.set(state.keyCount());
    metrics.stateBytes.set(state.bytes());
    metrics.keyBytes.set(this.parts.keys?.bytes ?? 0);
    metrics.spilledBytes.set(state.spillable?.pieceBytes() ?? 0);
    metrics.sinkWaiting.set(outlet.waitingRows);
    metrics.lateWaiting.set(late?.waitingCopies ?? 0);
    metrics.checkpointAge.set((clock.wallNowMs() - this.checkpointedMs) / 1000);
  }
}
