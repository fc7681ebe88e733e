/** Rows of a job that folds the elements of a list: a batch in which each element of a record's
 *  list is a row, with the place, the key, the value and the headers of the record.
 *
 *  Invariants: (1) the rows of a record are neighbours in one batch; (2) elements ascend from 0
 *  within a record; a record without an element, and one that is invalid before its list is known,
 *  has one row; (3) a record is invalid as a whole: then one of its rows has the fault, and the
 *  others are no events, so that it is counted and quarantined once. */
import { EVENT_STATUS } from '../../../core/layout/layouts.gen.ts';
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import { EventIds, ID_BYTES_MAX } from '../../dedup/ids.ts';
import type { EventWords } from '../input/words.ts';
import { type FieldPath, isInList } from './path.ts';

/** Bits that hold the number of an element. */
export const ELEMENT_BITS = 14;
/** Greatest number of elements of a record; a record with more is invalid. */
export const LIST_ELEMENTS_MAX = 1 << ELEMENT_BITS;
/** In place of the element's number in the row of a record without an element. */
const NO_ELEMENT = -1;

/** Longest identifier of an element: that of its record, and behind it `#` and its number. */
export const ELEMENT_ID_BYTES_MAX = ID_BYTES_MAX + `#${LIST_ELEMENTS_MAX}`.length;

const isEvent = (status: number | undefined): boolean =>
  status === EVENT_STATUS.OK || status === EVENT_STATUS.FILTERED || status === EVENT_STATUS.NO_EVENT;

export class ListRows {
  readonly records: RecordBatch;
  /** Number of the element of each row, from 0; NO_ELEMENT. */
  readonly element: Int32Array;
  /** Row of each row's record in the batch that was split. */
  readonly source: Int32Array;
  /** Why a record has no element: EVENT_STATUS.* other than OK, in its only row. */
  readonly status: Uint8Array;
  /** Faults of such rows, where the status does not say it all. */
  readonly faults = new Map<number, string>();

  private constructor(records: RecordBatch) {
    this.records = records;
    this.element = new Int32Array(records.rowCapacity);
    this.source = new Int32Array(records.rowCapacity);
    this.status = new Uint8Array(records.rowCapacity);
  }

  private static readonly made = new WeakMap<RecordBatch, ListRows>();

  /** @param rowCapacity a record with more elements is invalid
   *  @param arenaBytes at least those of the batches that are split */
  static create(rowCapacity: number, arenaBytes: number): ListRows {
    const rows = new ListRows(RecordBatch.create(rowCapacity, arenaBytes));
    ListRows.made.set(rows.records, rows);
    return rows;
  }

  /** Undefined: the batch has one row a record. */
  static of(records: RecordBatch): ListRows | undefined {
    return ListRows.made.get(records);
  }

  /** Greatest number of elements of a record. */
  get elementsMax(): number {
    return Math.min(LIST_ELEMENTS_MAX, this.records.rowCapacity);
  }

  clear(): void {
    this.records.clear();
    this.faults.clear();
  }

  /** Appends the rows of a record, or returns false if they do not fit.
   *  @param elements 0: it has one row, with `status` */
  add(from: RecordBatch, row: number, elements: number, status: number): boolean {
    const { records } = this;
    const first = records.rowCount;
    const rows = Math.max(1, elements);
    const { keyStart, keyLength, valueStart, valueLength, headersStart, headersLength } = from.columns;
    const keyBytes = Math.max(0, keyLength[row] as number);
    const valueBytes = Math.max(0, valueLength[row] as number);
    const headerBytes = Math.max(0, headersLength[row] as number);
    const at = records.arenaUsed;
    if (
      first + rows > records.rowCapacity ||
      at + keyBytes + valueBytes + headerBytes > records.arenaCapacity
    )
      return false;
    const copy = (start: number, bytes: number, to: number): void =>
      records.columns.arena.set(from.columns.arena.subarray(start, start + bytes), to);
    copy(keyStart[row] as number, keyBytes, at);
    copy(valueStart[row] as number, valueBytes, at + keyBytes);
    copy(headersStart[row] as number, headerBytes, at + keyBytes + valueBytes);
    const end = first + rows;
    const { columns: into } = records;
    into.topicIndex.fill(from.columns.topicIndex[row] as number, first, end);
    into.partition.fill(from.columns.partition[row] as number, first, end);
    into.offset.fill(from.columns.offset[row] as bigint, first, end);
    into.timestamp.fill(from.columns.timestamp[row] as bigint, first, end);
    into.timestampType.fill(from.columns.timestampType[row] as number, first, end);
    into.flags.fill(from.columns.flags[row] as number, first, end);
    into.keyStart.fill(at, first, end);
    into.keyLength.fill(keyLength[row] as number, first, end);
    into.valueStart.fill(at + keyBytes, first, end);
    into.valueLength.fill(valueLength[row] as number, first, end);
    into.headersStart.fill(at + keyBytes + valueBytes, first, end);
    into.headersLength.fill(headersLength[row] as number, first, end);
    this.source.fill(row, first, end);
    if (elements === 0) this.element[first] = NO_ELEMENT;
    for (let element = 0; element < elements; element++) this.element[first + element] = element;
    this.status.fill(elements === 0 ? status : EVENT_STATUS.OK, first, end);
    records.arenaUsed = at + keyBytes + valueBytes + headerBytes;
    records.rowCount = end;
    return true;
  }

  /** Sets the status of the rows that have no element. */
  mark({ status }: Pick<EventWords, 'status'>): void {
    for (let row = 0; row < this.records.rowCount; row++)
      if (this.status[row] !== EVENT_STATUS.OK) status[row] = this.status[row] as number;
  }

  /** Makes each record invalid as a whole, or each of its elements an event with an identifier of
   *  its own. Call it when all fields have been read.
   *  @param dedup path of the identifier; undefined: events have none
   *  @param list path of the list */
  settle(words: EventWords, dedup: FieldPath | undefined, list: FieldPath): void {
    const { status } = words;
    const { element, records } = this;
    for (let first = 0; first < records.rowCount; ) {
      let end = first + 1;
      while (end < records.rowCount && (element[end] as number) > 0) end++;
      let fault = first;
      while (fault < end && isEvent(status[fault])) fault++;
      if (fault < end)
        for (let row = first; row < end; row++) if (row !== fault) status[row] = EVENT_STATUS.NO_EVENT;
      first = end;
    }
    if (dedup === undefined || isInList(dedup, list)) return;
    const ids = EventIds.of(words.batch);
    for (let row = 0; row < records.rowCount; row++)
      if (status[row] === EVENT_STATUS.OK) ids.set(row, `${ids.text(row)}#${element[row]}`);
  }

  /** True if a row is that of a record that has no event, and is valid. */
  isEmpty(row: number): boolean {
    return this.element[row] === NO_ELEMENT && this.status[row] === EVENT_STATUS.NO_EVENT;
  }
}

/** Element of a row, from 0; undefined: the row is that of a whole record. */
export function elementOf(records: RecordBatch, row: number): number | undefined {
  const element = ListRows.of(records)?.element[row] ?? NO_ELEMENT;
  return element === NO_ELEMENT ? undefined : element;
}
