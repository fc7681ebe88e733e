/** Clock of one simulated process. Several processes share the time of a `shared` clock; each can
 *  be stopped, continued and killed, and has its own wall clock offset.
 *  Invariant: no timer of a process runs while the process is stopped or after it was killed. */
import type { Cancel, Timers } from '../core/clock.ts';

export class ProcessClock implements Timers {
  private readonly shared: Timers;
  private offsetMs = 0;
  private state: 'runs' | 'stopped' | 'killed' = 'runs';
  /** Timers that fell due while the process was stopped, in order. */
  private late: Array<() => void> = [];

  constructor(shared: Timers) {
    this.shared = shared;
  }

  wallNowMs(): number {
    return this.shared.wallNowMs() + this.offsetMs;
  }

  monotonicMs(): number {
    return this.shared.monotonicMs();
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
    const cancel = this.shared.after(ms, call);
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

  /** Moves only the wall clock of this process. */
  jump(ms: number): void {
    this.offsetMs += ms;
  }

  /** Stops the process, as SIGSTOP does. */
  stop(): void {
    if (this.state === 'runs') this.state = 'stopped';
  }

  /** Continues the process: timers that fell due meanwhile run late, each once. */
  continue(): void {
    if (this.state !== 'stopped') return;
    this.state = 'runs';
    for (const call of this.late.splice(0)) this.shared.after(0, call);
  }

  /** Ends the process, as SIGKILL does. */
  kill(): void {
    this.state = 'killed';
    this.late = [];
  }
}
