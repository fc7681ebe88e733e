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
  /** Lines that the hash does not cover yet: one update for each step would cost as much as the
   *  step. */
  private unhashed = '';

  constructor(isKept = false) {
    this.isKept = isKept;
  }

  step(nowMs: number, who: string, what: string): void {
    this.count++;
    const line = `${nowMs.toFixed(3)} ${who} ${what}\n`;
    this.unhashed += line;
    if (this.unhashed.length >= UNHASHED_CHARS) this.hashLines();
    if (this.isKept) this.steps.push(line);
  }

  digest(): string {
    this.hashLines();
    return this.hash.copy().digest('hex');
  }

  private hashLines(): void {
    this.hash.update(this.unhashed);
    this.unhashed = '';
  }
}

const UNHASHED_CHARS = 1 << 14;
