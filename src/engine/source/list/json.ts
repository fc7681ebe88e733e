/** Elements of a list in JSON documents. */
import type { PayloadSpans } from '../../../core/columns/kernel.ts';
import { FoundFields, JSON_VALUE, type JsonFinder, type JsonKernels } from '../../../core/json/finder.ts';
import { type FieldPath, isInList, plainPath } from './path.ts';
import { LIST_ELEMENTS_MAX } from './rows.ts';

const { MISSING, NULL, FALSE, TRUE, NUMBER, STRING, ESCAPED, OBJECT, ARRAY } = JSON_VALUE;
const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];

const isSpace = (byte: number | undefined): boolean =>
  byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;

/** Places of elements in the bytes of their documents. */
export interface ElementSpans {
  readonly starts: Uint32Array;
  readonly ends: Uint32Array;
}

/** Index behind the closing quote of a text. @param at index of its opening quote */
function behindText(bytes: Uint8Array, at: number, end: number): number {
  let next = at + 1;
  while (next < end && bytes[next] !== QUOTE) next += bytes[next] === BACKSLASH ? 2 : 1;
  return next + 1;
}

/** Finds the elements of a list, and returns their number: LIST_ELEMENTS_MAX + 1 for more.
 *  REQUIRES: the bytes from `start` to `end` are a JSON list
 *  @param at first index of `into`; elements beyond its length are counted alone */
export function findElements(
  bytes: Uint8Array,
  start: number,
  end: number,
  into: ElementSpans,
  at: number,
): number {
  const close = end - 1;
  let from = start + 1;
  while (from < close && isSpace(bytes[from])) from++;
  if (from >= close) return 0;
  let count = 0;
  let depth = 0;
  const note = (behind: number): void => {
    let to = behind;
    while (to > from && isSpace(bytes[to - 1])) to--;
    into.starts[at + count] = from;
    into.ends[at + count] = to;
    count++;
  };
  for (let next = from; next < close; ) {
    const byte = bytes[next];
    if (byte === QUOTE) {
      next = behindText(bytes, next, close);
      continue;
    }
    if (byte === OPEN_OBJECT || byte === OPEN_LIST) depth++;
    else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) depth--;
    else if (byte === COMMA && depth === 0) {
      note(next);
      if (count > LIST_ELEMENTS_MAX) return count;
      from = next + 1;
      while (from < close && isSpace(bytes[from])) from++;
    }
    next++;
  }
  note(close);
  return count;
}

/** Kind of a whole value. An integer is a NUMBER, whose digits its reader parses. */
function kindOfValue(bytes: Uint8Array, start: number, end: number): number {
  switch (bytes[start]) {
    case QUOTE:
      return bytes.subarray(start, end).includes(BACKSLASH) ? ESCAPED : STRING;
    case OPEN_OBJECT:
      return OBJECT;
    case OPEN_LIST:
      return ARRAY;
    case 0x74:
      return TRUE;
    case 0x66:
      return FALSE;
    case 0x6e:
      return NULL;
    default:
      return NUMBER;
  }
}

/** Places at which the finder of a job's list finds the elements. */
export interface ElementPlaces extends ElementSpans {
  /** Number of each row's element, from 0; below 0: the row has none. */
  readonly element: Int32Array;
}

/** Copies found values from cell to cell. */
function copyCell(from: FoundFields, cell: number, into: FoundFields, to: number): void {
  into.kind[to] = from.kind[cell] as number;
  into.start[to] = from.start[cell] as number;
  into.end[to] = from.end[cell] as number;
  into.words[2 * to] = from.words[2 * cell] as number;
  into.words[2 * to + 1] = from.words[2 * cell + 1] as number;
}

/** Finder of the fields of elements and of their records. A row is an element; the payload of a row
 *  is the document of its record. Fields of a record are found once for all of its elements. */
export class ElementFinder implements JsonFinder {
  private readonly ofRecords: JsonFinder | undefined;
  private readonly ofElements: JsonFinder | undefined;
  /** Index of each field of the record, and of each field of the element, among all fields. */
  private readonly recordFields: readonly number[];
  private readonly elementFields: readonly number[];
  /** Indexes of the fields that are the element itself. */
  private readonly whole: readonly number[];
  private foundOfRecords: FoundFields;
  private foundOfElements: FoundFields;
  private starts = new Uint32Array(0);
  private lengths = new Int32Array(0);
  /** Record of each row of a call, among those of the call. */
  private records = new Int32Array(0);
  /** Elements of the rows that are found; set it before each batch. */
  places: ElementPlaces | undefined;

