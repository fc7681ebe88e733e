/** Applies the records of the changelog to a state and to the position of the run. */

import type { RowRun } from '../../../addon/window-surface.ts';
import { DELTA_STATUS } from '../../../core/layout/layouts.gen.ts';
import { PROGRESS_CELLS } from '../../../core/layout/window-clock.ts';
import { engineError } from '../../errors.ts';
import type { LateRows } from '../../output/late/rows.ts';
import { ROW_BYTES } from '../../window/accumulator.ts';
import { copyCells, widened } from '../changelog/cells.ts';
import { type Frame, frameBytes } from '../changelog/frame.ts';
import { decodeRecord, type Move } from '../changelog/records.ts';
import { Ledger } from './ledger.ts';
import type { LiveState } from './live.ts';
import type { StateManifest } from './state-manifest.ts';

/** Number of rows that go back into a table together. */
const BACK_ROWS = 4096;

/** The manifest belongs to a state in memory, and a later move to disk was interrupted. */
const onDisk = (seq: number): Error =>
  engineError('job_changed', `record ${seq} of the changelog is of state on disk: -state was disk, is mem`, {
    next: 'start with -state=disk, or give another -state-dir',
  });

export class Replayer {
  /** Values after the last record; at least those of the manifest. */
  progress: Float64Array;
  frontier: number;
  maxSeen: number;
  fired: number;
  /** Copies of refused rows whose acknowledgement is unknown. */
  late: LateRows[] = [];
  records = 0;
  bytes = 0;
  /** Reason why a record cannot be applied; later records are not read. */
  fault: string | undefined;
  /** Present for a state on disk. */
  readonly ledger: Ledger | undefined;
  private readonly state: LiveState;
  /** Table that the ledger has aside, as far as it was replayed. */
  private aside: Promise<RowRun> | undefined;
  private readonly covered: Float64Array;

  /** @param covered last record in the loaded rows, by range
   *  @param isOnDisk true: the run that resumes has a store of pieces */
  constructor(state: LiveState, manifest: StateManifest, covered: Float64Array, isOnDisk: boolean) {
    this.state = state;
    this.covered = covered;
    this.progress = manifest.progress.slice();
    this.frontier = manifest.frontier;
    this.maxSeen = manifest.maxSeen;
    this.fired = manifest.fired;
    const { spill } = manifest;
    this.ledger = isOnDisk ? new Ledger(spill?.pieces, spill?.lastId) : undefined;
  }

  /** @throws job_changed */
  take(frame: Frame): void | Promise<void> {
    if (this.fault !== undefined) return;
    const decoded = decodeRecord(frame.kind, frame.body);
    if ('fault' in decoded) {
      this.fault = `record ${frame.seq} of the changelog ${decoded.fault}`;
      return;
    }
    const { record } = decoded;
    const before = this.bytes;
    this.records++;
    this.bytes += frameBytes(frame.body.length);
    switch (record.kind) {
      case 'fired':
        this.frontier = Math.max(this.frontier, record.frontier);
        this.fired = Math.max(this.fired, record.frontier);
        this.ledger?.fired(record.frontier, (part) => this.state.lastEndOf(part));
        // Released rows bound the memory of a replay.
        return Promise.all([this.forget(), this.dropEnded(record.frontier)]).then(() => {});
      case 'detached':
        return this.detach(frame.seq, before, record.id, record.part);
      case 'spilled':
        if (this.ledger === undefined) throw onDisk(frame.seq);
        this.ledger.spilled(record.piece);
        return this.forget();
      case 'swept':
        if (this.ledger === undefined) throw onDisk(frame.seq);
        this.ledger.swept(record);
        return;
      case 'late_sent':
        this.late = this.late.filter(({ seq }) => seq > record.seq);
        return;
      default:
        this.move(frame.seq, before, record);
    }
  }

  /** Returns the table aside to its part: it has no piece and gets none. */
  async foldBack(): Promise<void> {
    const { aside, ledger } = this;
    const part = ledger?.asidePart;
    this.aside = undefined;
    ledger?.foldedBack();
    if (aside === undefined || part === undefined) return;
    const run = await aside;
    const page = new Uint8Array(Math.min(BACK_ROWS, Math.max(1, run.rowCount)) * ROW_BYTES);
    for (let from = 0; from < run.rowCount; ) {
      const rows = run.read(from, page);
      this.state.load(part, page, rows);
      from += rows;
    }
    run.close();
  }

  /** Releases rows that are durable in the sink. */
  dropEnded(fired = this.fired): Promise<void> {
    return this.state.dropEnded(fired, this.ledger?.isWhole ?? true);
  }

  private async detach(seq: number, before: number, id: number, part: number): Promise<void> {
    if (this.ledger === undefined) throw onDisk(seq);
    // One table is aside at a time: the process that detached the earlier one ended before it was a
    // piece.
    await this.foldBack();
    this.ledger.detached(id, part, seq, before);
    this.aside = this.state.detach(part);
    await this.aside;
  }

  /** Releases the table aside when the ledger has none. */
  private async forget(): Promise<void> {
    if (this.aside === undefined || this.ledger?.asideId !== undefined) return;
    const { aside } = this;
    this.aside = undefined;
    (await aside).close();
  }

  private move(seq: number, before: number, move: Move): void {
    const known = this.progress.length / PROGRESS_CELLS;
    // The manifest may know partitions that only a later record adds.
    if (move.partitions > known) {
      const isGap = move.kind !== 'added' || move.partitions - move.listed.length > known;
      if (isGap) {
        this.fault = `record ${seq} of the changelog knows ${move.partitions} partitions, the ones before it ${known}`;
        return;
      }
      this.progress = widened(this.progress, move.partitions);
    }
    move.listed.forEach((partition, i) => {
      copyCells(move.cells, i, this.progress, partition);
    });
    this.frontier = Math.max(this.frontier, move.frontier);
    this.maxSeen = Math.max(this.maxSeen, move.maxSeen);
    if (move.late !== undefined) this.late.push({ seq, bytes: move.late.slice() });
    if (move.deltas.length === 0) return;
    const status = this.state.applyDeltas(move.deltas, seq, this.covered);
    if (status === DELTA_STATUS.BAD_HEAD)
      this.fault = `record ${seq} of the changelog has deltas of a form or a job that is not known here`;
    else if (status !== DELTA_STATUS.OK)
      this.fault = `record ${seq} of the changelog has deltas that are none (${status})`;
    else this.ledger?.grew(seq, before, this.state.parts());
  }
}
