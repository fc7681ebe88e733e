/** One run of the window engine: restore, read, step, log, write, checkpoint.
 *
 *  The step is synchronous and deterministic; this loop feeds batches to the step and forwards its
 *  results. A state change is in the changelog before a result that depends on it leaves the
 *  process. A restart therefore continues where the changelog ends and reproduces every emitted
 *  result.
 *  Invariants: (1) firings reach the sinks in order, each after the changelog up to it is durable;
 *  (2) the changelog records windows as fired only after they are durable in every sink; windows
 *  that it does not record fire again. */
import { invariant } from '../core/errors.ts';
import type { EngineQueries, WatermarkReport } from './api/routes.ts';
import type { OpenWindows } from './api/windows.ts';
import {
  type Core,
  createEarly,
  createFilter,
  createOperator,
  createSpiller,
  openCheckpointer,
  openOutlet,
  openSides,
  type Running,
} from './components.ts';
import type { DuplicateFilter } from './dedup/filter.ts';
import { initialRecoveryPoint } from './durability/checkpoint/checkpointer.ts';
import { type Restored, restoreState } from './durability/checkpoint/restore.ts';
import type { StateManifest } from './durability/checkpoint/state-manifest.ts';
import { engineError } from './errors.ts';
import { EngineGauges } from './gauges.ts';
import { type Job, rowFormOf, withSavedAggregates } from './job.ts';
import { type ChangedState, turn, withAddedAggregates } from './job-change.ts';
import type { KeyType } from './keys/type.ts';
import { type ResultColumn, resultColumns, resultShape } from './output/columns.ts';
import { FiredFeed } from './output/feed.ts';
import type { WindowPage, WindowQuery } from './output/fired/lookup.ts';
import type { RangePage, RangeQuery, TopQuery } from './output/fired/range.ts';
import type { LatePage, LateQuery } from './output/late/store.ts';
import { SIDES, type SideName } from './output/side/sections.ts';
import type { EngineParts, RunSummary } from './parts.ts';
import { logAdded, restoreFields, restoreText } from './restore-log.ts';
import {
  freshCells,
  type PartitionProgress,
  type Totals,
  type WatermarkGenerator,
} from './source/admission.ts';
import type { Bounds, EventRows } from './source/events.ts';
import { IdleWatch } from './source/idle.ts';
import { BINARY256 } from './source/input/binary256.ts';
import { hasSignedKeys, type InputDefinition, keyTypeOf, valueScaleOf } from './source/input/definition.ts';
import {
  demandValidInput,
  emptyCount,
  FIRST_RECORDS,
  filteredCount,
  INVALID_REASONS,
  InvalidTally,
} from './source/invalid.ts';
import { LagWatch } from './source/lag.ts';
import { PartitionWatch } from './source/partitions.ts';
import { limitedBy, Stages, stageShares } from './stages.ts';
import { OPEN_RESULTS_MAX, type StateBackend, type StateFiring } from './state/port.ts';
import { validateCheckpoint, validateOffsets } from './validate-checkpoint.ts';
import type { WindowResult } from './window/accumulator.ts';

/** Longest wait of a read for rows; also the resolution of the timers. */
const WAIT_MS = 100;

/** Window engine over one topic: reads batches, advances watermarks, folds events into windows,
 *  fires final results into the sinks and writes checkpoints. Results are exact through a crash.
 */
export class Engine implements EngineQueries {
  private readonly parts: EngineParts;
  private running: Running | undefined;
  private readonly idle: IdleWatch;
  private readonly lag: LagWatch;
  private readonly stages: Stages;
  private readonly partitions: PartitionWatch;
  private firedCount = 0;
  private before: Totals;
  private readonly invalid: InvalidTally;
  private filtered = 0;
  private empty = 0;
  private filter: DuplicateFilter | undefined;
  /** Definition of the input that the newest checkpoint has. */
  private definition: InputDefinition = BINARY256;
  private shownColumns: readonly ResultColumn[] | undefined;
  readonly feed = new FiredFeed();
  readonly epoch: string;
  private targets: readonly number[] = [];
  private checkpointing: Promise<void> | undefined;
  private checkpointFailure: unknown;
  private isEnded = false;
  private saved = '';
  private readonly gauges: EngineGauges;
  private readonly core: Core;

