/** Process of a simulated relay: it can be suspended (SIGSTOP) and killed (SIGKILL), and its wall
 *  clock can jump. */
import type { Cancel, Timers } from '../../../src/core/clock.ts';
import type { VirtualClock } from '../../../src/sim/clock.ts';

export class SimProcess {
  isDead = false;
  private readonly world: VirtualClock;
  private isStopped = false;
  private deferred: Array<() => void> = [];
  private wallOffsetMs = 0;

  constructor(world: VirtualClock) {
    this.world = world;
  }

  /** Runs the function immediately, or when the process is continued, or never. */
  gate(run: () => void): void {
    if (this.isDead) return;
    if (this.isStopped) this.deferred.push(run);
    else run();
  }

  /** Resolves with the answer of a server once the process runs. */
  hear<T>(answer: T): Promise<T> {
    return new Promise((resolve) => this.gate(() => resolve(answer)));
  }

  stop(): void {
    this.isStopped = true;
  }

  resume(): void {
    this.isStopped = false;
    for (const run of this.deferred.splice(0)) this.gate(run);
  }

  jump(ms: number): void {
    this.wallOffsetMs += ms;
  }

  readonly clock: Timers = {
    wallNowMs: () => this.world.wallNowMs() + this.wallOffsetMs,
    monotonicMs: () => this.world.monotonicMs(),
    after: (ms: number, run: () => void): Cancel => {
      let isOver = false;
      const cancel = this.world.after(ms, () => this.gate(() => isOver || run()));
      return () => {
        isOver = true;
        cancel();
      };
    },
    every: (ms: number, run: () => void): Cancel => this.world.every(ms, () => this.gate(run)),
  };
}
