/** Times at which the frontier reached the ends of windows. The latency of a result that fires
 *  later counts from the advance that made the result due.
 *
 *  The frontier passes window_end exactly when the watermark passes window_end + lateness.
 */

/** Advances within this time count as one, at the time of the first, so a latency is too long by at
 *  most this time. */
const STEP_MS = 10;

interface Step {
  readonly frontier: number;
  readonly atMs: number;
}

/** Advances of the frontier, ascending. */
export class ReachedTimes {
  private readonly steps: readonly Step[];
  private readonly fallbackMs: number;

  /** @param fallbackMs time of ends that no step reached */
  constructor(steps: readonly Step[], fallbackMs: number) {
    this.steps = steps;
    this.fallbackMs = fallbackMs;
  }

  /** Calls `each` for every group of consecutive rows that were reached together, with their number
   *  and monotonic ms. `endOf` must ascend by row. */
  runs(rowCount: number, endOf: (row: number) => number, each: (rows: number, atMs: number) => void): void {
    const { steps } = this;
    let step = 0;
    for (let row = 0; row < rowCount; ) {
      const from = row;
      while (step < steps.length && (steps[step] as Step).frontier < endOf(row)) step++;
      const reached = steps[step];
      // The last step reached all remaining rows.
      if (reached === undefined || (step === steps.length - 1 && endOf(rowCount - 1) <= reached.frontier))
        row = rowCount;
      else while (row < rowCount && endOf(row) <= reached.frontier) row++;
      each(row - from, reached?.atMs ?? this.fallbackMs);
    }
  }
}

export class FrontierTimes {
  private steps: Step[] = [];

  /** Notes an advance of the frontier. `atMs`: monotonic. */
  note(frontier: number, atMs: number): void {
    const last = this.steps.at(-1);
    if (last !== undefined && atMs - last.atMs < STEP_MS)
      this.steps[this.steps.length - 1] = { frontier, atMs: last.atMs };
    else this.steps.push({ frontier, atMs });
  }

  /** Removes and returns the advances up to a frontier. `nowMs` is the time of ends beyond them. */
  take(frontier: number, nowMs: number): ReachedTimes {
    const next = this.steps.findIndex((step) => step.frontier >= frontier);
    if (next < 0) return new ReachedTimes(this.steps.splice(0), nowMs);
    const taken = this.steps.slice(0, next + 1);
    this.steps.splice(0, (this.steps[next] as Step).frontier > frontier ? next : next + 1);
    return new ReachedTimes(taken, nowMs);
  }
}
