/** Numbers as bytes that sort as the numbers do: big-endian, with the sign flipped where they have one. */

const WORD = 0x1_0000_0000;
const SIGN = 0x8000_0000;

/** 8 bytes of a whole number that a double holds exactly, ordered as signed 64 bits. */
export function putOrdered(into: DataView, at: number, value: number): void {
  const high = Math.floor(value / WORD);
  into.setUint32(at, (high ^ SIGN) >>> 0);
  into.setUint32(at + 4, value - high * WORD);
}

/** What putOrdered wrote. */
export function getOrdered(from: DataView, at: number): number {
  return ((from.getUint32(at) ^ SIGN) | 0) * WORD + from.getUint32(at + 4);
}
