/** Table of effects in memory: executes the statements of the runner's store
 *  (src/outbox/effects/store.ts), each atomically, by the clock of the simulated database. A row
 *  that a transaction has changed is locked until its end. */
import type { VirtualClock } from '../../../src/sim/clock.ts';

export interface StoredEffect {
  readonly id: bigint;
  readonly name: string;
  readonly key: string;
  state: 'waiting' | 'running' | 'done' | 'dead';
  attempts: number;
  dueMs: number;
  firstTriedMs: number | undefined;
  owner: string | null;
  leaseUntilMs: number;
  reason: string | null;
  error: string | null;
  blocks: boolean;
  lock: Tx | undefined;
}

/** Open transaction: its changes are applied at COMMIT. */
export interface Tx {
  readonly changes: Array<() => void>;
  readonly locked: Set<StoredEffect>;
  isOver: boolean;
}

export type Values = readonly unknown[];
type Rows = ReadonlyArray<Readonly<Record<string, unknown>>>;

const LOCK_WAIT_MS = 1;

export class CallsTable {
  readonly rows: StoredEffect[] = [];
  /** Steps of the database's clock so far, ms. */
  stepMs = 0;
  private readonly clock: VirtualClock;

  constructor(clock: VirtualClock) {
    this.clock = clock;
  }

  get nowMs(): number {
    return this.clock.monotonicMs() + this.stepMs;
  }

  add(name: string, key: string): StoredEffect {
    const row: StoredEffect = {
      ...{ id: BigInt(this.rows.length + 1), name, key, state: 'waiting', attempts: 0, dueMs: this.nowMs },
      ...{ firstTriedMs: undefined, owner: null, leaseUntilMs: 0, reason: null, error: null, blocks: true },
      lock: undefined,
    };
    this.rows.push(row);
    return row;
  }

  /** Rows of the key that keep a later effect from being called. */
  blockersOf({ id, name, key }: StoredEffect): readonly StoredEffect[] {
    return this.rows.filter(
      (row) =>
        row.name === name &&
        row.key === key &&
        ((row.id < id && row.state !== 'done' && (row.state !== 'dead' || row.blocks)) ||
          (row.id !== id && row.state === 'running')),
    );
  }

  begin(): Tx {
    return { changes: [], locked: new Set(), isOver: false };
  }

  commit(tx: Tx): void {
    if (!tx.isOver) for (const change of tx.changes) change();
    this.rollback(tx);
  }

  rollback(tx: Tx): void {
    tx.isOver = true;
    for (const row of tx.locked) row.lock = undefined;
    tx.locked.clear();
  }

  async execute(tx: Tx, text: string, values: Values): Promise<Rows> {
    if (text.includes('pg_attribute')) return [{ n: '1' }];
    if (text.startsWith('WITH heads')) return this.claim(values);
    if (text.includes('SET lease_until')) return this.renew(values);
    if (text.startsWith('SELECT id AS row')) return this.lockExpired(tx, values);
    if (text.includes('AS g (id, state')) return this.endExpired(tx, values);
    if (text.startsWith('SELECT name, CASE')) return [];
    if (text.startsWith('SELECT id FROM')) return this.hasEnding(values);
    if (text.startsWith('DELETE FROM')) return [];
    const state = /SET state = '(done|waiting|dead)', owner = NULL/.exec(text)?.[1];
    if (state === undefined) throw new Error(`a statement that the table does not know: ${text}`);
    return this.end(tx, state as 'done' | 'waiting' | 'dead', values);
  }

