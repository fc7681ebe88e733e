/** Records as columns: a batch of rows, each a value, a tombstone or an error. */
import type { ColumnBatch } from '../../core/columns/batch.ts';
import type { Column } from '../../core/columns/column.ts';
import { type ColumnData, columnData } from '../../core/columns/data.ts';
import type { ColumnSchema } from '../../core/columns/schema.ts';
import type { MillraceError } from '../../core/errors.ts';
import { COLUMN_STATUS } from '../../core/layout/layouts.gen.ts';
import { type ArrowModule, toArrow } from '../../formats/arrow/record-batch.ts';
import { registryError } from '../errors.ts';

/** `ok`: the row has a value. `null`: the record is a tombstone. `error`: it could not be read, for
 *  the reason `errorOf`. */
export type ColumnRowState = 'ok' | 'null' | 'error';

/** Reads rows of a batch that one writer schema has. */
export interface BatchRows {
  at(row: number): object;
  value(row: number): unknown;
}

/** Facts about the rows of a batch. */
export interface RowFacts {
  /** Source of a row with a value. */
  readonly sourceOf: (row: number) => BatchRows;
  /** Error of a row that has no value and is no tombstone. */
  readonly errorOf: (row: number) => MillraceError;
  /** True where the rows are records with fields. */
  readonly isRecord: boolean;
  /** Identities of the writer schemas whose bytes binary columns hold, to be decoded on demand. */
  readonly lazyWriters: ReadonlySet<string>;
}

/** Batch of records as columns; made by `RecordColumnDecoder.decode`. Its rows are in the order of
 *  the records. Views of it are valid until the batch is passed to `decode` again. */
export class ColumnRecords<T = unknown> {
  /** Memory of the columns, for the encoder. */
  readonly batch: ColumnBatch;
  private facts: RowFacts;

  constructor(batch: ColumnBatch, facts: RowFacts) {
    this.batch = batch;
    this.facts = facts;
  }

  /** Shows other rows in the same memory. */
  show(facts: RowFacts): void {
    this.facts = facts;
  }

  get rowCount(): number {
    return this.batch.rowCount;
  }

  /** Names of the top columns. */
  get names(): string[] {
    return this.batch.schema.top.map(({ name }) => name);
  }

  /** State of a row. @throws RangeError for a row that the batch does not have */
  stateOf(row: number): ColumnRowState {
    if (!(row >= 0 && row < this.rowCount)) throw new RangeError(`the batch has no row ${row}`);
    const status = this.batch.status[row];
    if (status === COLUMN_STATUS.OK) return 'ok';
    return status === COLUMN_STATUS.NULL_VALUE ? 'null' : 'error';
  }

  /** Error of a row whose state is `error`, as `deserialize` would throw it; undefined for any
   *  other row. `recordFaultOf` returns its facts. */
  errorOf(row: number): MillraceError | undefined {
    return this.stateOf(row) === 'error' ? this.facts.errorOf(row) : undefined;
  }

  /** View of a row: a property for each field, read from its column at each access; null for a
   *  tombstone. Of a schema that is no record: the value. @throws the error of the row */
  row(row: number): T | null {
    const source = this.sourceOf(row);
    if (source === null) return null;
    return (this.facts.isRecord ? source.at(row) : source.value(row)) as T;
  }

  /** Value of a row as a plain object of its own; null for a tombstone. @throws the error of the
   *  row */
  value(row: number): T | null {
    return (this.sourceOf(row)?.value(row) ?? null) as T | null;
  }

  /** Buffers of a column. @param path names with dots between, such as `customer.city`; it passes
   *  through the items of lists and the entries of maps without a name of their own, as `fields`
   *  does: `items.price` has the prices of all items of all rows, and the offsets of `items` tell
   *  which are whose
   *  @throws bad_option for a path that names no column */
  column(path: string): ColumnData {
    const { schema } = this.batch;
    let candidates: readonly number[] = schema.topIndex;
    let rest = path;
    for (;;) {
      // The name of a Protobuf extension has dots itself.
      const next = candidates.find((index) => isFirst(rest, schema.all[index]?.name ?? ''));
      if (next === undefined) throw this.noColumn(path);
      const { name } = schema.all[next] as Column;
      if (rest === name) return columnData(this.batch, next);
      rest = rest.slice(name.length + 1);
      candidates = insideOf(schema, next);
    }
  }

  /** Hands the columns to apache-arrow without a copy. Rows without a value have a null in every
   *  column, or a zero where the column is not nullable. @param arrow the package apache-arrow
   *  @example
   *  const table = new arrow.Table([records.toArrow(arrow)]);
   */
  toArrow<M extends ArrowModule>(arrow: M): InstanceType<M['RecordBatch']> {
    return toArrow(arrow, this.batch);
  }

  /** True where an encoder of the schema can copy the bytes of all binary columns. */
  fitsWriter(schemaIdentity: string): boolean {
    return [...this.facts.lazyWriters].every((one) => one === schemaIdentity);
  }

  private sourceOf(row: number): BatchRows | null {
    const state = this.stateOf(row);
    if (state === 'null') return null;
    if (state === 'error') throw this.facts.errorOf(row);
    return this.facts.sourceOf(row);
  }

  private noColumn(path: string): Error {
    return registryError('bad_option', `the batch has no column ${JSON.stringify(path)}`, {
      next: `choose from ${this.names.join(', ')}`,
    });
  }
}

const isFirst = (path: string, name: string): boolean => path === name || path.startsWith(`${name}.`);

/** Columns that a path names behind column `index`. */
function insideOf(schema: ColumnSchema, index: number): readonly number[] {
  const { kind } = schema.all[index] as Column;
  const children = schema.childrenOf(index);
  return kind === 'list' || kind === 'map' || schema.all[index - 1]?.kind === 'map'
    ? children.flatMap((child) => [child, ...insideOf(schema, child)])
    : children;
}
