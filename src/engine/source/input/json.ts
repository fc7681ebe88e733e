/** Decoder of JSON records, with or without the frame of a registry. It reads the requested fields
 *  from the bytes: integers are exact to 64 bits, and no object is made. */
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { EVENT_STATUS, FRAME } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import { exactInteger } from '../../../formats/json/number.ts';
import { JSON_VALUE, JsonScanner } from '../../../formats/json/scan.ts';
import { isVariable } from '../../keys/type.ts';
import type { InputFields, Sign } from './definition.ts';
import { Int64, msOf } from './int64.ts';
import { isoMs } from './iso.ts';
import { JsonKey } from './key/json.ts';
import { readRecordKeys } from './key/records.ts';
import type { EventDecoder } from './port.ts';
import { readRecordTimes } from './record-fields.ts';
import { EventWords } from './words.ts';

const { MISSING, NULL, NUMBER, STRING, ESCAPED } = JSON_VALUE;

export class JsonDecoder implements EventDecoder {
  private readonly fields: InputFields;
  private readonly scanner: JsonScanner;
  /** Indexes of the fields in the scanner; -1: not a field of the value. */
  private readonly keyAt: readonly number[];
  /** Reader of keys that are no integers. */
  private readonly variable: JsonKey | undefined;
  private readonly timeAt: number;
  private readonly valueAt: number;
  private readonly whereAt: readonly number[];
  private readonly sign: Sign;
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
    const { key, time, value, where } = fields;
    const parts = key.from === 'fields' ? key.fields : [];
    this.sign = parts[0]?.kind === 'u64' ? 'u64' : 'i64';
    this.keyAt = parts.map(({ path }) => add(path));
    this.timeAt = add(time.from === 'field' ? time.path : undefined);
    this.valueAt = add(value);
    this.whereAt = (where?.fields ?? []).map(({ steps }) => add(steps as readonly string[]));
    this.scanner = new JsonScanner(paths);
    const kinds = parts.map(({ kind = 'i64' }) => ({ kind }));
    this.variable = isVariable(kinds) ? new JsonKey(this.scanner, this.keyAt, kinds) : undefined;
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
    const { key, time, value: valuePath } = this.fields;
    const keyFields = key.from === 'fields' ? key.fields : [];
    const named = [
      { flag: 'time', at: this.timeAt, path: time.from === 'field' ? time.path : [] },
      ...this.keyAt.map((at, i) => ({ flag: 'key', at, path: keyFields[i]?.path ?? [] })),
      { flag: 'value', at: this.valueAt, path: valuePath ?? [] },
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
    if (key.from === 'fields') {
      const fault =
        this.variable === undefined
          ? this.integer(this.keyAt[0] as number, this.sign, words.key, row, EVENT_STATUS.BAD_KEY)
          : this.variable.read(bytes, row, words.keys);
      if (fault !== EVENT_STATUS.OK) return fault;
    }
    if (this.valueAt < 0) return EVENT_STATUS.OK;
    return this.integer(this.valueAt, 'i64', words.value, row, EVENT_STATUS.BAD_VALUE);
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
