/** Who may write, as the instances tell each other: the newest announcement, and how long it is good for.
 *
 *  An announcement is only a hint about liveness. That two instances never write at once is the broker's doing: the
 *  one that initialised the transactional id last fences all others.
 */
import type { Random } from '../../../core/clock.ts';

const utf8 = new TextEncoder();

export const ANNOUNCEMENT_KEY = utf8.encode('leader');
/** An announcement that is this many leases old by the clocks is one of an instance that is gone. */
const STALE_LEASES = 4;
const CLOCK_SKEW_MS = 5000;
/** Candidates spread over this share of a lease. */
const SPREAD = 0.15;

export interface Announcement {
  /** Of one process. */
  readonly instance: string;
  /** Where it answers HTTP; empty: it does not. */
  readonly url: string;
  /** No record below this offset is one of an aborted transaction that another record does not replace. */
  readonly clean: bigint;
  /** The instance gives leadership up. */
  readonly resigned: boolean;
}

export interface SeenAnnouncement extends Announcement {
  readonly offset: bigint;
}

export function encodeAnnouncement(announcement: Announcement): Uint8Array {
  return utf8.encode(JSON.stringify({ ...announcement, clean: String(announcement.clean) }));
}

/** Undefined for what is none. */
export function decodeAnnouncement(value: Uint8Array | null): Announcement | undefined {
  if (value === null || value.length > 8192) return undefined;
  try {
    const found = JSON.parse(Buffer.from(value).toString()) as Record<string, unknown>;
    const { instance, url, clean, resigned } = found;
    if (typeof instance !== 'string' || typeof url !== 'string' || typeof clean !== 'string')
      return undefined;
    if (!/^\d{1,18}$/.test(clean)) return undefined;
    return { instance, url, clean: BigInt(clean), resigned: resigned === true };
  } catch {
    return undefined;
  }
}

export class Lease {
  private readonly instance: string;
  private readonly url: string;
  private readonly leaseMs: number;
  private seenAtMs = 0;
  private readonly random: Pick<Random, 'fraction'>;
  private spread: number;
  private stale = false;
  /** Until then whoever fenced this instance may announce itself. */
  private successorUntilMs = 0;
  /** Until this process has begun to take part. */
  private starting = true;
  current: SeenAnnouncement | undefined;

  constructor(instance: string, url: string, leaseMs: number, random: Pick<Random, 'fraction'>) {
    this.instance = instance;
    this.url = url;
    this.leaseMs = leaseMs;
    this.random = random;
    this.spread = random.fraction() * SPREAD;
  }

  /** @param ageMs by the clocks of the two machines */
  note(announcement: SeenAnnouncement, nowMs: number, ageMs: number): void {
    if (this.current !== undefined && announcement.offset <= this.current.offset) return;
    this.current = announcement;
    this.seenAtMs = nowMs;
    if (announcement.instance !== this.instance) this.successorUntilMs = 0;
    this.stale = ageMs > STALE_LEASES * this.leaseMs + CLOCK_SKEW_MS;
    this.spread = this.random.fraction() * SPREAD;
  }

  /** Fencing is a sign of life of the one that did it. Who stood again at once would fence it in turn, and it the other
   *  again, while the writes of both are lost. */
  fenced(nowMs: number): void {
    this.successorUntilMs = nowMs + this.leaseMs * (1 + this.spread);
  }

  /** This process stood still: what others said meanwhile is not read yet, so that time is nobody's silence. */
  stalled(ms: number): void {
    this.seenAtMs += ms;
    this.successorUntilMs += ms;
  }

  started(): void {
    this.starting = false;
  }

  /** Another instance says that it answers at the address of this one. */
  get clashes(): boolean {
    const { current } = this;
    if (this.starting || this.url === '' || current === undefined) return false;
    return current.url === this.url && current.instance !== this.instance && !current.resigned;
  }

  /** Whether nobody else is known to lead, or about to. */
  vacant(nowMs: number): boolean {
    return nowMs >= this.successorUntilMs && this.silent(nowMs);
  }

  private silent(nowMs: number): boolean {
    const { current } = this;
    if (current === undefined || current.resigned || this.stale) return true;
    if (current.instance === this.instance) return true;
    // An announcement found at the start, of this very address: its process is gone.
    if (this.starting && this.url !== '' && current.url === this.url) return true;
    return nowMs - this.seenAtMs > this.leaseMs * (1 + this.spread);
  }

  /** Who takes writes, and where; undefined while nobody is known to. */
  leader(nowMs: number): { readonly url: string; readonly instance: string } | undefined {
    const { current } = this;
    if (current === undefined || current.url === '' || current.url === this.url) return undefined;
    return this.silent(nowMs) ? undefined : { url: current.url, instance: current.instance };
  }
}
