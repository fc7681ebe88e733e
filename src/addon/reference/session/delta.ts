/** Encoding of the partial sessions of one batch, layout SessionDeltas; the addon's implementation
 *  is native/kernel/session/delta.cc. */
import { DELTA_STATUS, SESSION_DELTAS, SESSION_DELTAS_FORM } from '../../../core/layout/layouts.gen.ts';
import { EVENT_TS_LIMIT } from '../../../core/time.ts';
import { demandInteger } from '../check.ts';
import {
  CellReader,
  cellBytesMax,
  columnBytesMax,
  INTEGER_BYTES,
  MoreReader,
  PackedReader,
  putOneEvent,
  RowWriter,
} from '../packed.ts';
import type { RowCells } from '../window/cells.ts';
import { LAST } from '../window/table.ts';
import { putTime, START, timeAt } from './table.ts';

const COLUMNS = 8;
/** Upper bound of the distance of two event times. */
const REACH = 2 * EVENT_TS_LIMIT;

/** Upper bound of the bytes of an encoding. */
export const sessionDeltaBytesMax = (form: RowCells, rows: Int32Array, count: number): number =>
  SESSION_DELTAS.BYTES + COLUMNS * columnBytesMax(count) + cellBytesMax(form, rows, count) + INTEGER_BYTES;

/** Writes rows and returns the bytes. `out` has sessionDeltaBytesMax bytes.
 *  @throws out_of_range for more rows than the encoding allows */
export function encodeSessionDeltas(
  form: RowCells,
  rows: Int32Array,
  count: number,
  gapMs: number,
  out: Uint8Array,
): number {
  demandInteger(count, 0, SESSION_DELTAS_FORM.DELTAS_MAX, 'deltas');
  let least = count === 0 ? 0 : Number.POSITIVE_INFINITY;
  for (let at = 0; at < count * form.words; at += form.words)
    least = Math.min(least, timeAt(rows, at + START));
  const writer = new RowWriter(form, rows, count, out, SESSION_DELTAS.BYTES);
  writer.keys();
  writer.column(false, (at) => writer.putNumber(timeAt(rows, at + START) - least));
  writer.others();
  writer.leastValues();
  writer.column(true, (at) => writer.putNumber(timeAt(rows, at + LAST) - timeAt(rows, at + START)));
  writer.more();
  writer.cells();

  const view = new DataView(out.buffer, out.byteOffset, out.byteLength);
  view.setUint32(SESSION_DELTAS.MAGIC, SESSION_DELTAS_FORM.MAGIC, true);
  view.setUint32(SESSION_DELTAS.VERSION, SESSION_DELTAS_FORM.VERSION, true);
  view.setUint32(SESSION_DELTAS.LENGTH, writer.at, true);
  view.setUint32(SESSION_DELTAS.DELTA_COUNT, count, true);
  view.setBigInt64(SESSION_DELTAS.GAP_MS, BigInt(gapMs), true);
  view.setBigInt64(SESSION_DELTAS.LEAST_START, BigInt(least), true);
  return writer.at;
}

export interface DecodedSessions {
  /** DELTA_STATUS.*; the rows are valid only when it is OK. */
  readonly status: number;
  readonly rows: Int32Array;
}

const refused = (status: number): DecodedSessions => ({ status, rows: new Int32Array(0) });

export function decodeSessionDeltas(form: RowCells, bytes: Uint8Array, gapMs: number): DecodedSessions {
  if (bytes.length < SESSION_DELTAS.BYTES) return refused(DELTA_STATUS.BAD_HEAD);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const count = view.getUint32(SESSION_DELTAS.DELTA_COUNT, true);
  const least = Number(view.getBigInt64(SESSION_DELTAS.LEAST_START, true));
  if (
    view.getUint32(SESSION_DELTAS.MAGIC, true) !== SESSION_DELTAS_FORM.MAGIC ||
    view.getUint32(SESSION_DELTAS.VERSION, true) !== SESSION_DELTAS_FORM.VERSION ||
    view.getUint32(SESSION_DELTAS.LENGTH, true) !== bytes.length ||
    view.getBigInt64(SESSION_DELTAS.GAP_MS, true) !== BigInt(gapMs) ||
    count > SESSION_DELTAS_FORM.DELTAS_MAX ||
    !(least >= -EVENT_TS_LIMIT && least < EVENT_TS_LIMIT) ||
    (count === 0 && least !== 0)
  )
    return refused(DELTA_STATUS.BAD_HEAD);

  const cursor = { at: SESSION_DELTAS.BYTES };
  const open = (cells: number): PackedReader | undefined => PackedReader.open(bytes, cursor, cells);
  const accountId = open(count);
  const start = accountId && open(count);
  const others = start && open(count);
  const min = others && open(count);
  if (!accountId || !start || !others || !min) return refused(DELTA_STATUS.BAD_COLUMN);
  let more = 0;
  for (let i = 0; i < count; i++) if (others.lengthAt(i) > 0) more++;
  const last = open(more);
  const aggregates = last && MoreReader.open(bytes, cursor, more);
  const cells = aggregates && CellReader.open(form, bytes, cursor, count);
  if (!last || !aggregates || !cells || cursor.at !== bytes.length) return refused(DELTA_STATUS.BAD_COLUMN);

  const rows = new Int32Array(count * form.words);
  let hasLeast = count === 0;
  for (let at = 0; at < rows.length; at += form.words) {
    for (const column of [accountId, start, others, min]) column.next();
    min.unZigZag();
    const ahead = start.number;
    if (ahead >= REACH) return refused(DELTA_STATUS.BAD_DELTA);
    if (ahead === 0) hasLeast = true;
    const first = least + ahead;
    let end = first;
    putOneEvent(rows, at, accountId, min, first);
    putTime(rows, at + START, first);
    if (others.number > 0) {
      last.next();
      end += last.number;
      if (last.number >= REACH || !aggregates.complete(rows, at, others))
        return refused(DELTA_STATUS.BAD_DELTA);
      putTime(rows, at + LAST, end);
    }
    if (end >= EVENT_TS_LIMIT || !cells.next(rows, at)) return refused(DELTA_STATUS.BAD_DELTA);
  }
  return hasLeast ? { status: DELTA_STATUS.OK, rows } : refused(DELTA_STATUS.BAD_DELTA);
}
