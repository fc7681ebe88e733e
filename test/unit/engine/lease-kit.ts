/** Lease of a job for tests: a store in memory, and processes whose clocks the test moves. */
import { LEASE_MS, RENEW_MS, StoreLease } from '../../../src/bin/engine/store/lease.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { engineError } from '../../../src/engine/errors.ts';
import { type ObjectStore, objectError, type StoredObject } from '../../../src/io/objects/port.ts';
import { turn } from '../../wait.ts';

/** Store in memory that counts its tags, can be away, and can be locked as a folder by a stopped
 *  process. */
export class MemoryStore implements ObjectStore {
  readonly where = 'memory';
  readonly objects = new Map<string, StoredObject>();
  isAway = false;
  isLocked = false;
  private tags = 0;
  private demand(): void {
    if (this.isAway) throw objectError('store_unavailable', 'away');
  }
  async get(name: string): Promise<StoredObject | undefined> {
    this.demand();
    return this.objects.get(name);
  }
  async put(name: string, bytes: Uint8Array): Promise<void> {
    this.demand();
    this.objects.set(name, { bytes: bytes.slice(), tag: `t${++this.tags}` });
  }
  async replace(name: string, bytes: Uint8Array, tag: string | undefined): Promise<string | undefined> {
    this.demand();
    if (this.isLocked) throw engineError('state_locked', 'memory stays locked');
    if (this.objects.get(name)?.tag !== tag) return undefined;
    await this.put(name, bytes);
    return this.objects.get(name)?.tag;
  }
  async list(prefix: string): Promise<readonly string[]> {
    this.demand();
    return [...this.objects.keys()].filter((name) => name.startsWith(prefix));
  }
  async remove(name: string): Promise<void> {
    this.objects.delete(name);
  }
}

/** Clock of one process, which sleeps as far as it is moved. */
export class Machine {
  private nowMs = 0;
  private sleepers: { readonly untilMs: number; readonly wake: () => void }[] = [];
  readonly clock = { monotonicMs: (): number => this.nowMs };
  readonly sleep = (ms: number): Promise<void> =>
    new Promise((wake) => this.sleepers.push({ untilMs: this.nowMs + ms, wake }));

  get isAsleep(): boolean {
    return this.sleepers.length > 0;
  }

  async move(ms: number): Promise<void> {
    for (const end = this.nowMs + ms; this.nowMs < end; ) {
      this.nowMs += 100;
      const due = this.sleepers.filter(({ untilMs }) => untilMs <= this.nowMs);
      this.sleepers = this.sleepers.filter(({ untilMs }) => untilMs > this.nowMs);
      for (const { wake } of due) wake();
      for (let turns = 0; turns < 5; turns++) await turn();
    }
  }
}

const running = new AbortController().signal;
/** Takes the lease of a job for a process. */
export const take = (
  store: ObjectStore,
  { clock, sleep }: Machine,
  waits = true,
): Promise<StoreLease | undefined> =>
  StoreLease.take(
    { store, clock, sleep, log: silentLogger },
    { waits, signal: running, onWait: async () => {} },
  );
/** Result of a promise, if it has one by now. */
export async function outcome<T>(promise: Promise<T>): Promise<T | Error | 'pending'> {
  return Promise.race([
    promise.catch((thrown: Error) => thrown),
    (async () => {
      for (let turns = 0; turns < 20; turns++) await turn();
      return 'pending' as const;
    })(),
  ]);
}

/** Lease of an owner that is paused until another process has taken the job. */
export class Takeover {
  readonly store = new MemoryStore();
  private readonly paused = new Machine();
  private readonly next = new Machine();

  /** Lease of the owner. */
  async first(): Promise<StoreLease> {
    return (await take(this.store, this.paused)) as StoreLease;
  }

  /** Takes the lease for another process, which has seen no renewal for its time. */
  async second(): Promise<StoreLease> {
    const taking = take(this.store, this.next);
    await this.next.move(LEASE_MS + RENEW_MS);
    return (await taking) as StoreLease;
  }

  /** Ends the pause: the clock of the owner shows it, and its next renewal is refused. */
  async resume(): Promise<void> {
    await this.paused.move(LEASE_MS + RENEW_MS);
  }
}
