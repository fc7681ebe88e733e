/** Key of an event that is the key of its record: `@key`. */
import { isUtf8 } from 'node:buffer';
import { EVENT_STATUS } from '../../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../core/layout/record-batch.ts';
import type { KeySpans } from '../../../keys/spans.ts';
import type { RecordKeyForm } from '../definition.ts';
import { Int64 } from '../int64.ts';
import type { EventWords } from '../words.ts';

type IntegerForm = Extract<RecordKeyForm, 'long' | 'int' | 'text'>;

/** Forms in the order in which the first keys are tried: texts first, because the big-endian
 *  integers of 4 or 8 bytes in practice have a byte that no printable text has. */
const JUDGED_FORMS = ['text', 'string', 'long', 'int'] as const;

/** Bytes of the binary forms of a key. */
const FORM_BYTES: Readonly<Partial<Record<RecordKeyForm, number>>> = { long: 8, int: 4 };
const SPACE = 0x20;
const DELETE = 0x7f;

const int64 = new Int64();

/** Reads the key of a record into `int64`. False: the key does not have the form. */
function readInteger(records: RecordBatch, row: number, form: IntegerForm): boolean {
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

/** Appends the key of a record that is no integer. False: the key does not have the form. */
function readSpan(
  { columns: { arena } }: RecordBatch,
  at: number,
  to: number,
  form: Exclude<RecordKeyForm, IntegerForm>,
  into: KeySpans,
): boolean {
  if (form === 'uuid') return into.putUuid(arena, at, to);
  if (form === 'bytes') return into.put(arena, at, to);
  return into.putText(arena, at, to) && (isAscii(arena, at, to) || isUtf8(arena.subarray(at, to)));
}

function isAscii(bytes: Uint8Array, from: number, to: number): boolean {
  let bits = 0;
  for (let at = from; at < to; at++) bits |= bytes[at] as number;
  return bits < 0x80;
}

/** Sets the keys of the rows with status OK. A record without a key lacks the field. */
export function readRecordKeys(records: RecordBatch, form: RecordKeyForm, into: EventWords): void {
  const { keyStart, keyLength } = records.columns;
  const { status } = into;
  const isInteger = form === 'text' || form === 'long' || form === 'int';
  for (let row = 0; row < records.rowCount; row++) {
    if (status[row] !== EVENT_STATUS.OK) continue;
    const length = keyLength[row] as number;
    if (length < 0) status[row] = EVENT_STATUS.MISSING_FIELD;
    else if (!isInteger) {
      const at = keyStart[row] as number;
      into.keys.begin();
      if (readSpan(records, at, at + length, form, into.keys)) into.keys.end(row);
      else status[row] = EVENT_STATUS.BAD_KEY;
    } else if (!readInteger(records, row, form)) status[row] = EVENT_STATUS.BAD_KEY;
    else {
      into.key[row * 2] = int64.low;
      into.key[row * 2 + 1] = int64.high;
    }
  }
}

/** Form that the keys of the first records have in common. A key of 8 digits is read as text.
 *  Undefined: they are neither integers nor texts, or there are none. */
export function keyFormOf(records: RecordBatch, rows: number): RecordKeyForm | undefined {
  const { keyLength } = records.columns;
  const keyed = Array.from({ length: rows }, (_, row) => row).filter(
    (row) => (keyLength[row] as number) >= 0,
  );
  if (keyed.length === 0) return undefined;
  return JUDGED_FORMS.find((form) =>
    keyed.every((row) =>
      form === 'string' ? isPrintable(records.key(row) as Uint8Array) : readInteger(records, row, form),
    ),
  );
}

const isPrintable = (key: Uint8Array): boolean =>
  isUtf8(key) && key.every((byte) => byte >= SPACE && byte !== DELETE);
