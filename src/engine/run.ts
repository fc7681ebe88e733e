/** One run of the window engine: restore, read, step, log, write, checkpoint.
 *
 *  The step is synchronous and deterministic; this loop moves batches into it and results out of
 *  it. Every change of the state is in the changelog before the results that depend on it leave, so
 *  a restart resumes where the changelog ends, and no result that left can change. Invariants: (1)
 *  firings reach the sinks in their order, each after the changelog up to it is durable; (2) the
 *  changelog records that windows have fired after they are durable in every sink; windows without
 *  such a record fire again. */
import type { Clock } from '../core/clock.ts';
import { invariant } from '../core/errors.ts';
import type { Logger } from '../core/log.ts';
import type { Disk } from '../io/disk/port.ts';
import type { EngineAnswers, OpenWindows, WatermarkReport } from './api/routes.ts';
import {
  Checkpointer,
  type CheckpointSizes,
  freshStanding,
  type RecoveryPoint,
} from './durability/checkpoint/checkpointer.ts';
import { type Restored, restoreState } from './durability/checkpoint/restore.ts';
import type { StateManifest } from './durability/checkpoint/state-manifest.ts';
import type { StepHook } from './durability/checkpoint/steps.ts';
import type { PieceStore } from './durability/spill/pieces.ts';
import { Spiller } from './durability/spill/spiller.ts';
import { engineError } from './errors.ts';
import { EngineGauges } from './gauges.ts';
import type { Job } from './job.ts';
import type { EngineMetrics } from './metrics.ts';
import type { WindowPage, WindowQuery } from './output/fired/lookup.ts';
import { type LateTopic, SideOutput } from './output/late/side-output.ts';
import { Outlet } from './output/outlet.ts';
import type { WindowSink } from './output/sink/port.ts';
import {
  freshCells,
  type PartitionProgress,
  type Totals,
  type WatermarkGenerator,
} from './source/admission.ts';
import type { EventRows, EventSource } from './source/events.ts';
import { IdleWatch } from './source/idle.ts';
import { INVALID_REASONS, type InvalidRecords, InvalidTally } from './source/invalid.ts';
import { LagWatch } from './source/lag.ts';
import { PartitionWatch } from './source/partitions.ts';
import { type Limited, limitedBy, type StageShare, Stages, stripOf } from './stages.ts';
import { OPEN_RESULTS_MAX, type StateBackend, type StateFiring } from './state/port.ts';
import { timedDisk } from './timed-disk.ts';
import { demandOffsets, validateCheckpoint } from './validate-checkpoint.ts';
import { WindowOperator } from './window/operator.ts';

/** Time that a read waits for rows; also the resolution of the timers. */
const WAIT_MS = 100;

export interface EngineParts {
  readonly job: Job;
  readonly clusterId: string;
  /** Id of the topic, which changes when the topic is created again under its name; undefined:
   *  unknown. */
  readonly topicId?: string | undefined;
  readonly source: EventSource;
  readonly watermarks: WatermarkGenerator;
  /** Returns an empty state of the job; called again where a checkpoint proves invalid. */
  readonly openState: () => StateBackend;
  /** Store of a state that may go to disk, and the memory of tables and runs. */
  readonly spill?: { readonly pieces: PieceStore; readonly bytesMax: number };
  /** Rows are durable when they are durable in all sinks. */
  readonly sinks: readonly WindowSink[];
  /** Look-up of fired windows; one of the sinks. */
  readonly fired: { find(query: WindowQuery): Promise<WindowPage>; bytes?(): Promise<number> };
  /** Topic for copies of late and invalid events; undefined: no copies. */
  readonly late?: LateTopic;
  /** Limit of the bytes of waiting copies; absent: the limit without a memory budget. */
  readonly lateBytesMax?: number;
  /** Folder of changelog and checkpoints, whose lock the caller holds. */
  readonly disk: Disk;
  readonly rowCapacity: number;
  readonly checkpointIntervalMs: number;
  readonly checkpointSizes?: Partial<CheckpointSizes>;
  /** Time without records after which a partition holds no window back; 0: every partition always
   *  does. */
  readonly idleTimeoutMs: number;
  /** Interval between checks for new partitions; 0: at the start only, as in a run with an end. */
  readonly partitionIntervalMs: number;
  /** Called at the steps of changelog and checkpoints; may end the process. */
  readonly onStep?: StepHook;
  /** `end`: stop at the present end offsets; `bounded`: also fire all open windows. */
  readonly stop: 'never' | 'end' | 'bounded';
  readonly clock: Clock;
  readonly sleep: (ms: number) => Promise<void>;
  readonly log: Logger;
  readonly metrics: EngineMetrics;
  /** Stages that the source reports to; absent: the source is not measured. */
  readonly stages?: Stages;
  /** Called after each batch with the events consumed by this process. */
  readonly onConsumed?: (events: number) => void;
}

