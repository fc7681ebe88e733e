/** Key and time of an event that are those of its record: `@key` and `@timestamp`. */
import { EVENT_STATUS, TIMESTAMP_TYPE } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import { RECORD_KEY_FORMS, type RecordKeyForm } from './definition.ts';
import { Int64, msOf } from './int64.ts';
import type { EventWords } from './words.ts';

/** Bytes of the binary forms of a key. */
const FORM_BYTES: Readonly<Partial<Record<RecordKeyForm, number>>> = { long: 8, int: 4 };

const int64 = new Int64();

/** Reads the key of a record into `int64`. False: the key does not have the form. */
function readKey(records: RecordBatch, row: number, form: RecordKeyForm): boolean {
  const { keyStart, keyLength, arena } = records.columns;
  const at = keyStart[row] as number;
  const length = keyLength[row] as number;
  if (form === 'text') return int64.parse(arena, at, at + Math.max(0, length), 'i64');
  if (length !== FORM_BYTES[form]) return false;
  const first = word(arena, at);
  int64.low = form === 'long' ? word(arena, at + 4) : first;
  int64.high = form === 'long' ? first : first >> 31;
  return true;
}

/** Word of four bytes, big-endian. */
const word = (bytes: Uint8Array, at: number): number =>
  ((bytes[at] as number) << 24) |
  ((bytes[at + 1] as number) << 16) |
  ((bytes[at + 2] as number) << 8) |
  (bytes[at + 3] as number);

/** Sets the keys of the rows with status OK. A record without a key lacks the field. */
export function readRecordKeys(records: RecordBatch, form: RecordKeyForm, into: EventWords): void {
  const { keyLength } = records.columns;
  for (let row = 0; row < records.rowCount; row++) {
    if (into.status[row] !== EVENT_STATUS.OK) continue;
    if ((keyLength[row] as number) < 0) into.status[row] = EVENT_STATUS.MISSING_FIELD;
    else if (!readKey(records, row, form)) into.status[row] = EVENT_STATUS.BAD_KEY;
    else {
      into.key[row * 2] = int64.low;
      into.key[row * 2 + 1] = int64.high;
    }
  }
}

/** Sets the times of the rows with status OK to the timestamps of their records. */
export function readRecordTimes(records: RecordBatch, into: EventWords): void {
  const { timestamp, timestampType } = records.columns;
  const words = new Int32Array(records.buffer, timestamp.byteOffset, records.rowCount * 2);
  for (let row = 0; row < records.rowCount; row++) {
    if (into.status[row] !== EVENT_STATUS.OK) continue;
    if (timestampType[row] === TIMESTAMP_TYPE.NONE) into.status[row] = EVENT_STATUS.MISSING_FIELD;
    else into.setTime(row, msOf(words[row * 2] as number, words[row * 2 + 1] as number, 'ms'));
  }
}

/** Form that the keys of the first records have in common. A key of 8 digits is read as text.
 *  Undefined: they are no integers, or there are none. */
export function keyFormOf(records: RecordBatch, rows: number): RecordKeyForm | undefined {
  const { keyLength } = records.columns;
  const keyed = Array.from({ length: rows }, (_, row) => row).filter(
    (row) => (keyLength[row] as number) >= 0,
  );
  if (keyed.length === 0) return undefined;
  const forms = [...RECORD_KEY_FORMS].sort((a, b) => Number(b === 'text') - Number(a === 'text'));
  return forms.find((form) => keyed.every((row) => readKey(records, row, form)));
}
