/** A service of a chaos run: a command that is started again whenever it ends, as an
 *  orchestrator would.
 *
 *  Invariants: (1) at most one process of a service runs at a time; (2) every end is either
 *  planned by a fault or recorded; (3) after `stop` no process is started. */
import { readFileSync } from 'node:fs';
import { crashLineOf } from '../../chaos/crash-line.ts';
import type { UnplannedEnd } from '../../chaos/verdict.ts';
import { sleep, type Timers, within } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import type { ShimControl } from '../../devstack/fault-shim.ts';
import type { Processes } from '../../shell/children/processes.ts';
import { ready } from '../../shell/children/ready.ts';
import type { StartedCommand } from '../../shell/children/started-command.ts';
import { aborted } from '../../shell/wait.ts';

/** Pause before a process that ended by itself is started again, in ms. */
const RESTART_MS = 500;
const POLL_MS = 50;
/** Crashes at a point with nothing in flight before the fault counts as not applied. */
const CRASHES_MAX = 10;
/** Time until a process reads its stepped clock, in ms. */
const STEP_MS_MAX = 60_000;
/** Time that a service gets after SIGTERM, in ms, above the -drain-timeout of the services. */
const STOP_MS_MAX = 60_000;

export interface ManagedServiceOptions {
  readonly name: string;
  /** Command of each process; absent: the name. */
  readonly command?: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly processes: Pick<Processes, 'spawn'>;
  /** Resolves when a process is ready, and rejects if it ended before. Absent: /ready of its
   *  address answers. */
  readonly readiness?: (child: StartedCommand) => Promise<unknown>;
  /** Page of the shim that is preloaded into each process; absent: its clock cannot be stepped. */
  readonly shim?: Pick<ShimControl, 'environment' | 'stepClock' | 'clockReads'> | undefined;
  readonly clock: Timers;
  readonly onUnplannedEnd: (end: Omit<UnplannedEnd, 'atMs'>) => void;
}

interface Current {
  readonly child: StartedCommand;
  /** True for a process that ends itself at a crash point. */
  readonly willCrash: boolean;
  /** True once its end is wanted. */
  isEnding: boolean;
  over: { readonly code: number | null; readonly signal: string | null } | undefined;
}

export class ManagedService {
  readonly name: string;
  private readonly options: ManagedServiceOptions;
  private current: Current | undefined;
  private isWanted = false;

  constructor(options: ManagedServiceOptions) {
    this.options = options;
    this.name = options.name;
  }

  /** Starts a process.
   *  @param extra flags of this process and of those that replace it */
  start(extra: readonly string[] = []): void {
    this.isWanted = true;
    const { name, command = name, args, env, processes, shim, clock, onUnplannedEnd } = this.options;
    const child = processes.spawn(name, [command, ...args, ...extra], { ...env, ...shim?.environment });
    const current: Current = { child, willCrash: extra.length > 0, isEnding: false, over: undefined };
    this.current = current;
    void child.ended.then(async (how) => {
      current.over = how;
      if (current.isEnding || !this.isWanted) return;
      if (current.willCrash && isCrash(child, how)) return;
      onUnplannedEnd({ service: name, ...how, logPath: child.logPath });
      await sleep(clock, RESTART_MS);
      if (this.isWanted && this.current === current) this.start(extra);
    });
  }

  /** Waits until the process answers /ready with success. A process that ended and was replaced
   *  does not end the wait. @throws timeout when the signal is aborted */
  async ready(signal: AbortSignal): Promise<void> {
    const over = aborted(signal).then(() => false);
    for (;;) {
      const { current } = this;
      if (signal.aborted) throw coreError('timeout', `${this.name} did not become ready`);
      if (current !== undefined && current.over === undefined) {
        const { readiness = (child) => ready(this.name, child) } = this.options;
        const isReady = readiness(current.child).then(
          () => true,
          () => false,
        );
        if ((await Promise.race([isReady, over])) && this.current === current) return;
      }
      await sleep(this.options.clock, POLL_MS, signal);
    }
  }

  /** Kills the process. @returns its pid @throws unreachable if it ended by itself before */
  async kill(signal: AbortSignal): Promise<number> {
    const current = await this.running(signal);
    current.isEnding = true;
    current.child.kill('SIGKILL');
    const how = await current.child.ended;
    if (how.signal === 'SIGKILL') return current.child.pid;
    throw coreError('unreachable', `${this.name} had ended with ${how.signal ?? `code ${how.code}`}`);
  }

