/** Decoder of JSON records, with or without the frame of a registry. It reads the requested fields
 *  from the bytes: integers are exact to 64 bits, and no object is made. */
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { EVENT_STATUS, FRAME } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import { exactInteger } from '../../../formats/json/number.ts';
import { JSON_VALUE, JsonScanner } from '../../../formats/json/scan.ts';
import type { InputFields, Sign } from './definition.ts';
import { EventIds, ID_BYTES_MAX, textId } from './ids.ts';
import { Int64, msOf } from './int64.ts';
import { isoMs } from './iso.ts';
import type { EventDecoder } from './port.ts';
import { readRecordKeys, readRecordTimes } from './record-fields.ts';
import { EventWords } from './words.ts';

const { MISSING, NULL, NUMBER, STRING, ESCAPED } = JSON_VALUE;

export class JsonDecoder implements EventDecoder {
  private readonly fields: InputFields;
  private readonly scanner: JsonScanner;
  /** Indexes of the fields in the scanner; -1: not a field of the value. */
  private readonly keyAt: number;
  private readonly timeAt: number;
  private readonly valueAt: number;
  private readonly dedupAt: number;
  private readonly whereAt: readonly number[];
  private readonly int64 = new Int64();
  private bytes: Uint8Array = new Uint8Array(0);

  constructor(fields: InputFields) {
    this.fields = fields;
    const paths: (readonly string[])[] = [];
    // The scanner finds a field once, however many settings name it.
    const add = (path: readonly string[] | undefined): number => {
      if (path === undefined) return -1;
      const known = paths.findIndex((one) => JSON.stringify(one) === JSON.stringify(path));
      return known >= 0 ? known : paths.push(path) - 1;
    };
    const { key, time, value, where, dedup } = fields;
    this.keyAt = add(key.from === 'field' ? key.path : undefined);
    this.timeAt = add(time.from === 'field' ? time.path : undefined);
    this.valueAt = add(value);
    this.dedupAt = add(dedup);
    this.whereAt = (where?.fields ?? []).map(({ steps }) => add(steps as readonly string[]));
    this.scanner = new JsonScanner(paths);
  }

  decode(records: RecordBatch, into: EventBatch): void {
    const words = EventWords.of(into);
    const { valueStart, valueLength, arena } = records.columns;
    const { status } = words;
    const { key, time } = this.fields;
    words.reset(records.rowCount);
    this.bytes = arena;
    if (time.from === 'record') readRecordTimes(records, words);
    for (let row = 0; row < records.rowCount; row++) {
      const length = valueLength[row] as number;
      if (length < 0) status[row] = EVENT_STATUS.NULL;
      else if (status[row] === EVENT_STATUS.OK) {
        const start = valueStart[row] as number;
        status[row] = this.row(start, start + length, row, words);
      }
    }
    if (key.from === 'record' && key.form !== undefined) readRecordKeys(records, key.form, words);
    words.clearInvalid();
  }

  describe(records: RecordBatch, row: number): string | undefined {
    const value = records.value(row);
    if (value === null || value.length === 0) return undefined;
    const isFramed = value[0] === FRAME.MAGIC;
    const start = (records.columns.valueStart[row] as number) + (isFramed ? FRAME.HEADER_BYTES : 0);
    const end = (records.columns.valueStart[row] as number) + value.length;
    if (!this.scanner.scan(records.columns.arena, start, end)) return 'the value is not JSON';
    const { key, time, value: valuePath, dedup } = this.fields;
    const named = [
      { flag: 'time', at: this.timeAt, path: time.from === 'field' ? time.path : [] },
      { flag: 'key', at: this.keyAt, path: key.from === 'field' ? key.path : [] },
      { flag: 'value', at: this.valueAt, path: valuePath ?? [] },
      { flag: 'dedup', at: this.dedupAt, path: dedup ?? [] },
    ].filter(({ at }) => at >= 0);
    const shown = named.map(({ flag, at, path }) => {
      const kind = this.scanner.kind[at];
      const found = kind === MISSING ? 'is missing' : `is ${this.shown(at, records.columns.arena)}`;
      const unit =
        flag === 'time' && kind === NUMBER && time.from === 'field' && (time.unit ?? 'iso') === 'iso'
          ? `, a number without a unit: give -time=${path.join('.')}:ms, or s, us or ns`
          : '';
      return `${path.join('.')} ${found}${unit}`;
    });
    return shown.length === 0 ? undefined : shown.join('; ');
  }

  private shown(at: number, bytes: Uint8Array): string {
    const [start, end] = [this.scanner.start[at] as number, this.scanner.end[at] as number];
    return Buffer.from(bytes.subarray(start, Math.min(end, start + 60))).toString('utf8');
  }

