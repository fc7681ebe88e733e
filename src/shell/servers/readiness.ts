/** Readiness of a process: named checks, the command's own `setReady`, and the drain state.
 *  Invariants: (1) The process is not ready before `setReady`, nor after the start of a drain. (2)
 *  A check never runs twice at the same time; a check without an answer within CHECK_TIMEOUT_MS has
 *  failed. (3) A result is reused for CACHE_MS. */
import { afterAwake } from '../../core/awake.ts';
import type { Timers } from '../../core/clock.ts';

const CHECK_TIMEOUT_MS = 2000;
const CACHE_MS = 250;

interface CheckReport {
  readonly name: string;
  readonly ok: boolean;
  /** Reason of a failed check. */
  readonly why?: string;
  /** Age of this result in ms. */
  readonly age_ms: number;
  /** Time in ms since `ok` last changed. */
  readonly since_ms: number;
}

export interface ReadyReport {
  readonly ready: boolean;
  readonly draining: boolean;
  readonly started: boolean;
  readonly checks: readonly CheckReport[];
}

interface Result {
  readonly ok: boolean;
  readonly why: string | undefined;
  readonly atMs: number;
  readonly sinceMs: number;
}

interface Check {
  readonly name: string;
  readonly run: () => boolean | Promise<boolean>;
  last: Result | undefined;
  running: Promise<Result> | undefined;
  /** Call of the check in flight; it may outlive the run that timed out. */
  inFlight: Promise<string | undefined> | undefined;
}

export class Readiness {
  private readonly clock: Timers;
  private readonly checks: Check[] = [];
  private started = false;
  private draining = false;

  constructor(clock: Timers) {
    this.clock = clock;
  }

  add(name: string, run: () => boolean | Promise<boolean>): void {
    this.checks.push({ name, run, last: undefined, running: undefined, inFlight: undefined });
  }

  setReady(): void {
    this.started = true;
  }

  startDrain(): void {
    this.draining = true;
  }

  async report(): Promise<ReadyReport> {
    const results = await Promise.all(this.checks.map((check) => this.resultOf(check)));
    const nowMs = this.clock.monotonicMs();
    const checks = this.checks.map((check, index): CheckReport => {
      const result = results[index] as Result;
      const why = result.why === undefined ? {} : { why: result.why };
      return {
        name: check.name,
        ok: result.ok,
        ...why,
        age_ms: Math.round(nowMs - result.atMs),
        since_ms: Math.round(nowMs - result.sinceMs),
      };
    });
    const ready = this.started && !this.draining && checks.every((check) => check.ok);
    return { ready, draining: this.draining, started: this.started, checks };
  }

  private resultOf(check: Check): Promise<Result> {
    if (check.last !== undefined && this.clock.monotonicMs() - check.last.atMs < CACHE_MS)
      return Promise.resolve(check.last);
    check.running ??= this.run(check).finally(() => {
      check.running = undefined;
    });
    return check.running;
  }

  private async run(check: Check): Promise<Result> {
    let cancelTimeout = (): void => {};
    const timeout = new Promise<string>((resolve) => {
      cancelTimeout = afterAwake(this.clock, CHECK_TIMEOUT_MS, () =>
        resolve(`no answer within ${CHECK_TIMEOUT_MS} ms`),
      );
    });
    check.inFlight ??= this.call(check).finally(() => {
      check.inFlight = undefined;
    });
    const why = await Promise.race([check.inFlight, timeout]);
    cancelTimeout();
    const ok = why === undefined;
    const atMs = this.clock.monotonicMs();
    const result: Result = { ok, why, atMs, sinceMs: check.last?.ok === ok ? check.last.sinceMs : atMs };
    check.last = result;
    return result;
  }

  /** Runs the check. Resolves to the reason of a failure, or undefined. */
  private async call(check: Check): Promise<string | undefined> {
    try {
      return (await check.run()) ? undefined : 'not yet';
    } catch (thrown) {
      return thrown instanceof Error ? thrown.message : String(thrown);
    }
  }
}