  constructor(parts: EngineParts) {
    this.parts = parts;
    const { source, watermarks, rowCapacity, metrics } = parts;
    this.before = watermarks.totals();
    this.epoch = parts.clock.wallNowMs().toString(36);
    this.invalid = new InvalidTally(parts.input);
    this.lag = new LagWatch({ clock: parts.clock, source, positions: watermarks, rowCapacity });
    this.idle = new IdleWatch(watermarks, source, this.lag, parts.idleTimeoutMs);
    this.stages = parts.stages ?? new Stages(parts.clock);
    metrics.watch(this.stages);
    this.gauges = new EngineGauges({
      ...parts,
      lag: this.lag,
      isReady: () => this.restored && this.sinkReady && SIDES.every((side) => this.isReady(side)),
      running: () => this.running,
      ids: () => this.filter,
    });
    this.core = {
      ...{ parts, stages: this.stages, feed: this.feed },
      keyType: () => this.keyType,
      jobNow: () => this.jobNow(),
      filter: () => this.filter,
    };
    const intervalMs = parts.stop === 'never' ? parts.partitionIntervalMs : 0;
    this.partitions = new PartitionWatch(source, intervalMs, parts.log);
  }

  get restored(): boolean {
    return this.running !== undefined;
  }
  /** False while a sink is unreachable. */
  get sinkReady(): boolean {
    return this.running?.outlet.ready ?? true;
  }

  /** False while the destination of the side output is unreachable. */
  isReady(side: SideName): boolean {
    return this.running?.sides.isReady(side) ?? true;
  }