  private claim([name, limit, owner, leaseMs]: Values): Rows {
    const heads = this.rows
      .filter((row) => row.name === name && row.state === 'waiting' && row.dueMs <= this.nowMs)
      .filter((row) => row.lock === undefined && this.blockersOf(row).length === 0)
      .sort((a, b) => a.dueMs - b.dueMs || Number(a.id - b.id))
      .slice(0, limit as number);
    return heads.map((row) => {
      row.state = 'running';
      row.owner = owner as string;
      row.attempts++;
      row.firstTriedMs ??= this.nowMs;
      row.leaseUntilMs = this.nowMs + (leaseMs as number);
      return {
        ...{ row: row.id, effect_id: String(row.id), key: row.key, input: '1', attempts: row.attempts },
        ...{ traceparent: null, tracestate: null, tried_ms: this.nowMs - row.firstTriedMs },
      };
    });
  }

  private async renew([owner, leaseMs, ids, attempts]: Values): Promise<Rows> {
    const found: Array<{ row: bigint; attempt: number }> = [];
    for (const [place, id] of (ids as bigint[]).entries()) {
      const row = await this.unlocked(id);
      const isMine = row.owner === owner && row.attempts === (attempts as number[])[place];
      if (!isMine || row.state !== 'running' || row.leaseUntilMs <= this.nowMs) continue;
      row.leaseUntilMs = this.nowMs + (leaseMs as number);
      found.push({ row: id, attempt: row.attempts });
    }
    return found;
  }

  private lockExpired(tx: Tx, [names, limit]: Values): Rows {
    const expired = this.rows
      .filter((row) => row.state === 'running' && row.leaseUntilMs < this.nowMs && row.lock === undefined)
      .filter((row) => (names as string[]).includes(row.name))
      .slice(0, limit as number);
    return expired.map((row) => {
      this.lock(tx, row);
      const { id, name, key, attempts } = row;
      const triedMs = this.nowMs - (row.firstTriedMs as number);
      return { row: id, effect_id: String(id), name, key, attempts, ends: 1, tried_ms: triedMs };
    });
  }

  private endExpired(tx: Tx, [ids, states, reasons, errors, blocks, delays]: Values): Rows {
    for (const [place, id] of (ids as bigint[]).entries()) {
      const row = this.rowOf(id);
      tx.changes.push(() => {
        row.state = (states as StoredEffect['state'][])[place] as StoredEffect['state'];
        row.reason = (reasons as Array<string | null>)[place] as string | null;
        row.error = (errors as string[])[place] as string;
        row.blocks = (blocks as boolean[])[place] as boolean;
        row.dueMs = this.nowMs + ((delays as number[])[place] as number);
        row.owner = null;
      });
    }
    return [];
  }

  private async end(tx: Tx, state: 'done' | 'waiting' | 'dead', values: Values): Promise<Rows> {
    const [id, owner, attempts, third, fourth, fifth] = values;
    const row = await this.unlocked(id as bigint);
    if (tx.isOver) return [];
    if (row.state !== 'running' || row.owner !== owner || row.attempts !== attempts) return [];
    this.lock(tx, row);
    tx.changes.push(() => {
      row.state = state;
      row.owner = null;
      row.error = state === 'done' ? null : (fourth as string);
      if (state === 'waiting') row.dueMs = this.nowMs + (third as number);
      if (state === 'dead') {
        row.reason = third as string;
        row.blocks = fifth as boolean;
      }
    });
    return [{}];
  }

  private hasEnding([id, attempts, state, error]: Values): Rows {
    const row = this.rowOf(id as bigint);
    return row.attempts === attempts && row.state === state && row.error === error ? [{ id }] : [];
  }

  private lock(tx: Tx, row: StoredEffect): void {
    row.lock = tx;
    tx.locked.add(row);
  }

  private rowOf(id: bigint): StoredEffect {
    return this.rows[Number(id) - 1] as StoredEffect;
  }

  /** Waits until no transaction has the row locked. */
  private async unlocked(id: bigint): Promise<StoredEffect> {
    const row = this.rowOf(id);
    while (row.lock !== undefined)
      await new Promise<void>((resolve) => this.clock.after(LOCK_WAIT_MS, () => resolve()));
    return row;
  }
}
