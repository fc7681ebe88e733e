/** Applies the records of the changelog to a state, and restores the position of the run. */

import type { RowRun } from '../../../addon/window-surface.ts';
import { DELTA_STATUS } from '../../../core/layout/layouts.gen.ts';
import { portionRows } from '../../../core/layout/row-form.ts';
import { PROGRESS_CELLS } from '../../../core/layout/window-clock.ts';
import { type DuplicateFilter, decodeIds } from '../../dedup/filter.ts';
import { engineError } from '../../errors.ts';
import type { KeyDictionary } from '../../keys/dictionary.ts';
import { noneUnsent, SIDES } from '../../output/side/sections.ts';
import { copyCells, widened } from '../changelog/cells.ts';
import { type Frame, frameBytes } from '../changelog/frame.ts';
import { type ChangelogRecord, decodeRecord, type Move } from '../changelog/records.ts';
import { Ledger } from './ledger.ts';
import type { LiveState } from './live.ts';
import type { StateManifest } from './state-manifest.ts';

/** Rows that `reattach` loads into a table with one call. */
const REATTACH_ROWS = 4096;

/** Records about the place of rows: a checkpoint with rows of another form has all rows of the
 *  records before them. */
const OF_ROWS: ReadonlySet<ChangelogRecord['kind']> = new Set(['detached', 'spilled', 'swept']);

/** Reports that the manifest is of a state in memory, and a later move to disk was interrupted. */
const diskStateError = (seq: number): Error =>
  engineError(
    'job_changed',
    `record ${seq} of the changelog belongs to a state on disk: -state was disk, is mem`,
    {
      next: 'start with -state=disk, or give another -state-dir',
    },
  );

export class Replayer {
  /** Values after the last applied record; at least those of the manifest. */
  progress: Float64Array;
  frontier: number;
  maxSeen: number;
  fired: number;
  /** Copies of refused rows that the side outputs may not have acknowledged. */
  readonly unsent = noneUnsent();
  records = 0;
  bytes = 0;
  /** Reason why a record cannot be applied; the replayer ignores all later records. */
  fault: string | undefined;
  /** Present for a state on disk. */
  readonly ledger: Ledger | undefined;
  private readonly state: LiveState;
  private readonly formFrom: number;
  /** Rows of the detached table of the ledger, as far as they were replayed. */
  private detachedTable: Promise<RowRun> | undefined;
  private readonly covered: Float64Array;
  private readonly ids: Pick<DuplicateFilter, 'restore'> | undefined;
  private readonly keys: Pick<KeyDictionary, 'replay'> | undefined;

  /** @param covered last record in the loaded rows, by range
   *  @param isOnDisk true if the resumed run has a store of pieces
   *  @param keys dictionary of a job whose keys are no integers
   *  @param ids receives the identifiers of open windows
   */
  constructor(
    state: LiveState,
    manifest: StateManifest,
    covered: Float64Array,
    isOnDisk: boolean,
    keys?: Pick<KeyDictionary, 'replay'>,
    ids?: Pick<DuplicateFilter, 'restore'>,
  ) {
    this.state = state;
    this.keys = keys;
    this.covered = covered;
    this.ids = ids;
    this.formFrom = manifest.formFrom;
    this.progress = manifest.progress.slice();
    this.frontier = manifest.frontier;
    this.maxSeen = manifest.maxSeen;
    this.fired = manifest.fired;
    const { spill } = manifest;
    this.ledger = isOnDisk ? new Ledger(spill?.pieces, spill?.lastId) : undefined;
  }

