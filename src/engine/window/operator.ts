/** The window operator: a synchronous step over a batch. No clock, randomness, socket or disk.
 *
 *  Rows are admitted in order of arrival, what is in time is accumulated, and what the frontier has
 *  reached fires: windows as soon as a row makes one due, sessions where the piece ends.
 *  Invariants: (1) the results and the counts depend on the rows of each partition and the
 *  decisions alone, not on where batches are cut or how many shards there are; (2) an accepted
 *  event never meets a fired window; (3) between two steps everything that the frontier has reached
 *  has fired.
 */
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

/** Is told of every change in its order, before what depends on it is handed out. Cells are
 *  borrowed. */
export interface Journal extends StateJournal {
  /** Rows of a batch were taken; `admitted` of them were accumulated, and the state has their
   *  deltas. `arrivals` says in which order partitions were met, where results depend on it; `late`
   *  has copies of the rows that were refused, where they are asked for. Returns the number of the
   *  record. */
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

/** For a run that nobody takes up. */
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
  /** Rows the largest batch has. */
  readonly rowCapacity: number;
  /** Is told what the step is at; absent: nobody. */
  readonly stages?: StageCursor;
  /** Gets copies of the rows that are refused, behind the record that says so. */
  readonly late?: { offer(seq: number, copies: Uint8Array): void } | undefined;
}

/** Where a run stands that is taken up; the state has been loaded. */
export interface OperatorState {
  readonly progress: Float64Array;
  readonly frontier: number;
  readonly maxSeen: number;
  /** What ends at or before it has left for good. */
  readonly fired: number;
}

export class WindowOperator {
  private readonly watermarks: WatermarkGenerator;
  private readonly state: StateBackend;
  private readonly journal: Journal;
  private readonly admitted: AdmittedBatch;
  private readonly stages: StageCursor;
  private readonly late: OperatorParts['late'];
  /** Only where copies are asked for. */
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

  /** Resumes from where a run stands; gives what it may not have handed out. Once, before the first
   *  batch. */
  resume(standing: OperatorState, atMs: number): readonly StateFiring[] {
    const { watermarks } = this;
    const { progress, frontier, maxSeen, fired } = standing;
    watermarks.restore(progress, frontier, maxSeen);
    this.state.resume(fired);
    // A shorter skew or lateness than before moves the frontier; the changelog has that before what
    // fires by it.
    watermarks.refresh();
    this.journal.afterBatch(watermarks.cells, watermarks.clock, 0);
    return this.fired(atMs);
  }

  /** Takes a batch, a row of events for each record; gives what fired, in the order of the ends.
   *  `atMs`: monotonic. */
  step(records: RecordBatch, events: EventBatch, atMs: number): readonly StateFiring[] {
    const { watermarks, state, journal, admitted, refused, stages } = this;
    const fired: StateFiring[] = [];
    for (let from = 0; from < records.rowCount; ) {
      stages.works('route');
      const taken = watermarks.admit(records, events, from, admitted, refused);
      invariant(taken > 0, 'admission goes on once what was due has fired');
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

  /** The partition is idle from here to its next valid event. */
  idle(partition: number, atMs: number): readonly StateFiring[] {
    const { watermarks } = this;
    watermarks.idle(partition);
    this.journal.idle(partition, watermarks.cells, watermarks.clock);
    return this.fired(atMs);
  }

  /** What is ready to fire though nothing came. */
  due(atMs: number): readonly StateFiring[] {
    return this.state.isDue(atMs) ? this.fired(atMs) : [];
  }

  /** The topic has one more partition. */
  added(offset: number): void {
    const { watermarks } = this;
    watermarks.added(offset);
    this.journal.added(watermarks.cells, watermarks.clock);
  }

  /** Fires everything that is open: the end of a bounded input. Watermarks stay as they are, and
   *  the journal is not told: a run that goes on does so from before this. No batch may follow. */
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
