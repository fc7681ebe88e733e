/** UUIDs as text: reading any version, making version 7 (sorts by time, so that index inserts stay at one edge).
 *
 *  Invariants: (1) what is read or made is lower-case 8-4-4-4-12; (2) ids of one maker strictly ascend, also when the
 *  clock stands still or steps back. Source: RFC 9562, 5.7 and 6.2 method 1.
 */
import type { Clock } from '../core/clock.ts';

/** Fills the array with random bytes; handed in, so that a seed repeats a run. */
export type RandomBytes = (into: Uint8Array) => void;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** The canonical text of a UUID in any case, or undefined. */
export function canonicalUuid(text: string): string | undefined {
  if (text.length !== 36) return undefined;
  const lower = text.toLowerCase();
  return UUID.test(lower) ? lower : undefined;
}

const POOL_BYTES = 4096;
/** rand_a: 12 bits, used as a counter within one millisecond. */
const COUNTER_MAX = 0xfff;

export class UuidV7 {
  private readonly clock: Clock;
  private readonly random: RandomBytes;
  private readonly pool = new Uint8Array(POOL_BYTES);
  private at = POOL_BYTES;
  private lastMs = 0;
  private counter = 0;

  constructor(clock: Clock, random: RandomBytes) {
    this.clock = clock;
    this.random = random;
  }

  next(): string {
    const nowMs = Math.floor(this.clock.wallNowMs());
    const tail = this.bytes(8);
    if (nowMs > this.lastMs) {
      this.lastMs = nowMs;
      // Room above the start, so that a burst rarely borrows a millisecond from the future.
      const seed = this.bytes(2);
      this.counter = (((seed[0] as number) << 8) | (seed[1] as number)) & (COUNTER_MAX >> 1);
    } else if (++this.counter > COUNTER_MAX) {
      this.lastMs++;
      this.counter = 0;
    }
    const time = this.lastMs.toString(16).padStart(12, '0');
    const low = Array.from(tail, (byte) => byte.toString(16).padStart(2, '0'));
    low[0] = (((tail[0] as number) & 0x3f) | 0x80).toString(16);
    const counter = this.counter.toString(16).padStart(3, '0');
    return `${time.slice(0, 8)}-${time.slice(8)}-7${counter}-${low[0]}${low[1]}-${low.slice(2).join('')}`;
  }

  private bytes(count: number): Uint8Array {
    if (this.at + count > POOL_BYTES) {
      this.random(this.pool);
      this.at = 0;
    }
    this.at += count;
    // A copy: the pool may be filled anew while the caller still holds these.
    return this.pool.slice(this.at - count, this.at);
  }
}
