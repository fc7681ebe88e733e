/** One run of the window engine: restore, read, step, write, checkpoint.
 *
 *  The step is synchronous and deterministic; this loop carries batches into it and results out of it. A checkpoint is
 *  cut between two batches and written beside the reading; it completes only after every result fired before the cut is
 *  durable in the sink, so a restart never has to fire a window that its checkpoint holds as fired.
 */
import type { Clock } from '../core/clock.ts';
import { invariant } from '../core/errors.ts';
import type { Logger } from '../core/log.ts';
import type { WatermarkGenerator } from '../core/watermark.ts';
import type { FiredWindow, WindowResult } from './accumulator.ts';
import type { CheckpointStore, Restored } from './checkpoint/store.ts';
import { engineError } from './errors.ts';
import { assignerOf, type Job, jobDifferences } from './job.ts';
import type { EngineMetrics } from './metrics.ts';
import { type PartitionProgress, WindowOperator } from './operator.ts';
import { RetainedWindows, type RetainLimits, type WindowQuery } from './retained.ts';
import type { WindowSink } from './sink/port.ts';
import { SinkWriter } from './sink/writer.ts';
import type { EventSource } from './source.ts';
import type { StateBackend } from './state/port.ts';

/** How long a read waits for rows; also the grain of the timers. */
const WAIT_MS = 100;
const RATE_MS = 1000;

export interface EngineParts {
  readonly job: Job;
  readonly clusterId: string;
  readonly source: EventSource;
  readonly watermarks: WatermarkGenerator;
  readonly state: StateBackend;
  /** Owners of keys, for state that was saved under another number of shards. */
  readonly shardOf: (accountId: BigUint64Array) => Int32Array;
  readonly sink: WindowSink;
  readonly checkpoints: CheckpointStore;
  readonly retain: RetainLimits;
  readonly rowCapacity: number;
  readonly checkpointIntervalMs: number;
  /** `end`: stop at the offsets that are the end now; `bounded`: and fire everything that is open. */
  readonly stop: 'never' | 'end' | 'bounded';
  readonly clock: Clock;
  readonly sleep: (ms: number) => Promise<void>;
  readonly log: Logger;
  readonly metrics: EngineMetrics;
  /** After each batch: events consumed by this process. */
  readonly onConsumed?: (events: number) => void;
}

export interface WatermarkReport {
  /** null before every partition has had an event. */
  readonly watermark_ms: number | null;
  readonly lag_ms: number | null;
  readonly dropped_late: number;
}

export interface RunSummary {
  readonly consumed: number;
  readonly accepted: number;
  readonly droppedLate: number;
  readonly invalid: number;
  readonly firedWindows: number;
}

export class Engine {
  private readonly parts: EngineParts;
  private readonly operator: WindowOperator;
  private readonly writer: SinkWriter;
  private readonly retained: RetainedWindows;
  /** Fired and not yet in a checkpoint. */
  private firedSince: FiredWindow[] = [];
  private firedCount = 0;
  private consumedBefore = 0;
  private targets: readonly number[] = [];
  private isRestored = false;
  private checkpointing: Promise<void> | undefined;
  private checkpointFailure: unknown;
  private savedPositions = '';
  private rate = { at: 0, events: 0, rows: 0 };

  constructor(parts: EngineParts) {
    this.parts = parts;
    const { watermarks, state, rowCapacity, metrics } = parts;
    this.operator = new WindowOperator({ watermarks, state, assigner: assignerOf(parts.job), rowCapacity });
    this.retained = new RetainedWindows(parts.retain);
    this.writer = new SinkWriter({
      sink: parts.sink,
      clock: parts.clock,
      log: parts.log,
      sleep: parts.sleep,
      onWritten: (rows, seconds) => {
        metrics.sinkRows.add(rows);
        metrics.stage.observeMany(seconds, rows, metrics.stage.series('sink'));
      },
    });
  }

  get restored(): boolean {
    return this.isRestored;
  }
  /** False while the sink cannot be reached. */
  get sinkReady(): boolean {
    return this.writer.ready;
  }

  /** Takes up the newest checkpoint, or starts at the first record of every partition. Call once, before `run`.
   *  @throws state_corrupt, job_changed, offsets_gone */
  async restore(): Promise<void> {
    const { parts } = this;
    const startedAt = parts.clock.monotonicMs();
    const bounds = await parts.source.bounds();
    const saved = await parts.checkpoints.restore();
    const progress =
      saved === undefined ? freshProgress(bounds.map(({ low }) => low)) : this.takeUp(saved, bounds);
    this.operator.restore(progress, saved?.manifest.fired_ms ?? Number.NEGATIVE_INFINITY);
    this.consumedBefore = this.operator.totals().consumed;
    this.savedPositions = this.positions();
    if (parts.stop !== 'never') {
      this.targets = bounds.map(({ high }) => high);
      this.targets.forEach((high, partition) => {
        this.operator.setLimit(partition, high);
      });
    }
    await parts.source.start(progress.map(({ offset }) => offset));
    this.isRestored = true;
    const seconds = (parts.clock.monotonicMs() - startedAt) / 1000;
    parts.metrics.recoverySeconds.set(seconds);
    parts.log.info(
      {
        checkpoint: saved?.manifest.id ?? null,
        refused: saved?.refused ?? [],
        offsets: progress.map(({ offset }) => offset),
        consumed: this.consumedBefore,
        openWindows: parts.state.openSliceCount(),
        openKeys: parts.state.keyCount(),
        seconds,
      },
      saved === undefined ? 'no checkpoint: starting at the first record' : 'restored from a checkpoint',
    );
  }