export type RunSummary = Totals & {
  /** Number of windows, or of firings of sessions. */
  readonly firedWindows: number;
  /** Counts at the start of this process. */
  readonly before: Totals;
  readonly invalidRecords: InvalidRecords;
  readonly limitedBy: Limited | undefined;
  readonly stages: readonly StageShare[];
};

/** Parts that a restore creates. */
interface Running {
  readonly state: StateBackend;
  readonly checkpointer: Checkpointer;
  readonly operator: WindowOperator;
  readonly outlet: Outlet;
  readonly spiller: Spiller | undefined;
  readonly late: SideOutput | undefined;
}

/** Window engine over one topic: reads batches, advances watermarks, folds events into windows,
 *  fires final results into the sinks and writes checkpoints. Results are exact through a crash.
 */
export class Engine implements EngineAnswers {
  private readonly parts: EngineParts;
  private running: Running | undefined;
  private readonly idle: IdleWatch;
  private readonly lag: LagWatch;
  private readonly stages: Stages;
  private readonly partitions: PartitionWatch;
  private firedCount = 0;
  private before: Totals;
  private readonly invalid = new InvalidTally();
  private targets: readonly number[] = [];
  private checkpointing: Promise<void> | undefined;
  private checkpointFailure: unknown;
  private saved = '';
  private readonly gauges: EngineGauges;

  constructor(parts: EngineParts) {
    this.parts = parts;
    const { source, watermarks, rowCapacity, metrics } = parts;
    this.before = watermarks.totals();
    this.idle = new IdleWatch(watermarks, source, parts.idleTimeoutMs);
    this.lag = new LagWatch({ source, positions: watermarks, rowCapacity });
    this.stages = parts.stages ?? new Stages(parts.clock);
    metrics.watch(this.stages);
    this.gauges = new EngineGauges({
      ...parts,
      lag: this.lag,
      isReady: () => this.restored && this.sinkReady && this.lateReady,
      running: () => this.running,
    });
    const intervalMs = parts.stop === 'never' ? parts.partitionIntervalMs : 0;
    this.partitions = new PartitionWatch(source, intervalMs, parts.log);
  }

  get restored(): boolean {
    return this.running !== undefined;
  }
  /** False while the sink is unreachable. */
  get sinkReady(): boolean {
    return this.running?.outlet.ready ?? true;
  }

  /** False while the late topic is unreachable. */
  get lateReady(): boolean {
    return this.running?.late?.ready ?? true;
  }

