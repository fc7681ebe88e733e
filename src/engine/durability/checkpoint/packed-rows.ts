/** Rows without the lines of 64 bytes that are zero: most lines of rows with sketches are. A row is
 *  a bit for each line, the first in the lowest bit, in whole bytes; then the lines with a set bit.
 */

const LINE_BYTES = 64;
const LINE_WORDS = LINE_BYTES / 4;

const maskBytesOf = (rowBytes: number): number => Math.ceil(rowBytes / LINE_BYTES / 8);

/** Greatest number of bytes of packed rows. */
export const packedBytesMax = (rows: number, rowBytes: number): number =>
  rows * (maskBytesOf(rowBytes) + rowBytes);

/** Packs rows into `into` from `at` on, and returns the end. REQUIRES: `rows` is at a multiple of 4
 *  bytes, and `into` has packedBytesMax bytes */
export function packRows(
  rows: Uint8Array,
  count: number,
  rowBytes: number,
  into: Uint8Array,
  at: number,
): number {
  const words = new Int32Array(rows.buffer, rows.byteOffset, (count * rowBytes) / 4);
  const lines = rowBytes / LINE_BYTES;
  const maskBytes = maskBytesOf(rowBytes);
  let to = at;
  for (let row = 0; row < count; row++) {
    const mask = to;
    into.fill(0, mask, mask + maskBytes);
    to += maskBytes;
    for (let line = 0; line < lines; line++) {
      const number = row * lines + line;
      if (isZero(words, number * LINE_WORDS)) continue;
      into[mask + (line >> 3)] = (into[mask + (line >> 3)] as number) | (1 << (line & 7));
      into.set(rows.subarray(number * LINE_BYTES, (number + 1) * LINE_BYTES), to);
      to += LINE_BYTES;
    }
  }
  return to;
}

function isZero(words: Int32Array, from: number): boolean {
  for (let word = from; word < from + LINE_WORDS; word++) if (words[word] !== 0) return false;
  return true;
}

/** Reverse of packRows, of any bytes. Undefined if they are not exactly so many rows. */
export function unpackRows(packed: Uint8Array, count: number, rowBytes: number): Uint8Array | undefined {
  const lines = rowBytes / LINE_BYTES;
  const maskBytes = maskBytesOf(rowBytes);
  const rows = new Uint8Array(count * rowBytes);
  let at = 0;
  for (let row = 0; row < count; row++) {
    const mask = at;
    at += maskBytes;
    if (at > packed.length) return undefined;
    for (let line = 0; line < maskBytes * 8; line++) {
      if ((((packed[mask + (line >> 3)] as number) >> (line & 7)) & 1) === 0) continue;
      if (line >= lines || at + LINE_BYTES > packed.length) return undefined;
      rows.set(packed.subarray(at, at + LINE_BYTES), row * rowBytes + line * LINE_BYTES);
      at += LINE_BYTES;
    }
  }
  return at === packed.length ? rows : undefined;
}
