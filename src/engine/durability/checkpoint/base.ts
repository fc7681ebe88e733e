/** Base in progress: a snapshot of the live tables, and runs of the sealed slices that are still
 *  needed.
 *
 *  A sealed slice is immutable. A slice that a later window needs is written once, as a run; later
 *  bases name the same file. A slice whose last window has fired is not written: the base waits
 *  until the results of that window are durable in the sink, and it waits for fired sessions too.
 *  Invariant: rows that are in no table and in no file are durable in the sink before the base is
 *  used.
 */

import type { SortedRun } from '../../../addon/window-surface.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { LiveState } from './live.ts';
import { ALL_RANGES, RowsFile } from './rows-file.ts';
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
  /** Returns an unused file number. */
  readonly nextId: () => number;
  /** Slices in the live tables whose rows are also in a run file of an earlier process. */
  readonly savedSlices: ReadonlyMap<number, RunEntry>;
  readonly sealed: Iterable<SealedSlice>;
  readonly firstSeq: number;
  readonly fired: number;
  /** Frontier up to which ended rows had left the live tables when the base started. */
  readonly tookOut: number;
}

/** Cost of creating a run file, expressed as bytes of rows. */
const FILE_BYTES = 64 * 1024;

interface RunCopy {
  readonly slice: SealedSlice;
  readonly file: RowsFile;
  row: number;
}

export class BaseInProgress {
  /** Last record of the changelog when the base started. */
  readonly firstSeq: number;
  private readonly parts: BaseParts;
  private readonly file: RowsFile;
  private readonly snapshot: Snapshot;
  private readonly needed = new Set<SealedSlice>();
  private copying: RunCopy | undefined;
  /** Slices whose run files were started. */
  private readonly started = new Set<SealedSlice>();
  private finishing = 0;
  private entry: FileEntry | undefined;
  private firedNeeded: number;
  private failure: unknown;
  private readonly names = new Set<string>();
  private inProgress: Promise<unknown> = Promise.resolve();

  constructor(parts: BaseParts) {
    this.parts = parts;
    this.firstSeq = parts.firstSeq;
    this.firedNeeded = parts.tookOut;
    this.file = this.open('base');
    this.snapshot = new Snapshot(parts.state, this.file, new Set(parts.savedSlices.keys()));
    for (const slice of parts.sealed) if (slice.lastEnd > parts.fired) this.needed.add(slice);
  }

  /** True if a file of this name is being written, or is not yet named by a manifest. */
  owns(name: string): boolean {
    return this.names.has(name) || this.names.has(name.slice(0, -UNFINISHED.length));
  }

  /** Notes that a slice left the live tables. */
  sealed(slice: SealedSlice): void {
    if (!this.snapshot.isCopied) this.needed.add(slice);
  }

  /** Notes that the sessions that end by the frontier left the live tables. */
  tookOut(frontier: number): void {
    if (!this.snapshot.isCopied) this.firedNeeded = Math.max(this.firedNeeded, frontier);
  }

  /** Copies about `bytesMax` bytes. Call it between two batches. @throws the error of an earlier
   *  write */
  advance(seq: number, frontier: number, fired: number, bytesMax: number): void {
    if (this.failure !== undefined) throw this.failure;
    for (const slice of this.needed) if (slice.lastEnd <= fired) this.needed.delete(slice);
    if (this.snapshot.isCopied) {
      this.copyRuns(frontier, bytesMax);
      return;
    }
    // The snapshot runs first, so that slices sealed while it runs need not be written.
    this.snapshot.advance(seq, bytesMax);
    if (this.snapshot.isCopied)
      this.settle(this.file, (entry) => {
        this.entry = entry;
      });
  }

  /** Returns the base if it can replace the changelog up to `firstSeq`; undefined while a file is
   *  unfinished, or while rows that it lacks are not durable in the sink. `fired`: frontier up to
   *  which the sink is durable. */
  ready(fired: number): BaseEntry | undefined {
    if (this.failure !== undefined) throw this.failure;
    if (this.entry === undefined || this.finishing > 0 || this.copying !== undefined) return undefined;
    const runs: RunEntry[] = [];
    for (const slice of this.needed) {
      if (slice.lastEnd <= fired) continue;
      if (slice.entry === undefined) return undefined;
      runs.push(slice.entry);
    }
    if (fired < this.firedNeeded) return undefined;
    const { state, savedSlices } = this.parts;
    const named = new Set(runs.map(({ slice }) => slice));
    for (const [slice, entry] of savedSlices)
      if (state.lastEndOf(slice) > fired && !named.has(slice)) runs.push(entry);
    return { ...this.entry, covered: this.snapshot.covered, parts: this.snapshot.parts, runs };
  }

  async abandon(): Promise<void> {
    await this.inProgress;
    await this.copying?.file.abandon();
    if (!this.snapshot.isCopied) await this.file.abandon();
  }

  private open(role: 'base' | 'run'): RowsFile {
    const { disk, hook, nextId, state } = this.parts;
    const name = rowsName(role, nextId());
    this.names.add(name);
    return new RowsFile(disk, role, name, hook, state.rowBytes);
  }

  private copyRuns(frontier: number, bytesMax: number): void {
    for (let left = bytesMax; left > 0; ) {
      this.copying ??= this.nextRun(frontier);
      if (this.copying === undefined || this.copying.file.pendingBytes >= PENDING_BYTES_MAX) return;
      left -= this.copyRun(this.copying, left);
    }
  }

  /** Next run that a later window needs and that no file has. */
  private nextRun(frontier: number): RunCopy | undefined {
    for (const slice of this.needed) {
      const { run } = slice;
      if (slice.entry !== undefined || slice.isGone || run === undefined || this.started.has(slice)) continue;
      if (run.rowCount === 0) this.needed.delete(slice);
      if (run.rowCount === 0 || slice.lastEnd <= frontier) continue;
      this.started.add(slice);
      return { slice, file: this.open('run'), row: 0 };
    }
    return undefined;
  }

  /** Copies rows of a run. Returns the approximate number of bytes. */
  private copyRun(copying: RunCopy, bytesMax: number): number {
    const { slice, file } = copying;
    const { run } = slice;
    let left = bytesMax;
    while (left > 0 && file.pendingBytes < PENDING_BYTES_MAX) {
      const room = file.room();
      let rows = 0;
      try {
        rows = run === undefined ? 0 : run.read(copying.row, room);
      } catch (thrown) {
        if (findMillraceError(thrown)?.code !== 'closed') throw thrown;
        // The last window of the slice has fired meanwhile; the base waits for the sink instead.
        slice.isGone = true;
        slice.run = undefined;
        this.copying = undefined;
        this.watch(file.abandon());
        break;
      }
      if (rows === 0) {
        const count = copying.row;
        this.copying = undefined;
        this.settle(file, (entry) => {
          slice.entry = { ...entry, slice: slice.slice, rows: count };
        });
        break;
      }
      left -= file.commit(ALL_RANGES, slice.slice, slice.seq, rows) + this.parts.state.storedBytes;
      copying.row += rows;
    }
    return bytesMax - left + FILE_BYTES;
  }

  private settle(file: RowsFile, then: (entry: FileEntry) => void): void {
    this.finishing++;
    this.watch(
      file.finish().then((entry) => {
        this.finishing--;
        then(entry);
      }),
    );
  }

  private watch(write: Promise<void>): void {
    const watched = write.catch((thrown) => {
      this.failure ??= thrown;
    });
    this.inProgress = Promise.all([this.inProgress, watched]);
  }
}
