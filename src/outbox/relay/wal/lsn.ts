/** Positions in the write-ahead log (LSN) as bigint. Their texts are two hexadecimal halves without
 *  leading zeros, and so do not compare as texts: 1/8000000 lies above 0/FFFFFFFF. */
const LSN = /^([0-9A-F]{1,8})\/([0-9A-F]{1,8})$/i;

/** Parses a position; undefined for any other text. */
export function parseLsn(text: string): bigint | undefined {
  const match = LSN.exec(text);
  if (match === null) return undefined;
  return (BigInt(`0x${match[1]}`) << 32n) | BigInt(`0x${match[2]}`);
}

export function formatLsn(lsn: bigint): string {
  const half = (bits: bigint): string => bits.toString(16).toUpperCase();
  return `${half(lsn >> 32n)}/${half(lsn & 0xffff_ffffn)}`;
}
