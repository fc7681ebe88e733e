/** Reads decoded columns into the values of the aggregated fields. */
import type { Column } from '../../core/columns/column.ts';
import type { BatchViews, ColumnViews } from '../../core/columns/views.ts';
import { EVENT_STATUS } from '../../core/layout/layouts.gen.ts';
import { TOP_TEXT_BYTES_MAX } from '../../core/layout/top.ts';
import type { ValueColumns } from '../../core/layout/value-columns.ts';
import { ID_BYTES_MAX, idGet, isIdentifier } from '../dedup/ids.ts';
import { type ColumnReader, type Place, plainGet, signOf } from '../source/input/columns.ts';
import type { FieldColumn, ValueKind } from './definition.ts';
import { IdHash } from './id-hash.ts';
import { valuesOf } from './values.ts';

const I64_LIMIT = 2n ** 63n;

/** True if a column has values of the kind, which is not a decimal. */
export const isOfKind = (column: Column, kind: ValueKind): boolean =>
  kind === 'id' || kind === 'text'
    ? isIdentifier(column)
    : signOf(column) !== undefined ||
      (kind === 'double' && (column.kind === 'float32' || column.kind === 'float64'));

/** Reads a column into a column of the values; null is no fault. REQUIRES: `isOfKind` of it
 *  @param columns columns of the values */
export function valueReader(
  batch: BatchViews,
  place: Place,
  field: FieldColumn,
  columns: number,
): ColumnReader {
  return field.kind === 'id' || field.kind === 'text'
    ? identifierReader(batch, place, field, columns)
    : numberReader(batch, place, field, columns);
}

function identifierReader(
  { columns: all }: BatchViews,
  { index, column, nullable }: Place,
  { column: to, kind }: FieldColumn,
  columns: number,
): ColumnReader {
  const around = nullable.map((one) => all[one] as ColumnViews);
  const get = idGet(all[index] as ColumnViews, column);
  const ids = new IdHash();
  return ({ count, rows }, { status, batch }) => {
    const values = valuesOf(batch, columns);
    const { valid, capacity } = values;
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (status[row] !== EVENT_STATUS.OK) continue;
      const cell = to * capacity + row;
      valid[cell] = around.every((view) => view.isValid(i)) ? 1 : 0;
      if (valid[cell] === 0) continue;
      if (!putIdentifier(values, cell, get(i), kind, ids)) status[row] = EVENT_STATUS.BAD_VALUE;
    }
  };
}

/** Writes an identifier into a cell: its hash, or the place of its text. False if it is too long.
 */
export function putIdentifier(
  { cells, texts }: ValueColumns,
  cell: number,
  text: string,
  kind: ValueKind,
  ids: IdHash,
): boolean {
  // One letter is the type.
  if (text.length - 1 > (kind === 'text' ? TOP_TEXT_BYTES_MAX - 1 : ID_BYTES_MAX)) return false;
  const hash = ids.hash(text);
  cells[cell] = kind === 'text' ? BigInt(texts.add(hash, text)) : hash;
  return true;
}

function numberReader(
  { columns: all }: BatchViews,
  { index, column, nullable }: Place,
  { column: to, kind }: FieldColumn,
  columns: number,
): ColumnReader {
  const views = all[index] as ColumnViews;
  const around = nullable.map((one) => all[one] as ColumnViews);
  const isUnsigned = column.kind === 'uint64';
  const isWide = isUnsigned || column.kind === 'int64';
  const get = plainGet(views, column) as (at: number) => number | bigint;
  return ({ count, rows }, { status, batch }) => {
    const { cells, doubles, valid, capacity } = valuesOf(batch, columns);
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (status[row] !== EVENT_STATUS.OK) continue;
      const cell = to * capacity + row;
      let isValid = 1;
      for (const view of around) if (!view.isValid(i)) isValid = 0;
      valid[cell] = isValid;
      if (isValid === 0) continue;
      const value = get(i);
      if (kind === 'double') doubles[cell] = Number(value);
      else if (isUnsigned && (value as bigint) >= I64_LIMIT) status[row] = EVENT_STATUS.BAD_VALUE;
      else cells[cell] = isWide ? (value as bigint) : BigInt(value);
    }
  };
}
