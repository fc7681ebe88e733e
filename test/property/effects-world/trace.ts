/** Steps of a run: their count, and a digest over all of them in order. Two runs of one seed must
 *  have equal digests. A run can be told to kill the process of a given step. */
import { createHash } from 'node:crypto';

export class Trace {
  private readonly hash = createHash('sha256');
  /** Number of steps so far. */
  count = 0;
  /** Lines of the steps; only if asked for. */
  readonly steps: string[] = [];
  private readonly isKept: boolean;

  constructor(isKept = false) {
    this.isKept = isKept;
  }

  step(nowMs: number, who: string, what: string): void {
    this.count++;
    const line = `${nowMs.toFixed(3)} ${who} ${what}\n`;
    this.hash.update(line);
    if (this.isKept) this.steps.push(line);
  }

  digest(): string {
    return this.hash.copy().digest('hex');
  }
}
