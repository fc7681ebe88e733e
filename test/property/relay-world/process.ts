/** Process of a simulated relay: it can be suspended (SIGSTOP) and killed (SIGKILL), and its wall
 *  clock can jump. */
import type { Cancel, Timers } from '../../../src/core/clock.ts';
import type { VirtualClock } from '../../../src/sim/clock.ts';

export class SimProcess {
  isDead = false;
  private readonly worldClock: VirtualClock;
  private isStopped = false;
  private deferred: Array<() => void> = [];
  private wallOffsetMs = 0;

  constructor(worldClock: VirtualClock) {
    this.worldClock = worldClock;
  }

  /** Runs the function now, or after the process is resumed; never if the process is killed. */
  runWhenActive(run: () => void): void {
    if (this.isDead) return;
    if (this.isStopped) this.deferred.push(run);
    else run();
  }

  /** Resolves with the answer of a server once the process runs. */
  receive<T>(answer: T): Promise<T> {
    return new Promise((resolve) => this.runWhenActive(() => resolve(answer)));
  }

  stop(): void {
    this.isStopped = true;
  }

  resume(): void {
    this.isStopped = false;
    for (const run of this.deferred.splice(0)) this.runWhenActive(run);
  }

  jump(ms: number): void {
    this.wallOffsetMs += ms;
  }

  readonly clock: Timers = {
    wallNowMs: () => this.worldClock.wallNowMs() + this.wallOffsetMs,
    monotonicMs: () => this.worldClock.monotonicMs(),
    after: (ms: number, run: () => void): Cancel => {
      let isOver = false;
      const cancel = this.worldClock.after(ms, () => this.runWhenActive(() => isOver || run()));
      return () => {
        isOver = true;
        cancel();
      };
    },
    every: (ms: number, run: () => void): Cancel => this.worldClock.every(ms, () => this.runWhenActive(run)),
  };
}