  /** Stops the process with SIGSTOP. @returns a function that continues it and throws
   *  unreachable if it ended meanwhile, and its pid */
  async pause(signal: AbortSignal): Promise<{ readonly pid: number; readonly resume: () => void }> {
    const current = await this.running(signal);
    const { child } = current;
    child.kill('SIGSTOP');
    return {
      pid: child.pid,
      resume: () => {
        child.kill('SIGCONT');
        if (current.over !== undefined)
          throw coreError('unreachable', `${this.name} ended while it was stopped`);
      },
    };
  }

  /** Steps the wall clock of the process, and waits until the process has read it.
   *  @returns a function that steps it back, and the pid
   *  @throws unreachable if the process ended, or reads no clock of the C library */
  async stepClock(
    stepMs: number,
    signal: AbortSignal,
  ): Promise<{ readonly pid: number; readonly back: () => void }> {
    const { shim, clock } = this.options;
    if (shim === undefined) throw coreError('internal', `no shim is preloaded into ${this.name}`);
    const current = await this.running(signal);
    const before = shim.clockReads;
    shim.stepClock(stepMs);
    const endMs = clock.monotonicMs() + STEP_MS_MAX;
    while (shim.clockReads === before) {
      if (current.over === undefined && clock.monotonicMs() < endMs && !signal.aborted) {
        await sleep(clock, POLL_MS, signal);
        continue;
      }
      shim.stepClock(0);
      throw coreError('unreachable', `${this.name} did not read its stepped clock`);
    }
    return { pid: current.child.pid, back: () => shim.stepClock(0) };
  }

  /** Replaces the process by one that ends itself at the point, until one of them had work in
   *  flight. Afterwards the service has no process.
   *  @returns the unfinished work */
  async crashAt(point: string, after: number, signal: AbortSignal): Promise<number> {
    for (let attempt = 0; attempt < CRASHES_MAX; attempt++) {
      await this.halt();
      this.start([`-crash-point=${point}`, `-crash-after=${after}`]);
      const log = await this.crash(signal);
      const line = crashLineOf(log);
      if (line?.point === point && line.unfinished > 0) return line.unfinished;
    }
    throw coreError('unreachable', `${this.name} had nothing in flight at ${CRASHES_MAX} crashes`);
  }

  /** Ends the process and starts no other one until `restart`: SIGTERM, and SIGKILL after a
   *  generous time. */
  async halt(): Promise<void> {
    const { current } = this;
    if (current === undefined || current.over !== undefined) return;
    current.isEnding = true;
    current.child.kill('SIGTERM');
    if (!(await within(this.options.clock, STOP_MS_MAX, current.child.ended))) current.child.kill('SIGKILL');
    await current.child.ended;
  }

  /** Starts a process if the last one has ended or is one that will crash. */
  async restart(): Promise<void> {
    if (!this.isWanted) return;
    const { current } = this;
    if (current !== undefined && current.over === undefined) {
      if (!current.willCrash) return;
      await this.halt();
    }
    this.start();
  }

  /** Ends the service: SIGTERM, and SIGKILL after a generous time. @returns the exit, undefined
   *  for a service without a process */
  async stop(): Promise<Current['over']> {
    this.isWanted = false;
    const { current } = this;
    if (current === undefined || current.over !== undefined) return undefined;
    await this.halt();
    return current.over;
  }

  /** Starts no further process. */
  abandon(): void {
    this.isWanted = false;
  }

  /** Log of the last process; empty before the first one. */
  get logPath(): string {
    return this.current?.child.logPath ?? '';
  }

  /** Waits for a crash of this process or of those that replace it. @returns the log */
  private async crash(signal: AbortSignal): Promise<string> {
    while (!signal.aborted) {
      const { current } = this;
      if (current?.over !== undefined && isCrash(current.child, current.over))
        return readFileSync(current.child.logPath, 'utf8');
      await sleep(this.options.clock, POLL_MS, signal);
    }
    throw coreError('timeout', `${this.name} did not reach the crash point`);
  }

  private async running(signal: AbortSignal): Promise<Current> {
    for (;;) {
      if (signal.aborted) throw coreError('timeout', `${this.name} did not run`);
      const { current } = this;
      if (current !== undefined && current.over === undefined) return current;
      await sleep(this.options.clock, POLL_MS, signal);
    }
  }
}

function isCrash(child: StartedCommand, { signal }: { readonly signal: string | null }): boolean {
  return signal === 'SIGKILL' && crashLineOf(readFileSync(child.logPath, 'utf8')) !== undefined;
}
