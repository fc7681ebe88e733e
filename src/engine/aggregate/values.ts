/** Values of the aggregated fields of a batch of events, between the input and the state. */
import type { EventBatch } from '../../core/layout/event-batch.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { PLACE_COLUMNS } from '../../core/layout/row-form.ts';
import { ValueColumns } from '../../core/layout/value-columns.ts';
import { ELEMENT_BITS, ListRows } from '../source/list/rows.ts';

const made = new WeakMap<EventBatch, ValueColumns>();

/** Values of a batch; rows of events without status OK are meaningless. */
export function valuesOf(batch: EventBatch, columns: number): ValueColumns {
  let values = made.get(batch);
  if (values === undefined || values.columns < columns) {
    values = new ValueColumns(columns, batch.rowCapacity);
    made.set(batch, values);
  }
  return values;
}

/** Values of a batch; undefined if the job has no aggregates of fields. */
export const knownValues = (batch: EventBatch): ValueColumns | undefined => made.get(batch);

/** Gives a batch other values; undefined: none. */
export function setValues(batch: EventBatch, values: ValueColumns | undefined): void {
  if (values === undefined) made.delete(batch);
  else made.set(batch, values);
}

/** Writes the place of each record into the first columns. The offset of an element has the number
 *  of the element in its low bits, so that the places of all events differ. */
export function putPlaces(records: RecordBatch, { cells, valid, capacity }: ValueColumns): void {
  const { columns, rowCount } = records;
  const { partition, offset } = columns;
  const lists = ListRows.of(records);
  if (lists === undefined) cells.set(offset.subarray(0, rowCount), capacity);
  else
    for (let row = 0; row < rowCount; row++)
      cells[capacity + row] =
        ((offset[row] as bigint) << BigInt(ELEMENT_BITS)) | BigInt(Math.max(0, lists.element[row] as number));
  for (let row = 0; row < rowCount; row++) cells[row] = BigInt(partition[row] as number);
  valid.fill(1, 0, PLACE_COLUMNS * capacity);
}
