/** The clock of one simulated process: the time of a world that several processes share, seen by a
 *  process that can be stopped, continued and killed, and whose wall clock jumps alone.
 *
 *  Invariant: no timer of a process runs while the process is stopped, and none after it was
 *  killed.
 */
import type { Cancel, Timers } from '../core/clock.ts';

export class ProcessClock implements Timers {
  private readonly world: Timers;
  private offsetMs = 0;
  private state: 'runs' | 'stopped' | 'killed' = 'runs';
  /** Timers that fell due while the process was stopped, in their order. */
  private late: Array<() => void> = [];

  constructor(world: Timers) {
    this.world = world;
  }

  wallNowMs(): number {
    return this.world.wallNowMs() + this.offsetMs;
  }

  monotonicMs(): number {
    return this.world.monotonicMs();
  }

  after(ms: number, run: () => void): Cancel {
    let isPending = true;
    const call = (): void => {
      if (!isPending || this.state === 'killed') return;
      if (this.state === 'stopped') {
        this.late.push(call);
        return;
      }
      isPending = false;
      run();
    };
    const cancel = this.world.after(ms, call);
    return () => {
      isPending = false;
      cancel();
    };
  }

  every(ms: number, run: () => void): Cancel {
    let cancel: Cancel = () => {};
    let isCancelled = false;
    const arm = (): void => {
      cancel = this.after(ms, () => {
        run();
        if (!isCancelled) arm();
      });
    };
    arm();
    return () => {
      isCancelled = true;
      cancel();
    };
  }

  /** Moves the wall clock of this process alone. */
  jump(ms: number): void {
    this.offsetMs += ms;
  }

  /** Stops the process, as SIGSTOP does. */
  stop(): void {
    if (this.state === 'runs') this.state = 'stopped';
  }

  /** Continues the process: the timers that fell due meanwhile run late, each once. */
  continue(): void {
    if (this.state !== 'stopped') return;
    this.state = 'runs';
    for (const call of this.late.splice(0)) this.world.after(0, call);
  }

  /** Ends the process, as SIGKILL does. */
  kill(): void {
    this.state = 'killed';
    this.late = [];
  }
}
