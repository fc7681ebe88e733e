/** Cache of checked credentials, keyed by a keyed hash; the credentials themselves are not stored.
 *  Invariants: (1) An entry is never used past its time. (2) At most ENTRIES_MAX entries exist; the
 *  oldest is evicted first. (3) The key lives as long as the process and is never written. */
// biome-ignore lint/style/noRestrictedImports: the key of the hash is a secret.
import { hash, randomBytes } from 'node:crypto';
import type { Clock } from '../core/clock.ts';

const ENTRIES_MAX = 10_000;

interface Entry<T> {
  readonly value: T;
  readonly untilMs: number;
}

export class Verified<T> {
  private readonly clock: Clock;
  private readonly key = randomBytes(32).toString('base64');
  private readonly entries = new Map<string, Entry<T>>();

  constructor(clock: Clock) {
    this.clock = clock;
  }

  get size(): number {
    return this.entries.size;
  }

  /** Hashes key and credentials. A plain prefix is enough as a MAC here: digests never leave the
   *  process, so length extension is not possible. */
  digest(credentials: string): string {
    return hash('sha256', this.key + credentials, 'base64');
  }

  get(digest: string): T | undefined {
    const entry = this.entries.get(digest);
    if (entry === undefined) return undefined;
    if (this.clock.monotonicMs() < entry.untilMs) return entry.value;
    this.entries.delete(digest);
    return undefined;
  }

  set(digest: string, value: T, forMs: number): void {
    this.entries.delete(digest);
    if (this.entries.size >= ENTRIES_MAX) this.entries.delete(this.entries.keys().next().value as string);
    this.entries.set(digest, { value, untilMs: this.clock.monotonicMs() + forMs });
  }

  clear(): void {
    this.entries.clear();
  }
}
