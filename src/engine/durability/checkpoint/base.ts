/** Base in progress: a snapshot of the live tables, and runs of the sealed slices that are still
 *  needed.
 *
 *  A sealed slice is immutable. A slice that a later window needs is written once, as a run; later
 *  bases name the same file. A slice whose last window has fired is not written: the base waits
 *  until its results are durable in the sink. Fired sessions are treated alike. So a base that is
 *  used lacks nothing that is neither in a table nor in a file. */

import type { SortedRun } from '../../../addon/window-surface.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Disk } from '../../../io/disk/port.ts';
import { ROW_BYTES } from '../../window/accumulator.ts';
import type { LiveState } from './live.ts';
import { ALL_RANGES, PieceFile } from './pieces.ts';
import { PENDING_BYTES_MAX, Snapshot } from './snapshot.ts';
import { type BaseEntry, type RunEntry, rowsName } from './state-manifest.ts';
import type { StepHook } from './steps.ts';
import { type FileEntry, UNFINISHED } from './whole-file.ts';

/** Slice that was taken out of the live tables. */
export interface SealedSlice {
  readonly slice: number;
  readonly lastEnd: number;
  /** Last record of the changelog when the slice was sealed. */
  readonly seq: number;
  /** Undefined while the slice is being sorted, and after its owner has released it. */
  run: SortedRun | undefined;
  isGone: boolean;
  /** File of the slice, where one exists. */
  entry: RunEntry | undefined;
}

export interface BaseParts {
  readonly disk: Disk;
  readonly state: LiveState;
  readonly hook: StepHook;
  /** Returns a number for a file that no file has. */
  readonly takeId: () => number;
  /** Slices in the live tables that a file of an earlier process holds. */
  readonly filed: ReadonlyMap<number, RunEntry>;
  readonly sealed: Iterable<SealedSlice>;
  readonly firstSeq: number;
  readonly fired: number;
  /** Watermark up to which ended windows had left the live tables for good when the base started.
   */
  readonly tookOut: number;
}

/** Cost of a run's files beside its rows, as bytes of rows. */
const FILE_BYTES = 64 * 1024;

interface Writing {
  readonly slice: SealedSlice;
  readonly file: PieceFile;
  row: number;
}

export class BaseInProgress {
  /** Last record of the changelog when the base started. */
  readonly firstSeq: number;
  private readonly parts: BaseParts;
  private readonly file: PieceFile;
  private readonly snapshot: Snapshot;
  private readonly needs = new Set<SealedSlice>();
  private writing: Writing | undefined;
  /** Slices whose files were started. */
  private readonly begun = new Set<SealedSlice>();
  private finishing = 0;
  private entry: FileEntry | undefined;
  private firedNeeded: number;
  private failure: unknown;
  private readonly names = new Set<string>();
  private work: Promise<unknown> = Promise.resolve();

  constructor(parts: BaseParts) {
    this.parts = parts;
    this.firstSeq = parts.firstSeq;
    this.firedNeeded = parts.tookOut;
    this.file = this.open('base');
    this.snapshot = new Snapshot(parts.state, this.file, new Set(parts.filed.keys()));
    for (const slice of parts.sealed) if (slice.lastEnd > parts.fired) this.needs.add(slice);
  }

  /** True when a file of this name is being written, or waits for a manifest. */
  owns(name: string): boolean {
    return this.names.has(name) || this.names.has(name.slice(0, -UNFINISHED.length));
  }

  /** Notes that a slice left the live tables. */
  sealed(slice: SealedSlice): void {
    if (!this.snapshot.isCopied) this.needs.add(slice);
  }

  /** Notes that all windows that end by the watermark left the live tables. */
  tookOut(frontier: number): void {
    if (!this.snapshot.isCopied) this.firedNeeded = Math.max(this.firedNeeded, frontier);
  }