  /** @throws job_changed */
  apply(frame: Frame): void | Promise<void> {
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
    if (frame.seq < this.formFrom && OF_ROWS.has(record.kind)) return;
    switch (record.kind) {
      case 'fired':
        this.frontier = Math.max(this.frontier, record.frontier);
        this.fired = Math.max(this.fired, record.frontier);
        this.ledger?.fired(record.frontier, (part) => this.state.lastEndOf(part));
        // Releasing the durable rows bounds the memory of a replay.
        return Promise.all([this.releaseDetached(), this.dropEnded(record.frontier)]).then(() => {});
      case 'detached':
        return this.detach(frame.seq, before, record.id, record.part);
      case 'spilled':
        if (this.ledger === undefined) throw diskStateError(frame.seq);
        this.ledger.spilled(record.piece);
        return this.releaseDetached();
      case 'swept':
        if (this.ledger === undefined) throw diskStateError(frame.seq);
        this.ledger.swept(record);
        return;
      case 'keys':
        if (this.keys !== undefined) return this.keys.replay(record.entries);
        this.fault = `record ${frame.seq} of the changelog has keys, but the job's keys are integers`;
        return;
      case 'sent':
        this.unsent[record.side] = this.unsent[record.side].filter(({ seq }) => seq > record.seq);
        return;
      case 'ids':
        this.ids?.restore(record.ids);
        return;
      case 'changed':
        if (frame.seq > this.formFrom)
          this.fault = `the aggregates of the job changed at record ${frame.seq} of the changelog, after this checkpoint`;
        return;
      default:
        this.applyMove(frame.seq, before, record);
    }
  }

  /** Loads the detached table back into its part: the changelog names no piece for it. */
  async reattach(): Promise<void> {
    const { detachedTable, ledger } = this;
    const part = ledger?.detachedPart;
    this.detachedTable = undefined;
    ledger?.reattached();
    if (detachedTable === undefined || part === undefined) return;
    const run = await detachedTable;
    const { rowBytes } = this.state;
    const rowsMax = portionRows(REATTACH_ROWS, rowBytes);
    const page = new Uint8Array(Math.min(rowsMax, Math.max(1, run.rowCount)) * rowBytes);
    for (let from = 0; from < run.rowCount; ) {
      const rows = run.read(from, page);
      this.state.load(part, page, rows);
      from += rows;
    }
    run.close();
  }

  /** Releases rows that are durable in the sink. */
  dropEnded(fired = this.fired): Promise<void> {
    return this.state.dropEnded(fired, this.ledger?.isAllInTables ?? true);
  }

  private async detach(seq: number, before: number, id: number, part: number): Promise<void> {
    if (this.ledger === undefined) throw diskStateError(seq);
    // Only one table is detached at a time: an earlier process ended before it made a piece of the
    // previous one.
    await this.reattach();
    this.ledger.detached(id, part, seq, before);
    this.detachedTable = this.state.detach(part);
    await this.detachedTable;
  }

  /** Releases the detached table after the ledger has removed it. */
  private async releaseDetached(): Promise<void> {
    if (this.detachedTable === undefined || this.ledger?.detachedId !== undefined) return;
    const { detachedTable } = this;
    this.detachedTable = undefined;
    (await detachedTable).close();
  }

  private applyMove(seq: number, before: number, move: Move): void {
    const known = this.progress.length / PROGRESS_CELLS;
    // A manifest may be newer than this record, so it may have more partitions.
    if (move.partitions > known) {
      const isGap = move.kind !== 'added' || move.partitions - move.listed.length > known;
      if (isGap) {
        this.fault = `record ${seq} of the changelog has ${move.partitions} partitions, but the records before it have ${known}`;
        return;
      }
      this.progress = widened(this.progress, move.partitions);
    }
    move.listed.forEach((partition, i) => {
      copyCells(move.cells, i, this.progress, partition);
    });
    this.frontier = Math.max(this.frontier, move.frontier);
    this.maxSeen = Math.max(this.maxSeen, move.maxSeen);
    for (const name of SIDES) {
      const side = move.sections?.[name];
      if (side !== undefined) this.unsent[name].push({ seq, count: side.count, bytes: side.bytes.slice() });
    }
    if (move.sections?.ids !== undefined) {
      const decoded = decodeIds(move.sections.ids);
      if ('copies' in decoded) this.ids?.restore(decoded.copies);
    }
    if (move.deltas.length === 0 || seq < this.formFrom) return;
    const status = this.state.applyDeltas(move.deltas, seq, this.covered);
    if (status === DELTA_STATUS.BAD_HEAD)
      this.fault = `record ${seq} of the changelog has deltas of an unknown form or of another job`;
    else if (status !== DELTA_STATUS.OK)
      this.fault = `record ${seq} of the changelog has invalid deltas (status ${status})`;
    else this.ledger?.applied(seq, before, this.state.parts());
  }
}
