/** What /ready answers: named checks, the word of the command itself, and whether the process
 *  drains.
 *
 *  Invariants: (1) not ready before `setReady`, and never again from the start of a drain; (2) a
 *  check is never run twice at once, and one that hangs counts as failed after CHECK_TIMEOUT_MS;
 *  (3) a result is reused for CACHE_MS.
 */
import { afterAwake } from '../../core/awake.ts';
import type { Timers } from '../../core/clock.ts';

const CHECK_TIMEOUT_MS = 2000;
const CACHE_MS = 250;

interface CheckReport {
  readonly name: string;
  readonly ok: boolean;
  /** Why not. */
  readonly why?: string;
  /** Age of this result. */
  readonly age_ms: number;
  /** How long the answer has been the same. */
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
  /** The check itself, which may outlive the run that gave up on it. */
  asked: Promise<string | undefined> | undefined;
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
    this.checks.push({ name, run, last: undefined, running: undefined, asked: undefined });
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
    let answered = (): void => {};
    const late = new Promise<string>((resolve) => {
      answered = afterAwake(this.clock, CHECK_TIMEOUT_MS, () =>
        resolve(`no answer within ${CHECK_TIMEOUT_MS} ms`),
      );
    });
    check.asked ??= this.ask(check).finally(() => {
      check.asked = undefined;
    });
    const why = await Promise.race([check.asked, late]);
    answered();
    const ok = why === undefined;
    const atMs = this.clock.monotonicMs();
    const result: Result = { ok, why, atMs, sinceMs: check.last?.ok === ok ? check.last.sinceMs : atMs };
    check.last = result;
    return result;
  }

  /** Why the check is not good, undefined when it is. */
  private async ask(check: Check): Promise<string | undefined> {
    try {
      return (await check.run()) ? undefined : 'not yet';
    } catch (thrown) {
      return thrown instanceof Error ? thrown.message : String(thrown);
    }
  }
}
