/** Decoder of framed records whose lists have the events: it decodes the columns of the records,
 *  then reads the events from the columns of the elements. */
import type { ColumnBatch } from '../../../../core/columns/batch.ts';
import type { EventBatch } from '../../../../core/layout/event-batch.ts';
import type { FrameBatch } from '../../../../core/layout/frame-batch.ts';
import { COLUMN_STATUS, EVENT_STATUS } from '../../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../core/layout/record-batch.ts';
import { putPlaces, valuesOf } from '../../../aggregate/values.ts';
import type { FieldPath } from '../../list/path.ts';
import { ListRows } from '../../list/rows.ts';
import { readRecordKeys } from '../key/records.ts';
import { columnFault, PLAN_ROWS, type WriterPlan } from '../plan.ts';
import type { ListDecoder } from '../port.ts';
import { readRecordTimes } from '../record-fields.ts';
import { EventWords } from '../words.ts';
import { Groups } from './groups.ts';
import { type RegisteredParts, Writers } from './writers.ts';

/** Columns of the records of one plan, as far as they are split. */
interface Decoded {
  readonly plan: WriterPlan;
  readonly batch: ColumnBatch;
  /** Record of each row of the batch, ascending. */
  readonly records: Int32Array;
}

export class RegisteredListDecoder implements ListDecoder {
  private readonly parts: RegisteredParts;
  private readonly list: FieldPath;
  private readonly writers: Writers;
  private readonly groups = new Groups();
  private frames: FrameBatch | undefined;
  /** Batch that was split last, and what was decoded of it. */
  private split_: RecordBatch | undefined;
  private decoded: readonly Decoded[] = [];
  /** Number of elements of each record of the part that is split, and its status. */
  private counts = new Int32Array(0);
  private statuses = new Uint8Array(0);
  /** Records that are decoded together: about as many as fit into a batch of elements. */
  private chunk = PLAN_ROWS;
  private faults: ReadonlyMap<number, string> | undefined;

  /** @param list path of the list */
  constructor(parts: RegisteredParts, list: FieldPath) {
    this.parts = parts;
    this.list = list;
    this.writers = new Writers(parts, () => this.groups.clear());
  }

  split(
    records: RecordBatch,
    from: number,
    into: ListRows,
  ): number | undefined | Promise<number | undefined> {
    into.clear();
    if (from > 0) return this.fill(records, this.frames as FrameBatch, from, into);
    const frames = this.writers.open(records);
    if (!(frames instanceof Promise)) return this.fill(records, frames, from, into);
    return frames.then((loaded) =>
      loaded === undefined ? undefined : this.fill(records, loaded, from, into),
    );
  }

  decode(records: RecordBatch, into: EventBatch): void {
    const words = EventWords.of(into);
    const lists = ListRows.of(records) as ListRows;
    const { key, time, aggregates, dedup } = this.parts.fields;
    words.reset(records.rowCount);
    this.faults = words.faults;
    if (aggregates !== undefined) valuesOf(into, aggregates.columns).texts.clear();
    lists.mark(words);
    if (time.from === 'record') readRecordTimes(records, words);
    const firsts = firstRows(lists, this.counts.length);
    for (const one of this.decoded) this.read(one, lists, firsts, words);
    if (key.from === 'record' && key.form !== undefined) readRecordKeys(records, key.form, words);
    if (aggregates?.needsPlace === true) putPlaces(records, valuesOf(into, aggregates.columns));
    lists.settle(words, dedup, this.list);
    words.clearInvalid();
  }

  describe(records: RecordBatch, row: number): string | undefined {
    const lists = ListRows.of(records);
    if (lists === undefined || this.split_ === undefined) return undefined;
    const element = lists.element[row] as number;
    const fault = lists.faults.get(row) ?? this.faults?.get(row);
    const where = element < 0 ? '' : `element ${element}`;
    const text = fault === undefined ? where : where === '' ? fault : `${where}: ${fault}`;
    return this.writers.describe(this.split_, lists.source[row] as number, text === '' ? undefined : text);
  }

