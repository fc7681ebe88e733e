/** Sections of a changelog record: what the side outputs need of the rows that a batch refused, and
 *  the identifiers that it added (-dedup).
 *
 *      0 sections u32 | 4 zero u32
 *      8 each, in the order of their numbers: number u32 | copies u32 | bytes u32, these 16
 *        included and a multiple of 8 | zero u32 | the copies, in the form of the side output
 *
 *  All little-endian. */
import type { RecordBatch } from '../../../core/layout/record-batch.ts';

/** Sections and their numbers in changelog records. Numbers never change. */
export const SECTION_NUMBER = { late: 0, quarantine: 1, events: 2, ids: 3 } as const;
export type SectionName = keyof typeof SECTION_NUMBER;
export const SECTIONS = Object.keys(SECTION_NUMBER) as readonly SectionName[];

export const SIDES = ['late', 'quarantine', 'events'] as const;
/** Section with the copies of a side output. */
export type SideName = (typeof SIDES)[number];

/** Encoded sections; absent: empty. */
export type Sections = Readonly<Partial<Record<SectionName, SideBytes>>>;

/** Encoded copies or identifiers of one section. */
export interface SideBytes {
  /** Number of copies or identifiers. */
  readonly count: number;
  readonly bytes: Uint8Array;
}

/** Copies that one changelog record holds for a side output. */
export interface SideRows extends SideBytes {
  /** Number of the changelog record. */
  readonly seq: number;
}

/** Copies that the side outputs may not have acknowledged, in the order of their records. */
export type Unsent = Readonly<Record<SideName, readonly SideRows[]>>;

export const noneUnsent = (): Record<SideName, SideRows[]> => ({ late: [], quarantine: [], events: [] });

const HEAD_BYTES = 8;
const SECTION_BYTES = 16;

/** Rounds up to the alignment of copies and sections. */
export const padded = (bytes: number): number => Math.ceil(bytes / 8) * 8;

export const viewOf = (bytes: Uint8Array): DataView =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** Bytes of the key and the value of a record. */
export const payloadBytes = ({ columns }: RecordBatch, row: number): number =>
  Math.max(0, columns.keyLength[row] as number) + Math.max(0, columns.valueLength[row] as number);

/** Encodes the sections; undefined if there are none. */
export function encodeSections(sections: Sections): Uint8Array | undefined {
  const given = SECTIONS.flatMap((name) => {
    const side = sections[name];
    return side === undefined ? [] : [{ number: SECTION_NUMBER[name], ...side }];
  });
  if (given.length === 0) return undefined;
  const into = new Uint8Array(
    given.reduce((sum, { bytes }) => sum + SECTION_BYTES + padded(bytes.length), HEAD_BYTES),
  );
  const view = viewOf(into);
  view.setUint32(0, given.length, true);
  let at = HEAD_BYTES;
  for (const { number, count, bytes } of given) {
    view.setUint32(at, number, true);
    view.setUint32(at + 4, count, true);
    view.setUint32(at + 8, SECTION_BYTES + padded(bytes.length), true);
    into.set(bytes, at + SECTION_BYTES);
    at += SECTION_BYTES + padded(bytes.length);
  }
  return into;
}

/** Decodes the sections at the start of `bytes`, which they borrow, with their length in bytes; or
 *  says why they are invalid. Does not read the copies. Never throws. */
export function decodeSections(
  bytes: Uint8Array,
): { readonly sections: Sections; readonly bytes: number } | { readonly fault: string } {
  const view = viewOf(bytes);
  const cut = { fault: 'its sections are cut short' };
  if (bytes.length < HEAD_BYTES) return cut;
  const count = view.getUint32(0, true);
  if (count < 1 || count > SECTIONS.length || view.getUint32(4, true) !== 0)
    return { fault: `it has ${count} sections` };
  const sections: Partial<Record<SectionName, SideBytes>> = {};
  let at = HEAD_BYTES;
  let before = -1;
  for (let i = 0; i < count; i++) {
    if (bytes.length - at < SECTION_BYTES) return cut;
    const number = view.getUint32(at, true);
    const copies = view.getUint32(at + 4, true);
    const length = view.getUint32(at + 8, true);
    const name = SECTIONS.find((one) => SECTION_NUMBER[one] === number);
    const isSound = number > before && copies >= 1 && length >= SECTION_BYTES && length % 8 === 0;
    if (name === undefined || !isSound || view.getUint32(at + 12, true) !== 0)
      return { fault: `section ${i} has number ${number}, ${copies} copies and ${length} bytes` };
    if (length > bytes.length - at) return cut;
    sections[name] = { count: copies, bytes: bytes.subarray(at + SECTION_BYTES, at + length) };
    at += length;
    before = number;
  }
  return { sections, bytes: at };
}
