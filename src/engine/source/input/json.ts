/** Decoder of JSON records, with or without the frame of a registry. It reads the requested fields
 *  from the bytes: integers are exact to 64 bits, and no object is made. */

import { Decimal } from '../../../core/decimal/exact.ts';
import { FoundFields, JSON_VALUE, type JsonFinder } from '../../../core/json/finder.ts';
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { EVENT_STATUS, FRAME } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { ValueColumns } from '../../../core/layout/value-columns.ts';
import { exactInteger } from '../../../formats/json/number.ts';
import { putIdentifier } from '../../aggregate/field-columns.ts';
import { IdHash } from '../../aggregate/id-hash.ts';
import { putPlaces, valuesOf } from '../../aggregate/values.ts';
import { EventIds, ID_BYTES_MAX, textId } from '../../dedup/ids.ts';
import { isVariable } from '../../keys/type.ts';
import { ListRows } from '../list/rows.ts';
import { DecimalReader } from './decimal/reader.ts';
import type { InputFields, Sign } from './definition.ts';
import { Int64, msOf } from './int64.ts';
import { isoMs } from './iso.ts';
import { JsonKey } from './key/json.ts';
import { readRecordKeys } from './key/records.ts';
import type { EventDecoder } from './port.ts';
import { readRecordTimes } from './record-fields.ts';
import { EventWords } from './words.ts';

const { MISSING, NULL, NUMBER, INTEGER, STRING, ESCAPED } = JSON_VALUE;
/** Documents that are searched at a time: few enough that their cells stay in the cache. */
const FOUND_ROWS = 1024;

export class JsonDecoder implements EventDecoder {
  private readonly fields: InputFields;
  private readonly finder: JsonFinder;
  private readonly found: FoundFields;
  /** Indexes of the fields in the finder; -1: not a field of the value. */
  private readonly keyAt: readonly number[];
  /** Reader of keys that are no integers. */
  private readonly variable: JsonKey | undefined;
  /** Range of an integer key. */
  private readonly sign: Sign;
  private readonly timeAt: number;
  private readonly valueAt: number;
  private readonly dedupAt: number;
  private readonly aggregatedAt: readonly number[];
  /** Readers of the aggregated decimals; undefined for other fields. */
  private readonly decimals: ReadonlyArray<DecimalReader | undefined>;
  /** Values of the present batch; undefined without aggregates. */
  private values: ValueColumns | undefined;
  private readonly whereAt: readonly number[];
  private readonly int64 = new Int64();
  private readonly ids = new IdHash();
  private bytes: Uint8Array = new Uint8Array(0);
  private starts = new Uint32Array(0);
  private lengths = new Int32Array(0);
  /** First cell of the current row. */
  private cell = 0;

  /** @param open opens the finder of the fields */
  constructor(fields: InputFields, open: (paths: ReadonlyArray<readonly string[]>) => JsonFinder) {
    this.fields = fields;
    const paths: (readonly string[])[] = [];
    // The finder finds a field once, however many settings name it.
    const add = (path: readonly string[] | undefined): number => {
      if (path === undefined) return -1;
      const known = paths.findIndex((one) => JSON.stringify(one) === JSON.stringify(path));
      return known >= 0 ? known : paths.push(path) - 1;
    };
    const { key, time, value, where, dedup, aggregates } = fields;
    const parts = key.from === 'fields' ? key.fields : [];
    this.sign = parts[0]?.kind === 'u64' ? 'u64' : 'i64';
    this.keyAt = parts.map(({ path }) => add(path));
    this.timeAt = add(time.from === 'field' ? time.path : undefined);
    this.valueAt = add(value);
    this.dedupAt = add(dedup);
    this.aggregatedAt = (aggregates?.fields ?? []).map(({ path }) => add(path));
    this.decimals = (aggregates?.fields ?? []).map(({ kind, scale = 0 }) =>
      kind === 'decimal' ? new DecimalReader(scale) : undefined,
    );
    this.whereAt = (where?.fields ?? []).map(({ steps }) => add(steps as readonly string[]));
    this.finder = open(paths);
    this.found = new FoundFields(paths.length, FOUND_ROWS);
    const kinds = parts.map(({ kind = 'i64' }) => ({ kind }));
    this.variable = isVariable(kinds) ? new JsonKey(this.found, this.keyAt, kinds) : undefined;
  }

