/** Row locks of the simulated database: a unique value that an open transaction inserted makes a
 *  second insert wait for the end of the first, as an index of PostgreSQL does. */
import type { VirtualClock } from '../../../src/sim/clock.ts';

interface Held {
  readonly holder: object;
  /** Absent while none waits: nearly all locks are free when they are taken. */
  waiting?: Set<() => void>;
}

export class RowLocks {
  private readonly held = new Map<string, Held>();
  private readonly clock: VirtualClock;

  constructor(clock: VirtualClock) {
    this.clock = clock;
  }

  /** Takes the lock if it is free, or the holder has it. */
  tryTake(holder: object, name: string): boolean {
    const held = this.held.get(name);
    if (held === undefined) this.held.set(name, { holder });
    return held === undefined || held.holder === holder;
  }

  /** Takes the lock, and waits for another holder at most `timeoutMs`. False: it waited in vain. */
  async take(holder: object, name: string, timeoutMs: number): Promise<boolean> {
    const endMs = this.clock.monotonicMs() + timeoutMs;
    for (;;) {
      if (this.tryTake(holder, name)) return true;
      const held = this.held.get(name) as Held;
      const leftMs = endMs - this.clock.monotonicMs();
      if (leftMs <= 0) return false;
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          cancel();
          held.waiting?.delete(wake);
          resolve();
        };
        const cancel = this.clock.after(leftMs, wake);
        held.waiting ??= new Set();
        held.waiting.add(wake);
      });
    }
  }

  isHeldBy(holder: object, name: string): boolean {
    return this.held.get(name)?.holder === holder;
  }

  release(holder: object, name: string): void {
    const held = this.held.get(name);
    if (held?.holder !== holder) return;
    this.held.delete(name);
    for (const wake of [...(held.waiting ?? [])]) wake();
  }
}
