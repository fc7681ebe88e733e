/** Codec of the bodies of changelog records. All numbers are little-endian. A record has absolute
 *  positions of partitions and clock, so the last record that lists a partition is decisive.
 *  `frontier` is the least watermark of the partitions, less the lateness.
 *
 *  BATCH   rows that admission accepted up to a firing or the end of a batch
 *  IDLE    a partition no longer holds the frontier back
 *  ADDED   partitions were added to the topic
 *      0 form u32 | 4 partitions known u32 | 8 partitions listed u32 | 12 arrivals u32
 *     16 frontier f64 | 24 max seen f64
 *     32 listed partitions, ascending, 80 bytes each: number u32 | zero u32 | then f64 each: next
 *        offset, max seen, consumed, accepted, dropped late, dropped after idle, invalid, future
 *        clamped, idle
 *     .. arrivals, 8 bytes each: partition u32 | rows u32: the order of the rows, only if all
 *        partitions share one watermark (-watermark=global)
 *     .. deltas of the batch as the kernels encode them, to the end
 *  REFUSED_BATCH  as BATCH, with copies of the refused rows for the side outputs and the
 *     identifiers that the batch added (sections.ts) before the deltas
 *  LATE_BATCH  as BATCH, with copies for the late topic before the deltas; an old form
 *      0 bytes u32, these 8 included | 4 copies u32 | 8 copies (late/rows.ts)
 *  SENT   a side output has acknowledged the copies in all records up to the number
 *      0 form u32 | 4 side output u32 (SECTION_NUMBER) | 8 number f64
 *  IDS   identifiers of open windows, some of a copy of all (-dedup)
 *      0 form u32 | 4 identifiers u32 | 8 identifiers (dedup/filter.ts)
 *  KEYS    ids of variable-length keys (keys/journal.ts), before the first row that uses them
 *  CHANGED  from here on rows have the form of another job: a restart needs a checkpoint that names
 *     this record
 *      0 form u32 | 4 zero u32
 *  FIRED   every window that ends at or before the frontier is durable in the sink
 *      0 form u32 | 4 zero u32 | 8 frontier f64
 *  DETACHED  the rows of a part that are in memory are detached, to become a piece on disk
 *      0 form u32 | 4 zero u32 | 8 piece u64 | 16 part f64
 *  SPILLED   the piece is durable and has the rows
 *      0 form u32 | 4 crc32 of the rows u32 | 8 piece u64 | 16 part f64 | 24 rows u64
 *  SWEPT  rows of the swept pieces that ended by the frontier are durable in the sink; the other
 *     rows are in the remaining pieces
 *      0 form u32 | 4 swept pieces u32 | 8 remaining pieces u32 | 12 zero u32 | 16 frontier f64
 *     24 greatest id that was reserved for them u64
 *     32 ids of the swept pieces u64, then for each remaining piece: id u64 | rows u64 | crc32 of
 *        the rows u32 | zero u32 */
import { WINDOW_CLOCK } from '../../../core/layout/layouts.gen.ts';
import { createProgress, PROGRESS_CELLS } from '../../../core/layout/window-clock.ts';
import { decodeIds, type SavedId } from '../../dedup/filter.ts';
import { decodeKeys, type KeyEntries } from '../../keys/journal.ts';
import { decodeLateEvents } from '../../output/late/events.ts';
import { decodeLate } from '../../output/late/rows.ts';
import { decodeQuarantine } from '../../output/quarantine/rows.ts';
import {
  decodeSections,
  SECTION_NUMBER,
  SECTIONS,
  type SectionName,
  type Sections,
  SIDES,
  type SideBytes,
  type SideName,
  viewOf,
} from '../../output/side/sections.ts';
import type { SweepEntry } from '../checkpoint/ledger.ts';
import type { PieceEntry } from '../spill/pieces.ts';
import { cellsFault, isTime, PARTITIONS_MAX, SAVED_CELLS } from './cells.ts';

