/** Numbers of the values that the producers of a process send, in shared memory: each value is
 *  claimed by one producer, in whichever thread. */

/** Number of the next value, and wall time of the start, ms. */
export type SequenceCells = BigInt64Array<SharedArrayBuffer>;

export const sequenceCells = (): SequenceCells => new BigInt64Array(new SharedArrayBuffer(16));

interface Claim {
  /** Number of the first value. */
  readonly from: number;
  readonly count: number;
}

export class Sequence {
  private readonly count: number;
  private readonly cells: SequenceCells;

  /** @param count values in all; 0: no end
   *  @param cells those of another sequence of the process */
  constructor(count: number, cells: SequenceCells = sequenceCells()) {
    this.count = count;
    this.cells = cells;
  }

  /** Wall time at which the first producer started, ms. @param nowMs wall time of this call */
  startedAt(nowMs: number): number {
    const before = Atomics.compareExchange(this.cells, 1, 0n, BigInt(nowMs));
    return before === 0n ? nowMs : Number(before);
  }

  /** Claims the next values, up to `rows`. Undefined: all are claimed. */
  claim(rows: number): Claim | undefined {
    const from = Number(Atomics.add(this.cells, 0, BigInt(rows)));
    if (this.count === 0) return { from, count: rows };
    return from >= this.count ? undefined : { from, count: Math.min(rows, this.count - from) };
  }
}
