/** Decorator of a source for a job that folds the elements of a list: it splits each batch of
 *  records into batches of elements, cut between records.
 *
 *  Invariants: (1) all rows of a record are returned together, so a position never lies inside a
 *  record; (2) the end of a partition is known when its last rows have been returned. */
import { EventBatch } from '../../../core/layout/event-batch.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { Stages } from '../../stages.ts';
import type { Bounds, EventRows, EventSource, Receipt } from '../events.ts';
import type { ListInput } from '../input/port.ts';
import { LIST_ELEMENTS_MAX, ListRows } from './rows.ts';

export interface ListSourceParts {
  /** Source of whole records, whose events are ignored. */
  readonly source: EventSource;
  readonly input: Pick<ListInput, 'split' | 'decode' | 'isReady'>;
  readonly stages: Pick<Stages, 'enter'>;
  /** Rows of the batches that this source returns: a record with more elements is invalid. */
  readonly rowCapacity: number;
  /** Bytes of the largest batch of records. */
  readonly arenaBytes: number;
}

/** Rows of batches that hold each valid record. */
export const listRowCapacity = (rowCapacity: number): number => Math.max(rowCapacity, LIST_ELEMENTS_MAX);

export class ListSource implements EventSource {
  receipts: readonly Receipt[] = [];
  private readonly parts: ListSourceParts;
  private readonly rows: ListRows;
  private readonly events: EventBatch;
  /** Records that are not returned yet, from `at` on. */
  private held: RecordBatch | undefined;
  private at = 0;

  constructor(parts: ListSourceParts) {
    this.parts = parts;
    this.rows = ListRows.create(parts.rowCapacity, parts.arenaBytes);
    this.events = EventBatch.create(parts.rowCapacity);
  }

  get partitionCount(): number {
    return this.parts.source.partitionCount;
  }

  bounds(): Promise<readonly Bounds[]> {
    return this.parts.source.bounds();
  }

  added(): Promise<readonly number[]> {
    return this.parts.source.added();
  }

  start(offsets: readonly number[]): Promise<void> {
    this.held = undefined;
    return this.parts.source.start(offsets);
  }

  async next(waitMs: number): Promise<EventRows | undefined> {
    const { source, input, stages } = this.parts;
    if (this.held === undefined) {
      const fetched = await source.next(waitMs);
      this.receipts = source.receipts;
      if (fetched === undefined) return undefined;
      this.held = fetched.records;
      this.at = 0;
    }
    stages.enter('decode');
    const { rows, held, at, events } = this;
    const splitting = input.split(held, at, rows);
    const next = typeof splitting === 'object' ? await splitting : splitting;
    if (next === undefined) return undefined;
    const loading = input.decode(rows.records, events);
    if (loading !== undefined) await loading;
    if (!input.isReady) return undefined;
    this.receipts = receiptsOf(source.receipts, rows);
    this.at = next;
    if (next === held.rowCount) this.held = undefined;
    return { records: rows.records, events };
  }

  endOf(partition: number): number {
    return this.held === undefined ? this.parts.source.endOf(partition) : -1;
  }

  saved(offsets: readonly number[]): void {
    this.parts.source.saved?.(offsets);
  }

  stop(): Promise<void> {
    this.held = undefined;
    return this.parts.source.stop();
  }
}

/** Receipts of the rows of elements, from those of their records. */
function receiptsOf(receipts: readonly Receipt[], { records, source }: ListRows): readonly Receipt[] {
  const found: Receipt[] = [];
  let row = 0;
  let end = 0;
  for (const { rows, atMs } of receipts) {
    end += rows;
    const first = row;
    while (row < records.rowCount && (source[row] as number) < end) row++;
    if (row > first) found.push({ rows: row - first, atMs });
  }
  return found;
}
