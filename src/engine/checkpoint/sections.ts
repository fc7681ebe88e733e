/** The files of a checkpoint: sections one after the other, each a `WindowSection` head and its accumulator rows. */
import { crc32 } from 'node:zlib';
import { WINDOW_SECTION, WINDOW_SECTION_MAGIC } from '../../core/layout/layouts.gen.ts';
import { ROW_BYTES } from '../accumulator.ts';

export interface Section {
  readonly windowStart: number;
  readonly windowEnd: number;
  readonly rowCount: number;
  readonly rows: ArrayBuffer;
}

const HEAD = WINDOW_SECTION;

/** Chunks to write: head, rows, head, rows, … */
export function encodeSections(sections: readonly Section[]): readonly Uint8Array[] {
  return sections.flatMap((section) => {
    const rows = new Uint8Array(section.rows, 0, section.rowCount * ROW_BYTES);
    const head = new DataView(new ArrayBuffer(HEAD.BYTES));
    head.setUint32(HEAD.MAGIC, WINDOW_SECTION_MAGIC.VALUE, true);
    head.setUint32(HEAD.VERSION, WINDOW_SECTION_MAGIC.VERSION, true);
    head.setBigInt64(HEAD.WINDOW_START, BigInt(section.windowStart), true);
    head.setBigInt64(HEAD.WINDOW_END, BigInt(section.windowEnd), true);
    head.setUint32(HEAD.ROW_COUNT, section.rowCount, true);
    head.setUint32(HEAD.ROWS_CRC, crc32(rows), true);
    head.setUint32(HEAD.HEAD_CRC, crc32(new Uint8Array(head.buffer, 0, HEAD.HEAD_CRC)), true);
    return [new Uint8Array(head.buffer), rows];
  });
}

/** Sections of a whole file, or the reason why it is not one. Total for any bytes. */
export function decodeSections(
  bytes: Uint8Array,
): { readonly sections: readonly Section[] } | { readonly fault: string } {
  const sections: Section[] = [];
  let at = 0;
  while (at < bytes.length) {
    if (at + HEAD.BYTES > bytes.length) return { fault: `is cut short in a section head at byte ${at}` };
    const head = new DataView(bytes.buffer, bytes.byteOffset + at, HEAD.BYTES);
    if (head.getUint32(HEAD.MAGIC, true) !== WINDOW_SECTION_MAGIC.VALUE)
      return { fault: `holds no section at byte ${at}` };
    if (crc32(bytes.subarray(at, at + HEAD.HEAD_CRC)) !== head.getUint32(HEAD.HEAD_CRC, true)) {
      return { fault: `has a changed section head at byte ${at}` };
    }
    const version = head.getUint32(HEAD.VERSION, true);
    if (version !== WINDOW_SECTION_MAGIC.VERSION)
      return { fault: `has form ${version}, this build reads ${WINDOW_SECTION_MAGIC.VERSION}` };
    const rowCount = head.getUint32(HEAD.ROW_COUNT, true);
    const from = at + HEAD.BYTES;
    const to = from + rowCount * ROW_BYTES;
    if (to > bytes.length) return { fault: `is cut short in the rows at byte ${from}` };
    const rows = bytes.slice(from, to);
    if (crc32(rows) !== head.getUint32(HEAD.ROWS_CRC, true))
      return { fault: `has changed rows between byte ${from} and ${to}` };
    sections.push({
      windowStart: Number(head.getBigInt64(HEAD.WINDOW_START, true)),
      windowEnd: Number(head.getBigInt64(HEAD.WINDOW_END, true)),
      rowCount,
      rows: rows.buffer,
    });
    at = to;
  }
  return { sections };
}
