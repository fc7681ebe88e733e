/** Credentials that were checked a short while ago, by a keyed hash of them: the credentials
 *  themselves are not kept.
 *
 *  Invariants: (1) an answer is believed until its time and never longer; (2) at most ENTRIES_MAX
 *  are kept, the oldest goes first; (3) the key lives as long as the process and is never written.
 */
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

  /** The key stands before what is hashed: nobody outside ever sees or chooses a digest, so no more
   *  is needed. */
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
