/** Values of a batch for one of several windows, whose aggregates have columns of their own.
 *
 *  The input reads the fields of all windows once. A window gets a copy of its own fields, in the
 *  order of its own columns, for the turn in which it has the batch. */
import { invariant } from '../../../core/errors.ts';
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { PLACE_COLUMNS } from '../../../core/layout/row-form.ts';
import { ValueColumns } from '../../../core/layout/value-columns.ts';
import { Aggregates, isSameField, valueFields } from '../../aggregate/definition.ts';
import { knownValues, setValues } from '../../aggregate/values.ts';

export class OwnValues {
  /** Column of the batch for each column of the window. */
  private readonly from: readonly number[];
  private readonly copies = new WeakMap<ValueColumns, ValueColumns>();

  /** @param own aggregates of the window
   *  @param all those of all windows; one of them is `own`, which may have times since when its
   *  aggregates exist */
  constructor(own: string, all: readonly string[]) {
    const { fields, needsPlace } = Aggregates.of(own);
    const { fields: found } = valueFields(all);
    this.from = [
      ...Array.from({ length: needsPlace ? PLACE_COLUMNS : 0 }, (_, column) => column),
      ...fields.map((field) => {
        const place = found.find((one) => isSameField(one, field));
        invariant(place !== undefined, 'the fields of a window are read with those of all windows');
        return place.column;
      }),
    ];
  }

  /** Gives the batch the values of the window. Returns a function that undoes this. */
  lend(batch: EventBatch): () => void {
    const values = knownValues(batch);
    if (values === undefined || this.from.every((column, at) => column === at)) return () => {};
    setValues(batch, this.copyOf(values, batch.rowCount));
    return () => setValues(batch, values);
  }

  private copyOf(values: ValueColumns, rows: number): ValueColumns {
    const { capacity } = values;
    const copy =
      this.copies.get(values) ?? new ValueColumns(Math.max(1, this.from.length), capacity, values.texts);
    this.copies.set(values, copy);
    for (const [to, from] of this.from.entries()) {
      const first = from * capacity;
      copy.cells.set(values.cells.subarray(first, first + rows), to * capacity);
      copy.valid.set(values.valid.subarray(first, first + rows), to * capacity);
    }
    return copy;
  }
}
