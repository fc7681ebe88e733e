/** Rows in flight: accepted, and neither marked nor left. Sources wait here for back-pressure.
 *
 *  A row is known by its id and its msg_id. PostgreSQL may lose the transaction of a row in flight,
 *  in a crash or a failover to a standby that lags; then it gives the id out again.
 */
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

type Identity = Pick<OutboxRow, 'id' | 'msgId'>;

/** Key of a hash map: numbers hash in a fraction of the time of bigints. */
const numberOf = (id: bigint): number | bigint => (id <= Number.MAX_SAFE_INTEGER ? Number(id) : id);

const pairOf = ({ id, msgId }: Identity): string => `${id} ${msgId}`;

export class InFlight {
  private readonly limits: InFlightLimits;
  /** Message of each id. */
  private readonly messages = new Map<number | bigint, string>();
  /** Rows whose id is that of a row in `messages`. */
  private readonly reissued = new Set<string>();
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
    return this.messages.size + this.reissued.size;
  }

  get bytes(): number {
    return this.byteCount;
  }

  has(row: Identity): boolean {
    if (this.messages.get(numberOf(row.id)) === row.msgId) return true;
    return this.reissued.size > 0 && this.reissued.has(pairOf(row));
  }

  /** True if a row with this id is in flight, whatever its message is. */
  hasId(id: bigint): boolean {
    if (this.messages.has(numberOf(id))) return true;
    for (const pair of this.reissued) if (pair.startsWith(`${id} `)) return true;
    return false;
  }

  isShardIdle(shard: number): boolean {
    return this.shardLoad[shard] === 0;
  }

  add(row: OutboxRow, shard: number): void {
    invariant(shard >= 0 && shard < this.shardLoad.length, 'a row belongs to a shard of its outbox');
    invariant(!this.has(row), 'a row is accepted once');
    const id = numberOf(row.id);
    if (this.messages.has(id)) this.reissued.add(pairOf(row));
    else this.messages.set(id, row.msgId);
    this.byteCount += bytesOf(row);
    this.shardLoad[shard] = (this.shardLoad[shard] as number) + 1;
  }

  remove(row: OutboxRow, shard: number): void {
    const id = numberOf(row.id);
    if (this.messages.get(id) === row.msgId) this.messages.delete(id);
    else if (!this.reissued.delete(pairOf(row))) return;
    this.byteCount -= bytesOf(row);
    const load = (this.shardLoad[shard] as number) - 1;
    invariant(load >= 0 && this.byteCount >= 0, 'no more rows leave than were accepted');
    this.shardLoad[shard] = load;
    this.wake();
  }

  /** Forgets all rows: no report about them will arrive. */
  clear(): void {
    this.messages.clear();
    this.reissued.clear();
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
    if (this.over || this.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.idleWaiters.push(resolve));
  }

  private hasRoom(): boolean {
    return this.over || (this.size < this.limits.rows && this.byteCount < this.limits.bytes);
  }

  private wake(): void {
    if (this.roomWaiters.length > 0 && this.hasRoom()) {
      const waiters = this.roomWaiters;
      this.roomWaiters = [];
      for (const wake of waiters) wake();
    }
    if (this.idleWaiters.length > 0 && (this.over || this.size === 0)) {
      const waiters = this.idleWaiters;
      this.idleWaiters = [];
      for (const wake of waiters) wake();
    }
  }
}
