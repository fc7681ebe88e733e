/** Decodes 256 B events from record values into columns; the addon's implementation is
 *  native/kernel/event.cc. */
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { EVENT, EVENT_STATUS } from '../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { arenaOf, demandRows, rowsOf } from './check.ts';

/** Kernels.decodeEvents. A value that leaves the used arena is reported as one of a bad length. */
export function decodeEvents(records: RecordBatch, into: EventBatch): number {
  const rows = rowsOf(records, 'records');
  const arenaUsed = arenaOf(records, 'records');
  rowsOf(into, 'into');
  demandRows(into.rowCapacity, rows, 'into');
  const { valueStart, valueLength, arena } = records.columns;
  const bytes = new DataView(records.buffer, arena.byteOffset, arenaUsed);
  // 64-bit cells as two words each: a BigInt would allocate for every cell.
  const halves = (column: BigUint64Array | BigInt64Array): Int32Array =>
    new Int32Array(into.buffer, column.byteOffset, rows * 2);
  const accountId = halves(into.columns.accountId);
  const value = halves(into.columns.value);
  const eventTs = halves(into.columns.eventTs);
  const seq = halves(into.columns.seq);
  const { status } = into.columns;
  let decoded = 0;
  for (let row = 0; row < rows; row++) {
    const at = valueStart[row] as number;
    const length = valueLength[row] as number;
    const low = 2 * row;
    const high = low + 1;
    if (length === EVENT.BYTES && at + length <= arenaUsed) {
      accountId[low] = bytes.getInt32(at + EVENT.ACCOUNT_ID, true);
      accountId[high] = bytes.getInt32(at + EVENT.ACCOUNT_ID + 4, true);
      value[low] = bytes.getInt32(at + EVENT.VALUE, true);
      value[high] = bytes.getInt32(at + EVENT.VALUE + 4, true);
      eventTs[low] = bytes.getInt32(at + EVENT.EVENT_TS, true);
      eventTs[high] = bytes.getInt32(at + EVENT.EVENT_TS + 4, true);
      seq[low] = bytes.getInt32(at + EVENT.SEQ, true);
      seq[high] = bytes.getInt32(at + EVENT.SEQ + 4, true);
      status[row] = EVENT_STATUS.OK;
      decoded++;
    } else {
      for (const column of [accountId, value, eventTs, seq]) {
        column[low] = 0;
        column[high] = 0;
      }
      status[row] = length < 0 ? EVENT_STATUS.NULL : EVENT_STATUS.BAD_LENGTH;
    }
  }
  into.rowCount = rows;
  return decoded;
}
