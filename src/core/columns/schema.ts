/** Columns of a batch in preorder, as the table that kernels read.
 *
 *  Preorder gives every column an index: a column, then its children from the first to the last.
 *  The buffers of column `i` are the slots COLUMN_SLOT.COUNT * i + COLUMN_SLOT.*. */
import { coreError } from '../errors.ts';
import { COLUMN_CELL, COLUMN_LIMIT } from '../layout/layouts.gen.ts';
import { COLUMN_KIND_OF, type Column, cellBytes } from './column.ts';

export class ColumnSchema {
  /** Columns of the batch; each has as many values as the batch has rows. */
  readonly top: readonly Column[];
  /** All columns in preorder. */
  readonly all: readonly Column[];
  /** Index of each column of `top` in `all`. */
  readonly topIndex: readonly number[];
  /** COLUMN_CELL.COUNT words a column. @shape i32[all.length * COLUMN_CELL.COUNT] */
  readonly table: Int32Array;
  /** Schemas that are known to be equal. */
  private readonly equal = new WeakSet<ColumnSchema>();

  /** @throws out_of_range for more columns, or columns nested deeper, than COLUMN_LIMIT allows */
  constructor(top: readonly Column[]) {
    const all: Column[] = [];
    const next: number[] = [];
    const visit = (column: Column, depth: number): void => {
      if (depth > COLUMN_LIMIT.DEPTH)
        throw coreError('out_of_range', `columns are nested deeper than ${COLUMN_LIMIT.DEPTH}`);
      const index = all.push(column) - 1;
      if (all.length > COLUMN_LIMIT.COLUMNS)
        throw coreError('out_of_range', `a schema has more than ${COLUMN_LIMIT.COLUMNS} columns`);
      for (const child of column.children) visit(child, depth + 1);
      next[index] = all.length;
    };
    const topIndex = top.map((column) => {
      const index = all.length;
      visit(column, 1);
      return index;
    });
    this.top = top;
    this.all = all;
    this.topIndex = topIndex;
    this.table = new Int32Array(all.length * COLUMN_CELL.COUNT);
    all.forEach((column, index) => {
      const at = index * COLUMN_CELL.COUNT;
      this.table[at + COLUMN_CELL.KIND] = COLUMN_KIND_OF[column.kind];
      this.table[at + COLUMN_CELL.NULLABLE] = column.nullable ? 1 : 0;
      this.table[at + COLUMN_CELL.SIZE] = cellBytes(column);
      this.table[at + COLUMN_CELL.NEXT] = next[index] as number;
    });
  }

  /** Index behind the subtree of column `index`: its next sibling, where it has one. */
  nextOf(index: number): number {
    return this.table[index * COLUMN_CELL.COUNT + COLUMN_CELL.NEXT] as number;
  }

  /** Bytes of a value of column `index`; 0 where values have no fixed number of bytes. */
  sizeOf(index: number): number {
    return this.table[index * COLUMN_CELL.COUNT + COLUMN_CELL.SIZE] as number;
  }

  /** Indexes of the children of column `index`. */
  childrenOf(index: number): number[] {
    const children: number[] = [];
    let child = index + 1;
    for (const _ of (this.all[index] as Column).children) {
      children.push(child);
      child = this.nextOf(child);
    }
    return children;
  }

  /** Names of the column `index` and of those around it, outermost first. */
  pathOf(index: number): string[] {
    const path: string[] = [];
    for (let at = 0, end = this.all.length; at < end; ) {
      if (index >= this.nextOf(at)) {
        at = this.nextOf(at);
        continue;
      }
      path.push((this.all[at] as Column).name);
      if (at === index) break;
      end = this.nextOf(at);
      at++;
    }
    return path;
  }

  /** True where the columns of `other` have the same names, kinds and symbols: batches of one are
   *  batches of the other. */
  equals(other: ColumnSchema): boolean {
    if (this === other || this.equal.has(other)) return true;
    const isEqual =
      this.table.length === other.table.length &&
      this.table.every((word, at) => word === other.table[at]) &&
      this.all.every((column, index) => isSame(column, other.all[index] as Column));
    if (isEqual) this.equal.add(other);
    return isEqual;
  }
}

const isSame = (one: Column, other: Column): boolean =>
  one.name === other.name &&
  (one.symbols === other.symbols ||
    (one.symbols?.length === other.symbols?.length &&
      (one.symbols ?? []).every((symbol, at) => symbol === other.symbols?.[at])));