  /** Runs until the drain signal or the end that was asked for; leaves a checkpoint behind either way. */
  async run(drain: AbortSignal): Promise<RunSummary> {
    const { parts, operator, writer } = this;
    invariant(this.isRestored, 'an engine is restored before it runs');
    let nextCheckpoint = parts.clock.monotonicMs() + parts.checkpointIntervalMs;
    try {
      while (!drain.aborted && !this.reachedEnd()) {
        const columns = await parts.source.next(WAIT_MS);
        if (columns !== undefined) {
          const from = parts.clock.monotonicMs();
          this.take(operator.step(columns));
          const now = parts.clock.monotonicMs();
          const { stage } = parts.metrics;
          stage.observeMany(
            (now - parts.source.receivedAtMs) / 1000,
            columns.rowCount,
            stage.series('accumulate'),
          );
          stage.observe((now - from) / 1000, stage.series('step'));
          parts.onConsumed?.(operator.totals().consumed - this.consumedBefore);
        }
        const now = parts.clock.monotonicMs();
        this.refreshMetrics(now);
        if (now >= nextCheckpoint && this.checkpointing === undefined) {
          nextCheckpoint = now + parts.checkpointIntervalMs;
          this.checkpointing = this.checkpoint()
            .catch((thrown) => {
              this.checkpointFailure = thrown;
            })
            .finally(() => {
              this.checkpointing = undefined;
            });
        }
        if (this.checkpointFailure !== undefined) throw this.checkpointFailure;
        await writer.room(drain);
      }
      if (drain.aborted && !writer.ready) {
        throw engineError('sink_failed', 'the sink cannot be reached, so the last results are not written', {
          next: 'start again when it is back: the run goes on from the newest checkpoint',
        });
      }
      await this.checkpointing;
      if (this.checkpointFailure !== undefined) throw this.checkpointFailure;
      await this.checkpoint();
      if (parts.stop === 'bounded' && this.reachedEnd()) {
        // Not saved: a run that finds more records later goes on from before this, and its results replace these.
        const drained = operator.drain();
        this.retained.add(drained);
        this.firedCount += drained.length;
        writer.offer(drained);
        await writer.flushed();
      }
    } finally {
      writer.stop();
      this.refreshMetrics(Number.POSITIVE_INFINITY);
    }
    return { ...operator.totals(), firedWindows: this.firedCount };
  }

  watermark(): WatermarkReport {
    const watermark = this.parts.watermarks.watermark();
    const known = Number.isFinite(watermark);
    return {
      watermark_ms: known ? watermark : null,
      lag_ms: known ? this.parts.clock.wallNowMs() - watermark : null,
      dropped_late: this.operator.totals().droppedLate,
    };
  }

  progress(): readonly PartitionProgress[] {
    return this.operator.progress();
  }

  windows(query: WindowQuery): readonly WindowResult[] {
    return this.retained.query(query);
  }

  private take(fired: readonly FiredWindow[]): void {
    if (fired.length === 0) return;
    this.firedSince.push(...fired);
    this.firedCount += fired.length;
    this.parts.metrics.firedWindows.add(fired.length);
    this.retained.add(fired);
    this.writer.offer(fired);
  }

  private reachedEnd(): boolean {
    if (this.parts.stop === 'never') return false;
    return this.targets.every(
      (target, partition) =>
        this.operator.position(partition) >= target || this.parts.source.endOf(partition) >= target,
    );
  }

  private positions(): string {
    return Array.from({ length: this.parts.source.partitionCount }, (_, p) =>
      this.operator.position(p),
    ).join();
  }

