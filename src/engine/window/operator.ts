/** Window operator: a synchronous step over a batch, without clock, randomness, socket or disk.
 *
 *  Rows are admitted in arrival order, rows in time are accumulated, and results fire as far as the
 *  frontier has advanced: windows as soon as a row makes them due, sessions at the end of the
 *  admitted rows.
 *  Invariants: (1) results and counts depend only on the rows of each partition and on the
 *  decisions, not on batch boundaries or the number of shards; (2) an accepted event never falls
 *  into a fired window; (3) between two steps, everything up to the frontier has fired. */
import { invariant } from '../../core/errors.ts';
import { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { RefusedBatch } from '../../core/layout/refused-batch.ts';
import { knownValues } from '../aggregate/values.ts';
import type { DuplicateFilter } from '../dedup/filter.ts';
import { arrivalsOf } from '../durability/changelog/records.ts';
import type { EarlyResults } from '../output/early.ts';
import type { SideOutputs } from '../output/side/outputs.ts';
import type { Sections } from '../output/side/sections.ts';
import type { WatermarkGenerator } from '../source/admission.ts';
import { type StageCursor, UNTIMED } from '../stages.ts';
import type { StateBackend, StateFiring, StateJournal } from '../state/port.ts';

/** Receives every change in order, before a result that depends on it is returned. Cells are
 *  borrowed. */
export interface Journal extends StateJournal {
  /** Records that rows of a batch were admitted; `admitted` of them were accumulated, and the state
   *  has their deltas. `arrivals` is the interleaving of partitions, if results depend on it.
   *  `sections` have copies of the refused rows, if a side output is configured. Returns the
   *  sequence number of the record. */
  afterBatch(
    cells: Float64Array,
    clock: Float64Array,
    admitted: number,
    arrivals?: Uint32Array,
    sections?: Sections,
  ): number;
  idle(partition: number, cells: Float64Array, clock: Float64Array): void;
  added(cells: Float64Array, clock: Float64Array): void;
}

const ignore = (): void => {};

/** Discards all changes, for a run that is never resumed. */
export const UNLOGGED: Journal = {
  afterBatch: () => 0,
  idle: ignore,
  added: ignore,
  sealed: ignore,
  tookOut: ignore,
  sweeping: () => 0,
  swept: ignore,
};

export interface OperatorParts {
  readonly watermarks: WatermarkGenerator;
  readonly state: StateBackend;
  readonly journal: Journal;
  /** Rows of the largest batch. */
  readonly rowCapacity: number;
  /** Receives the stage that the step is in; absent: stages are not timed. */
  readonly stages?: StageCursor;
  /** Removes duplicates; absent: every admitted row is an event of its own. */
  readonly dedup?: Pick<DuplicateFilter, 'apply' | 'takeAdded' | 'expire'> | undefined;
  /** Notes the accumulated rows for early results; absent: there are none. */
  readonly early?: Pick<EarlyResults, 'note'> | undefined;
  /** Copies the refused rows, and sends the copies after the changelog record that holds them. */
  readonly sides?: Pick<SideOutputs, 'encode' | 'offer'> | undefined;
}

/** State at which a run resumes; the rows of the state have been loaded. */
export interface OperatorState {
  readonly progress: Float64Array;
  readonly frontier: number;
  readonly maxSeen: number;
  /** Results that end at or before this time are durable in the sinks. */
  readonly fired: number;
}

export class WindowOperator {
  private readonly watermarks: WatermarkGenerator;
  private readonly state: StateBackend;
  private readonly journal: Journal;
  private readonly admitted: AdmittedBatch;
  private readonly stages: StageCursor;
  private readonly sides: OperatorParts['sides'];
  private readonly dedup: OperatorParts['dedup'];
  private readonly early: OperatorParts['early'];
  /** Duplicates since the start. */
  duplicates = 0;
  /** Set only if copies are needed. */
  private readonly refused: RefusedBatch | undefined;

  constructor(parts: OperatorParts) {
    this.watermarks = parts.watermarks;
    this.state = parts.state;
    this.journal = parts.journal;
    this.admitted = AdmittedBatch.create(parts.rowCapacity);
    this.stages = parts.stages ?? UNTIMED;
    this.sides = parts.sides;
    this.dedup = parts.dedup;
    this.early = parts.early;
    this.refused = parts.sides === undefined ? undefined : RefusedBatch.create(parts.rowCapacity);
  }

  /** Resumes from a saved state; returns the results that may not have been forwarded. Call once,
   *  before the first batch. */
  resume(saved: OperatorState, atMs: number): readonly StateFiring[] {
    const { watermarks } = this;
    const { progress, frontier, maxSeen, fired } = saved;
    watermarks.restore(progress, frontier, maxSeen);
    this.state.resume(fired);
    // A shorter skew or lateness than before advances the frontier. The changelog must record that
    // before results fire because of it.
    watermarks.refresh();
    this.journal.afterBatch(watermarks.cells, watermarks.clock, 0);
    return this.fired(atMs);
  }

  /** Processes a batch with an event row for each record; returns the firings in the order of their
   *  ends. `atMs`: monotonic ms. @throws dedup_full */
  step(records: RecordBatch, events: EventBatch, atMs: number): readonly StateFiring[] {
    const { watermarks, state, journal, admitted, refused, stages, dedup } = this;
    const fired: StateFiring[] = [];
    for (let from = 0; from < records.rowCount; ) {
      stages.enter('route');
      const taken = watermarks.admit(records, events, from, admitted, refused);
      invariant(taken > 0, 'admission must continue after due windows have fired');
      if (admitted.rowCount > 0) {
        invariant(watermarks.nextEnd > state.firedTo, 'an accepted event never falls into a fired window');
        stages.enter('update');
        if (dedup !== undefined) this.duplicates += dedup.apply(events, admitted);
        if (admitted.rowCount > 0) state.accumulate(events, admitted, knownValues(events));
        this.early?.note(events, admitted);
      }
      stages.enter('changelog');
      const arrivals = watermarks.dependsOnOrder
        ? arrivalsOf(records.columns.partition, from, from + taken)
        : undefined;
      const copies =
        refused === undefined || refused.rowCount === 0
          ? undefined
          : this.sides?.encode(records, events, refused);
      const ids = dedup?.takeAdded();
      const sections = ids === undefined ? copies : { ...copies, ids };
      const { cells, clock } = watermarks;
      const seq = journal.afterBatch(cells, clock, admitted.rowCount, arrivals, sections);
      if (sections !== undefined) this.sides?.offer(seq, sections);
      from += taken;
      this.fire(watermarks.frontier, atMs, fired, journal);
      dedup?.expire(watermarks.frontier);
    }
    return fired;
  }

  /** Marks the partition idle until its next valid event. */
  idle(partition: number, atMs: number): readonly StateFiring[] {
    const { watermarks } = this;
    watermarks.idle(partition);
    this.journal.idle(partition, watermarks.cells, watermarks.clock);
    return this.fired(atMs);
  }

  /** Fires results that are ready without new input. */
  due(atMs: number): readonly StateFiring[] {
    return this.state.isDue(atMs) ? this.fired(atMs) : [];
  }

  /** Adds one partition to the topic. */
  added(offset: number): void {
    const { watermarks } = this;
    watermarks.added(offset);
    this.journal.added(watermarks.cells, watermarks.clock);
  }

  /** Fires everything that is open, at the end of a bounded input. Watermarks do not change and the
   *  journal gets no record, so a run that continues resumes from before this point. No batch may
   *  follow. */
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
    this.stages.enter('update');
    for (const firing of this.state.fire(frontier, atMs, journal)) into.push(firing);
    this.watermarks.nextEnd = this.state.nextEnd;
    this.stages.leave();
  }
}
