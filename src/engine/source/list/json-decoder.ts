/** Decoder of JSON records whose lists have the events. */
import { FoundFields, JSON_VALUE, type JsonFinder, type JsonKernels } from '../../../core/json/finder.ts';
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { EVENT_STATUS, FRAME } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { InputFields } from '../input/definition.ts';
import { JsonDecoder } from '../input/json.ts';
import type { ListDecoder } from '../input/port.ts';
import { ElementFinder, findElements, openListFinder } from './json.ts';
import type { FieldPath } from './path.ts';
import type { ListRows } from './rows.ts';

/** Documents whose lists are found at a time. */
const FOUND_RECORDS = 256;
/** Bytes of a value that a fault shows. */
const SHOWN_BYTES = 60;

/** List of a record: its elements, or the status of a record without them. */
interface Split {
  readonly elements: number;
  /** EVENT_STATUS.* */
  readonly status: number;
  readonly fault?: string;
}

export class JsonListDecoder implements ListDecoder {
  private readonly list: FieldPath;
  private readonly decoder: JsonDecoder;
  private readonly lists: JsonFinder;
  private readonly found = new FoundFields(1, FOUND_RECORDS);
  private finder: ElementFinder | undefined;
  private starts = new Uint32Array(0);
  private lengths = new Int32Array(0);
  /** Places of the elements of the rows, in the arena of the rows. */
  private spans = { starts: new Uint32Array(0), ends: new Uint32Array(0) };

  /** @param list path of the list */
  constructor(kernels: JsonKernels, fields: InputFields, list: FieldPath) {
    this.list = list;
    this.lists = openListFinder(kernels, list);
    this.decoder = new JsonDecoder(fields, (paths) => {
      this.finder = new ElementFinder(kernels, paths, list);
      return this.finder;
    });
  }

  split(records: RecordBatch, from: number, into: ListRows): number {
    into.clear();
    if (from === 0) this.find(records);
    const { rowCapacity } = into.records;
    if (this.spans.starts.length < rowCapacity)
      this.spans = { starts: new Uint32Array(rowCapacity), ends: new Uint32Array(rowCapacity) };
    const payloads = { bytes: records.columns.arena, start: this.starts, length: this.lengths };
    for (let record = from; record < records.rowCount; ) {
      const to = Math.min(records.rowCount, record + FOUND_RECORDS);
      this.lists.find(payloads, record, to, this.found);
      for (let cell = 0; record < to; record++, cell++)
        if (!this.add(records, record, cell, into)) return record;
    }
    return records.rowCount;
  }

  decode(records: RecordBatch, into: EventBatch): void {
    this.decoder.decode(records, into);
  }

  describe(records: RecordBatch, row: number): string | undefined {
    return this.decoder.describe(records, row);
  }

  /** Finds the documents of a batch, behind the frame of those that have one. */
  private find({ columns, rowCount, rowCapacity }: RecordBatch): void {
    const { valueStart, valueLength, arena } = columns;
    if (this.starts.length < rowCapacity) {
      this.starts = new Uint32Array(rowCapacity);
      this.lengths = new Int32Array(rowCapacity);
    }
    for (let row = 0; row < rowCount; row++) {
      const start = valueStart[row] as number;
      const length = valueLength[row] as number;
      const head = length > 0 && arena[start] === FRAME.MAGIC ? FRAME.HEADER_BYTES : 0;
      this.starts[row] = length < head ? start : start + head;
      this.lengths[row] = length < head ? -1 : length - head;
    }
  }

  /** Appends the rows of a record; false: they do not fit. */
  private add(records: RecordBatch, record: number, cell: number, into: ListRows): boolean {
    const first = into.records.rowCount;
    const { elements, status, fault } = this.splitOf(records, record, cell, into);
    if (!into.add(records, record, elements, status)) return false;
    if (fault !== undefined) into.faults.set(first, fault);
    // The elements were found in the arena of the records.
    const moved =
      (into.records.columns.valueStart[first] as number) - (records.columns.valueStart[record] as number);
    const { starts, ends } = this.spans;
    for (let row = first; row < first + elements; row++) {
      starts[row] = (starts[row] as number) + moved;
      ends[row] = (ends[row] as number) + moved;
    }
    (this.finder as ElementFinder).places = { ...this.spans, element: into.element };
    return true;
  }

  private splitOf(records: RecordBatch, record: number, cell: number, into: ListRows): Split {
    const { isDocument, kind, start, end } = this.found;
    const none = (status: number, fault?: string): Split => ({
      elements: 0,
      status,
      ...(fault === undefined ? {} : { fault }),
    });
    if ((records.columns.valueLength[record] as number) < 0) return none(EVENT_STATUS.NULL);
    if ((this.lengths[record] as number) < 0) return none(EVENT_STATUS.TRUNCATED_FRAME);
    if (isDocument[cell] === 0) return none(EVENT_STATUS.MALFORMED_PAYLOAD, 'the value is not JSON');
    if (kind[cell] === JSON_VALUE.MISSING || kind[cell] === JSON_VALUE.NULL)
      return none(EVENT_STATUS.NO_EVENT);
    const { arena } = records.columns;
    const [from, to] = [start[cell] as number, end[cell] as number];
    const name = this.list.join('.');
    if (kind[cell] !== JSON_VALUE.ARRAY) {
      const shown = Buffer.from(arena.subarray(from, Math.min(to, from + SHOWN_BYTES))).toString('utf8');
      return none(EVENT_STATUS.BAD_LIST, `${name} is ${shown}`);
    }
    const elements = findElements(arena, from, to, this.spans, into.records.rowCount);
    if (elements > into.elementsMax)
      return none(EVENT_STATUS.BAD_LIST, `${name} has more than ${into.elementsMax} elements`);
    return elements === 0 ? none(EVENT_STATUS.NO_EVENT) : { elements, status: EVENT_STATUS.OK };
  }
}
