/** Time of an event that is the timestamp of its record: `@timestamp`. */
import { EVENT_STATUS, TIMESTAMP_TYPE } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import { msOf } from './int64.ts';
import type { EventWords } from './words.ts';

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