export const RECORD = {
  BATCH: 1,
  IDLE: 2,
  ADDED: 3,
  FIRED: 4,
  DETACHED: 5,
  SPILLED: 6,
  SWEPT: 7,
  LATE_BATCH: 8,
  SENT: 9,
  KEYS: 10,
  REFUSED_BATCH: 11,
  IDS: 12,
  CHANGED: 13,
} as const;

const FORM = 1;
const SWEPT_FORM = 2;
const HEAD_BYTES = 32;
const PARTITION_BYTES = 8 + SAVED_CELLS.length * 8;
const ARRIVAL_BYTES = 8;
const FIRED_BYTES = 16;
const DETACHED_BYTES = 24;
const SPILLED_BYTES = 32;
const SWEPT_BYTES = 32;
const LEFT_BYTES = 24;
const SENT_BYTES = 16;
const LATE_HEAD_BYTES = 8;
const IDS_HEAD_BYTES = 8;
const CHANGED_BYTES = 8;
const IDLE_CELL = SAVED_CELLS[8][1];

/** Progress of partitions and clock after a record, and its effect on the state. */
export interface Move {
  readonly kind: 'batch' | 'idle' | 'added';
  /** Number of known partitions. */
  readonly partitions: number;
  readonly frontier: number;
  readonly maxSeen: number;
  /** Numbers of the partitions that advanced. */
  readonly listed: Uint32Array;
  /** Cells of the listed partitions, in their order, laid out as progress. */
  readonly cells: Float64Array;
  /** Pairs of a partition and the number of its consecutive rows, in order of arrival. */
  readonly arrivals: Uint32Array;
  /** Borrowed from the body; empty when no row was admitted. */
  readonly deltas: Uint8Array;
  /** Copies of refused rows, borrowed; absent without refused rows or without a side output. */
  readonly sections?: Sections;
}

export type ChangelogRecord =
  | Move
  | { readonly kind: 'fired'; readonly frontier: number }
  | { readonly kind: 'detached'; readonly id: number; readonly part: number }
  | { readonly kind: 'spilled'; readonly piece: PieceEntry }
  | ({ readonly kind: 'swept' } & SweepEntry)
  | { readonly kind: 'sent'; readonly side: SideName; readonly seq: number }
  | { readonly kind: 'ids'; readonly ids: readonly SavedId[] }
  | { readonly kind: 'changed' }
  | { readonly kind: 'keys'; readonly entries: KeyEntries };

/** Encodes the body of BATCH, IDLE and ADDED up to the deltas, which follow it. */
export function encodeMove(
  progress: Float64Array,
  clock: Float64Array,
  listed: readonly number[],
  arrivals: Uint32Array,
): Uint8Array {
  const bytes = HEAD_BYTES + listed.length * PARTITION_BYTES + arrivals.length * 4;
  const body = new Uint8Array(bytes);
  const view = new DataView(body.buffer);
  view.setUint32(0, FORM, true);
  view.setUint32(4, progress.length / PROGRESS_CELLS, true);
  view.setUint32(8, listed.length, true);
  view.setUint32(12, arrivals.length / 2, true);
  view.setFloat64(16, clock[WINDOW_CLOCK.FRONTIER / 8] as number, true);
  view.setFloat64(24, clock[WINDOW_CLOCK.MAX_SEEN / 8] as number, true);
  let at = HEAD_BYTES;
  for (const partition of listed) {
    view.setUint32(at, partition, true);
    at += 8;
    for (const [, cell] of SAVED_CELLS) {
      view.setFloat64(at, progress[partition * PROGRESS_CELLS + cell] as number, true);
      at += 8;
    }
  }
  for (const word of arrivals) {
    view.setUint32(at, word, true);
    at += 4;
  }
  return body;
}

/** Encodes the arrivals of rows [from, to) of a batch: pairs of a partition and the number of its
 *  consecutive rows. */
