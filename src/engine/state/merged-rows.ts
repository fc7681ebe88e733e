/** Merge of streams by key, off the main thread, with a page ahead of each stream. Pages load while
 *  others are merged, so a merge waits for the event loop once for many pages. */
import type { WindowKernels } from '../../addon/window-surface.ts';
import { ASIDE_ROWS_MIN, inGroups, MERGE_PAGES_BYTES, type SizedStream } from './rows.ts';

const PAGE_BYTES_MAX = 1024 * 1024;
const PAGE_ROWS_MIN = 32;
/** Pages hold whole chunks of the pieces on disk where they can. */
const PAGE_ROWS_STEP = 256;
/** Cells of the kernel's cursor for a page: next row, number of rows, 1 if the page is the last. */
const CURSOR_CELLS = 3;

type Kernels = Pick<WindowKernels, 'merge' | 'mergeAhead' | 'form'>;

/** Returns the rows of each of the two pages of one of `streams` streams. */
function pageRowsOf(streams: number, rowBytes: number): number {
  const bytes = Math.min(MERGE_PAGES_BYTES / (2 * streams), PAGE_BYTES_MAX);
  const rows = Math.max(PAGE_ROWS_MIN, Math.floor(bytes / rowBytes));
  return rows < PAGE_ROWS_STEP ? rows : rows - (rows % PAGE_ROWS_STEP);
}

class AheadMerge implements SizedStream {
  readonly rowsMax: number;
  private readonly kernels: Kernels;
  private readonly inputs: readonly SizedStream[];
  private readonly pageRows: number;
  /** The page of each input, then the page behind it. */
  private readonly pages: Uint8Array[];
  /** Cells of these pages. A merge in flight owns them. */
  private readonly cursors: Uint32Array;
  /** Rows that a finished load has put into the page behind; undefined: none has. */
  private readonly loaded: (number | undefined)[];
  private readonly loading: (Promise<void> | undefined)[];
  /** Rows that each input has yielded. */
  private readonly yielded: number[];
  private failure: unknown;

  constructor(kernels: Kernels, inputs: readonly SizedStream[]) {
    this.kernels = kernels;
    this.inputs = inputs;
    this.pageRows = pageRowsOf(inputs.length, kernels.form.bytes);
    this.pages = Array.from({ length: 2 * inputs.length }, () => new Uint8Array(0));
    this.cursors = new Uint32Array(2 * inputs.length * CURSOR_CELLS);
    this.loaded = inputs.map(() => undefined);
    this.loading = inputs.map(() => undefined);
    this.yielded = inputs.map(() => 0);
    this.rowsMax = inputs.reduce((sum, { rowsMax }) => sum + rowsMax, 0);
  }

  async next(into: Uint8Array): Promise<number> {
    const { bytes } = this.kernels.form;
    const room = Math.floor(into.byteLength / bytes);
    let rows = 0;
    while (rows < room) {
      await this.turnPages();
      const left = this.rowsLeft();
      if (left === 0) break;
      const target = into.subarray(rows * bytes, room * bytes);
      rows += left < ASIDE_ROWS_MIN ? this.mergeHere(target) : await this.mergeAside(target);
    }
    return rows;
  }

  close(): void {
    for (const input of this.inputs) input.close();
  }

  private mergeHere(into: Uint8Array): number {
    const { length } = this.inputs;
    const cursors = this.cursors.subarray(0, length * CURSOR_CELLS);
    return this.kernels.merge(this.pages.slice(0, length), cursors, into);
  }

  private mergeAside(into: Uint8Array): Promise<number> {
    return this.kernels.mergeAhead(this.pages, this.cursors, into);
  }

  /** Rows of the loaded pages. */
  private rowsLeft(): number {
    const { cursors } = this;
    let rows = 0;
    for (let at = 0; at < cursors.length; at += CURSOR_CELLS)
      rows += (cursors[at + 1] as number) - (cursors[at] as number);
    return rows;
  }

  /** Turns to the page behind where a page is exhausted, starts to load free pages, and waits for
   *  inputs without a page. @throws the error of a stream */
  private async turnPages(): Promise<void> {
    for (;;) {
      const waits: Promise<void>[] = [];
      for (let i = 0; i < this.inputs.length; i++) {
        this.turn(i);
        const isStarved = this.isExhausted(i) && !this.isLast(i);
        const loading = this.loading[i];
        if (isStarved && loading !== undefined) waits.push(loading);
      }
      if (waits.length > 0) await Promise.all(waits);
      if (this.failure !== undefined) throw this.failure;
      if (waits.length === 0) return;
    }
  }

  private turn(i: number): void {
    const { pages, cursors, inputs } = this;
    const [own, behind] = [i * CURSOR_CELLS, (inputs.length + i) * CURSOR_CELLS];
    const rows = this.loaded[i];
    if (rows !== undefined) {
      this.loaded[i] = undefined;
      cursors.set([0, rows, this.isAtEnd(i, rows) ? 1 : 0], behind);
    }
    if (this.isExhausted(i) && !this.isLast(i) && this.isPresent(behind)) {
      [pages[i], pages[inputs.length + i]] = [pages[inputs.length + i], pages[i]] as [Uint8Array, Uint8Array];
      cursors.copyWithin(own, behind, behind + CURSOR_CELLS);
      cursors.fill(0, behind, behind + CURSOR_CELLS);
    }
    const isFree = !this.isPresent(behind) && !this.isLast(i) && this.loading[i] === undefined;
    if (isFree && this.failure === undefined) this.loading[i] = this.load(i);
  }

  private isExhausted(i: number): boolean {
    return this.cursors[i * CURSOR_CELLS] === this.cursors[i * CURSOR_CELLS + 1];
  }

  private isLast(i: number): boolean {
    return this.cursors[i * CURSOR_CELLS + 2] === 1;
  }

  /** False for the cells of a page that is not loaded. */
  private isPresent(at: number): boolean {
    const { cursors } = this;
    return cursors[at] !== cursors[at + 1] || cursors[at + 2] !== 0;
  }

  /** True if the stream has ended with its newest page of `rows` rows. */
  private isAtEnd(i: number, rows: number): boolean {
    return (
      rows < this.rowsOfPage(i) || (this.yielded[i] as number) >= (this.inputs[i] as SizedStream).rowsMax
    );
  }

  private rowsOfPage(i: number): number {
    return Math.min(this.pageRows, (this.inputs[i] as SizedStream).rowsMax);
  }

  /** Loads the page behind. Never rejects: `turnPages` throws the failure. */
  private async load(i: number): Promise<void> {
    const place = this.inputs.length + i;
    const bytes = this.rowsOfPage(i) * this.kernels.form.bytes;
    if ((this.pages[place] as Uint8Array).length < bytes) this.pages[place] = new Uint8Array(bytes);
    try {
      const rows = await (this.inputs[i] as SizedStream).next(this.pages[place] as Uint8Array);
      this.yielded[i] = (this.yielded[i] as number) + rows;
      this.loaded[i] = rows;
    } catch (thrown) {
      this.failure ??= thrown;
    } finally {
      this.loading[i] = undefined;
    }
  }
}

/** Merges streams by key, and folds rows of equal keys into one. A key occurs at most once in a
 *  stream. */
export function mergedRows(kernels: Kernels, inputs: readonly SizedStream[]): SizedStream {
  const merged = (group: readonly SizedStream[]): SizedStream => new AheadMerge(kernels, group);
  const streams = inGroups(inputs, merged);
  const [only] = streams;
  return only !== undefined && streams.length === 1 ? only : merged(streams);
}