  decode(records: RecordBatch, into: EventBatch): void {
    const words = EventWords.of(into);
    const { arena } = records.columns;
    const { rowCount } = records;
    const { key, time, aggregates, dedup, list } = this.fields;
    const lists = list && ListRows.of(records);
    words.reset(rowCount);
    this.bytes = arena;
    this.values = aggregates && valuesOf(into, aggregates.columns);
    this.values?.texts.clear();
    if (time.from === 'record') readRecordTimes(records, words);
    this.span(records, words);
    lists?.mark(words);
    const payloads = { bytes: arena, start: this.starts, length: this.lengths };
    for (let from = 0; from < rowCount; from += FOUND_ROWS) {
      const to = Math.min(rowCount, from + FOUND_ROWS);
      this.finder.find(payloads, from, to, this.found);
      this.read(from, to, words);
    }
    if (key.from === 'record' && key.form !== undefined) readRecordKeys(records, key.form, words);
    if (this.values !== undefined && aggregates?.needsPlace === true) putPlaces(records, this.values);
    if (list !== undefined) lists?.settle(words, dedup, list);
    words.clearInvalid();
  }

  /** Finds the document of each row behind the frame; a row without one gets its status. */
  private span({ columns, rowCount, rowCapacity }: RecordBatch, { status }: EventWords): void {
    const { valueStart, valueLength, arena } = columns;
    if (this.starts.length < rowCount) {
      this.starts = new Uint32Array(rowCapacity);
      this.lengths = new Int32Array(rowCapacity);
    }
    const { starts, lengths } = this;
    for (let row = 0; row < rowCount; row++) {
      let start = valueStart[row] as number;
      let length = valueLength[row] as number;
      if (length < 0) status[row] = EVENT_STATUS.NULL;
      // No JSON text begins with the byte 0.
      else if (length > 0 && arena[start] === FRAME.MAGIC) {
        start += FRAME.HEADER_BYTES;
        length -= FRAME.HEADER_BYTES;
        if (length < 0 && status[row] === EVENT_STATUS.OK) status[row] = EVENT_STATUS.TRUNCATED_FRAME;
      }
      starts[row] = start;
      lengths[row] = status[row] === EVENT_STATUS.OK ? length : -1;
    }
  }

  /** Reads the found fields of the rows from `from` to `to`. */
  private read(from: number, to: number, words: EventWords): void {
    const { status } = words;
    const { isDocument, fields } = this.found;
    for (let row = from; row < to; row++) {
      if (status[row] !== EVENT_STATUS.OK) continue;
      this.cell = (row - from) * fields;
      status[row] = isDocument[row - from] === 0 ? EVENT_STATUS.MALFORMED_PAYLOAD : this.row(row, words);
    }
  }