  /** Resumes from the folder, or starts at the first record of every partition. Call it once,
   *  before `run`.
   *  @throws state_corrupt, job_changed, topic_changed, offsets_gone, not_writable */
  async restore(): Promise<void> {
    const { parts } = this;
    const { watermarks, clock, log, metrics, disk, job, clusterId } = parts;
    const startedAt = clock.monotonicMs();
    const bounds = await parts.source.bounds();
    let opened: StateBackend | undefined;
    const open = (manifest: StateManifest) => {
      validateCheckpoint(manifest, parts);
      opened = parts.openState();
      return opened.live;
    };
    const onDisk = parts.spill === undefined ? {} : { pieces: parts.spill.pieces };
    const saved = await restoreState({ disk, log, open, ...onDisk });
    for (const { flag, was, is } of saved === undefined ? [] : validateCheckpoint(saved.manifest, parts))
      log.info(
        { flag, was, is },
        'a flag has changed since the checkpoint; its new value holds from here on',
      );
    const state = opened ?? parts.openState();
    const standing = saved ?? freshStanding(freshCells(bounds.map(({ low }) => low)));
    demandOffsets(standing.progress, bounds);
    const checkpointer = await Checkpointer.start(
      {
        ...{
          disk: timedDisk(disk, this.stages),
          clock,
          job,
          clusterId,
          topicId: parts.topicId ?? saved?.manifest.topicId,
          shards: state.shards,
          state: state.live,
          ...onDisk,
        },
        ...(parts.checkpointSizes === undefined ? {} : { sizes: parts.checkpointSizes }),
        ...(parts.onStep === undefined ? {} : { onStep: parts.onStep }),
      },
      standing,
    );
    const late = this.lateOutlet(checkpointer, standing);
    const operator = new WindowOperator({
      ...{ watermarks, state, rowCapacity: parts.rowCapacity },
      ...{ journal: checkpointer, late, stages: this.stages },
    });
    const outlet = new Outlet({
      ...{ sinks: parts.sinks, checkpointer, clock, log, sleep: parts.sleep, stages: this.stages },
      onWritten: (rows, seconds) => {
        metrics.sinkRows.add(rows);
        metrics.stage.observeMany(seconds, rows, metrics.stage.series('sink'));
      },
    });
    const spiller = this.spillerOf(state, checkpointer);
    this.running = { state, checkpointer, operator, outlet, spiller, late };
    this.take(operator.resume(standing, clock.monotonicMs()));
    if (saved !== undefined && saved.manifest.spill === undefined) await this.moveToDisk();
    this.addPartitions(bounds.slice(watermarks.partitionCount).map(({ low }) => low));
    this.before = watermarks.totals();
    if (parts.stop !== 'never') {
      this.targets = bounds.map(({ high }) => high);
      this.targets.forEach((high, partition) => {
        watermarks.setLimit(partition, high);
      });
    }
    const offsets = watermarks.progress().map(({ offset }) => offset);
    await parts.source.start(offsets);
    const seconds = (clock.monotonicMs() - startedAt) / 1000;
    metrics.recoverySeconds.set(seconds);
    this.gauges.checkpointedMs = saved?.manifest.ts ?? clock.wallNowMs();
    log.info(
      {
        ...told(saved),
        offsets,
        consumed: this.before.consumed,
        openWindows: state.openCount(),
        openKeys: state.keyCount(),
        seconds,
      },
      saved === undefined ? 'no checkpoint: starting at the first record' : 'restored from a checkpoint',
    );
  }

  /** Runs until the drain signal or the configured end; writes a checkpoint in both cases. */
  async run(drain: AbortSignal): Promise<RunSummary> {
    const { checkpointer, operator, outlet, spiller, late } = this.made;
    const { stages } = this;
    stages.start();
    try {
      await this.read(drain);
      if (drain.aborted && !outlet.ready) {
        throw engineError('sink_failed', 'the sink cannot be reached, so the last results are not written', {
          next: 'start again when it is back: they are written then',
        });
      }
      await outlet.flushed();
      await stages.waiting('sink', async () => late?.flushed(drain));
      await stages.waiting('spill', async () => spiller?.settled());
      await stages.waiting('changelog', async () => this.checkpointing);
      this.rethrow();
      await stages.waiting('changelog', () => this.checkpoint());
      if (this.parts.stop === 'bounded' && this.reachedEnd()) {
        // Not logged: a run that finds more records later resumes before this, and its windows
        // replace these. A session that continues then has a later end and so another key, and its
        // earlier result stays in the sink.
        this.take(operator.drain(this.parts.clock.monotonicMs()), 'unlogged');
        await outlet.flushed();
      }
      outlet.stop();
      late?.stop();
      await checkpointer.close();
    } catch (thrown) {
      outlet.stop();
      await spiller?.stop();
      late?.stop();
      await checkpointer.close().catch(() => {});
      throw thrown;
    } finally {
      stages.stop();
      this.gauges.refreshRates(Number.POSITIVE_INFINITY);
    }
    const times = stages.times();
    return {
      ...this.parts.watermarks.totals(),
      firedWindows: this.firedCount,
      before: this.before,
      invalidRecords: this.invalid,
      limitedBy: limitedBy(times),
      stages: stripOf(times),
    };
  }

  private get made(): Running {
    const { running } = this;
    invariant(running !== undefined, 'an engine is restored before it runs');
    return running;
  }