  /** Copies some bytes, between two batches. @throws errors of a write */
  advance(seq: number, frontier: number, fired: number, bytesMax: number): void {
    if (this.failure !== undefined) throw this.failure;
    for (const slice of this.needs) if (slice.lastEnd <= fired) this.needs.delete(slice);
    if (this.snapshot.isCopied) {
      this.copyRuns(frontier, bytesMax);
      return;
    }
    // Runs first, so that slices sealed later need not be written.
    this.snapshot.advance(seq, bytesMax);
    if (this.snapshot.isCopied)
      this.settle(this.file, (entry) => {
        this.entry = entry;
      });
  }

  /** Returns the base once it replaces all changelog records before it, given what is durable in
   *  the sink. */
  ready(fired: number): BaseEntry | undefined {
    if (this.failure !== undefined) throw this.failure;
    if (this.entry === undefined || this.finishing > 0 || this.writing !== undefined) return undefined;
    const runs: RunEntry[] = [];
    for (const slice of this.needs) {
      if (slice.lastEnd <= fired) continue;
      if (slice.entry === undefined) return undefined;
      runs.push(slice.entry);
    }
    if (fired < this.firedNeeded) return undefined;
    const { state, filed } = this.parts;
    const named = new Set(runs.map(({ slice }) => slice));
    for (const [slice, entry] of filed)
      if (state.lastEndOf(slice) > fired && !named.has(slice)) runs.push(entry);
    return { ...this.entry, covered: this.snapshot.covered, parts: this.snapshot.parts, runs };
  }

  async abandon(): Promise<void> {
    await this.work;
    await this.writing?.file.abandon();
    if (!this.snapshot.isCopied) await this.file.abandon();
  }

  private open(role: 'base' | 'run'): PieceFile {
    const { disk, hook, takeId } = this.parts;
    const name = rowsName(role, takeId());
    this.names.add(name);
    return new PieceFile(disk, role, name, hook);
  }

  private copyRuns(frontier: number, bytesMax: number): void {
    for (let left = bytesMax; left > 0; ) {
      this.writing ??= this.nextRun(frontier);
      if (this.writing === undefined || this.writing.file.pendingBytes >= PENDING_BYTES_MAX) return;
      left -= this.copyRun(this.writing, left);
    }
  }

  /** Next run that a later window needs and no file has. */
  private nextRun(frontier: number): Writing | undefined {
    for (const slice of this.needs) {
      const { run } = slice;
      if (slice.entry !== undefined || slice.isGone || run === undefined || this.begun.has(slice)) continue;
      if (run.rowCount === 0) this.needs.delete(slice);
      if (run.rowCount === 0 || slice.lastEnd <= frontier) continue;
      this.begun.add(slice);
      return { slice, file: this.open('run'), row: 0 };
    }
    return undefined;
  }

  /** Copies part of a run. Returns the approximate number of bytes. */
  private copyRun(writing: Writing, bytesMax: number): number {
    const { slice, file } = writing;
    const { run } = slice;
    let left = bytesMax;
    while (left > 0 && file.pendingBytes < PENDING_BYTES_MAX) {
      const room = file.room();
      let rows = 0;
      try {
        rows = run === undefined ? 0 : run.read(writing.row, room);
      } catch (thrown) {
        if (findMillraceError(thrown)?.code !== 'closed') throw thrown;
        // The last window of the slice has fired meanwhile; the base waits for the sink instead.
        slice.isGone = true;
        slice.run = undefined;
        this.writing = undefined;
        this.watch(file.abandon());
        break;
      }
      if (rows === 0) {
        const count = writing.row;
        this.writing = undefined;
        this.settle(file, (entry) => {
          slice.entry = { ...entry, slice: slice.slice, rows: count };
        });
        break;
      }
      left -= file.commit(ALL_RANGES, slice.slice, slice.seq, rows) + ROW_BYTES;
      writing.row += rows;
    }
    return bytesMax - left + FILE_BYTES;
  }

  private settle(file: PieceFile, then: (entry: FileEntry) => void): void {
    this.finishing++;
    this.watch(
      file.finish().then((entry) => {
        this.finishing--;
        then(entry);
      }),
    );
  }

  private watch(work: Promise<void>): void {
    const watched = work.catch((thrown) => {
      this.failure ??= thrown;
    });
    this.work = Promise.all([this.work, watched]);
  }
}
