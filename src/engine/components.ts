/** Components of an engine, which a restore creates. */
import { invariant } from '../core/errors.ts';
import { DuplicateFilter } from './dedup/filter.ts';
import { Checkpointer, type RecoveryPoint } from './durability/checkpoint/checkpointer.ts';
import { Spiller } from './durability/spill/spiller.ts';
import { assignerOf, type Job, rowFormOf, seenIdsOf } from './job.ts';
import type { KeyType } from './keys/type.ts';
import { EarlyResults } from './output/early.ts';
import type { FiredFeed } from './output/feed.ts';
import { Outlet } from './output/outlet.ts';
import { SideOutputs } from './output/side/outputs.ts';
import type { SideName } from './output/side/sections.ts';
import type { EngineParts } from './parts.ts';
import type { Stages } from './stages.ts';
import type { StateBackend } from './state/port.ts';
import { timedDisk } from './timed-disk.ts';
import { WindowOperator } from './window/operator.ts';

/** Components that `restore` creates. */
export interface Running {
  readonly state: StateBackend;
  readonly checkpointer: Checkpointer;
  readonly operator: WindowOperator;
  readonly outlet: Outlet;
  readonly spiller: Spiller | undefined;
  readonly early: EarlyResults | undefined;
  readonly sides: SideOutputs;
}

/** Engine values that its components share. */
export interface Core {
  readonly parts: EngineParts;
  readonly stages: Stages;
  readonly feed: FiredFeed;
  /** Keys of the job as far as it is decided. */
  readonly keyType: () => KeyType | undefined;
  /** The job with the definition of its input as far as it is decided. */
  readonly jobNow: () => Job;
  /** Filter of the job's duplicates. */
  readonly filter: () => DuplicateFilter | undefined;
}

export function openCheckpointer(
  { parts, stages, jobNow, filter }: Core,
  state: StateBackend,
  from: RecoveryPoint,
  topicId: string | undefined,
): Promise<Checkpointer> {
  const { disk, clock, clusterId, keys, spill, checkpointSizes, onStep } = parts;
  return Checkpointer.start(
    {
      ...{ disk: timedDisk(disk, stages), clock, clusterId, topicId, keys },
      ...{ job: jobNow(), shards: state.shards, state: state.live, ids: filter() },
      ...(spill === undefined ? {} : { pieces: spill.pieces }),
      ...(checkpointSizes === undefined ? {} : { sizes: checkpointSizes }),
      ...(onStep === undefined ? {} : { onStep }),
    },
    from,
  );
}

export function openOutlet({ parts, stages, feed, keyType }: Core, checkpointer: Checkpointer): Outlet {
  const { sinks, clock, log, sleep, metrics, keys } = parts;
  return new Outlet({
    ...{ sinks, checkpointer, clock, log, sleep, stages },
    keys: () => (keyType() === undefined ? undefined : keys),
    onPage: (page) => feed.publish(page),
    onWritten: (rows, seconds) => {
      metrics.sinkRows.add(rows);
      metrics.stage.observeMany(seconds, rows, metrics.stage.series('sink'));
    },
  });
}

export function createOperator(
  { parts, stages, filter }: Core,
  state: StateBackend,
  journal: Checkpointer,
  sides: SideOutputs,
  early: EarlyResults | undefined,
): WindowOperator {
  const { watermarks, rowCapacity } = parts;
  return new WindowOperator({
    ...{ watermarks, state, rowCapacity, journal, early, stages },
    sides: sides.areAny ? sides : undefined,
    dedup: filter(),
  });
}

export function createEarly(
  { parts, jobNow }: Core,
  state: StateBackend,
  outlet: Outlet,
): EarlyResults | undefined {
  const { job, emitIntervalMs, clock, sleep, metrics } = parts;
  if (job.emit === undefined || job.window === 'session' || emitIntervalMs === undefined) return undefined;
  return new EarlyResults({
    ...{ state, clock, sleep, form: rowFormOf(jobNow()), assigner: assignerOf(job) },
    intervalMs: emitIntervalMs,
    offer: (firings) => outlet.take(firings, undefined),
    waitingRows: () => outlet.waitingRows,
    onEmitted: (results) => metrics.earlyResults.add(results),
  });
}

export function createSpiller(
  { parts, stages }: Core,
  state: StateBackend,
  log: Checkpointer,
): Spiller | undefined {
  const { spill, metrics, sleep, onStep } = parts;
  if (spill === undefined) return undefined;
  invariant(state.spillable !== undefined, 'a state with a store for sorted runs must be spillable');
  const hook = onStep ?? (() => {});
  const onSpilled = (bytes: number): void => metrics.spillBytes.add(bytes);
  spill.pieces.watchSweeps(hook, onSpilled);
  const keyBytes = (): number => parts.keys?.bytes ?? 0;
  return new Spiller({
    ...{ state: state.spillable, log, sleep, ...spill, keyBytes },
    ...{ hook, onSpilled, stages },
  });
}

/** Filter of the job's duplicates; undefined: it compares no identifiers. */
export function createFilter({ job, idBytesMax }: EngineParts): DuplicateFilter | undefined {
  if (job.input?.dedup === undefined) return undefined;
  return new DuplicateFilter(seenIdsOf(job), idBytesMax ?? Number.POSITIVE_INFINITY);
}

/** Opens the side outputs with the copies that the changelog holds and they may lack.
 *  @throws late_waiting, quarantine_waiting */
export function openSides(
  { parts, keyType }: Core,
  checkpointer: Checkpointer,
  { unsent }: RecoveryPoint,
): SideOutputs {
  const { late, lateEvents: events, quarantine, input, log, sleep, metrics } = parts;
  const bytesMax = parts.sideBytesMax;
  const { lateSent, lateKept, quarantined } = metrics;
  const counters = { late: lateSent, events: lateKept, quarantine: quarantined };
  const onSent = (side: SideName, copies: number): void => counters[side].add(copies);
  const { latenessMs } = parts.job;
  const hasIntegerKeys = (): boolean => keyType() === undefined;
  const shared = { latenessMs, hasIntegerKeys, input, checkpointer, log, sleep, bytesMax, onSent };
  return new SideOutputs({ late, quarantine, events, ...shared }, unsent);
}
