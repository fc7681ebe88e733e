/** Opens one window of a run: its folder, stores, sinks and engine. */
import { sleep } from '../../../core/clock.ts';
import { savedJob } from '../../../engine/durability/checkpoint/restore.ts';
import type { MemoryShares } from '../../../engine/durability/spill/budget.ts';
import type { PieceStore } from '../../../engine/durability/spill/pieces.ts';
import { type Job, resumedInput, rowFormOf, stateOf, watermarksOf } from '../../../engine/job.ts';
import { engineMetrics } from '../../../engine/metrics.ts';
import { type ResultShape, resultShape } from '../../../engine/output/columns.ts';
import { Engine } from '../../../engine/run.ts';
import type { EventSource } from '../../../engine/source/events.ts';
import { BINARY256 } from '../../../engine/source/input/binary256.ts';
import { hasGivenKey } from '../../../engine/source/input/definition.ts';
import type { EventInput } from '../../../engine/source/input/port.ts';
import type { SharedReader } from '../../../engine/source/shared/reader.ts';
import { Stages } from '../../../engine/stages.ts';
import { openDisk } from '../../../io/disk/node.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { BrokerDriver } from '../../../io/kafka/port.ts';
import { windowKernels } from '../../../shell/drivers.ts';
import { parseStart } from '../../registry-clients/start.ts';
import type { EngineContext } from '../actions/settings.ts';
import type { chaosOf } from '../chaos.ts';
import { shapeOf } from '../job.ts';
import { openKeys } from '../keys.ts';
import { keptLateEvents, openLateTable } from '../late-events.ts';
import { openSpill } from '../memory.ts';
import type { PinnedState } from '../savepoint/pins.ts';
import { openSides } from '../sides.ts';
import { openSink, openSinks } from '../sinks.ts';
import { batchRows } from '../source/lists.ts';
import { startOf } from '../source/start.ts';
import type { OpenedStore } from '../store/open.ts';
import { openStoresOf } from '../stores.ts';
import type { WindowPlan } from './plan.ts';

export interface OpenWindow extends WindowPlan {
  /** State folder of this window. */
  readonly disk: Disk;
  readonly engine: Engine;
  readonly stored: OpenedStore | undefined;
  readonly stages: Stages;
  readonly metrics: ReturnType<typeof engineMetrics>;
  /** Ends the share of this window in the common read. */
  readonly leave: () => Promise<void>;
}

/** Engine options that depend only on flags and memory shares. */
function runOptions({ settings }: EngineContext, shares: MemoryShares | undefined) {
  return {
    ...(shares === undefined ? {} : { sideBytesMax: shares.sideBytes, idBytesMax: shares.idBytes }),
    rowCapacity: batchRows(settings),
    checkpointIntervalMs: settings['checkpoint-interval'],
    emitIntervalMs: settings['emit-interval'],
    checkpointSizes: {
      baseBytesMin: settings['snapshot-after'],
      ...(shares === undefined ? {} : { waitingBytesMax: shares.changelogBytes }),
    },
    idleTimeoutMs: settings['idle-timeout'],
    partitionIntervalMs: settings['partition-interval'],
    stop: settings.bounded
      ? ('bounded' as const)
      : settings['exit-at-end']
        ? ('end' as const)
        : ('never' as const),
  };
}

/** Shape of the results as the checkpoint or the flags have it; undefined: the first records
 *  decide. */
async function knownShape(disk: Parameters<typeof savedJob>[0], job: Job): Promise<ResultShape | undefined> {
  const saved = await savedJob(disk);
  const input = saved === undefined ? undefined : (saved.input ?? BINARY256);
  if (input !== undefined && input.format !== 'undecided')
    return resultShape({ ...job, input: resumedInput(input, job) });
  return hasGivenKey(job.input ?? BINARY256) ? resultShape(job) : undefined;
}

