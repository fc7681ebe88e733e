/** UUIDs as text: parses any version, generates version 7 (sorts by time, so that index inserts
 *  stay at the right edge), derives version 5.
 *
 *  Invariants: (1) every UUID that is parsed or generated is lower-case 8-4-4-4-12; (2) ids of one
 *  generator strictly ascend, also when the clock stands still or steps back. Source: RFC 9562,
 *  sections 5.5, 5.7 and 6.2 method 1.
 */
import { createHash } from 'node:crypto';
import type { Clock, Random } from '../core/clock.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Returns the canonical text of a UUID in any case: lower-case 8-4-4-4-12. Undefined for any
 *  other text.
 *  @example
 *  const id = canonicalUuid(request.headers['idempotency-key'] ?? '');
 */
export function canonicalUuid(text: string): string | undefined {
  if (text.length !== 36) return undefined;
  const lower = text.toLowerCase();
  return UUID.test(lower) ? lower : undefined;
}

/** Returns the UUIDv5 of a name in a namespace: the same text for the same two, always.
 *  @param namespace UUID in canonical form */
export function uuidV5(namespace: string, name: string): string {
  const hash = createHash('sha1')
    .update(Buffer.from(namespace.replaceAll('-', ''), 'hex'))
    .update(name, 'utf8');
  const bytes = hash.digest();
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x50;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20, 32)].join(
    '-',
  );
}

const POOL_BYTES = 4096;
/** rand_a: 12 bits, used as a counter within one millisecond. */
const COUNTER_MAX = 0xfff;
const DASH = 0x2d;
const HEX = new TextEncoder().encode('0123456789abcdef');

/** Generator of UUIDv7. Budget: 0.3 us an id; each order needs two. */
export class UuidV7 {
  private readonly clock: Clock;
  private readonly random: Random;
  private readonly pool = new Uint8Array(POOL_BYTES);
  /** The text under construction; its first 13 characters are those of `lastMs`. */
  private readonly text = Buffer.alloc(36, DASH);
  private at = POOL_BYTES;
  private lastMs = 0;
  private counter = 0;

  constructor(clock: Clock, random: Random) {
    this.clock = clock;
    this.random = random;
  }

  next(): string {
    const nowMs = Math.floor(this.clock.wallNowMs());
    if (nowMs > this.lastMs) {
      const seed = this.reserve(2);
      const { pool } = this;
      // Start in the lower half, so that a burst rarely advances `lastMs` beyond the clock.
      this.counter = (((pool[seed] as number) << 8) | (pool[seed + 1] as number)) & (COUNTER_MAX >> 1);
      this.setTime(nowMs);
    } else if (++this.counter > COUNTER_MAX) {
      this.counter = 0;
      this.setTime(this.lastMs + 1);
    }
    const tail = this.reserve(8);
    const { text, pool, counter } = this;
    text[14] = 0x37;
    text[15] = HEX[counter >> 8] as number;
    text[16] = HEX[(counter >> 4) & 15] as number;
    text[17] = HEX[counter & 15] as number;
    let to = 19;
    for (let i = 0; i < 8; i++) {
      let byte = pool[tail + i] as number;
      if (i === 0) byte = (byte & 0x3f) | 0x80;
      if (i === 2) to = 24;
      text[to++] = HEX[byte >> 4] as number;
      text[to++] = HEX[byte & 15] as number;
    }
    return text.toString('latin1');
  }

  private setTime(ms: number): void {
    this.lastMs = ms;
    let rest = ms;
    for (let i = 12; i >= 0; i--) {
      if (i === 8) continue;
      this.text[i] = HEX[rest % 16] as number;
      rest = Math.floor(rest / 16);
    }
  }

  /** Reserves this many unused random bytes and returns their position in the pool. */
  private reserve(count: number): number {
    if (this.at + count > POOL_BYTES) {
      this.random.fill(this.pool);
      this.at = 0;
    }
    this.at += count;
    return this.at - count;
  }
}