export function arrivalsOf(partition: Int32Array, from: number, to: number): Uint32Array {
  const pairs: number[] = [];
  for (let row = from; row < to; row++) {
    const current = partition[row] as number;
    if (row > from && partition[row - 1] === current) pairs[pairs.length - 1] = (pairs.at(-1) as number) + 1;
    else pairs.push(current, 1);
  }
  return Uint32Array.from(pairs);
}

export function encodeFired(frontier: number): Uint8Array {
  const body = new Uint8Array(FIRED_BYTES);
  const view = new DataView(body.buffer);
  view.setUint32(0, FORM, true);
  view.setFloat64(8, frontier, true);
  return body;
}

export function encodeDetached(id: number, part: number): Uint8Array {
  const body = new Uint8Array(DETACHED_BYTES);
  const view = new DataView(body.buffer);
  view.setUint32(0, FORM, true);
  view.setBigUint64(8, BigInt(id), true);
  view.setFloat64(16, part, true);
  return body;
}

export function encodeSpilled({ id, part, rows, crc32 }: PieceEntry): Uint8Array {
  const body = new Uint8Array(SPILLED_BYTES);
  const view = new DataView(body.buffer);
  view.setUint32(0, FORM, true);
  view.setUint32(4, crc32, true);
  view.setBigUint64(8, BigInt(id), true);
  view.setFloat64(16, part, true);
  view.setBigUint64(24, BigInt(rows), true);
  return body;
}

export function encodeSwept({ frontier, gone, lastId, left }: SweepEntry): Uint8Array {
  const body = new Uint8Array(SWEPT_BYTES + 8 * gone.length + LEFT_BYTES * left.length);
  const view = new DataView(body.buffer);
  view.setUint32(0, SWEPT_FORM, true);
  view.setUint32(4, gone.length, true);
  view.setUint32(8, left.length, true);
  view.setFloat64(16, frontier, true);
  view.setBigUint64(24, BigInt(lastId), true);
  gone.forEach((id, i) => {
    view.setBigUint64(SWEPT_BYTES + 8 * i, BigInt(id), true);
  });
  left.forEach(({ id, rows, crc32 }, i) => {
    const at = SWEPT_BYTES + 8 * gone.length + LEFT_BYTES * i;
    view.setBigUint64(at, BigInt(id), true);
    view.setBigUint64(at + 8, BigInt(rows), true);
    view.setUint32(at + 16, crc32, true);
  });
  return body;
}

export function encodeSent(side: SideName, seq: number): Uint8Array {
  const body = new Uint8Array(SENT_BYTES);
  const view = new DataView(body.buffer);
  view.setUint32(0, FORM, true);
  view.setUint32(4, SECTION_NUMBER[side], true);
  view.setFloat64(8, seq, true);
  return body;
}

/** Encodes the body of IDS. */
export function encodeIdsRecord({ count, bytes }: SideBytes): Uint8Array {
  const body = new Uint8Array(IDS_HEAD_BYTES + bytes.length);
  viewOf(body).setUint32(0, FORM, true);
  viewOf(body).setUint32(4, count, true);
  body.set(bytes, IDS_HEAD_BYTES);
  return body;
}

/** Encodes the body of CHANGED. */
export function encodeChanged(): Uint8Array {
  const body = new Uint8Array(CHANGED_BYTES);
  viewOf(body).setUint32(0, FORM, true);
  return body;
}

const KINDS = new Map<number, ChangelogRecord['kind']>([
  [RECORD.BATCH, 'batch'],
  [RECORD.IDLE, 'idle'],
  [RECORD.ADDED, 'added'],
  [RECORD.FIRED, 'fired'],
  [RECORD.DETACHED, 'detached'],
  [RECORD.SPILLED, 'spilled'],
  [RECORD.SWEPT, 'swept'],
  [RECORD.LATE_BATCH, 'batch'],
  [RECORD.SENT, 'sent'],
  [RECORD.REFUSED_BATCH, 'batch'],
  [RECORD.IDS, 'ids'],
  [RECORD.KEYS, 'keys'],
  [RECORD.CHANGED, 'changed'],
]);