  constructor(kernels: JsonKernels, paths: readonly FieldPath[], list: FieldPath) {
    const indexes = [...paths.keys()];
    const inner = (index: number): FieldPath => (paths[index] as FieldPath).slice(list.length);
    this.recordFields = indexes.filter((index) => !isInList(paths[index] as FieldPath, list));
    const inList = indexes.filter((index) => isInList(paths[index] as FieldPath, list));
    this.elementFields = inList.filter((index) => inner(index).length > 0);
    this.whole = inList.filter((index) => inner(index).length === 0);
    const open = (found: readonly FieldPath[]): JsonFinder | undefined =>
      found.length === 0 ? undefined : kernels.openFinder(found);
    this.ofRecords = open(this.recordFields.map((index) => paths[index] as FieldPath));
    this.ofElements = open(this.elementFields.map(inner));
    this.foundOfRecords = new FoundFields(this.recordFields.length, 0);
    this.foundOfElements = new FoundFields(this.elementFields.length, 0);
  }

  find({ bytes, start, length }: PayloadSpans, from: number, to: number, into: FoundFields): void {
    const rows = to - from;
    this.reserve(rows);
    into.isDocument.fill(1, 0, rows);
    into.kind.fill(MISSING, 0, rows * into.fields);
    this.findRecords({ bytes, start, length }, from, to);
    this.findElements(bytes, from, to);
    const { element, starts, ends } = this.places as ElementPlaces;
    for (let row = from; row < to; row++) {
      if ((element[row] as number) < 0) continue;
      const cell = (row - from) * into.fields;
      const ofRecord = (this.records[row - from] as number) * this.recordFields.length;
      const ofElement = (row - from) * this.elementFields.length;
      for (const [i, field] of this.recordFields.entries())
        copyCell(this.foundOfRecords, ofRecord + i, into, cell + field);
      for (const [i, field] of this.elementFields.entries())
        copyCell(this.foundOfElements, ofElement + i, into, cell + field);
      for (const field of this.whole) {
        const [at, end] = [starts[row] as number, ends[row] as number];
        into.kind[cell + field] = kindOfValue(bytes, at, end);
        into.start[cell + field] = at;
        into.end[cell + field] = end;
      }
    }
  }

  close(): void {
    this.ofRecords?.close();
    this.ofElements?.close();
  }

  private reserve(rows: number): void {
    if (this.starts.length >= rows) return;
    this.starts = new Uint32Array(rows);
    this.lengths = new Int32Array(rows);
    this.records = new Int32Array(rows);
    this.foundOfRecords = new FoundFields(this.recordFields.length, rows);
    this.foundOfElements = new FoundFields(this.elementFields.length, rows);
  }

  /** Finds the fields of each record of the rows. */
  private findRecords({ bytes, start, length }: PayloadSpans, from: number, to: number): void {
    if (this.ofRecords === undefined) return;
    const { element } = this.places as ElementPlaces;
    let count = 0;
    for (let row = from; row < to; row++) {
      if (row === from || (element[row] as number) <= 0) {
        this.starts[count] = start[row] as number;
        this.lengths[count] = (element[row] as number) < 0 ? -1 : (length[row] as number);
        count++;
      }
      this.records[row - from] = count - 1;
    }
    this.ofRecords.find({ bytes, start: this.starts, length: this.lengths }, 0, count, this.foundOfRecords);
  }

  private findElements(bytes: Uint8Array, from: number, to: number): void {
    if (this.ofElements === undefined) return;
    const { element, starts, ends } = this.places as ElementPlaces;
    for (let row = from; row < to; row++) {
      const isElement = (element[row] as number) >= 0;
      this.starts[row - from] = isElement ? (starts[row] as number) : 0;
      this.lengths[row - from] = isElement ? (ends[row] as number) - (starts[row] as number) : -1;
    }
    const payloads = { bytes, start: this.starts, length: this.lengths };
    this.ofElements.find(payloads, 0, to - from, this.foundOfElements);
  }
}

/** Finder of the list itself in documents. */
export const openListFinder = (kernels: JsonKernels, list: FieldPath): JsonFinder =>
  kernels.openFinder([plainPath(list)]);
