/** Selects decoded records: those that a filter accepts, up to a number of records. */
import { coreError } from '../../core/errors.ts';
import { compileFilter, type Filter } from '../../core/filter/compile.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { DecodedBatch, DecodedRow, RecordDecoder } from './decoder.ts';
import { type LineOptions, META_FIELDS, metaOf } from './line.ts';

/** Number of records that may still be selected, shared by the readers of one process. */
export interface RecordBudget {
  /** Takes one record. False: none is left. */
  take(): boolean;
  readonly isSpent: boolean;
}

/** Number of records that may still be selected, in shared memory. */
export type BudgetCells = BigInt64Array<SharedArrayBuffer>;

/** @param count 0: no limit, which needs no cells */
export function budgetCells(count: number): BudgetCells | undefined {
  if (count === 0) return undefined;
  const cells = new BigInt64Array(new SharedArrayBuffer(8));
  cells[0] = BigInt(count);
  return cells;
}

/** @param cells undefined: no limit */
export function recordBudget(cells: BudgetCells | undefined): RecordBudget {
  if (cells === undefined) return { take: () => true, isSpent: false };
  return {
    take: () => Atomics.sub(cells, 0, 1n) > 0n,
    get isSpent() {
      return Atomics.load(cells, 0) <= 0n;
    },
  };
}

/** Compiles the filter of a command, and checks the names of its `@` properties.
 *  @throws bad_value */
export function recordFilter(text: string): Filter {
  const filter = compileFilter(text);
  for (const { isMeta, steps, text: name } of filter.fields)
    if (isMeta && !META_FIELDS.includes(String(steps[0])))
      throw coreError('bad_value', `${name} is no property of a record`, {
        next: `choose from ${META_FIELDS.map((field) => `@${field}`).join(', ')}`,
      });
  return filter;
}

export interface SelectionOptions {
  readonly filter: Filter | undefined;
  readonly budget: RecordBudget;
  readonly line: LineOptions;
}

/** Decoder whose batches hold the selected records only. */
export class SelectingDecoder implements RecordDecoder {
  private readonly inner: RecordDecoder;
  private readonly options: SelectionOptions;
  /** Indexes of the filter's fields that no record has had yet. */
  private readonly unseen: Set<number>;

  constructor(inner: RecordDecoder, options: SelectionOptions) {
    this.inner = inner;
    this.options = options;
    this.unseen = new Set(options.filter?.fields.keys());
  }

  /** Fields of the filter that no record had: probably misspelt. */
  get unseenFields(): readonly string[] {
    return [...this.unseen].map((index) => this.options.filter?.fields[index]?.text ?? '');
  }

  async prepare(records: RecordBatch): Promise<void> {
    await this.inner.prepare(records);
    await this.options.line.keys.prepare(records);
  }

  decode(records: RecordBatch): DecodedBatch {
    const { decoded, failed } = this.inner.decode(records);
    const selected: DecodedRow[] = [];
    let skipped = 0;
    let end = records.rowCount;
    for (const one of decoded) {
      if (!this.matches(records, one)) skipped++;
      else if (this.options.budget.take()) selected.push(one);
      else {
        end = one.row;
        break;
      }
    }
    return { decoded: selected, failed: failed.filter(({ row }) => row < end), skipped, end };
  }

  private matches(records: RecordBatch, row: DecodedRow): boolean {
    const { filter, line } = this.options;
    if (filter === undefined) return true;
    const read = (index: number): unknown => {
      const field = filter.fields[index] as Filter['fields'][number];
      const value = field.isMeta ? metaOf(records, row, field, line) : row.form.field(row.value, field.steps);
      if (value !== undefined) this.unseen.delete(index);
      return value;
    };
    const isSelected = filter.matches(read);
    // The filter does not read a field whose condition no longer decides.
    if (!isSelected) for (const index of this.unseen) read(index);
    return isSelected;
  }
}