type Decoded<T> = { readonly record: T } | { readonly fault: string };

/** Decodes a body into its record, or returns the reason why it is invalid. Accepts any bytes. */
export function decodeRecord(kindNumber: number, body: Uint8Array): Decoded<ChangelogRecord> {
  const kind = KINDS.get(kindNumber);
  if (kind === undefined) return { fault: `is of kind ${kindNumber}, which this build does not know` };
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  const form = kind === 'swept' ? SWEPT_FORM : FORM;
  if (body.length >= 4 && view.getUint32(0, true) !== form)
    return { fault: `has form ${view.getUint32(0, true)}, this build reads ${form}` };
  const decoded = decodeKind(kindNumber, kind, body, view);
  return 'fault' in decoded ? { fault: `is not a valid ${kind.toUpperCase()}: ${decoded.fault}` } : decoded;
}

function decodeKind(
  kindNumber: number,
  kind: ChangelogRecord['kind'],
  body: Uint8Array,
  view: DataView,
): Decoded<ChangelogRecord> {
  switch (kind) {
    case 'fired':
      return decodeFired(view);
    case 'detached':
      return decodeDetached(view);
    case 'spilled':
      return decodeSpilled(view);
    case 'swept':
      return decodeSwept(view);
    case 'sent':
      return decodeSent(view);
    case 'ids':
      return decodeIdsRecord(body, view);
    case 'changed':
      return view.byteLength === CHANGED_BYTES && view.getUint32(4, true) === 0
        ? { record: { kind } }
        : { fault: `it has ${view.byteLength} bytes` };
    case 'keys': {
      const entries = decodeKeys(body);
      return 'fault' in entries ? entries : { record: { kind, entries } };
    }
    default:
      return decodeMove(kind, body, view, ATTACHED[kindNumber]);
  }
}

function decodeDetached(view: DataView): Decoded<ChangelogRecord> {
  if (view.byteLength !== DETACHED_BYTES) return { fault: `it has ${view.byteLength} bytes` };
  const id = Number(view.getBigUint64(8, true));
  const part = view.getFloat64(16, true);
  if (view.getUint32(4, true) !== 0 || !isPiece(id, part))
    return { fault: `it names piece ${id} of part ${part}` };
  return { record: { kind: 'detached', id, part } };
}

function decodeSpilled(view: DataView): Decoded<ChangelogRecord> {
  if (view.byteLength !== SPILLED_BYTES) return { fault: `it has ${view.byteLength} bytes` };
  const id = Number(view.getBigUint64(8, true));
  const part = view.getFloat64(16, true);
  const rows = Number(view.getBigUint64(24, true));
  if (!isPiece(id, part) || !Number.isSafeInteger(rows) || rows < 1)
    return { fault: `it names piece ${id} of part ${part}, ${rows} rows` };
  return { record: { kind: 'spilled', piece: { id, part, rows, crc32: view.getUint32(4, true) } } };
}