  close(): void {
    this.writers.forget();
  }

  /** Decodes records from `from` on, and appends the rows of as many as fit. */
  private fill(records: RecordBatch, frames: FrameBatch, from: number, into: ListRows): number {
    this.frames = frames;
    this.split_ = records;
    if (this.counts.length < records.rowCapacity) {
      this.counts = new Int32Array(records.rowCapacity);
      this.statuses = new Uint8Array(records.rowCapacity);
    }
    const end = this.count(records, frames, from, Math.min(records.rowCount, from + this.chunk));
    let record = from;
    let most = 0;
    for (; record < end; record++) {
      const elements = this.counts[record] as number;
      const fits = elements <= into.elementsMax;
      const status = fits ? (this.statuses[record] as number) : EVENT_STATUS.BAD_LIST;
      const row = into.records.rowCount;
      if (!into.add(records, record, fits ? elements : 0, status)) break;
      if (!fits)
        into.faults.set(
          row,
          `${this.list.join('.')} has ${elements} elements, more than ${into.elementsMax}`,
        );
      most += fits ? Math.max(1, elements) : 1;
    }
    const average = most / Math.max(1, record - from);
    this.chunk = Math.max(
      1,
      Math.min(PLAN_ROWS, Math.floor(into.records.rowCapacity / Math.max(1, average))),
    );
    return record;
  }

  /** Decodes the records from `from` to `to`, and counts their elements. Returns the record behind
   *  the last that was decoded. */
  private count(records: RecordBatch, frames: FrameBatch, from: number, to: number): number {
    const { counts, statuses } = this;
    counts.fill(0, from, to);
    statuses.fill(EVENT_STATUS.OK, from, to);
    this.groups.sort(this.writers, records, frames, [from, to], (record, status) => {
      statuses[record] = status;
    });
    let end = to;
    const decoded: Decoded[] = [];
    for (const { plan, count, rows } of this.groups.used()) {
      const mine = rows.subarray(0, count);
      const batch = plan.decodeRecords(this.groups.spans(records.columns.arena, frames, mine), count);
      const { status, rowCount } = batch;
      // The columns of the others exceed the limit of a batch.
      if (rowCount < count) end = Math.min(end, mine[rowCount] as number);
      for (let i = 0; i < rowCount; i++) {
        const record = mine[i] as number;
        const isRead = status[i] === COLUMN_STATUS.OK;
        if (isRead) counts[record] = plan.elements(i);
        statuses[record] = isRead
          ? EVENT_STATUS.NO_EVENT
          : status[i] === COLUMN_STATUS.TOO_LARGE
            ? EVENT_STATUS.BAD_LIST
            : columnFault(status[i] as number);
      }
      decoded.push({ plan, batch, records: mine.slice(0, rowCount) });
    }
    this.decoded = decoded;
    return end;
  }

  /** Reads the events of the records of one plan.
   *  @param firsts first row of each record; -1: none */
  private read({ plan, records }: Decoded, lists: ListRows, firsts: Int32Array, words: EventWords): void {
    const picked: number[] = [];
    const rows: number[] = [];
    for (let i = 0; i < records.length; i++) {
      const record = records[i] as number;
      const first = firsts[record] as number;
      if (first < 0 || lists.status[first] !== EVENT_STATUS.OK) continue;
      picked.push(i);
      for (let element = 0; element < (this.counts[record] as number); element++) rows.push(first + element);
    }
    if (rows.length > 0) plan.readElements(Int32Array.from(picked), Int32Array.from(rows), words);
  }
}

/** First row of each record that has rows; -1 for the others. */
function firstRows({ records, source, element }: ListRows, count: number): Int32Array {
  const firsts = new Int32Array(count).fill(-1);
  for (let row = 0; row < records.rowCount; row++)
    if ((element[row] as number) <= 0) firsts[source[row] as number] = row;
  return firsts;
}
