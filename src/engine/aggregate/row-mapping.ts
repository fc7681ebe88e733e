/** Rows of one form as rows of another: the head and the cells of the aggregates that both have. */
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import { CELL, neutralCell, type RowForm } from '../../core/layout/row-form.ts';
import { type AggregateField, Aggregates, isSameField } from './definition.ts';

interface Copied {
  /** Byte offsets in a row. */
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/** Aggregate of a field; undefined: the form does not name its fields. */
interface FieldStep {
  readonly kind: number;
  readonly field: AggregateField | undefined;
}

/** Steps of a form with their fields: columns are numbered in the order of the definition, which
 *  differs between forms. */
function fieldSteps(form: RowForm): readonly FieldStep[] {
  const fields = form instanceof Aggregates ? form.fields : [];
  return form.steps.map(({ kind, column }) => ({
    kind,
    field: fields.find((one) => one.column === column),
  }));
}

/** True for steps that have equal cells. Two scales of a field are two fields: their integers
 *  differ. */
const isSameStep = (a: FieldStep, b: FieldStep): boolean =>
  a.kind === b.kind &&
  (a.field === undefined || b.field === undefined ? a.field === b.field : isSameField(a.field, b.field));

/** Maps rows to another form. Cells that the first form lacks are those of aggregates without a
 *  value. */
export class RowMapping {
  readonly from: RowForm;
  readonly to: RowForm;
  /** Row whose aggregates have no value. */
  private readonly neutral: Uint8Array;
  private readonly copied: readonly Copied[];

  constructor(from: RowForm, to: RowForm) {
    this.from = from;
    this.to = to;
    this.neutral = neutralRow(to);
    const known = fieldSteps(from);
    const head: Copied = { from: 0, to: 0, bytes: ACCUMULATOR.BYTES };
    const cells = fieldSteps(to).flatMap((wanted, step): Copied[] => {
      const before = from.places[known.findIndex((one) => isSameStep(one, wanted))];
      const after = to.places[step] as RowForm['places'][number];
      return before === undefined ? [] : [{ from: at(before), to: at(after), bytes: after.count * CELL }];
    });
    this.copied = [head, ...cells];
  }

  /** Maps `count` rows. REQUIRES: `into` has room for as many rows of the other form */
  map(rows: Uint8Array, count: number, into: Uint8Array): void {
    const { from, to, neutral, copied } = this;
    for (let row = 0; row < count; row++) {
      const [source, target] = [row * from.bytes, row * to.bytes];
      into.set(neutral, target);
      for (const { from: start, to: end, bytes } of copied)
        into.set(rows.subarray(source + start, source + start + bytes), target + end);
    }
  }
}

const at = ({ first }: RowForm['places'][number]): number => ACCUMULATOR.BYTES + first * CELL;

function neutralRow(form: RowForm): Uint8Array {
  const row = new Uint8Array(form.bytes);
  const view = new DataView(row.buffer);
  form.steps.forEach(({ kind }, step) => {
    view.setBigInt64(at(form.places[step] as RowForm['places'][number]), neutralCell(kind), true);
  });
  return row;
}
