/** Window operator: a synchronous step over a batch, without clock, randomness, socket or disk.
 *
 *  Rows are admitted in order of arrival, those in time are accumulated, and windows that the
 *  watermark has reached fire: tumbling and sliding windows as soon as a row makes one due,
 *  sessions at the end of an admitted part. Invariants: (1) results and counts depend only on the
 *  rows of each partition and the decisions, not on batch boundaries or the number of shards; (2)
 *  an accepted event never belongs to a fired window; (3) between two steps all windows that the
 *  watermark has reached have fired. */
import { invariant } from '../../core/errors.ts';
import { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { RefusedBatch } from '../../core/layout/refused-batch.ts';
import { arrivalsOf } from '../durability/changelog/records.ts';
import { encodeLate } from '../output/late/rows.ts';
import type { WatermarkGenerator } from '../source/admission.ts';
import { type StageCursor, UNTIMED } from '../stages.ts';
import type { StateBackend, StateFiring, StateJournal } from '../state/port.ts';

/** Receives every change in its order, before results that depend on it are returned. Cells are
 *  borrowed. */
export interface Journal extends StateJournal {
  /** Rows of a batch were admitted; `admitted` of them were accumulated, and the state has their
   *  deltas. `arrivals` has the order of the partitions, where results depend on it; `late` has
   *  copies of the refused rows, where they are needed. Returns the number of the record. */
  afterBatch(
    cells: Float64Array,
    clock: Float64Array,
    admitted: number,
    arrivals?: Uint32Array,
    late?: Uint8Array,
  ): number;
  idle(partition: number, cells: Float64Array, clock: Float64Array): void;
  added(cells: Float64Array, clock: Float64Array): void;
}

const nothing = (): void => {};

/** Journal of a run that is never resumed. */
export const UNLOGGED: Journal = {
  afterBatch: () => 0,
  idle: nothing,
  added: nothing,
  sealed: nothing,
  tookOut: nothing,
  sweeping: () => 0,
  swept: nothing,
};

export interface OperatorParts {
  readonly watermarks: WatermarkGenerator;
  readonly state: StateBackend;
  readonly journal: Journal;
  /** Rows of the largest batch. */
  readonly rowCapacity: number;
  /** Receives the present stage of the step; absent: not measured. */
  readonly stages?: StageCursor;
  /** Receives copies of the refused rows, after the record that has them. */
  readonly late?: { offer(seq: number, copies: Uint8Array): void } | undefined;
}

/** Position of a run to resume; the state has been loaded. */
export interface OperatorState {
  readonly progress: Float64Array;
  readonly frontier: number;
  readonly maxSeen: number;
  /** Watermark up to which ended windows have left for good. */
  readonly fired: number;
}

export class WindowOperator {
  private readonly watermarks: WatermarkGenerator;
  private readonly state: StateBackend;
  private readonly journal: Journal;
  private readonly admitted: AdmittedBatch;
  private readonly stages: StageCursor;
  private readonly late: OperatorParts['late'];
  /** Present only where copies of refused rows are needed. */
  private readonly refused: RefusedBatch | undefined;

  constructor(parts: OperatorParts) {
    this.watermarks = parts.watermarks;
    this.state = parts.state;
    this.journal = parts.journal;
    this.admitted = AdmittedBatch.create(parts.rowCapacity);
    this.stages = parts.stages ?? UNTIMED;
    this.late = parts.late;
    this.refused = parts.late === undefined ? undefined : RefusedBatch.create(parts.rowCapacity);
  }

  /** Resumes at a recovery point; returns the firings that may not have left before. Call it once,
   *  before the first batch. */
  resume(standing: OperatorState, atMs: number): readonly StateFiring[] {
    const { watermarks } = this;
    const { progress, frontier, maxSeen, fired } = standing;
    watermarks.restore(progress, frontier, maxSeen);
    this.state.resume(fired);
    // A shorter skew or lateness than before advances the watermark; the changelog records that
    // before the firings.
    watermarks.refresh();
    this.journal.afterBatch(watermarks.cells, watermarks.clock, 0);
    return this.fired(atMs);
  }

  /** Processes a batch, with a row of events for each record; returns the firings in the order of
   *  the ends. `atMs`: monotonic. */
  step(records: RecordBatch, events: EventBatch, atMs: number): readonly StateFiring[] {
    const { watermarks, state, journal, admitted, refused, stages } = this;
    const fired: StateFiring[] = [];
    for (let from = 0; from < records.rowCount; ) {
      stages.works('route');
      const taken = watermarks.admit(records, events, from, admitted, refused);
      invariant(taken > 0, 'admission continues after due windows have fired');
      if (admitted.rowCount > 0) {
        invariant(watermarks.nextEnd > state.firedTo, 'an accepted event never meets a fired window');
        stages.works('update');
        state.accumulate(events, admitted);
      }
      stages.works('changelog');
      const arrivals = watermarks.dependsOnOrder
        ? arrivalsOf(records.columns.partition, from, from + taken)
        : undefined;
      const late = refused === undefined || refused.rowCount === 0 ? undefined : encodeLate(records, refused);
      const seq = journal.afterBatch(watermarks.cells, watermarks.clock, admitted.rowCount, arrivals, late);
      if (late !== undefined) this.late?.offer(seq, late);
      from += taken;
      this.fire(watermarks.frontier, atMs, fired, journal);
    }
    return fired;
  }

  /** Marks the partition as idle until its next valid event. */
  idle(partition: number, atMs: number): readonly StateFiring[] {
    const { watermarks } = this;
    watermarks.idle(partition);
    this.journal.idle(partition, watermarks.cells, watermarks.clock);
    return this.fired(atMs);
  }

  /** Returns firings that became due without a batch. */
  due(atMs: number): readonly StateFiring[] {
    return this.state.isDue(atMs) ? this.fired(atMs) : [];
  }

  /** Adds a partition of the topic. */
  added(offset: number): void {
    const { watermarks } = this;
    watermarks.added(offset);
    this.journal.added(watermarks.cells, watermarks.clock);
  }

  /** Fires all open windows: the end of a bounded input. Watermarks stay, and the journal is not
   *  called: a resumed run starts before this. No batch may follow. */
  drain(atMs: number): readonly StateFiring[] {
    const fired: StateFiring[] = [];
    this.fire(Number.POSITIVE_INFINITY, atMs, fired, UNLOGGED);
    return fired;
  }

  private fired(atMs: number): readonly StateFiring[] {
    const fired: StateFiring[] = [];
    this.fire(this.watermarks.frontier, atMs, fired, this.journal);
    return fired;
  }

  private fire(frontier: number, atMs: number, into: StateFiring[], journal: StateJournal): void {
    this.stages.works('update');
    for (const firing of this.state.fire(frontier, atMs, journal)) into.push(firing);
    this.watermarks.nextEnd = this.state.nextEnd;
    this.stages.rests();
  }
}
