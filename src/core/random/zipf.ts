/** Zipf-distributed ranks: rank k of 1..ranks has a probability proportional to k^-s, exact to the
 *  rounding of a double.
 *  Rejection sampling over an alias table (Walker 1977, Vose 1991). Ranks form runs whose length is
 *  1/64 of their first rank, so the table has about 64 ln(ranks) rows. A draw selects a run as if
 *  all its ranks had the weight of the first one, then a rank of the run uniformly, and accepts it
 *  with probability (first / rank)^s. Only + - * / and sqrt are used, because pow, log and exp
 *  differ between mathematics libraries: k^s is a product of whole powers and repeated square
 *  roots, with s in units of 2^-30. */
import { coreError } from '../errors.ts';
import {
  BATCH,
  BATCH_HEADER,
  ZIPF_TABLE_ID,
  type ZipfTableViews,
  zipfTableBytes,
  zipfTableViews,
} from '../layout/layouts.gen.ts';

export const ZIPF_RANKS_MAX = 4_294_967_295;
export const ZIPF_EXPONENT_MAX = 4;
const FRACTION_BITS = 30;
const RUN_SHARE = 64;
const TWO_32 = 4_294_967_296;

/** Computes base^s for s = whole + fraction / 2^30. The order of operations is part of the
 *  definition. */
export function powerOf(base: number, whole: number, fraction: number): number {
  let power = 1;
  for (let i = 0; i < whole; i++) power *= base;
  let root = base;
  for (let bit = FRACTION_BITS - 1; bit >= 0; bit--) {
    root = Math.sqrt(root);
    if (((fraction >>> bit) & 1) === 1) power *= root;
  }
  return power;
}

export class ZipfTable {
  readonly buffer: ArrayBuffer;
  readonly columns: ZipfTableViews;
  /** Number of runs in the table. */
  readonly rowCount: number;
  readonly ranks: number;
  readonly powerWhole: number;
  readonly powerFraction: number;

  /** @cost O(64 ln ranks) @throws out_of_range */
  constructor(ranks: number, exponent: number) {
    if (!Number.isInteger(ranks) || ranks < 1 || ranks > ZIPF_RANKS_MAX) {
      throw coreError('out_of_range', `a Zipf distribution takes 1 to ${ZIPF_RANKS_MAX} ranks, not ${ranks}`);
    }
    if (!(exponent >= 0 && exponent <= ZIPF_EXPONENT_MAX)) {
      throw coreError('out_of_range', `a Zipf exponent lies in 0 to ${ZIPF_EXPONENT_MAX}, not ${exponent}`);
    }
    this.ranks = ranks;
    this.powerWhole = Math.floor(exponent);
    this.powerFraction = Math.floor((exponent - this.powerWhole) * 2 ** FRACTION_BITS + 0.5);
    if (this.powerFraction === 2 ** FRACTION_BITS) {
      this.powerWhole += 1;
      this.powerFraction = 0;
    }
    const firsts: number[] = [];
    const sizes: number[] = [];
    for (let first = 1; first <= ranks; ) {
      const size = Math.min(Math.max(1, Math.floor(first / RUN_SHARE)), ranks - first + 1);
      firsts.push(first);
      sizes.push(size);
      first += size;
    }
    this.rowCount = firsts.length;
    this.buffer = new ArrayBuffer(zipfTableBytes(this.rowCount));
    this.columns = zipfTableViews(this.buffer, this.rowCount);
    const { header, first, size, top, sure } = this.columns;
    header[BATCH_HEADER.MAGIC / 4] = BATCH.MAGIC;
    header[BATCH_HEADER.LAYOUT_ID / 4] = ZIPF_TABLE_ID;
    header[BATCH_HEADER.ROW_CAPACITY / 4] = this.rowCount;
    header[BATCH_HEADER.ROW_COUNT / 4] = this.rowCount;
    const masses = new Float64Array(this.rowCount);
    let total = 0;
    for (let run = 0; run < this.rowCount; run++) {
      const from = firsts[run] as number;
      const length = sizes[run] as number;
      first[run] = from;
      size[run] = length;
      top[run] = powerOf(from, this.powerWhole, this.powerFraction);
      sure[run] = (top[run] as number) / powerOf(from + length - 1, this.powerWhole, this.powerFraction);
      masses[run] = length / (top[run] as number);
      total += masses[run] as number;
    }
    this.fillAliases(masses, total);
  }

  private fillAliases(masses: Float64Array, total: number): void {
    const { cut, alias } = this.columns;
    const runs = this.rowCount;
    const small: number[] = [];
    const large: number[] = [];
    const scaled = masses.map((mass) => (mass / total) * runs);
    for (let run = 0; run < runs; run++) {
      alias[run] = run;
      cut[run] = 1;
      ((scaled[run] as number) < 1 ? small : large).push(run);
    }
    while (small.length > 0 && large.length > 0) {
      const less = small.pop() as number;
      const more = large.pop() as number;
      cut[less] = scaled[less] as number;
      alias[less] = more;
      scaled[more] = (scaled[more] as number) - (1 - (scaled[less] as number));
      ((scaled[more] as number) < 1 ? small : large).push(more);
    }
  }

  /** Returns the rank for four random words; 0: the sample was rejected, and the caller draws
   *  again. */
  rankOf(words: Uint32Array): number {
    const { cut, alias, first, size, sure, top } = this.columns;
    let run = Math.floor(((words[0] as number) / TWO_32) * this.rowCount);
    if ((words[1] as number) / TWO_32 >= (cut[run] as number)) run = alias[run] as number;
    const rank = (first[run] as number) + Math.floor(((words[2] as number) / TWO_32) * (size[run] as number));
    const keep = (words[3] as number) / TWO_32;
    if (keep < (sure[run] as number)) return rank;
    return keep * powerOf(rank, this.powerWhole, this.powerFraction) < (top[run] as number) ? rank : 0;
  }
}
