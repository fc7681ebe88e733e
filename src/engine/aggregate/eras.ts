/** Forms of stored results by the start of their window.
 *
 *  A row of a window that started before an aggregate was added has the form of the aggregates
 *  before it, whenever it was written. So a store that holds results needs no conversion when an
 *  aggregate is added, and the form of a row follows from its key. */
import { RowForm } from '../../core/layout/row-form.ts';
import { type AggregateSpec, Aggregates, aggregateSpecs, splitAggregates, valueNames } from './definition.ts';
import { type AggregateResults, isAbsent, readerOf } from './results.ts';
import { RowMapping } from './row-mapping.ts';

interface Era {
  readonly form: RowForm;
  /** Maps rows of the newest form to those of this one. */
  readonly mapping: RowMapping;
  /** Number of values that results of this form lack. */
  readonly missing: number;
}

export class RowEras {
  /** Form of the rows of windows that start now. */
  readonly current: RowForm;
  /** Ascending; the last one is current. */
  private readonly eras: readonly Era[];
  /** Greatest starts of the windows of each era but the last. */
  private readonly ends: readonly number[];

  /** @param text aggregates of the results; undefined: count, sum, min and max
   *  @throws bad_setting */
  constructor(text: string | undefined) {
    const specs = text === undefined ? [] : aggregateSpecs(text);
    const texts = text === undefined ? [] : splitAggregates(text);
    this.ends = [...new Set(specs.flatMap(({ since }) => (since === undefined ? [] : [since])))];
    this.current = text === undefined ? RowForm.HEADS : Aggregates.of(text);
    const all = valueNames(specs).length;
    const earlier = this.ends.map((end): Era => {
      const own = (_: unknown, at: number): boolean => !isAbsent(specs[at] as AggregateSpec, end);
      const form = specs.some(own) ? Aggregates.of(texts.filter(own).join()) : RowForm.HEADS;
      const missing = all - valueNames(specs.filter(own)).length;
      return { form, mapping: new RowMapping(this.current, form), missing };
    });
    const mapping = new RowMapping(this.current, this.current);
    this.eras = [...earlier, { form: this.current, mapping, missing: 0 }];
  }

  /** True if all rows have one form. */
  get isOne(): boolean {
    return this.eras.length === 1;
  }

  /** Form of the rows of windows of a start. */
  formAt(windowStart: number): RowForm {
    return this.at(windowStart).form;
  }

  /** Maps rows of the newest form to that of windows of a start. */
  mappingAt(windowStart: number): RowMapping {
    return this.at(windowStart).mapping;
  }

  /** Reads the aggregates of a row in the form of its window; undefined: the results are those of
   *  the head. */
  read(view: DataView, at: number, windowStart: number): AggregateResults | undefined {
    const { form, missing } = this.at(windowStart);
    const found = readerOf(form)?.read(view, at, windowStart);
    if (missing === 0) return found;
    const values = [...(found?.values ?? []), ...Array.from({ length: missing }, () => null)];
    return { values, overflow: found?.overflow ?? false };
  }

  private at(windowStart: number): Era {
    const era = this.ends.findIndex((end) => windowStart <= end);
    return this.eras[era < 0 ? this.ends.length : era] as Era;
  }
}