  describe(records: RecordBatch, row: number): string | undefined {
    const value = records.value(row);
    if (value === null || value.length === 0) return undefined;
    const element = this.fields.list && ListRows.of(records)?.element[row];
    if (element !== undefined && element < 0) return ListRows.of(records)?.faults.get(row);
    if (element === undefined) {
      const isFramed = value[0] === FRAME.MAGIC;
      const start = (records.columns.valueStart[row] as number) + (isFramed ? FRAME.HEADER_BYTES : 0);
      const end = (records.columns.valueStart[row] as number) + value.length;
      const span = { start: Uint32Array.of(start), length: Int32Array.of(end - start) };
      this.finder.find({ bytes: records.columns.arena, ...span }, 0, 1, this.found);
    } else {
      const payloads = { bytes: this.bytes, start: this.starts, length: this.lengths };
      this.finder.find(payloads, row, row + 1, this.found);
    }
    if (this.found.isDocument[0] === 0) return 'the value is not JSON';
    const { key, time, value: valuePath, dedup, aggregates, needsValues } = this.fields;
    const keyFields = key.from === 'fields' ? key.fields : [];
    const named = [
      { flag: 'time', at: this.timeAt, path: time.from === 'field' ? time.path : [] },
      ...this.keyAt.map((at, i) => ({ flag: 'key', at, path: keyFields[i]?.path ?? [] })),
      { flag: 'value', at: this.valueAt, path: valuePath ?? [] },
      { flag: 'dedup', at: this.dedupAt, path: dedup ?? [] },
      ...this.aggregatedAt.map((at, i) => ({
        flag: needsValues ? 'value' : 'aggregate',
        at,
        path: aggregates?.fields[i]?.path ?? [],
      })),
    ].filter(({ at }) => at >= 0);
    const shown = named.map(({ flag, at, path }) => {
      const kind = this.found.kind[at];
      const found = kind === MISSING ? 'is missing' : `is ${this.shown(at, records.columns.arena)}`;
      const unit =
        flag === 'time' &&
        (kind === NUMBER || kind === INTEGER) &&
        time.from === 'field' &&
        (time.unit ?? 'iso') === 'iso'
          ? `, a number without a unit: give -time=${path.join('.')}:ms, or s, us or ns`
          : '';
      return `${path.join('.')} ${found}${unit}`;
    });
    if (shown.length === 0) return undefined;
    return `${element === undefined ? '' : `element ${element}: `}${shown.join('; ')}`;
  }

  private shown(at: number, bytes: Uint8Array): string {
    const [start, end] = [this.found.start[at] as number, this.found.end[at] as number];
    return Buffer.from(bytes.subarray(start, Math.min(end, start + 60))).toString('utf8');
  }

  /** Reads the fields of a document into a row. @returns its status */
  private row(row: number, words: EventWords): number {
    const { key, where } = this.fields;
    if (this.timeAt >= 0) {
      const fault = this.time(row, words);
      if (fault !== EVENT_STATUS.OK) return fault;
    }
    if (where !== undefined && !where.matches(this.fieldOf)) return EVENT_STATUS.FILTERED;
    if (key.from === 'fields') {
      const fault =
        this.variable === undefined
          ? this.integer(this.keyAt[0] as number, this.sign, words.key, row, EVENT_STATUS.BAD_KEY)
          : this.variable.read(this.bytes, this.cell, row, words.keys);
      if (fault !== EVENT_STATUS.OK) return fault;
    }
    if (this.valueAt >= 0) {
      const fault = this.integer(this.valueAt, 'i64', words.value, row, EVENT_STATUS.BAD_VALUE);
      if (fault !== EVENT_STATUS.OK) return fault;
    }
    if (this.dedupAt >= 0) {
      const fault = this.identifier(row, EventIds.of(words.batch));
      if (fault !== EVENT_STATUS.OK) return fault;
    }
    return this.values === undefined ? EVENT_STATUS.OK : this.aggregated(row, this.values, words);
  }