function decodeSwept(view: DataView): Decoded<ChangelogRecord> {
  const { byteLength } = view;
  if (byteLength < SWEPT_BYTES) return { fault: `it has ${byteLength} bytes` };
  const [goneCount, leftCount] = [view.getUint32(4, true), view.getUint32(8, true)];
  const leftFrom = SWEPT_BYTES + 8 * goneCount;
  if (byteLength !== leftFrom + LEFT_BYTES * leftCount) return { fault: `it has ${byteLength} bytes` };
  const frontier = view.getFloat64(16, true);
  if (!Number.isSafeInteger(frontier)) return { fault: `its frontier is ${frontier}` };
  const numberAt = (at: number): number => Number(view.getBigUint64(at, true));
  const gone = Array.from({ length: goneCount }, (_, i) => numberAt(SWEPT_BYTES + 8 * i));
  const left = Array.from({ length: leftCount }, (_, i) => {
    const at = leftFrom + LEFT_BYTES * i;
    return { id: numberAt(at), part: 0, rows: numberAt(at + 8), crc32: view.getUint32(at + 16, true) };
  });
  const lastId = numberAt(24);
  const isSound =
    goneCount > 0 &&
    isPiece(lastId, 0) &&
    gone.every((id) => isPiece(id, 0)) &&
    left.every(({ id, rows }) => isPiece(id, 0) && id <= lastId && Number.isSafeInteger(rows) && rows >= 1);
  const areZero = [12, ...left.map((_, i) => leftFrom + LEFT_BYTES * i + 20)];
  if (!isSound || areZero.some((at) => view.getUint32(at, true) !== 0))
    return {
      fault: `it names pieces ${gone.join()} and ${left.map(({ id, rows }) => `${id} of ${rows} rows`).join()}`,
    };
  return { record: { kind: 'swept', frontier, gone, lastId, left } };
}

const isPiece = (id: number, part: number): boolean =>
  Number.isSafeInteger(id) && id >= 1 && Number.isSafeInteger(part);

function decodeFired(view: DataView): Decoded<ChangelogRecord> {
  if (view.byteLength !== FIRED_BYTES) return { fault: `it has ${view.byteLength} bytes` };
  const frontier = view.getFloat64(8, true);
  if (view.getUint32(4, true) !== 0 || !Number.isSafeInteger(frontier))
    return { fault: `its frontier is ${frontier}` };
  return { record: { kind: 'fired', frontier } };
}

function decodeSent(view: DataView): Decoded<ChangelogRecord> {
  if (view.byteLength !== SENT_BYTES) return { fault: `it has ${view.byteLength} bytes` };
  const number = view.getUint32(4, true);
  const side = SIDES.find((name) => SECTION_NUMBER[name] === number);
  const seq = view.getFloat64(8, true);
  return side !== undefined && Number.isSafeInteger(seq)
    ? { record: { kind: 'sent', side, seq } }
    : { fault: `it names record ${seq} of side output ${number}` };
}

function decodeIdsRecord(body: Uint8Array, view: DataView): Decoded<ChangelogRecord> {
  if (body.length < IDS_HEAD_BYTES) return { fault: `it has ${body.length} bytes` };
  const count = view.getUint32(4, true);
  const decoded = decodeIds({ count, bytes: body.subarray(IDS_HEAD_BYTES) });
  return 'fault' in decoded ? decoded : { record: { kind: 'ids', ids: decoded.copies } };
}

/** Sections at the start of some bytes, with their length. */
type Attached = { readonly sections: Sections; readonly bytes: number } | { readonly fault: string };

/** Decoders of what precedes the deltas, by kind. */
const ATTACHED: Readonly<Record<number, (bytes: Uint8Array) => Attached>> = {
  [RECORD.LATE_BATCH]: decodeLateBlock,
  [RECORD.REFUSED_BATCH]: decodeSections,
};

function decodeLateBlock(bytes: Uint8Array): Attached {
  if (bytes.length < LATE_HEAD_BYTES) return { fault: 'its late copies are truncated' };
  const end = viewOf(bytes).getUint32(0, true);
  const count = viewOf(bytes).getUint32(4, true);
  if (end < LATE_HEAD_BYTES || end > bytes.length || end % 8 !== 0)
    return { fault: `it has ${count} late copies in ${end} bytes` };
  return { sections: { late: { count, bytes: bytes.subarray(LATE_HEAD_BYTES, end) } }, bytes: end };
}

const COPIES: Readonly<Record<SectionName, (side: SideBytes) => object>> = {
  late: decodeLate,
  quarantine: decodeQuarantine,
  events: decodeLateEvents,
  ids: decodeIds,
};

/** Returns the reason if copies of a section are invalid. */
function sectionsFault(sections: Sections): string | undefined {
  for (const name of SECTIONS) {
    const side = sections[name];
    const decoded = side === undefined ? {} : COPIES[name](side);
    if ('fault' in decoded) return String(decoded.fault);
  }
  return undefined;
}

