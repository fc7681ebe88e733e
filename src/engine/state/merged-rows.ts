/** Merge of streams by key, off the main thread, with a page ahead of each stream. Pages load while
 *  others are merged, so a merge waits for the event loop once for many pages. */
import type { WindowKernels } from '../../addon/window-surface.ts';
import { portionRows } from '../../core/layout/row-form.ts';
import { ASIDE_ROWS_MIN, FAN_IN, MERGE_PAGES_BYTES, type SizedStream } from './rows.ts';

const PAGE_BYTES_MAX = 1024 * 1024;
const PAGE_ROWS_MIN = 32;
/** Pages hold whole chunks of the pieces on disk where they can. */
const PAGE_ROWS_STEP = 256;
/** Greatest number of inputs that the kernel merges. Most pieces are small: the oldest table is
 *  spilled first, and only late events reach it. */
const INPUTS_MAX = 1024;
/** Cells of the kernel's cursor for a page: next row, number of rows, 1 if the page is the last. */
const CURSOR_CELLS = 3;

type Kernels = Pick<WindowKernels, 'merge' | 'mergeAhead' | 'form'>;

/** Returns the rows of a page, so that all pages have at most MERGE_PAGES_BYTES, unless rows are so
 *  wide that some rows of each input need more: one page of an input that fits it, two of each
 *  other one.
 *  @param sizes upper bound of the rows of each input */
function pageRowsOf(sizes: readonly number[], rowBytes: number): number {
  const ascending = [...sizes].sort((a, b) => a - b);
  let left = Math.floor(MERGE_PAGES_BYTES / rowBytes);
  let share = left;
  for (const [at, size] of ascending.entries()) {
    share = Math.floor(left / (2 * (ascending.length - at)));
    if (size > share) break;
    left -= size;
  }
  const most = Math.min(share, Math.floor(PAGE_BYTES_MAX / rowBytes));
  const rows = Math.max(portionRows(PAGE_ROWS_MIN, rowBytes), most);
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
    const sizes = inputs.map(({ rowsMax }) => rowsMax);
    this.pageRows = pageRowsOf(sizes, kernels.form.bytes);
    this.pages = Array.from({ length: 2 * inputs.length }, () => new Uint8Array(0));
    this.cursors = new Uint32Array(2 * inputs.length * CURSOR_CELLS);
    this.loaded = inputs.map(() => undefined);
    this.loading = inputs.map(() => undefined);
    this.yielded = inputs.map(() => 0);
    this.rowsMax = sizes.reduce((sum, rows) => sum + rows, 0);
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

/** Returns the groups that are merged first; one group if nothing is merged first. A merge of more
 *  large streams would have pages of less than a chunk. */
function groupsOf(streams: readonly SizedStream[]): readonly (readonly SizedStream[])[] {
  const groups: SizedStream[][] = [];
  let group: SizedStream[] = [];
  let large = 0;
  for (const stream of streams) {
    const isLarge = stream.rowsMax > PAGE_ROWS_STEP;
    if (group.length === INPUTS_MAX || (isLarge && large === FAN_IN)) {
      groups.push(group);
      [group, large] = [[], 0];
    }
    group.push(stream);
    if (isLarge) large++;
  }
  groups.push(group);
  return groups;
}

/** Merges streams by key, and folds rows of equal keys into one. A key occurs at most once in a
 *  stream. */
export function mergedRows(kernels: Kernels, inputs: readonly SizedStream[]): SizedStream {
  const merged = (group: readonly SizedStream[]): SizedStream =>
    group.length === 1 ? (group[0] as SizedStream) : new AheadMerge(kernels, group);
  let groups = groupsOf(inputs);
  while (groups.length > 1) groups = groupsOf(groups.map(merged));
  return merged(groups[0] as readonly SizedStream[]);
}