  /** Reads the aggregated fields; a missing one is null. @returns the status of the row */
  private aggregated(row: number, values: ValueColumns, { value }: EventWords): number {
    const { cells, doubles, valid, capacity } = values;
    const { found, int64 } = this;
    for (const [i, { column, kind }] of (this.fields.aggregates?.fields ?? []).entries()) {
      const at = this.cell + (this.aggregatedAt[i] as number);
      const type = found.kind[at] as number;
      const cell = column * capacity + row;
      valid[cell] = 0;
      if (type === MISSING || type === NULL) {
        if (this.fields.needsValues) return EVENT_STATUS.MISSING_FIELD;
        continue;
      }
      const decimal = this.decimals[i];
      if (decimal !== undefined) {
        if (!this.decimal(at, decimal)) return EVENT_STATUS.BAD_VALUE;
        values.words[2 * cell] = decimal.low;
        values.words[2 * cell + 1] = decimal.high;
        valid[cell] = 1;
        if (!this.fields.needsValues) continue;
        value[2 * row] = decimal.low;
        value[2 * row + 1] = decimal.high;
        continue;
      }
      if (kind === 'id' || kind === 'text') {
        const text = this.identifierAt(at);
        if (text === undefined || !putIdentifier(values, cell, text, kind, this.ids))
          return EVENT_STATUS.BAD_VALUE;
        valid[cell] = 1;
        continue;
      }
      if (type !== NUMBER && type !== INTEGER) return EVENT_STATUS.BAD_VALUE;
      valid[cell] = 1;
      if (kind === 'double') doubles[cell] = Number(this.textAt(at, 'latin1'));
      else if (type === INTEGER) cells[cell] = int64Of(found.words, at * 2);
      else if (int64.parseJson(this.bytes, found.start[at] as number, found.end[at] as number, 'i64'))
        cells[cell] = (BigInt(int64.high) << 32n) | BigInt(int64.low >>> 0);
      else return EVENT_STATUS.BAD_VALUE;
    }
    return EVENT_STATUS.OK;
  }

  /** Reads a number or a string of digits. False: it is no decimal of the reader's scale. */
  private decimal(at: number, into: DecimalReader): boolean {
    const { found } = this;
    const [start, end] = [found.start[at] as number, found.end[at] as number];
    switch (found.kind[at]) {
      case INTEGER:
        return into.readInteger(found.words[at * 2] as number, found.words[at * 2 + 1] as number, 'i64');
      case NUMBER:
        return into.readText(this.bytes, start, end);
      case STRING:
        return into.readText(this.bytes, start + 1, end - 1);
      case ESCAPED: {
        const text = Buffer.from(String(JSON.parse(this.textAt(at, 'utf8'))), 'utf8');
        return into.readText(text, 0, text.length);
      }
      default:
        return false;
    }
  }

  private identifier(row: number, ids: EventIds): number {
    const at = this.cell + this.dedupAt;
    const kind = this.found.kind[at] as number;
    if (kind === MISSING || kind === NULL) return EVENT_STATUS.MISSING_FIELD;
    const text = this.identifierAt(at);
    if (text === undefined) return EVENT_STATUS.BAD_VALUE;
    ids.set(row, text);
    return EVENT_STATUS.OK;
  }

  /** Identifier in a cell of the found fields; undefined if it has none. */
  private identifierAt(at: number): string | undefined {
    const { found, int64 } = this;
    const kind = found.kind[at] as number;
    const [start, end] = [found.start[at] as number, found.end[at] as number];
    if (kind === NUMBER || kind === INTEGER) {
      const sign = (['i64', 'u64'] as const).find((one) => int64.parseJson(this.bytes, start, end, one));
      return sign && int64.identifier(sign);
    }
    if (kind !== STRING && kind !== ESCAPED) return undefined;
    const text =
      kind === STRING
        ? Buffer.from(this.bytes.buffer, this.bytes.byteOffset + start + 1, end - start - 2)
        : Buffer.from(String(JSON.parse(this.textAt(at, 'utf8'))), 'utf8');
    return text.length > ID_BYTES_MAX ? undefined : textId(text, 0, text.length);
  }