  /** Reads a value into a row. @returns its status */
  private row(from: number, to: number, row: number, words: EventWords): number {
    const { bytes, scanner } = this;
    let start = from;
    // No JSON text begins with the byte 0.
    if (bytes[from] === FRAME.MAGIC && from < to) {
      if (to - from < FRAME.HEADER_BYTES) return EVENT_STATUS.TRUNCATED_FRAME;
      start += FRAME.HEADER_BYTES;
    }
    if (!scanner.scan(bytes, start, to)) return EVENT_STATUS.MALFORMED_PAYLOAD;
    if (this.timeAt >= 0) {
      const fault = this.time(row, words);
      if (fault !== EVENT_STATUS.OK) return fault;
    }
    const { where } = this.fields;
    if (where !== undefined && !where.matches(this.fieldOf)) return EVENT_STATUS.FILTERED;
    const { key } = this.fields;
    if (this.keyAt >= 0) {
      const sign: Sign = (key.from === 'field' ? key.sign : undefined) ?? 'i64';
      const fault = this.integer(this.keyAt, sign, words.key, row, EVENT_STATUS.BAD_KEY);
      if (fault !== EVENT_STATUS.OK) return fault;
    }
    if (this.valueAt >= 0) {
      const fault = this.integer(this.valueAt, 'i64', words.value, row, EVENT_STATUS.BAD_VALUE);
      if (fault !== EVENT_STATUS.OK) return fault;
    }
    return this.dedupAt < 0 ? EVENT_STATUS.OK : this.identifier(row, EventIds.of(words.batch));
  }

  private identifier(row: number, ids: EventIds): number {
    const { scanner, dedupAt: at, int64 } = this;
    const kind = scanner.kind[at] as number;
    if (kind === MISSING || kind === NULL) return EVENT_STATUS.MISSING_FIELD;
    const [start, end] = [scanner.start[at] as number, scanner.end[at] as number];
    if (kind === NUMBER) {
      const sign = (['i64', 'u64'] as const).find((one) => int64.parseJson(this.bytes, start, end, one));
      if (sign === undefined) return EVENT_STATUS.BAD_VALUE;
      ids.set(row, int64.identifier(sign));
      return EVENT_STATUS.OK;
    }
    if (kind !== STRING && kind !== ESCAPED) return EVENT_STATUS.BAD_VALUE;
    const text =
      kind === STRING
        ? Buffer.from(this.bytes.buffer, this.bytes.byteOffset + start + 1, end - start - 2)
        : Buffer.from(scanner.text(at), 'utf8');
    if (text.length > ID_BYTES_MAX) return EVENT_STATUS.BAD_VALUE;
    ids.set(row, textId(text, 0, text.length));
    return EVENT_STATUS.OK;
  }

  private integer(field: number, sign: Sign, cells: Int32Array, row: number, fault: number): number {
    const { scanner, int64 } = this;
    const kind = scanner.kind[field] as number;
    if (kind === MISSING || kind === NULL) return EVENT_STATUS.MISSING_FIELD;
    const [start, end] = [scanner.start[field] as number, scanner.end[field] as number];
    if (kind !== NUMBER || !int64.parseJson(this.bytes, start, end, sign)) return fault;
    cells[row * 2] = int64.low;
    cells[row * 2 + 1] = int64.high;
    return EVENT_STATUS.OK;
  }

  private time(row: number, words: EventWords): number {
    const { scanner, timeAt, int64, bytes } = this;
    const kind = scanner.kind[timeAt] as number;
    if (kind === MISSING || kind === NULL) return EVENT_STATUS.MISSING_FIELD;
    const [start, end] = [scanner.start[timeAt] as number, scanner.end[timeAt] as number];
    const { time } = this.fields;
    const unit = time.from === 'field' ? time.unit : undefined;
    if (unit === undefined || unit === 'iso') {
      if (kind !== STRING) return EVENT_STATUS.BAD_TIME;
      words.setTime(row, isoMs(bytes, start + 1, end - 1));
    } else {
      if (kind !== NUMBER || !int64.parseJson(bytes, start, end, 'i64')) return EVENT_STATUS.BAD_TIME;
      words.setTime(row, msOf(int64.low, int64.high, unit));
    }
    return words.status[row] as number;
  }

  /** Value of a field of the filter. */
  private readonly fieldOf = (field: number): unknown => {
    const { scanner } = this;
    const at = this.whereAt[field] as number;
    switch (scanner.kind[at]) {
      case NUMBER:
        return numberOf(this.textAt(at));
      case STRING:
      case ESCAPED:
        return scanner.text(at);
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

  private textAt(field: number): string {
    const { start, end } = this.scanner;
    return Buffer.from(this.bytes.subarray(start[field], end[field])).toString('latin1');
  }
}

/** An object or a list: not null, and equal to nothing. */
const COMPOSITE: unknown = {};

/** Integers beyond 2^53 are exact. */
function numberOf(digits: string): number | bigint {
  const number = Number(digits);
  return Number.isInteger(number) && !Number.isSafeInteger(number)
    ? (exactInteger(digits) ?? number)
    : number;
}
