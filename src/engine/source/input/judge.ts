/** Judges the format of a topic by its first records. */

import { FoundFields, type JsonKernels } from '../../../core/json/finder.ts';
import { EVENT, FRAME } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';

/** Number of first records by which an input is judged. */
export const JUDGED_RECORDS = 1000;

const OPEN_OBJECT = 0x7b;
const SPACES: readonly number[] = [0x20, 0x09, 0x0a, 0x0d];

/** Bytes of a frame with an id that a registry may assign, and a payload. */
export const isFrame = (value: Uint8Array): boolean =>
  value.length > FRAME.HEADER_BYTES &&
  value[0] === FRAME.MAGIC &&
  new DataView(value.buffer, value.byteOffset).getInt32(1, false) > 0;

/** Marks the first records whose value is a JSON object. */
function jsonObjects(kernels: JsonKernels, records: RecordBatch, rows: number): Uint8Array {
  const { arena, valueStart, valueLength } = records.columns;
  const found = new FoundFields(0, rows);
  const finder = kernels.openFinder([]);
  finder.find({ bytes: arena, start: valueStart, length: valueLength }, 0, rows, found);
  finder.close();
  for (let row = 0; row < rows; row++) {
    const first = records.value(row)?.find((byte) => !SPACES.includes(byte));
    if (first !== OPEN_OBJECT) found.isDocument[row] = 0;
  }
  return found.isDocument;
}

/** Form of most of the first records: frames, else JSON objects, else the fixed layout. A value of
 *  the fixed layout may begin as a frame does, so frames must outnumber the values of its length
 *  where no registry is given. Undefined: every record is null.
 *  @param hasRegistry true if a registry is given */
export function judgedForm(
  kernels: JsonKernels,
  records: RecordBatch,
  hasRegistry: boolean,
): 'framed' | 'json' | 'binary256' | undefined {
  let [framed, json, fixed, values] = [0, 0, 0, 0];
  const rows = Math.min(records.rowCount, JUDGED_RECORDS);
  const objects = jsonObjects(kernels, records, rows);
  for (let row = 0; row < rows; row++) {
    const value = records.value(row);
    if (value === null) continue;
    values++;
    if (isFrame(value)) framed++;
    if (objects[row] === 1) json++;
    else if (value.length === EVENT.BYTES) fixed++;
  }
  if (values === 0) return undefined;
  if (framed > json && (hasRegistry ? framed >= fixed : framed > fixed)) return 'framed';
  return json > 0 && json >= fixed ? 'json' : 'binary256';
}