  /** Resumes from the newest valid checkpoint, or begins at `startAt`. The checkpointer makes the
   *  first offsets durable before any event, so a restart begins there too.
   *  Call once, before `run`.
   *  @throws state_corrupt, job_changed, topic_changed, offsets_gone, not_writable */
  async restore(): Promise<void> {
    const { parts } = this;
    const { watermarks, clock, log, metrics, disk } = parts;
    const startedAt = clock.monotonicMs();
    const bounds = await parts.source.bounds();
    let opened: StateBackend | undefined;
    const open = (manifest: StateManifest) => {
      validateCheckpoint(manifest, parts);
      opened = this.openState(withSavedAggregates(parts.job, manifest.job));
      this.filter = createFilter(parts);
      return opened.live;
    };
    const onDisk = parts.spill === undefined ? {} : { pieces: parts.spill.pieces };
    const { keys } = parts;
    const restored = await restoreState({ disk, log, open, keys, ids: () => this.filter, ...onDisk });
    const change = await this.changeOf(restored, opened);
    const saved = change?.saved ?? restored;
    for (const { flag, was, is } of saved === undefined ? [] : validateCheckpoint(saved.manifest, parts))
      log.info({ flag, was, is }, 'flag changed since the checkpoint; the new value applies from now on');
    const state = change?.state ?? opened ?? this.openState(parts.job);
    this.filter ??= createFilter(parts);
    this.resumeInput(saved, change);
    if (change === undefined) await this.openKeys(saved !== undefined);
    const recoveryPoint = saved ?? initialRecoveryPoint(freshCells(await this.firstOffsets(bounds)));
    validateOffsets(recoveryPoint.progress, bounds);
    const topicId = parts.topicId ?? saved?.manifest.topicId;
    const checkpointer = await openCheckpointer(this.core, state, recoveryPoint, topicId);
    if (change !== undefined) {
      // The sinks follow the change: until it is durable, a restart may leave it out.
      await checkpointer.changeForm(turn);
      await this.openKeys(true);
      logAdded(log, change, clock.wallNowMs());
    }
    const sides = openSides(this.core, checkpointer, recoveryPoint);
    const outlet = openOutlet(this.core, checkpointer);
    const early = createEarly(this.core, state, outlet);
    const operator = createOperator(this.core, state, checkpointer, sides, early);
    const spiller = createSpiller(this.core, state, checkpointer);
    this.running = { state, checkpointer, operator, outlet, spiller, early, sides };
    this.emit(operator.resume(recoveryPoint, clock.monotonicMs()));
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
        ...restoreFields(saved),
        offsets,
        consumed: this.before.consumed,
        openWindows: state.openCount(),
        openKeys: state.keyCount(),
        seconds,
      },
      restoreText(saved, parts.startAt !== undefined),
    );
  }

  /** Gives the input the definition of the checkpoint, with the aggregates that it has now. */
  private resumeInput(saved: Restored | undefined, change: ChangedState | undefined): void {
    const { input } = this.parts;
    const definition = saved?.manifest.job.input ?? BINARY256;
    if (change !== undefined) input?.resume({ ...definition, aggregate: change.aggregate });
    else if (saved !== undefined) input?.resume(definition);
    this.definition = input?.definition ?? BINARY256;
    this.shownColumns = undefined;
  }

  private openState(job: Job): StateBackend {
    return this.parts.openState(job, this.parts.spill?.pieces.withRows(rowFormOf(job).bytes));
  }

  /** Converts a restored state if the job has more aggregates than its checkpoint. */
  private changeOf(restored: Restored | undefined, opened: StateBackend | undefined) {
    if (restored === undefined || opened === undefined) return undefined;
    const { job, spill, openState } = this.parts;
    return withAddedAggregates(restored, opened, { job, openState, pieces: spill?.pieces });
  }

  private async firstOffsets(bounds: readonly Bounds[]): Promise<readonly number[]> {
    return (await this.parts.startAt?.(bounds)) ?? bounds.map(({ low }) => low);
  }

  /** Runs until the drain signal or the requested end; writes a checkpoint in both cases. */
  async run(drain: AbortSignal): Promise<RunSummary> {
    const { checkpointer, operator, outlet, spiller, early, sides } = this.active;
    const { stages } = this;
    stages.start();
    try {
      await this.read(drain);
      if (outlet.ready) await stages.waiting('sink', async () => early?.finish());
      early?.stop();
      if (drain.aborted && !outlet.ready) {
        throw engineError('sink_failed', 'the sink is unreachable, so the last results are not written', {
          next: 'restart when the sink is reachable; the results are written then',
        });
      }
      this.isEnded = true;
      await outlet.flushed();
      await stages.waiting('sink', () => sides.flushed(drain));
      await stages.waiting('spill', async () => spiller?.settled());
      await stages.waiting('changelog', async () => this.checkpointing);
      this.rethrow();
      await stages.waiting('changelog', () => this.checkpoint());
      if (this.parts.stop === 'bounded' && this.reachedEnd()) {
        // Not logged: a run that later finds more records resumes from before this point, and its
        // windows replace these. A session that continues then ends later, so it has another key,
        // and its earlier result remains in the sink.
        this.emit(operator.drain(this.parts.clock.monotonicMs()), 'unlogged');
        await outlet.flushed();
      }
      outlet.stop();
      sides.stop();
      await checkpointer.close();
    } catch (thrown) {
      this.isEnded = true;
      early?.stop();
      outlet.stop();
      await spiller?.stop();
      sides.stop();
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
      ...{ filtered: this.filtered, empty: this.empty },
      duplicates: this.active.operator.duplicates,
      invalidRecords: { reasons: this.invalid.reasons, sample: this.invalid.sample },
      limitedBy: limitedBy(times),
      stages: stageShares(times),
    };
  }

  private get active(): Running {
    const { running } = this;
    invariant(running !== undefined, 'an engine must be restored before it runs');
    return running;
  }

  private async read(drain: AbortSignal): Promise<void> {
    const { parts } = this;
    const { clock, watermarks, source, metrics } = parts;
    const { checkpointer, operator, outlet, spiller, early, sides } = this.active;
    const { stages, lag } = this;
    let nextCheckpoint = clock.monotonicMs() + parts.checkpointIntervalMs;
    let invalidBefore = this.before.invalid;
    while (!drain.aborted && !this.reachedEnd()) {
      stages.awaitRecords(lag.isAtEnd ? 'input' : 'fetch');
      const rows = await source.next(WAIT_MS);
      this.idle.unread(parts.input?.takeWaitedMs() ?? 0);
      if (rows !== undefined) {
        const saving = this.saveDefinition();
        if (saving !== undefined) await saving;
        const from = clock.monotonicMs();
        this.emit(operator.step(rows.records, rows.events, from));
        const now = clock.monotonicMs();
        const { stage } = metrics;
        for (const { rows: count, atMs } of source.receipts)
          stage.observeMany((now - atMs) / 1000, count, stage.series('accumulate'));
        stage.observe((now - from) / 1000, stage.series('step'));
        const { consumed, invalid } = watermarks.totals();
        if (invalid > invalidBefore) this.recordInvalid(rows, now);
        invalidBefore = invalid;
        this.demandFirstEvents();
        this.recordUnfolded(rows);
        metrics.duplicates.setTotal(operator.duplicates);
        parts.onConsumed?.(consumed - this.before.consumed);
      }
      const now = clock.monotonicMs();
      for (const partition of this.idle.due(now)) {
        parts.log.info(
          { partition, offset: watermarks.position(partition) },
          'partition is idle; it no longer holds windows back',
        );
        this.emit(operator.idle(partition, now));
      }
      const added = this.partitions.due(now);
      if (added.length > 0) {
        this.addPartitions(added);
        await source.start(watermarks.progress().map(({ offset }) => offset));
      }
      if (checkpointer.isCopying) stages.enter('changelog');
      checkpointer.advance();
      if (spiller !== undefined) {
        stages.enter('spill');
        spiller.advance();
        stages.enter('update');
        this.emit(operator.due(now));
      }
      stages.leave();
      early?.advance(now);
      lag.poll(now, this.idle.queryMs);
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
      if (early !== undefined) await stages.waiting('sink', () => early.room(drain));
      if (sides.areAny) await stages.waiting('sink', () => sides.room(drain));
      this.idle.unread(clock.monotonicMs() - waitsFrom);
    }
    if (!drain.aborted) await this.fireEnded();
  }

  /** Passes a checkpoint of now to `use`, with the last record of its changelog. None of its files
   *  is removed before `use` settles. @throws restoring before the restore and after the end */
  pinned<T>(use: (manifest: StateManifest, lastSeq: number) => Promise<T>): Promise<T> {
    if (this.running === undefined || this.isEnded)
      throw engineError('restoring', 'the engine is not running: it restores its checkpoint, or has ended');
    return this.running.checkpointer.pinned(use);
  }

  /** The job with the definition of its input as far as it is decided. */
  private jobNow(): Job {
    const { job, input } = this.parts;
    return input === undefined ? job : { ...job, input: input.definition };
  }

  /** Makes the definition durable before the first event that depends on it: a restart must read
   *  the rest of the topic in the same way. */
  private saveDefinition(): Promise<void> | undefined {
    const definition = this.parts.input?.definition;
    if (definition === undefined || definition === this.definition) return undefined;
    this.definition = definition;
    this.shownColumns = undefined;
    return this.stages.waiting('changelog', async () => {
      await this.bindSinks();
      await this.active.checkpointer.define(this.jobNow());
    });
  }

  /** Prepares for the keys of the job, if its definition is decided. */
  private async openKeys(isResumed: boolean): Promise<void> {
    if (this.definition.format === 'undecided') return;
    // The dictionary exists before a checkpoint that needs it does.
    if (this.keyType !== undefined) await this.parts.keys?.open(isResumed);
    await this.bindSinks();
  }

  private async bindSinks(): Promise<void> {
    const { sinks, lateEvents } = this.parts;
    const shape = resultShape(this.shaped);
    for (const sink of sinks) await sink.bind?.(this.keyType, shape);
    await lateEvents?.bind?.(shape);
  }

  /** Settings that decide the columns of the results. */
  private get shaped(): Pick<Job, 'input' | 'emit'> {
    return { ...this.parts.job, input: this.definition };
  }

  get keyType(): KeyType | undefined {
    return keyTypeOf(this.definition);
  }

  /** @throws no_valid_events once the first records were all invalid */
  private demandFirstEvents(): void {
    const totals = this.parts.watermarks.totals();
    if (totals.consumed < FIRST_RECORDS || totals.consumed > totals.invalid) return;
    demandValidInput(this.parts.job.topic, { totals, before: this.before, invalid: this.invalid });
  }

  private recordUnfolded({ records, events }: EventRows): void {
    const { metrics } = this.parts;
    if (this.definition.where !== undefined) this.filtered += filteredCount(records, events, this.limitOf);
    this.empty += emptyCount(records, this.limitOf);
    metrics.filtered.setTotal(this.filtered);
    metrics.empty.setTotal(this.empty);
  }

  /** First offset of a partition whose rows are not admitted. */
  private readonly limitOf = (partition: number): number => this.parts.watermarks.limitOf(partition);

  /** Counts and logs the invalid records of the batch. */
  private recordInvalid({ records, events }: EventRows, now: number): void {
    const { invalid } = this;
    const { log, metrics, job } = this.parts;
    invalid.note(records, events, this.limitOf);
    const { reasons, sample } = invalid;
    const { invalidReasons } = metrics;
    for (const reason of INVALID_REASONS)
      invalidReasons.setTotal(reasons[reason] ?? 0, invalidReasons.series(reason));
    if (!invalid.shouldWarn(now)) return;
    log.warn({ topic: job.topic, ...reasons, first: sample }, 'invalid records were skipped');
  }

  /** Fires everything on disk that has ended, even a small amount: no later event would make it
   *  due. */
  private async fireEnded(): Promise<void> {
    const { operator, outlet, spiller, state } = this.active;
    state.spillable?.endOfInput();
    for (let isOver = spiller === undefined; !isOver; ) {
      const fired = operator.due(this.parts.clock.monotonicMs());
      this.emit(fired);
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
    return this.active.state.firedTo;
  }

  get hasSignedKeys(): boolean {
    return hasSignedKeys(this.definition);
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

  get columns(): readonly ResultColumn[] {
    this.shownColumns ??= resultColumns(this.shaped);
    return this.shownColumns;
  }

  get valueScale(): number | undefined {
    return valueScaleOf(this.definition);
  }

  windowRange(query: RangeQuery): Promise<RangePage> {
    return this.parts.fired.range(query);
  }

  topWindows(query: TopQuery): Promise<readonly WindowResult[]> {
    return this.parts.fired.top(query);
  }

  /** @throws late_not_kept */
  async lateEvents(query: LateQuery): Promise<LatePage> {
    const { lateEvents } = this.parts;
    if (lateEvents === undefined)
      throw engineError('late_not_kept', 'this engine keeps no late events', {
        next: 'start it without -late-keep=0',
      });
    return lateEvents.find(query);
  }

  async openWindows(key: bigint | Uint8Array, after: number): Promise<OpenWindows> {
    const { outlet, state } = this.active;
    const accountId = typeof key === 'bigint' ? key : await this.parts.keys?.find(key);
    if (accountId === undefined) return { rows: [], isCut: false };
    // Requested together, so that a window that fires meanwhile is found exactly once.
    const [open, ...left] = await Promise.all([
      state.open(accountId, after),
      ...outlet.leaving.map((firing) => firing.find(accountId)),
    ]);
    const leaving = left.flat().filter(({ windowEnd }) => windowEnd > after);
    return { rows: [...leaving, ...open], isCut: open.length === OPEN_RESULTS_MAX };
  }

  private emit(fired: readonly StateFiring[], how: 'logged' | 'unlogged' = 'logged'): void {
    if (fired.length === 0) return;
    this.firedCount += fired.length;
    this.parts.metrics.firedWindows.add(fired.length);
    this.active.outlet.take(fired, how === 'logged' ? this.active.state.firedTo : undefined);
  }

  /** Spills the state of an earlier in-memory run completely before reading: checkpoints of a disk
   *  state do not reference its snapshot files. */
  private async moveToDisk(): Promise<void> {
    const { spiller, outlet, checkpointer } = this.active;
    if (spiller === undefined) return;
    // Rows that only firings hold are not state, so they are not moved.
    await outlet.flushed();
    await spiller.moveAll();
    await checkpointer.checkpoint();
  }

  /** Adds partitions at the frontier. The changelog records this before the first row of these
   *  partitions is read, so before any result depends on them. */
  private addPartitions(lows: readonly number[]): void {
    if (lows.length === 0) return;
    const { watermarks, log } = this.parts;
    const from = watermarks.partitionCount;
    for (const low of lows) this.active.operator.added(low);
    log.info(
      { from, to: watermarks.partitionCount },
      'partitions were added; their event time starts at the frontier',
    );
  }

  private reachedEnd(): boolean {
    if (this.parts.stop === 'never') return false;
    return this.targets.every(
      (target, partition) =>
        this.parts.watermarks.position(partition) >= target || this.parts.source.endOf(partition) >= target,
    );
  }

  /** The state is cut here, between two batches; the files are written while reading continues. */
  private async checkpoint(): Promise<void> {
    const { watermarks, metrics, log } = this.parts;
    const { checkpointer } = this.active;
    const { consumed } = watermarks.totals();
    const offsets = watermarks.progress().map(({ offset }) => offset);
    // A record without an event moves a position alone.
    const saved = `${offsets} ${watermarks.frontier} ${checkpointer.durableInSinkTo}`;
    if (saved === this.saved && !checkpointer.isCopying) return;
    this.saved = saved;
    const { id, seconds, ...report } = await checkpointer.checkpoint();
    this.parts.source.saved?.(offsets);
    const bytes = report.changelogBytes + report.manifestBytes + (report.newBaseBytes ?? 0);
    metrics.checkpoints.add();
    metrics.checkpointSeconds.observe(seconds);
    metrics.checkpointBytes.set(bytes);
    this.gauges.checkpointedMs = this.parts.clock.wallNowMs();
    log.info({ checkpoint: id, consumed, bytes, ...report, seconds }, 'checkpoint complete');
  }
}
