/** Lease of the leader: the newest announcement of an instance, and the time for which it is valid.
 *
 *  An announcement is only a hint about liveness. The broker prevents two instances from writing at
 *  the same time: the instance that initialized the transactional id last fences all others.
 */
import type { Random } from '../../../core/clock.ts';

const utf8 = new TextEncoder();

export const ANNOUNCEMENT_KEY = utf8.encode('leader');
/** Age, in leases by the clocks, from which an announcement belongs to an instance that has ended.
 */
const STALE_LEASES = 4;
const CLOCK_SKEW_MS = 5000;
/** Share of a lease over which candidates spread their attempts. */
const SPREAD = 0.15;

export interface Announcement {
  /** Unique id of one process. */
  readonly instance: string;
  /** HTTP address of the instance; empty: it answers no HTTP. */
  readonly url: string;
  /** Offset below which every record of an aborted transaction is replaced by another record. */
  readonly clean: bigint;
  /** True: the instance resigns as leader. */
  readonly resigned: boolean;
}

export interface SeenAnnouncement extends Announcement {
  readonly offset: bigint;
}

export function encodeAnnouncement(announcement: Announcement): Uint8Array {
  return utf8.encode(JSON.stringify({ ...announcement, clean: String(announcement.clean) }));
}

/** Decodes an announcement; undefined for any other value. */
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

export class LeaderLease {
  private readonly instance: string;
  private readonly url: string;
  private readonly leaseMs: number;
  private seenAtMs = 0;
  private readonly random: Pick<Random, 'fraction'>;
  private spread: number;
  private stale = false;
  /** Time until which the instance that fenced this one may announce itself. */
  private successorUntilMs = 0;
  /** True until this process takes part in the election. */
  private starting = true;
  current: SeenAnnouncement | undefined;

  constructor(instance: string, url: string, leaseMs: number, random: Pick<Random, 'fraction'>) {
    this.instance = instance;
    this.url = url;
    this.leaseMs = leaseMs;
    this.random = random;
    this.spread = random.fraction() * SPREAD;
  }

  /** Records an announcement.
   *  @param ageMs age by the clocks of the two machines
   */
  note(announcement: SeenAnnouncement, nowMs: number, ageMs: number): void {
    if (this.current !== undefined && announcement.offset <= this.current.offset) return;
    this.current = announcement;
    this.seenAtMs = nowMs;
    if (announcement.instance !== this.instance) this.successorUntilMs = 0;
    this.stale = ageMs > STALE_LEASES * this.leaseMs + CLOCK_SKEW_MS;
    this.spread = this.random.fraction() * SPREAD;
  }

  /** Records that another instance fenced this one, and is therefore alive. An immediate new
   *  attempt would fence it in turn, and the two would alternate while the writes of both are lost.
   */
  fenced(nowMs: number): void {
    this.successorUntilMs = nowMs + this.leaseMs * (1 + this.spread);
  }

  /** Excludes a suspension of this process: announcements from that time are not read yet, so it is
   *  not silence of the leader.
   */
  stalled(ms: number): void {
    this.seenAtMs += ms;
    this.successorUntilMs += ms;
  }

  started(): void {
    this.starting = false;
  }

  /** True when another instance announces the address of this one. */
  get clashes(): boolean {
    const { current } = this;
    if (this.starting || this.url === '' || current === undefined) return false;
    return current.url === this.url && current.instance !== this.instance && !current.resigned;
  }

  /** True when no other instance is known to lead, or about to lead. */
  vacant(nowMs: number): boolean {
    return nowMs >= this.successorUntilMs && this.silent(nowMs);
  }

  private silent(nowMs: number): boolean {
    const { current } = this;
    if (current === undefined || current.resigned || this.stale) return true;
    if (current.instance === this.instance) return true;
    // An announcement with this address that exists at the start: its process has ended.
    if (this.starting && this.url !== '' && current.url === this.url) return true;
    return nowMs - this.seenAtMs > this.leaseMs * (1 + this.spread);
  }

  /** Leader that accepts writes, and its address; undefined while none is known. */
  leader(nowMs: number): { readonly url: string; readonly instance: string } | undefined {
    const { current } = this;
    if (current === undefined || current.url === '' || current.url === this.url) return undefined;
    return this.silent(nowMs) ? undefined : { url: current.url, instance: current.instance };
  }
}