/** Opens what is outside of the engine: the sink, and the table of late events beside it. */
async function openTables(
  context: EngineContext,
  shape: ResultShape | undefined,
  writer: Parameters<typeof openSink>[2],
) {
  const sink = await openSink(context, shape, writer);
  return { sink, lateTable: await openLateTable(context, shape) };
}

/** Opens an empty state, which the run closes. */
function openState(context: EngineContext, job: Job, pieces: PieceStore | undefined) {
  const windows = windowKernels(context, rowFormOf(job));
  const state = stateOf(job, windows, context.settings.shards, pieces);
  context.onClose(() => state.close());
  return state;
}

/** Parts that all windows of a run share. */
interface SharedParts {
  readonly driver: BrokerDriver;
  readonly brokers: string;
  readonly clusterId: string;
  readonly partitionCount: number;
  readonly topicId: string | undefined;
  readonly source: EventSource;
  readonly input: EventInput;
  /** Present if the windows have names. */
  readonly reader: SharedReader | undefined;
  /** Store of the checkpoints of all windows. */
  readonly stored: OpenedStore | undefined;
  readonly chaos: ReturnType<typeof chaosOf>;
  readonly onConsumed: (events: number) => void;
}

/** Opens the state and the store of a window, and its engine. */
export async function openWindow(
  plan: WindowPlan & Awaited<ReturnType<typeof openOutside>>,
  { driver, brokers, clusterId, partitionCount, topicId, reader, stored, chaos, ...shared }: SharedParts,
): Promise<OpenWindow> {
  const { name, context, job, names, shares, disk, sink, lateTable, keys } = plan;
  const { settings, log, clock } = context;
  // Create the spill folder only after the broker and the sink were reached.
  const spill = shares && (await openSpill(context, shares, job));
  const { sinks, fired, store } = await openSinks(context, sink, shapeOf(job), shares?.firedStoreBytes);
  const stages = new Stages(clock);
  const metrics = engineMetrics(
    name === undefined ? context.metrics : context.metrics.labelled('window', name),
  );
  const windows = windowKernels(context, rowFormOf(job));
  const watermarks = watermarksOf(job, windows, partitionCount);
  const own =
    name === undefined
      ? undefined
      : reader?.add({ name, aggregate: job.input?.aggregate, watermarks, keys, stages });
  const engine = new Engine({
    ...{
      job,
      clusterId,
      topicId,
      watermarks,
      keys,
      fired,
      disk,
      clock,
      log,
      metrics,
      stages,
    },
    sinks: stored?.guard(sinks) ?? sinks,
    openState: (own, pieces) => openState(context, own, pieces),
    source: own ?? shared.source,
    input: own?.input ?? shared.input,
    ...startOf(parseStart(settings.start), driver, { brokers, topic: job.topic }),
    ...(spill === undefined ? {} : { spill }),
    ...openSides(context, driver, { brokers, job, names }),
    ...keptLateEvents(context, store, lateTable),
    ...runOptions(context, shares),
    onStep: chaos.onStep,
    sleep: (ms) => sleep(clock, ms),
    onConsumed: (events) => {
      shared.onConsumed(events);
      chaos.onConsumed(events);
    },
  });
  return { ...plan, engine, stored, stages, metrics, leave: async () => own?.stop() };
}

/** Opens the folder and the outside of a window, before the broker is reached. */
export async function openOutside(plan: WindowPlan, root: Disk, stored: OpenedStore | undefined) {
  const { name, context, job, shares } = plan;
  const disk = name === undefined ? root : await openDisk(context.settings['state-dir']);
  const shape = await knownShape(disk, job);
  const tables = await openTables(context, shape, { job, lease: stored?.lease });
  return { ...plan, ...tables, disk, keys: openKeys(context, job, shares) };
}

/** State of an open window, for savepoints and the checkpoint store. */
export const pinnedState = ({ name, disk, engine, context }: OpenWindow): PinnedState => ({
  ...{ window: name, disk, engine },
  stores: openStoresOf(context),
});
