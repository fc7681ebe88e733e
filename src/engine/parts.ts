/** Parts that an engine needs, and the summary of its run. */
import type { Clock } from '../core/clock.ts';
import type { Logger } from '../core/log.ts';
import type { Disk } from '../io/disk/port.ts';
import type { CheckpointSizes } from './durability/checkpoint/checkpointer.ts';
import type { StepHook } from './durability/checkpoint/steps.ts';
import type { PieceStore } from './durability/spill/pieces.ts';
import type { Job } from './job.ts';
import type { KeyDictionary } from './keys/dictionary.ts';
import type { EngineMetrics } from './metrics.ts';
import type { WindowPage, WindowQuery } from './output/fired/lookup.ts';
import type { RangePage, RangeQuery, TopQuery } from './output/fired/range.ts';
import type { KeptLateEvents } from './output/late/kept.ts';
import type { LateCopy } from './output/late/rows.ts';
import type { QuarantineCopy } from './output/quarantine/rows.ts';
import type { SideTopic } from './output/side/sender.ts';
import type { WindowSink } from './output/sink/port.ts';
import type { Totals, WatermarkGenerator } from './source/admission.ts';
import type { Bounds, EventSource } from './source/events.ts';
import type { EventInput } from './source/input/port.ts';
import type { InvalidRecords } from './source/invalid.ts';
import type { Limited, StageShare, Stages } from './stages.ts';
import type { StateBackend } from './state/port.ts';
import type { WindowResult } from './window/accumulator.ts';

export interface EngineParts {
  readonly job: Job;
  readonly clusterId: string;
  /** Id of the topic, which differs if the topic was recreated under its name; undefined: unknown.
   */
  readonly topicId?: string | undefined;
  readonly source: EventSource;
  /** First offset of each partition for a run without a checkpoint, within its bounds; absent: the
   *  first record. */
  readonly startAt?: (bounds: readonly Bounds[]) => Promise<readonly number[]>;
  /** Decoder of the source's records; absent: events have the fixed layout. */
  readonly input?: Omit<EventInput, 'decode'>;
  readonly watermarks: WatermarkGenerator;
  /** Creates an empty state of a job that has the aggregates of this one or, for an earlier
   *  checkpoint, fewer. `pieces`: where it can spill to; absent: nowhere. It is called again if a
   *  checkpoint turns out to be invalid. */
  readonly openState: (job: Job, pieces: PieceStore | undefined) => StateBackend;
  /** Only for a state that can spill to disk: where the sorted runs are stored, and the memory
   *  limit of tables and sorted runs. */
  readonly spill?: { readonly pieces: PieceStore; readonly bytesMax: number };
  /** Dictionary of keys that are no integers. It is opened when a job has such keys. */
  readonly keys?: KeyDictionary;
  /** Results count as durable once they are durable in every sink. */
  readonly sinks: readonly WindowSink[];
  /** Lookup of fired windows; one of the sinks. */
  readonly fired: {
    find(query: WindowQuery): Promise<WindowPage>;
    range(query: RangeQuery): Promise<RangePage>;
    top(query: TopQuery): Promise<readonly WindowResult[]>;
    bytes?(): Promise<number>;
  };
  /** Topic for copies of late events; absent: they are only counted. */
  readonly late?: SideTopic<LateCopy>;
  /** Late events that can be queried; absent: none can. */
  readonly lateEvents?: Pick<KeptLateEvents, 'send' | 'find'> & Partial<Pick<KeptLateEvents, 'bind'>>;
  /** Quarantine of invalid records; absent: they are only counted. */
  readonly quarantine?: SideTopic<QuarantineCopy>;
  /** Limit on the bytes of unsent copies of each; absent: that of a run without a memory budget. */
  readonly sideBytesMax?: number;
  /** Memory for the identifiers of open windows; absent: no limit. */
  readonly idBytesMax?: number;
  /** Folder of the changelog and the checkpoints; the process holds its lock. */
  readonly disk: Disk;
  readonly rowCapacity: number;
  readonly checkpointIntervalMs: number;
  /** Time between two rounds of early results; only for a job with early results. */
  readonly emitIntervalMs?: number | undefined;
  readonly checkpointSizes?: Partial<CheckpointSizes>;
  /** A partition without new records for this time stops holding windows back; 0: partitions never
   *  become idle. */
  readonly idleTimeoutMs: number;
  /** Interval of the checks for added partitions; 0: only at the start, as in a run that has an
   *  end. */
  readonly partitionIntervalMs: number;
  /** Called at each step of the changelog and the checkpoints; may end the process. */
  readonly onStep?: StepHook;
  /** `end`: stop at the current end offsets; `bounded`: also fire all open windows there. */
  readonly stop: 'never' | 'end' | 'bounded';
  readonly clock: Clock;
  readonly sleep: (ms: number) => Promise<void>;
  readonly log: Logger;
  readonly metrics: EngineMetrics;
  /** Stage times, shared with the source; absent: the engine creates its own. */
  readonly stages?: Stages;
  /** Called after each batch with the number of events that this process has consumed. */
  readonly onConsumed?: (events: number) => void;
}

export type RunSummary = Totals & {
  /** Windows; for sessions, the number of firings. */
  readonly firedWindows: number;
  /** The counts when this process started. */
  readonly before: Totals;
  readonly invalidRecords: InvalidRecords;
  /** Accepted events that this process read and the condition of the job excludes. */
  readonly filtered: number;
  /** Accepted events that this process read and that an open window had already. */
  readonly duplicates: number;
  /** Records that this process read and whose list has no element. */
  readonly empty: number;
  readonly limitedBy: Limited | undefined;
  readonly stages: readonly StageShare[];
};
