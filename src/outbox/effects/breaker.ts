/** Circuit breaker of one third party: after several failures in a row, no call is made for a
 *  while; then one call probes. Each failed probe doubles the pause.
 *
 *  Pure: the caller passes all times. A refusal of the third party is no failure, because it
 *  answered. Source: M. Nygard, "Release It!", 2nd edition, chapter 5.
 */
export interface BreakerSettings {
  /** Failures in a row after which the breaker opens. */
  readonly failures: number;
  /** First pause, ms. */
  readonly openMs: number;
  /** Longest pause, ms. */
  readonly openMaxMs: number;
}

/** Doublings after which any pause has reached its maximum. */
const DOUBLINGS_MAX = 40;

export class Breaker {
  private readonly settings: BreakerSettings;
  private failures = 0;
  /** Number of pauses since the last success. */
  private opened = 0;
  private openUntilMs = Number.NEGATIVE_INFINITY;
  private isProbing = false;

  constructor(settings: BreakerSettings) {
    this.settings = settings;
  }

  /** True during a pause, and until its probe has ended. */
  get isOpen(): boolean {
    return this.opened > 0;
  }

  /** Returns how many calls may start now, at most `wanted`. */
  room(nowMs: number, wanted: number): number {
    if (this.opened === 0) return wanted;
    return nowMs < this.openUntilMs || this.isProbing ? 0 : Math.min(wanted, 1);
  }

  /** Returns the time until a call may start, ms; 0: now. */
  closedForMs(nowMs: number): number {
    return this.opened === 0 ? 0 : Math.max(0, this.openUntilMs - nowMs);
  }

  started(): void {
    if (this.opened > 0) this.isProbing = true;
  }

  /** Records a claimed call that was not made, or whose end says nothing about the third party. */
  skipped(): void {
    this.isProbing = false;
  }

  succeeded(): void {
    this.failures = 0;
    this.opened = 0;
    this.isProbing = false;
  }

  failed(nowMs: number): void {
    const { failures, openMs, openMaxMs } = this.settings;
    this.failures++;
    const isProbe = this.isProbing;
    this.isProbing = false;
    // Calls that began before the breaker opened say nothing about the pause.
    if (this.opened > 0 ? !isProbe : this.failures < failures) return;
    const pauseMs = Math.min(openMaxMs, openMs * 2 ** Math.min(this.opened, DOUBLINGS_MAX));
    this.opened++;
    this.openUntilMs = nowMs + pauseMs;
  }
}
