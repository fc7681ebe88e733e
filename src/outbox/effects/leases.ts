/** Leases of the claims that one runner works on.
 *
 *  Invariants: (1) a claim that the runner does not work on is not renewed, so a claim whose answer
 *  was lost expires; (2) a call is aborted before another runner may take its effect over: when its
 *  lease was not renewed in time, and when a renewal did not find its claim.
 */
import type { Cancel, Timers } from '../../core/clock.ts';

/** Claim of an effect: the row, and the number of the attempt. */
export interface ClaimKey {
  readonly row: bigint;
  readonly attempt: number;
}

export class EffectLease implements ClaimKey {
  readonly row: bigint;
  readonly attempt: number;
  private readonly clock: Timers;
  private readonly control = new AbortController();
  private cancel: Cancel = () => {};
  /** Monotonic time until which the claim is certainly this runner's. */
  private untilMs = Number.NEGATIVE_INFINITY;

  constructor({ row, attempt }: ClaimKey, clock: Timers) {
    this.row = row;
    this.attempt = attempt;
    this.clock = clock;
  }

  /** Aborted when the lease ends without a release. */
  get ended(): AbortSignal {
    return this.control.signal;
  }

  /** True until the time at which the lease ends if the clocks run evenly. */
  get isInTime(): boolean {
    return this.clock.monotonicMs() < this.untilMs;
  }

  /** True while no other runner can have the effect, as far as this runner can tell. */
  get isHeld(): boolean {
    return this.isInTime && !this.ended.aborted;
  }

  holdUntil(ms: number): void {
    this.untilMs = ms;
    this.cancel();
    this.cancel = this.clock.after(ms - this.clock.monotonicMs(), () => this.end(), 'background');
  }

  end(): void {
    this.cancel();
    this.control.abort();
  }

  /** Cancels the end: the runner's work on the claim is over. */
  release(): void {
    this.cancel();
  }
}

export class EffectLeases {
  private readonly clock: Timers;
  private readonly leaseMs: number;
  private readonly leases = new Set<EffectLease>();

  constructor(clock: Timers, leaseMs: number) {
    this.clock = clock;
    this.leaseMs = leaseMs;
  }

  /** Begins the lease of a claim. @param claimedMs monotonic time before the claim was sent */
  begin(claim: ClaimKey, claimedMs: number): EffectLease {
    const lease = new EffectLease(claim, this.clock);
    this.leases.add(lease);
    lease.holdUntil(claimedMs + this.leaseMs);
    return lease;
  }

  release(lease: EffectLease): void {
    this.leases.delete(lease);
    lease.release();
  }

  /** Renews the leases that are held, and ends those that the database does not renew: its clock
   *  may have stepped beyond their end.
   *  @param renew sends the renewal, and returns the claims that it found; its errors are passed on
   */
  async renew(renew: (held: readonly ClaimKey[]) => Promise<readonly ClaimKey[]>): Promise<void> {
    const held = [...this.leases].filter(({ isHeld }) => isHeld);
    if (held.length === 0) return;
    const askedMs = this.clock.monotonicMs();
    const found = new Set((await renew(held)).map(textOf));
    for (const lease of held) {
      if (!this.leases.has(lease)) continue;
      if (found.has(textOf(lease))) lease.holdUntil(askedMs + this.leaseMs);
      else lease.end();
    }
  }
}

const textOf = ({ row, attempt }: ClaimKey): string => `${row}/${attempt}`;
