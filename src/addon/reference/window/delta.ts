/** Encoding of the deltas of one batch, layout WindowDeltas; the addon's implementation is
 *  native/kernel/window/delta.cc. */
import { DELTA_STATUS, WINDOW_DELTAS, WINDOW_DELTAS_FORM } from '../../../core/layout/layouts.gen.ts';
import { DURATION_MS_MAX, EVENT_TS_LIMIT, fromWords } from '../../../core/time.ts';
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
import type { RowCells } from './cells.ts';
import { LAST, SPARE } from './table.ts';

const COLUMNS = 8;
/** Starts of slices are in [-SLICE_LIMIT, SLICE_LIMIT]. */
export const SLICE_LIMIT = EVENT_TS_LIMIT + DURATION_MS_MAX;

/** Upper bound of the bytes of an encoding. */
export function deltaBytesMax(form: RowCells, rows: Int32Array, deltas: number, slices: number): number {
  const cells = cellBytesMax(form, rows, deltas);
  return WINDOW_DELTAS.BYTES + slices * 8 + COLUMNS * columnBytesMax(deltas) + cells + INTEGER_BYTES;
}

/** Writes rows, whose spare field is the number of their slice, and returns the bytes. `out` has
 *  deltaBytesMax bytes. */
export function encodeDeltas(
  form: RowCells,
  rows: Int32Array,
  count: number,
  slices: readonly number[],
  sliceMs: number,
  out: Uint8Array,
): number {
  const words = new DataView(out.buffer, out.byteOffset, out.byteLength);
  slices.forEach((start, i) => {
    words.setBigInt64(WINDOW_DELTAS.BYTES + i * 8, BigInt(start), true);
  });
  const writer = new RowWriter(form, rows, count, out, WINDOW_DELTAS.BYTES + slices.length * 8);
  writer.keys();
  writer.column(false, (at) => writer.put(at + SPARE));
  writer.others();
  writer.leastValues();
  writer.column(false, (at) => {
    const last = fromWords(rows[at + LAST] as number, rows[at + LAST + 1] as number);
    writer.putNumber(last - (slices[rows[at + SPARE] as number] as number));
  });
  writer.more();
  writer.cells();

  words.setUint32(WINDOW_DELTAS.MAGIC, WINDOW_DELTAS_FORM.MAGIC, true);
  words.setUint32(WINDOW_DELTAS.VERSION, WINDOW_DELTAS_FORM.VERSION, true);
  words.setUint32(WINDOW_DELTAS.LENGTH, writer.at, true);
  words.setUint32(WINDOW_DELTAS.DELTA_COUNT, count, true);
  words.setUint32(WINDOW_DELTAS.SLICE_COUNT, slices.length, true);
  words.setUint32(WINDOW_DELTAS.SPARE, 0, true);
  words.setBigInt64(WINDOW_DELTAS.SLICE_MS, BigInt(sliceMs), true);
  return writer.at;
}

export interface DecodedDeltas {
  /** DELTA_STATUS.*; the other fields are valid only when it is OK. */
  readonly status: number;
  readonly slices: readonly number[];
  readonly rows: Int32Array;
}

const refused = (status: number): DecodedDeltas => ({ status, slices: [], rows: new Int32Array(0) });

export function decodeDeltas(form: RowCells, bytes: Uint8Array, sliceMs: number): DecodedDeltas {
  if (bytes.length < WINDOW_DELTAS.BYTES) return refused(DELTA_STATUS.BAD_HEAD);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const count = view.getUint32(WINDOW_DELTAS.DELTA_COUNT, true);
  const sliceCount = view.getUint32(WINDOW_DELTAS.SLICE_COUNT, true);
  if (
    view.getUint32(WINDOW_DELTAS.MAGIC, true) !== WINDOW_DELTAS_FORM.MAGIC ||
    view.getUint32(WINDOW_DELTAS.VERSION, true) !== WINDOW_DELTAS_FORM.VERSION ||
    view.getUint32(WINDOW_DELTAS.LENGTH, true) !== bytes.length ||
    view.getUint32(WINDOW_DELTAS.SPARE, true) !== 0 ||
    view.getBigInt64(WINDOW_DELTAS.SLICE_MS, true) !== BigInt(sliceMs) ||
    count > WINDOW_DELTAS_FORM.DELTAS_MAX ||
    sliceCount > count ||
    sliceCount > Math.floor((bytes.length - WINDOW_DELTAS.BYTES) / 8)
  )
    return refused(DELTA_STATUS.BAD_HEAD);
  const slices: number[] = [];
  for (let i = 0; i < sliceCount; i++) {
    const start = view.getBigInt64(WINDOW_DELTAS.BYTES + i * 8, true);
    const limit = BigInt(SLICE_LIMIT);
    if (start < -limit || start > limit || start % BigInt(sliceMs) !== 0n)
      return refused(DELTA_STATUS.BAD_SLICE);
    slices.push(Number(start));
  }
  if (new Set(slices).size !== sliceCount) return refused(DELTA_STATUS.BAD_SLICE);

  const cursor = { at: WINDOW_DELTAS.BYTES + sliceCount * 8 };
  const open = (cells: number): PackedReader | undefined => PackedReader.open(bytes, cursor, cells);
  const accountId = open(count);
  const number = accountId && open(count);
  const others = number && open(count);
  const min = others && open(count);
  const last = min && open(count);
  if (!accountId || !number || !others || !min || !last) return refused(DELTA_STATUS.BAD_COLUMN);
  let more = 0;
  for (let i = 0; i < count; i++) if (others.lengthAt(i) > 0) more++;
  const aggregates = MoreReader.open(bytes, cursor, more);
  const cells = aggregates && CellReader.open(form, bytes, cursor, count);
  if (!aggregates || !cells || cursor.at !== bytes.length) return refused(DELTA_STATUS.BAD_COLUMN);

  const rows = new Int32Array(count * form.words);
  const used = new Set<number>();
  for (let at = 0; at < rows.length; at += form.words) {
    for (const column of [number, others, last, min, accountId]) column.next();
    const slice = number.number;
    const ahead = last.number;
    if (slice >= sliceCount || ahead >= sliceMs) return refused(DELTA_STATUS.BAD_DELTA);
    used.add(slice);
    min.unZigZag();
    putOneEvent(rows, at, accountId, min, (slices[slice] as number) + ahead);
    rows[at + SPARE] = slice;
    if (others.number > 0 && !aggregates.complete(rows, at, others)) return refused(DELTA_STATUS.BAD_DELTA);
    if (!cells.next(rows, at)) return refused(DELTA_STATUS.BAD_DELTA);
  }
  if (used.size !== sliceCount) return refused(DELTA_STATUS.BAD_SLICE);
  return { status: DELTA_STATUS.OK, slices, rows };
}
