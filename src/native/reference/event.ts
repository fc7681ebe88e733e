/** Decodes 256 B events from record values into columns; the addon's twin is native/kernel/event.cc. */
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { EVENT, EVENT_STATUS } from '../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { arenaOf, demandRows, rowsOf } from './check.ts';

/** As in Kernels. A value that leaves the arena in use counts as one of a bad length. */
export function decodeEvents(records: RecordBatch, into: EventBatch): number {
  const rows = rowsOf(records, 'records');
  const arenaUsed = arenaOf(records, 'records');
  rowsOf(into, 'into');
  demandRows(into.rowCapacity, rows, 'into');
  const { valueStart, valueLength, arena } = records.columns;
  const bytes = new DataView(records.buffer, arena.byteOffset, arenaUsed);
  const { accountId, value, eventTs, seq, status } = into.columns;
  let decoded = 0;
  for (let row = 0; row < rows; row++) {
    const at = valueStart[row] as number;
    const length = valueLength[row] as number;
    if (length === EVENT.BYTES && at + length <= arenaUsed) {
      accountId[row] = bytes.getBigUint64(at + EVENT.ACCOUNT_ID, true);
      value[row] = bytes.getBigInt64(at + EVENT.VALUE, true);
      eventTs[row] = bytes.getBigInt64(at + EVENT.EVENT_TS, true);
      seq[row] = bytes.getBigUint64(at + EVENT.SEQ, true);
      status[row] = EVENT_STATUS.OK;
      decoded++;
    } else {
      accountId[row] = 0n;
      value[row] = 0n;
      eventTs[row] = 0n;
      seq[row] = 0n;
      status[row] = length < 0 ? EVENT_STATUS.NULL : EVENT_STATUS.BAD_LENGTH;
    }
  }
  into.rowCount = rows;
  return decoded;
}