  /** Cuts here, between two batches; the rest happens beside the reading. */
  private async checkpoint(): Promise<void> {
    const { parts } = this;
    const positions = this.positions();
    if (positions === this.savedPositions && parts.checkpoints.newest !== undefined) return;
    const startedAt = parts.clock.monotonicMs();
    const fired = this.firedSince;
    this.firedSince = [];
    const { forgetBefore } = this.retained;
    const watermark = parts.watermarks.watermark();
    const assigner = assignerOf(parts.job);
    const state = parts.state.snapshot().map(({ sliceStart, rowCount, rows }) => ({
      windowStart: sliceStart,
      windowEnd: assigner.firstEndOf(sliceStart),
      rowCount,
      rows,
    }));
    const cut = {
      ts: parts.clock.wallNowMs(),
      job: parts.job,
      clusterId: parts.clusterId,
      shards: parts.state.shards,
      watermark_ms: Number.isFinite(watermark) ? watermark : null,
      fired_ms: Number.isFinite(this.operator.firedFrontier) ? this.operator.firedFrontier : null,
      dropped_late: this.operator.totals().droppedLate,
      partitions: this.operator.progress(),
      state,
      fired: fired.filter((window) => window.windowEnd > forgetBefore),
      forgetBefore,
    };
    await this.writer.flushed();
    const manifest = await parts.checkpoints.write(cut);
    this.savedPositions = positions;
    const seconds = (parts.clock.monotonicMs() - startedAt) / 1000;
    const bytes = manifest.files.reduce((sum, file) => sum + file.bytes, 0);
    parts.metrics.checkpoints.add();
    parts.metrics.checkpointSeconds.observe(seconds);
    parts.metrics.checkpointBytes.set(bytes);
    parts.log.info(
      {
        checkpoint: manifest.id,
        consumed: cut.partitions.reduce((sum, one) => sum + one.consumed, 0),
        bytes,
        seconds,
      },
      'checkpoint complete',
    );
  }

  /** Loads a checkpoint into state and store; returns where each partition goes on. */
  private takeUp(
    saved: Restored,
    bounds: readonly { readonly low: number; readonly high: number }[],
  ): readonly PartitionProgress[] {
    const { parts } = this;
    const { manifest } = saved;
    const different = [...jobDifferences(manifest.job, parts.job)];
    if (manifest.clusterId !== parts.clusterId)
      different.push(`the cluster was ${manifest.clusterId}, is ${parts.clusterId}`);
    if (manifest.partitions.length > bounds.length) {
      different.push(`the topic had ${manifest.partitions.length} partitions, has ${bounds.length}`);
    }
    if (different.length > 0) {
      throw engineError('job_changed', `the checkpoint was made by another job: ${different.join(', ')}`, {
        next: 'start with the same settings, or give another -state-dir',
      });
    }
    for (const { partition, offset } of manifest.partitions) {
      const { low, high } = bounds[partition] as { low: number; high: number };
      if (offset < low || offset > high) {
        throw engineError(
          'offsets_gone',
          `the checkpoint goes on at offset ${offset} of partition ${partition}, the topic holds ${low} to ${high}`,
          {
            next: 'the records are gone or the topic was made anew: give an empty -state-dir to compute what is there',
          },
        );
      }
    }
    const assigner = assignerOf(parts.job);
    for (const section of saved.state) {
      invariant(
        section.windowEnd === assigner.firstEndOf(section.windowStart),
        'a saved window has the length of the job',
      );
      parts.state.load(
        { sliceStart: section.windowStart, rowCount: section.rowCount, rows: section.rows },
        parts.shardOf,
      );
    }
    this.retained.add(saved.fired);
    // A partition that came later starts at the frontier: what it holds before that would meet fired windows.
    const fired = manifest.fired_ms ?? Number.NEGATIVE_INFINITY;
    const seen = fired + parts.job.skewMs + parts.job.latenessMs;
    const added = bounds
      .slice(manifest.partitions.length)
      .map(({ low }, i) => ({ ...freshOf(manifest.partitions.length + i, low), maxSeenTs: seen }));
    if (added.length > 0)
      parts.log.info(
        { partitions: added.map(({ partition }) => partition), from: seen },
        'partitions were added; they start at the frontier',
      );
    return [...manifest.partitions, ...added];
  }

  private refreshMetrics(now: number): void {
    const { metrics, state, clock, watermarks } = this.parts;
    const totals = this.operator.totals();
    metrics.events.setTotal(totals.consumed);
    metrics.droppedLate.setTotal(totals.droppedLate);
    metrics.invalid.setTotal(totals.invalid);
    const watermark = watermarks.watermark();
    const known = Number.isFinite(watermark);
    metrics.watermark.set(known ? watermark : Number.NaN);
    metrics.watermarkLag.set(known ? clock.wallNowMs() - watermark : Number.NaN);
    metrics.openWindows.set(state.openSliceCount());
    metrics.sinkWaiting.set(this.writer.waitingRows);
    if (now - this.rate.at < RATE_MS) return;
    metrics.openKeys.set(state.keyCount());
    metrics.stateBytes.set(state.bytes());
    const rows = metrics.sinkRows.value();
    const seconds = (now - this.rate.at) / 1000;
    if (this.rate.at > 0 && Number.isFinite(seconds)) {
      metrics.ingestRate.set((totals.consumed - this.rate.events) / seconds);
      metrics.sinkRate.set((rows - this.rate.rows) / seconds);
    }
    this.rate = { at: now, events: totals.consumed, rows };
  }
}

function freshOf(partition: number, offset: number): PartitionProgress {
  return {
    partition,
    offset,
    maxSeenTs: Number.NEGATIVE_INFINITY,
    consumed: 0,
    accepted: 0,
    droppedLate: 0,
    invalid: 0,
  };
}

function freshProgress(offsets: readonly number[]): readonly PartitionProgress[] {
  return offsets.map((offset, partition) => freshOf(partition, offset));
}
