/** Values of the aggregated fields of a batch of events, between the input and the state. */
import type { EventBatch } from '../../core/layout/event-batch.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { PLACE_COLUMNS } from '../../core/layout/row-form.ts';
import { ValueColumns } from '../../core/layout/value-columns.ts';

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

/** Writes the place of each record into the first columns. */
export function putPlaces(
  { columns, rowCount }: RecordBatch,
  { cells, valid, capacity }: ValueColumns,
): void {
  const { partition, offset } = columns;
  cells.set(offset.subarray(0, rowCount), capacity);
  for (let row = 0; row < rowCount; row++) cells[row] = BigInt(partition[row] as number);
  valid.fill(1, 0, PLACE_COLUMNS * capacity);
}
