/** Digest of results that does not depend on their order: key, bounds and count of each row. Equal
 *  sets of rows have equal digests; different ones have with a probability of about 2^-64. */

const FACTORS: readonly (readonly [number, number])[] = [
  [0x9e3779b1, 0x85ebca77],
  [0xc2b2ae3d, 0x27d4eb2f],
];
const TWO_32 = 4_294_967_296;

function mixed(hash: number, word: number, factor: number): number {
  const next = Math.imul((hash ^ word) | 0, factor);
  return (next ^ (next >>> 15)) | 0;
}

export class RowsDigest {
  /** Number of rows. */
  rows = 0;
  private readonly sums = new Uint32Array(FACTORS.length);

  /** @param account below 2^53 */
  add(account: number, startMs: number, endMs: number, count: number): void {
    this.rows++;
    for (let lane = 0; lane < FACTORS.length; lane++) {
      const [first, second] = FACTORS[lane] as readonly [number, number];
      let hash = first;
      for (const value of [account, startMs, endMs, count]) {
        hash = mixed(hash, value % TWO_32, first);
        hash = mixed(hash, Math.floor(value / TWO_32), second);
      }
      this.sums[lane] = ((this.sums[lane] as number) + (hash >>> 0)) % TWO_32;
    }
  }

  /** 16 hexadecimal digits. */
  text(): string {
    return [...this.sums].map((sum) => sum.toString(16).padStart(8, '0')).join('');
  }
}
