/** Digest of a set of rows: the sum of the rows' hashes, so it does not depend on their order. */
import { createHash } from 'node:crypto';

const BITS = 128n;

export class RowsDigest {
  private sum = 0n;
  count = 0;

  add(row: string): void {
    const hash = createHash('sha256').update(row).digest('hex').slice(0, 32);
    this.sum = BigInt.asUintN(Number(BITS), this.sum + BigInt(`0x${hash}`));
    this.count++;
  }

  /** 32 hexadecimal digits. */
  get text(): string {
    return this.sum.toString(16).padStart(32, '0');
  }
}