  private async read(drain: AbortSignal): Promise<void> {
    const { parts } = this;
    const { clock, watermarks, source, metrics } = parts;
    const { checkpointer, operator, outlet, spiller, late } = this.made;
    const { stages, lag } = this;
    let nextCheckpoint = clock.monotonicMs() + parts.checkpointIntervalMs;
    let invalidBefore = this.before.invalid;
    while (!drain.aborted && !this.reachedEnd()) {
      stages.asksFor(lag.isAtEnd ? 'input' : 'fetch');
      const rows = await source.next(WAIT_MS);
      if (rows !== undefined) {
        const from = clock.monotonicMs();
        this.take(operator.step(rows.records, rows.events, from));
        const now = clock.monotonicMs();
        const { stage } = metrics;
        for (const { rows: count, atMs } of source.receipts)
          stage.observeMany((now - atMs) / 1000, count, stage.series('accumulate'));
        stage.observe((now - from) / 1000, stage.series('step'));
        const { consumed, invalid } = watermarks.totals();
        if (invalid > invalidBefore) this.noteInvalid(rows, now);
        invalidBefore = invalid;
        parts.onConsumed?.(consumed - this.before.consumed);
      }
      const now = clock.monotonicMs();
      for (const partition of this.idle.due(now)) {
        parts.log.info(
          { partition, offset: watermarks.position(partition) },
          'partition is idle; it holds no window back',
        );
        this.take(operator.idle(partition, now));
      }
      const added = this.partitions.due(now);
      if (added.length > 0) {
        this.addPartitions(added);
        await source.start(watermarks.progress().map(({ offset }) => offset));
      }
      if (checkpointer.isCopying) stages.works('changelog');
      checkpointer.advance();
      if (spiller !== undefined) {
        stages.works('spill');
        spiller.advance();
        stages.works('update');
        this.take(operator.due(now));
      }
      stages.rests();
      lag.look(now);
      this.gauges.refreshRates(now);
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
      this.rethrow();
      const waitsFrom = clock.monotonicMs();
      await stages.waiting('changelog', () => checkpointer.room());
      if (spiller !== undefined)
        await stages.waiting('spill', () => spiller.room(drain, () => outlet.isLeaving));
      await outlet.room(drain);
      if (late !== undefined) await stages.waiting('sink', () => late.room(drain));
      this.idle.unread(clock.monotonicMs() - waitsFrom);
    }
    if (!drain.aborted) await this.fireEnded();
  }

  /** Counts and reports the invalid records of a batch. */
  private noteInvalid({ records, events }: EventRows, now: number): void {
    const { invalid, targets } = this;
    const { log, metrics, job } = this.parts;
    invalid.note(records, events, (partition) => targets[partition] ?? Number.POSITIVE_INFINITY);
    const { reasons, sample } = invalid;
    const { invalidReasons } = metrics;
    for (const reason of INVALID_REASONS)
      invalidReasons.setTotal(reasons[reason], invalidReasons.series(reason));
    if (!invalid.isToWarn(now)) return;
    log.warn({ topic: job.topic, ...reasons, first: sample }, 'records that are no events were skipped');
  }

  /** Fires the ended rows on disk, however few: no later row would make them due. */
  private async fireEnded(): Promise<void> {
    const { operator, outlet, spiller, state } = this.made;
    state.spillable?.endOfInput();
    for (let isOver = spiller === undefined; !isOver; ) {
      const fired = operator.due(this.parts.clock.monotonicMs());
      this.take(fired);
      spiller?.advance();
      isOver = fired.length === 0 && spiller?.isBusy === false;
      await outlet.flushed();
      await spiller?.settled();
    }
  }

  private rethrow(): void {
    if (this.checkpointFailure !== undefined) throw this.checkpointFailure;
  }

  watermark(): WatermarkReport {
    const { watermark } = this.parts.watermarks;
    const known = Number.isFinite(watermark);
    return {
      watermark_ms: known ? watermark : null,
      lag_ms: known ? this.parts.clock.wallNowMs() - watermark : null,
      dropped_late: this.parts.watermarks.totals().droppedLate,
    };
  }

  get firedTo(): number {
    return this.made.state.firedTo;
  }

  get watermarkMode(): WatermarkGenerator['mode'] {
    return this.parts.watermarks.mode;
  }

  progress(): readonly PartitionProgress[] {
    return this.parts.watermarks.progress();
  }

  windows(query: WindowQuery): Promise<WindowPage> {
    return this.parts.fired.find(query);
  }

  async openWindows(accountId: bigint, after: number): Promise<OpenWindows> {
    const { outlet, state } = this.made;
    // Queried together: open windows must not be looked up after they have left.
    const [open, ...left] = await Promise.all([
      state.open(accountId, after),
      ...outlet.leaving.map((firing) => firing.find(accountId)),
    ]);
    const leaving = left.flat().filter(({ windowEnd }) => windowEnd > after);
    return { rows: [...leaving, ...open], isCut: open.length === OPEN_RESULTS_MAX };
  }

