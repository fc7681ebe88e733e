/** Rows in flight: accepted, and neither marked nor left. Sources wait here for back-pressure. */
import { invariant } from '../../../core/errors.ts';
import type { OutboxRow } from '../store.ts';

/** Memory of a row beside its payload, in bytes. */
const ROW_BYTES = 512;

export const bytesOf = ({ payload, record }: OutboxRow): number =>
  payload.length + ROW_BYTES + (record?.headers?.length ?? 0);

export interface InFlightLimits {
  /** Limits at which a source waits. A source checks before a delivery, so one delivery can exceed
   *  them. */
  readonly rows: number;
  readonly bytes: number;
}

/** Key of a hash set: numbers hash in a fraction of the time of bigints. */
const numberOf = (id: bigint): number | bigint => (id <= Number.MAX_SAFE_INTEGER ? Number(id) : id);

export class InFlight {
  private readonly limits: InFlightLimits;
  private readonly ids = new Set<number | bigint>();
  private readonly shardLoad: Int32Array;
  private byteCount = 0;
  private over = false;
  private roomWaiters: Array<() => void> = [];
  private idleWaiters: Array<() => void> = [];

  constructor(shards: number, limits: InFlightLimits) {
    this.limits = limits;
    this.shardLoad = new Int32Array(shards);
  }

  get size(): number {
    return this.ids.size;
  }

  get bytes(): number {
    return this.byteCount;
  }

  has(id: bigint): boolean {
    return this.ids.has(numberOf(id));
  }

  isShardIdle(shard: number): boolean {
    return this.shardLoad[shard] === 0;
  }

  add(row: OutboxRow, shard: number): void {
    invariant(shard >= 0 && shard < this.shardLoad.length, 'a row belongs to a shard of its outbox');
    const before = this.ids.size;
    this.ids.add(numberOf(row.id));
    invariant(this.ids.size === before + 1, 'a row is accepted once');
    this.byteCount += bytesOf(row);
    this.shardLoad[shard] = (this.shardLoad[shard] as number) + 1;
  }

  remove(row: OutboxRow, shard: number): void {
    if (!this.ids.delete(numberOf(row.id))) return;
    this.byteCount -= bytesOf(row);
    const load = (this.shardLoad[shard] as number) - 1;
    invariant(load >= 0 && this.byteCount >= 0, 'no more rows leave than were accepted');
    this.shardLoad[shard] = load;
    this.wake();
  }

  /** Forgets all rows: no report about them will arrive. */
  clear(): void {
    this.ids.clear();
    this.byteCount = 0;
    this.shardLoad.fill(0);
    this.wake();
  }

  /** Resolves every wait, present and future. */
  end(): void {
    this.over = true;
    this.wake();
  }

  room(): Promise<void> {
    if (this.hasRoom()) return Promise.resolve();
    return new Promise((resolve) => this.roomWaiters.push(resolve));
  }

  idle(): Promise<void> {
    if (this.over || this.ids.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.idleWaiters.push(resolve));
  }

  private hasRoom(): boolean {
    return this.over || (this.ids.size < this.limits.rows && this.byteCount < this.limits.bytes);
  }

  private wake(): void {
    if (this.roomWaiters.length > 0 && this.hasRoom()) {
      const waiters = this.roomWaiters;
      this.roomWaiters = [];
      for (const wake of waiters) wake();
    }
    if (this.idleWaiters.length > 0 && (this.over || this.ids.size === 0)) {
      const waiters = this.idleWaiters;
      this.idleWaiters = [];
      for (const wake of waiters) wake();
    }
  }
}
