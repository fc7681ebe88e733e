/** Judges the format of a topic by its first records. */

import { JsonScanner } from '../../../core/json/scan.ts';
import { EVENT, FRAME } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';

/** Number of first records by which an input is judged. */
export const JUDGED_RECORDS = 1000;

const scanner = new JsonScanner([]);
const OPEN_OBJECT = 0x7b;
const SPACES: readonly number[] = [0x20, 0x09, 0x0a, 0x0d];

/** Bytes of a frame with an id that a registry may assign, and a payload. */
export const isFrame = (value: Uint8Array): boolean =>
  value.length > FRAME.HEADER_BYTES &&
  value[0] === FRAME.MAGIC &&
  new DataView(value.buffer, value.byteOffset).getInt32(1, false) > 0;

function isJsonObject(value: Uint8Array): boolean {
  const first = value.find((byte) => !SPACES.includes(byte));
  return first === OPEN_OBJECT && scanner.scan(value, 0, value.length);
}

/** Form of most of the first records: frames, else JSON objects, else the fixed layout. A value of
 *  the fixed layout may begin as a frame does, so frames must outnumber the values of its length
 *  where no registry is given. Undefined: every record is null.
 *  @param hasRegistry true if a registry is given */
export function judgedForm(
  records: RecordBatch,
  hasRegistry: boolean,
): 'framed' | 'json' | 'binary256' | undefined {
  let [framed, json, fixed, values] = [0, 0, 0, 0];
  for (let row = 0; row < Math.min(records.rowCount, JUDGED_RECORDS); row++) {
    const value = records.value(row);
    if (value === null) continue;
    values++;
    if (isFrame(value)) framed++;
    if (isJsonObject(value)) json++;
    else if (value.length === EVENT.BYTES) fixed++;
  }
  if (values === 0) return undefined;
  if (framed > json && (hasRegistry ? framed >= fixed : framed > fixed)) return 'framed';
  return json > 0 && json >= fixed ? 'json' : 'binary256';
}
