/** Key ranges of a snapshot during ingestion: the range of a key, the rows of a table in a range,
 *  and the deltas that a restored range already contains. The addon's implementation is
 *  native/kernel/window/range.h. */
import { COVER_RANGES } from '../window-surface.ts';
import { demandInteger, demandRows } from './check.ts';
import type { RowCells } from './window/cells.ts';
import { KEY, type RangedRows, tableHash } from './window/table.ts';

const RANGE_SHIFT = 32 - Math.log2(COVER_RANGES);
/** A cursor is the number of a table times STEPS plus the number of slots behind the range's first
 *  slot. */
const STEPS = 2 ** 32;

const rangeAt = (rows: Int32Array, at: number): number =>
  tableHash(rows[at + KEY] as number, rows[at + KEY + 1] as number) >>> RANGE_SHIFT;

/** Copies the rows of a range from several tables, from the cursor on; returns their number. A slot
 *  is at the position that the high bits of its key's hash select, or behind it without an empty
 *  slot between.
 *  @throws out_of_range */
export function copyRange(
  form: RowCells,
  tables: readonly RangedRows[],
  range: number,
  cursor: Float64Array,
  out: Int32Array,
): number {
  demandInteger(range, 0, COVER_RANGES - 1, 'range');
  demandRows(cursor.length, 1, 'cursor');
  const place = Math.floor(cursor[0] as number);
  demandInteger(place, 0, 2 ** 53, 'cursor');
  let to = 0;
  let step = place % STEPS;
  let number = Math.floor(place / STEPS);
  for (; number < tables.length; number++, step = 0) {
    const table = tables[number] as RangedRows;
    const { rows, slotCount: count } = table;
    const first = Math.floor((range * count) / COVER_RANGES);
    const width = Math.max(1, count / COVER_RANGES);
    for (; step < count; step++) {
      const at = table.rowOf((first + step) % count);
      if (at < 0) {
        if (step >= width) break;
        continue;
      }
      if (rangeAt(rows, at) !== range) continue;
      if (to + form.words > out.length) {
        cursor[0] = number * STEPS + step;
        return to / form.words;
      }
      out.set(rows.subarray(at, at + form.words), to);
      to += form.words;
    }
  }
  cursor[0] = Math.max(number * STEPS, place);
  return to / form.words;
}

/** Checks the arguments of a cover. @throws out_of_range */
export function demandCover(seq: number, covered: Float64Array | undefined): void {
  demandInteger(seq, 0, 2 ** 53, 'seq');
  if (covered !== undefined) demandRows(covered.length, COVER_RANGES, 'covered');
}

/** Rows that a restored state does not contain yet: rows of ranges whose number in `covered` is
 *  below `seq`. */
export function uncovered(
  form: RowCells,
  rows: Int32Array,
  seq: number,
  covered: Float64Array | undefined,
): Int32Array {
  if (covered === undefined) return rows;
  const left = new Int32Array(rows.length);
  let to = 0;
  for (let at = 0; at < rows.length; at += form.words) {
    if (!(seq > (covered[rangeAt(rows, at)] as number))) continue;
    left.set(rows.subarray(at, at + form.words), to);
    to += form.words;
  }
  return left.subarray(0, to);
}
