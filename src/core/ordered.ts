/** Order-preserving encoding of integers: 64 bits, big-endian, with the sign bit flipped. */

const WORD = 0x1_0000_0000;
const SIGN = 0x8000_0000;

/** Writes 8 bytes that sort as signed 64-bit numbers do. A double must hold `value` exactly. */
export function putOrdered(into: DataView, at: number, value: number): void {
  const high = Math.floor(value / WORD);
  into.setUint32(at, (high ^ SIGN) >>> 0);
  into.setUint32(at + 4, value - high * WORD);
}

/** Reads a number that putOrdered wrote. */
export function getOrdered(from: DataView, at: number): number {
  return ((from.getUint32(at) ^ SIGN) | 0) * WORD + from.getUint32(at + 4);
}