function decodeMove(
  kind: Move['kind'],
  body: Uint8Array,
  view: DataView,
  attached: ((bytes: Uint8Array) => Attached) | undefined,
): Decoded<Move> {
  if (body.length < HEAD_BYTES) return { fault: `it has ${body.length} bytes` };
  const partitions = view.getUint32(4, true);
  const count = view.getUint32(8, true);
  const arrivalCount = view.getUint32(12, true);
  const frontier = view.getFloat64(16, true);
  const maxSeen = view.getFloat64(24, true);
  if (partitions < 1 || partitions > PARTITIONS_MAX) return { fault: `it has ${partitions} partitions` };
  if (count > partitions) return { fault: `it lists ${count} of ${partitions} partitions` };
  const deltasFrom = HEAD_BYTES + count * PARTITION_BYTES + arrivalCount * ARRIVAL_BYTES;
  if (deltasFrom > body.length) return { fault: 'it is cut short' };
  if (!isTime(frontier) || !isTime(maxSeen))
    return { fault: `its frontier is ${frontier}, its greatest time is ${maxSeen}` };

  const listed = new Uint32Array(count);
  const cells = createProgress(Math.max(1, count));
  let at = HEAD_BYTES;
  for (let i = 0; i < count; i++) {
    const partition = view.getUint32(at, true);
    const isNext = i === 0 || partition > (listed[i - 1] as number);
    if (!isNext || partition >= partitions || view.getUint32(at + 4, true) !== 0)
      return { fault: `it lists partition ${partition} out of order` };
    listed[i] = partition;
    at += 8;
    for (const [, cell] of SAVED_CELLS) {
      cells[i * PROGRESS_CELLS + cell] = view.getFloat64(at, true);
      at += 8;
    }
    const fault = cellsFault(cells, i);
    if (fault !== undefined) return { fault: `partition ${partition} has ${fault}` };
  }
  const arrivals = new Uint32Array(arrivalCount * 2);
  for (let i = 0; i < arrivals.length; i += 2, at += ARRIVAL_BYTES) {
    arrivals[i] = view.getUint32(at, true);
    arrivals[i + 1] = view.getUint32(at + 4, true);
    if ((arrivals[i] as number) >= partitions || arrivals[i + 1] === 0)
      return { fault: `it lists the arrival of ${arrivals[i + 1]} rows of partition ${arrivals[i]}` };
  }
  let deltas = body.subarray(deltasFrom);
  let sections: { readonly sections?: Sections } = {};
  if (attached !== undefined) {
    const decoded = attached(deltas);
    if ('fault' in decoded) return decoded;
    const wrong = sectionsFault(decoded.sections);
    if (wrong !== undefined) return { fault: wrong };
    sections = { sections: decoded.sections };
    deltas = deltas.subarray(decoded.bytes);
  }
  const fault = kindFault(kind, partitions, listed, cells, arrivalCount, deltas);
  if (fault !== undefined) return { fault };
  return { record: { kind, partitions, frontier, maxSeen, listed, cells, arrivals, deltas, ...sections } };
}

/** Returns a reason if a decision lists other partitions than it may, or has rows. IDLE lists the
 *  one idle partition; ADDED lists the last partitions. */
function kindFault(
  kind: Move['kind'],
  partitions: number,
  listed: Uint32Array,
  cells: Float64Array,
  arrivals: number,
  deltas: Uint8Array,
): string | undefined {
  if (kind === 'batch') return undefined;
  if (arrivals > 0 || deltas.length > 0) return 'it has rows';
  if (kind === 'idle')
    return listed.length === 1 && cells[IDLE_CELL] === 1
      ? undefined
      : 'it does not list exactly one idle partition';
  const isTail = listed.length > 0 && listed[0] === partitions - listed.length;
  return isTail ? undefined : 'it does not list the last partitions';
}
