/** Streams of the rows of sorted runs and pieces, page by page, and merges that take a page of
 *  each. */
import type { RowRun, WindowKernels } from '../../addon/window-surface.ts';
import { portionRows } from '../../core/layout/row-form.ts';

export interface RowStream {
  /** Copies the next rows, as many as fit; fewer only at the end. One call at a time. */
  next(into: Uint8Array): Promise<number>;
  /** Releases the source; a second call does nothing. */
  close(): void;
}

/** Stream with an upper bound of its rows. */
export interface SizedStream extends RowStream {
  readonly rowsMax: number;
}

/** Greatest number of streams with pages of equal size in one merge. More are merged in groups
 *  first. */
export const FAN_IN = 256;
/** Bytes of the pages of all streams of a merge together. */
export const MERGE_PAGES_BYTES = 8 * 1024 * 1024;
/** Rows from which on a copy or merge leaves the main thread. */
export const ASIDE_ROWS_MIN = 4096;
const PAGE_ROWS_MIN = 32;
const PAGE_ROWS_MAX = 4096;
/** Cells of the kernel's cursor for an input: next row of its page, rows of its page, 1 when the
 *  page is its last. */
const CURSOR_CELLS = 3;

class RunRows implements SizedStream {
  readonly rowsMax: number;
  private readonly run: RowRun;
  private readonly rowBytes: number;
  private at = 0;

  constructor(run: RowRun, rowBytes: number) {
    this.run = run;
    this.rowBytes = rowBytes;
    this.rowsMax = run.rowCount;
  }

  async next(into: Uint8Array): Promise<number> {
    const { run, at } = this;
    const left = Math.min(run.rowCount - at, Math.floor(into.byteLength / this.rowBytes));
    if (left <= 0) return 0;
    const rows = left < ASIDE_ROWS_MIN ? run.read(at, into) : await run.readAside(at, into);
    this.at += rows;
    return rows;
  }

  close(): void {}
}

/** Merge of streams by a kernel that takes a page of each. */
export class PagedMerge implements RowStream {
  private readonly inputs: readonly RowStream[];
  private readonly merge: WindowKernels['merge'];
  private readonly holdsMore: () => boolean;
  private readonly pages: readonly Uint8Array[];
  private readonly pageRows: number;
  private readonly rowBytes: number;
  private readonly cursors: Uint32Array;

  /** @param holdsMore returns true while the kernel has more rows after all inputs have ended */
  constructor(
    inputs: readonly RowStream[],
    rowBytes: number,
    merge: WindowKernels['merge'],
    holdsMore = (): boolean => false,
  ) {
    this.inputs = inputs;
    this.rowBytes = rowBytes;
    this.merge = merge;
    this.holdsMore = holdsMore;
    this.pageRows = pageRowsOf(inputs.length, rowBytes);
    this.pages = inputs.map(() => new Uint8Array(this.pageRows * rowBytes));
    this.cursors = new Uint32Array(inputs.length * CURSOR_CELLS);
  }

  async next(into: Uint8Array): Promise<number> {
    const { rowBytes } = this;
    const room = Math.floor(into.byteLength / rowBytes);
    let rows = 0;
    while (rows < room && ((await this.loadPages()) || this.holdsMore()))
      rows += this.merge(this.pages, this.cursors, into.subarray(rows * rowBytes, room * rowBytes));
    return rows;
  }

  close(): void {
    for (const input of this.inputs) input.close();
  }

  /** Loads the next page of each exhausted input. Returns false if all inputs have ended. */
  private async loadPages(): Promise<boolean> {
    const { cursors } = this;
    const loading: Promise<void>[] = [];
    for (let i = 0; i < this.inputs.length; i++) {
      const at = i * CURSOR_CELLS;
      const isDone = cursors[at] === cursors[at + 1];
      if (isDone && cursors[at + 2] === 0) loading.push(this.loadPage(i));
    }
    // In parallel, so that pieces on disk are read together.
    if (loading.length > 0) await Promise.all(loading);
    return this.inputs.some((_, i) => cursors[i * CURSOR_CELLS] !== cursors[i * CURSOR_CELLS + 1]);
  }

  private async loadPage(i: number): Promise<void> {
    const rows = await (this.inputs[i] as RowStream).next(this.pages[i] as Uint8Array);
    const at = i * CURSOR_CELLS;
    this.cursors[at] = 0;
    this.cursors[at + 1] = rows;
    this.cursors[at + 2] = rows < this.pageRows ? 1 : 0;
  }
}

/** Returns the number of rows in a page of each of `streams` streams. */
export function pageRowsOf(streams: number, rowBytes: number): number {
  const rows = Math.floor(MERGE_PAGES_BYTES / (streams * rowBytes));
  return Math.min(Math.max(rows, portionRows(PAGE_ROWS_MIN, rowBytes)), PAGE_ROWS_MAX);
}

/** Merges streams in groups until there are no more of them than FAN_IN. */
export function inGroups<S extends RowStream>(
  inputs: readonly S[],
  merged: (group: readonly S[]) => S,
): readonly S[] {
  let streams = inputs;
  while (streams.length > FAN_IN) {
    const groups: S[] = [];
    for (let from = 0; from < streams.length; from += FAN_IN)
      groups.push(merged(streams.slice(from, from + FAN_IN)));
    streams = groups;
  }
  return streams;
}

export const rowsOfRun = (run: RowRun, rowBytes: number): SizedStream => new RunRows(run, rowBytes);

/** Folds at least one row of one key into one row. The inputs are not changed. */
export function foldedRow(
  kernels: Pick<WindowKernels, 'merge' | 'form'>,
  rows: readonly Uint8Array[],
): Uint8Array {
  let left = rows;
  while (left.length > 1) {
    const folded: Uint8Array[] = [];
    for (let from = 0; from < left.length; from += FAN_IN) {
      const pages = left.slice(from, from + FAN_IN);
      const into = new Uint8Array(kernels.form.bytes);
      kernels.merge(pages, Uint32Array.from(pages.flatMap(() => [0, 1, 1])), into);
      folded.push(into);
    }
    left = folded;
  }
  return left[0] as Uint8Array;
}