  private take(fired: readonly StateFiring[], how: 'logged' | 'unlogged' = 'logged'): void {
    if (fired.length === 0) return;
    this.firedCount += fired.length;
    this.parts.metrics.firedWindows.add(fired.length);
    this.made.outlet.take(fired, how === 'logged' ? this.made.state.firedTo : undefined);
  }

  /** Moves the state that an earlier run kept in memory to disk immediately: checkpoints on disk do
   *  not keep its files. */
  private async moveToDisk(): Promise<void> {
    const { spiller, outlet, checkpointer } = this.made;
    if (spiller === undefined) return;
    // Rows that only firings hold are not state to move.
    await outlet.flushed();
    await spiller.moveAll();
    await checkpointer.checkpoint();
  }

  private spillerOf(state: StateBackend, log: Checkpointer): Spiller | undefined {
    const { spill, metrics, sleep, onStep } = this.parts;
    if (spill === undefined) return undefined;
    invariant(state.spillable !== undefined, 'a state with a place for pieces can be spilled');
    const hook = onStep ?? (() => {});
    const onSpilled = (bytes: number): void => metrics.spillBytes.add(bytes);
    spill.pieces.watchSweeps(hook, onSpilled);
    const { stages } = this;
    return new Spiller({ ...{ state: state.spillable, log, sleep, ...spill }, hook, onSpilled, stages });
  }

  /** Starts to read added partitions. The decision is in the changelog before a row of them is
   *  read, so before any result depends on it. */
  private addPartitions(lows: readonly number[]): void {
    if (lows.length === 0) return;
    const { watermarks, log } = this.parts;
    const from = watermarks.partitionCount;
    for (const low of lows) this.made.operator.added(low);
    log.info({ from, to: watermarks.partitionCount }, 'partitions were added; they start at the frontier');
  }

  private reachedEnd(): boolean {
    if (this.parts.stop === 'never') return false;
    return this.targets.every(
      (target, partition) =>
        this.parts.watermarks.position(partition) >= target || this.parts.source.endOf(partition) >= target,
    );
  }

  /** Takes a checkpoint between two batches; its writes run beside the reading. */
  private async checkpoint(): Promise<void> {
    const { watermarks, metrics, log } = this.parts;
    const { checkpointer } = this.made;
    const { consumed } = watermarks.totals();
    const saved = `${consumed} ${watermarks.frontier} ${checkpointer.goneTo}`;
    if (saved === this.saved && !checkpointer.isCopying) return;
    this.saved = saved;
    const offsets = watermarks.progress().map(({ offset }) => offset);
    const { id, seconds, ...report } = await checkpointer.checkpoint();
    this.parts.source.saved?.(offsets);
    const bytes = report.changelogBytes + report.manifestBytes + (report.newBaseBytes ?? 0);
    metrics.checkpoints.add();
    metrics.checkpointSeconds.observe(seconds);
    metrics.checkpointBytes.set(bytes);
    this.gauges.checkpointedMs = this.parts.clock.wallNowMs();
    log.info({ checkpoint: id, consumed, bytes, ...report, seconds }, 'checkpoint complete');
  }

  /** Side output, with the copies that the changelog has and the topic may lack. @throws
   *  late_waiting */
  private lateOutlet(checkpointer: Checkpointer, { late }: RecoveryPoint): SideOutput | undefined {
    const { late: topic, lateBytesMax: bytesMax, log, sleep, metrics } = this.parts;
    if (topic === undefined) {
      if (late.length === 0) return undefined;
      throw engineError('late_waiting', 'late events of the run before wait for their topic', {
        next: 'start with -late-topic=TOPIC until they are sent',
      });
    }
    const onSent = (copies: number): void => metrics.lateSent.add(copies);
    const outlet = new SideOutput({ topic, checkpointer, log, sleep, bytesMax, onSent });
    for (const { seq, bytes } of late) outlet.offer(seq, bytes);
    return outlet;
  }
}

/** Log fields of a restore. */
const told = (saved: Restored | undefined) => ({
  checkpoint: saved?.manifest.id ?? null,
  refused: saved?.refused ?? [],
  replayed: saved?.replayed ?? 0,
});
