/** Rows of the simulated outbox, with an index of those that are pending: visible and not marked.
 *  Invariant: `pending` is in id order, whatever the order in which the rows become visible. */
import type { OutboxRow } from '../../../src/outbox/relay/store.ts';

export interface StoredRow {
  readonly row: OutboxRow;
  readonly isVisible: boolean;
  readonly isMarked: boolean;
}

interface Cell {
  readonly row: OutboxRow;
  isVisible: boolean;
  isMarked: boolean;
}

export class OutboxRows {
  private readonly cells = new Map<bigint, Cell>();
  private readonly index: OutboxRow[] = [];

  /** Pending rows in id order. The array is borrowed until the next change. */
  get pending(): readonly OutboxRow[] {
    return this.index;
  }

  get(id: bigint): StoredRow | undefined {
    return this.cells.get(id);
  }

  has(id: bigint): boolean {
    return this.cells.has(id);
  }

  ids(): Iterable<bigint> {
    return this.cells.keys();
  }

  values(): Iterable<StoredRow> {
    return this.cells.values();
  }

  /** Stores a row that no statement sees yet. */
  insert(row: OutboxRow): void {
    this.cells.set(row.id, { row, isVisible: false, isMarked: false });
  }

  /** Makes a row visible, as the end of its transaction does. */
  show(id: bigint): void {
    const cell = this.cells.get(id);
    if (cell === undefined || cell.isVisible) return;
    cell.isVisible = true;
    if (!cell.isMarked) this.index.splice(this.placeOf(id), 0, cell.row);
  }

  mark(id: bigint): void {
    const cell = this.cells.get(id);
    if (cell === undefined || cell.isMarked) return;
    cell.isMarked = true;
    if (cell.isVisible) this.index.splice(this.placeOf(id), 1);
  }

  /** Takes a mark back, as a crash of the database does that loses its commit. */
  unmark(id: bigint): void {
    const cell = this.cells.get(id);
    if (cell?.isMarked !== true) return;
    cell.isMarked = false;
    if (cell.isVisible) this.index.splice(this.placeOf(id), 0, cell.row);
  }

  delete(id: bigint): void {
    const cell = this.cells.get(id);
    if (cell === undefined) return;
    this.cells.delete(id);
    if (cell.isVisible && !cell.isMarked) this.index.splice(this.placeOf(id), 1);
  }

  /** Returns the number of pending rows with lower ids. */
  private placeOf(id: bigint): number {
    let low = 0;
    let high = this.index.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.index[middle] as OutboxRow).id < id) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