  private integer(field: number, sign: Sign, cells: Int32Array, row: number, fault: number): number {
    const { found, int64 } = this;
    const at = this.cell + field;
    const kind = found.kind[at] as number;
    if (kind === INTEGER) {
      const high = found.words[at * 2 + 1] as number;
      if (high < 0 && sign === 'u64') return fault;
      cells[row * 2] = found.words[at * 2] as number;
      cells[row * 2 + 1] = high;
      return EVENT_STATUS.OK;
    }
    if (kind === MISSING || kind === NULL) return EVENT_STATUS.MISSING_FIELD;
    const [start, end] = [found.start[at] as number, found.end[at] as number];
    if (kind !== NUMBER || !int64.parseJson(this.bytes, start, end, sign)) return fault;
    cells[row * 2] = int64.low;
    cells[row * 2 + 1] = int64.high;
    return EVENT_STATUS.OK;
  }

  private time(row: number, words: EventWords): number {
    const { found, int64, bytes } = this;
    const at = this.cell + this.timeAt;
    const kind = found.kind[at] as number;
    if (kind === MISSING || kind === NULL) return EVENT_STATUS.MISSING_FIELD;
    const [start, end] = [found.start[at] as number, found.end[at] as number];
    const { time } = this.fields;
    const unit = time.from === 'field' ? time.unit : undefined;
    if (unit === undefined || unit === 'iso') {
      if (kind !== STRING) return EVENT_STATUS.BAD_TIME;
      words.setTime(row, isoMs(bytes, start + 1, end - 1));
    } else if (kind === INTEGER) {
      words.setTime(row, msOf(found.words[at * 2] as number, found.words[at * 2 + 1] as number, unit));
    } else {
      if (kind !== NUMBER || !int64.parseJson(bytes, start, end, 'i64')) return EVENT_STATUS.BAD_TIME;
      words.setTime(row, msOf(int64.low, int64.high, unit));
    }
    return words.status[row] as number;
  }

  /** Value of a field of the filter. */
  private readonly fieldOf = (field: number): unknown => {
    const at = this.cell + (this.whereAt[field] as number);
    if (this.fields.where?.fields[field]?.isDecimal === true) return this.comparedDecimal(at);
    switch (this.found.kind[at]) {
      case NUMBER:
      case INTEGER:
        return numberOf(this.textAt(at, 'latin1'));
      case STRING:
        return this.textAt(at, 'utf8').slice(1, -1);
      case ESCAPED:
        return JSON.parse(this.textAt(at, 'utf8'));
      case JSON_VALUE.TRUE:
        return true;
      case JSON_VALUE.FALSE:
        return false;
      case JSON_VALUE.OBJECT:
      case JSON_VALUE.ARRAY:
        return COMPOSITE;
      default:
        return undefined;
    }
  };

  /** Decimal of a number or a string; COMPOSITE for another value, undefined for none. */
  private comparedDecimal(at: number): unknown {
    switch (this.found.kind[at]) {
      case NUMBER:
      case INTEGER:
        return Decimal.parse(this.textAt(at, 'latin1')) ?? COMPOSITE;
      case STRING:
        return Decimal.parse(this.textAt(at, 'latin1').slice(1, -1)) ?? COMPOSITE;
      case ESCAPED:
        return Decimal.parse(String(JSON.parse(this.textAt(at, 'utf8')))) ?? COMPOSITE;
      case MISSING:
      case NULL:
        return undefined;
      default:
        return COMPOSITE;
    }
  }

  private textAt(cell: number, encoding: BufferEncoding): string {
    const { start, end } = this.found;
    const { buffer, byteOffset } = this.bytes;
    const from = start[cell] as number;
    return Buffer.from(buffer, byteOffset + from, (end[cell] as number) - from).toString(encoding);
  }
}

const int64Of = (words: Int32Array, at: number): bigint =>
  (BigInt(words[at + 1] as number) << 32n) | BigInt((words[at] as number) >>> 0);

/** An object, a list, or a text that is no decimal: not null, and equal to nothing. */
const COMPOSITE: unknown = {};

/** Integers beyond 2^53 are exact. */
function numberOf(digits: string): number | bigint {
  const number = Number(digits);
  return Number.isInteger(number) && !Number.isSafeInteger(number)
    ? (exactInteger(digits) ?? number)
    : number;
}
