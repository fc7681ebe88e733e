/** Transactions of the simulated database over the tables of orders and payments.
 *
 *  Invariants: (1) the changes of a transaction become visible together or not at all; (2) a
 *  transaction whose commit record is written survives a crash of the database, any other does not;
 *  (3) a statement in progress runs to its end even if its client has died. A transaction that
 *  waits for its client is rolled back with the connection.
 */
import { coreError } from '../../../src/core/errors.ts';
import { sqlError } from '../../../src/io/postgres/sql/port.ts';
import type { OutboxRow } from '../../../src/outbox/relay/store.ts';
import type { SeededRandom, VirtualClock } from '../../../src/sim/clock.ts';
import type { OutboxDatabase, Writer } from '../relay-world/database.ts';
import type { SimProcess } from '../relay-world/process.ts';
import type { Transaction as LoggedTransaction } from '../relay-world/stream.ts';
import { RowLocks } from './locks.ts';

export const gone = (sent: boolean): Error =>
  coreError('unreachable', 'the connection is gone', { details: { sent } });
const refused = (sqlstate: string, message: string): Error =>
  sqlError('sql_failed', message, { details: { sqlstate } });

/** One row that a transaction inserts. `lock` names its unique value. */
interface Change {
  readonly lock?: string;
  readonly apply: () => void;
  readonly outboxRow?: OutboxRow;
}

export interface Tx {
  readonly xid: bigint;
  readonly process: SimProcess;
  readonly changes: Change[];
  lockTimeoutMs: number;
  state: 'open' | 'committing' | 'committed' | 'aborted';
  /** True while the server executes a statement. */
  isBusy: boolean;
  /** The writers' lock on the outbox, as the relay sees it. */
  writer: Writer | undefined;
}

export interface TransactionHooks {
  readonly clock: VirtualClock;
  readonly random: SeededRandom;
  readonly outbox: OutboxDatabase;
  /** Log that the replication stream reads. */
  readonly log: LoggedTransaction[];
  /** Returns the time of a flush of the log, ms. */
  readonly flushMs: () => number;
}

export class Transactions {
  readonly locks: RowLocks;
  private readonly hooks: TransactionHooks;
  private readonly open = new Set<Tx>();
  private readonly states = new Map<bigint, Tx>();
  private lastXid = 100n;

  constructor(hooks: TransactionHooks) {
    this.hooks = hooks;
    this.locks = new RowLocks(hooks.clock);
  }

  begin(process: SimProcess, lockTimeoutMs: number): Tx {
    const tx: Tx = {
      xid: ++this.lastXid,
      process,
      changes: [],
      lockTimeoutMs,
      state: 'open',
      isBusy: false,
      writer: undefined,
    };
    this.open.add(tx);
    this.states.set(tx.xid, tx);
    return tx;
  }

  /** Returns the status of a transaction, as pg_xact_status does. */
  statusOf(xid: bigint): 'in progress' | 'committed' | 'aborted' {
    const state = this.states.get(xid)?.state ?? 'aborted';
    return state === 'open' || state === 'committing' ? 'in progress' : state;
  }

  /** Inserts a row unless its unique value exists; waits for a transaction that is inserting it.
   *  @returns true if the row was inserted; a promise only if the insert has to wait
   *  @throws 55P03 after the lock timeout */
  insert(tx: Tx, lock: string, exists: () => boolean, apply: () => void): boolean | Promise<boolean> {
    if (exists() || this.locks.isHeldBy(tx, lock)) return false;
    if (!this.locks.tryTake(tx, lock)) return this.insertLater(tx, lock, exists, apply);
    tx.changes.push({ lock, apply });
    return true;
  }

  private async insertLater(
    tx: Tx,
    lock: string,
    exists: () => boolean,
    apply: () => void,
  ): Promise<boolean> {
    if (!(await this.locks.take(tx, lock, tx.lockTimeoutMs)))
      throw refused('55P03', 'canceling statement due to lock timeout');
    if (tx.state !== 'open') {
      this.locks.release(tx, lock);
      throw gone(true);
    }
    if (exists()) {
      this.locks.release(tx, lock);
      return false;
    }
    tx.changes.push({ lock, apply });
    return true;
  }

  /** Inserts a row of the outbox: its id is drawn now, and visible only after the commit. */
  insertOutbox(tx: Tx, row: Omit<OutboxRow, 'id'>): void {
    const { outbox } = this.hooks;
    this.lockOutbox(tx);
    if (tx.writer?.xids.length === 0) outbox.assignXid(tx.writer);
    tx.changes.push({ apply: () => {}, outboxRow: { id: ++outbox.lastId, ...row } });
  }

  /** Takes the lock of a writer on the outbox, which the relay's reads look at. */
  lockOutbox(tx: Tx): void {
    tx.writer ??= this.hooks.outbox.openWriter();
  }

  /** Removes rows that this transaction inserted itself. Returns their number. */
  remove(tx: Tx, locks: ReadonlySet<string>): number {
    const before = tx.changes.length;
    for (let at = before - 1; at >= 0; at--) {
      const { lock } = tx.changes[at] as Change;
      if (lock === undefined || !locks.has(lock)) continue;
      tx.changes.splice(at, 1);
      this.locks.release(tx, lock);
    }
    return before - tx.changes.length;
  }

  /** Undoes the changes after the first `count`: ROLLBACK TO SAVEPOINT. */
  rollbackTo(tx: Tx, count: number): void {
    for (const { lock } of tx.changes.splice(count)) if (lock !== undefined) this.locks.release(tx, lock);
  }

  rollback(tx: Tx): void {
    if (tx.state !== 'open') return;
    tx.state = 'aborted';
    this.rollbackTo(tx, 0);
    this.end(tx);
  }

  /** Writes the commit record, flushes it, and makes the changes visible. @throws unreachable: the
   *  transaction is rolled back */
  async commit(tx: Tx): Promise<void> {
    if (tx.state !== 'open') throw gone(true);
    const { outbox, log, clock, flushMs } = this.hooks;
    tx.state = 'committing';
    const rows: OutboxRow[] = [];
    for (const { outboxRow } of tx.changes) if (outboxRow !== undefined) rows.push(outboxRow);
    let endLsn = 0n;
    if (rows.length > 0) {
      for (const row of rows) outbox.rows.insert(row);
      outbox.lsn += 10n;
      endLsn = outbox.lsn;
      log.push({ endLsn, rows });
      outbox.committing.add(endLsn);
    }
    await new Promise<void>((resolve) => clock.after(flushMs(), resolve));
    outbox.committing.delete(endLsn);
    this.show(tx);
  }

  /** Ends the sessions of a process that died. */
  endSessionsOf(process: SimProcess): void {
    for (const tx of [...this.open]) if (tx.process === process && !tx.isBusy) this.rollback(tx);
  }

  /** Ends one session that waits for its client, as an administrator or a timeout does. */
  endIdle(tx: Tx): void {
    if (!tx.isBusy) this.rollback(tx);
  }

  /** Open transactions, in the order of their start. */
  openOnes(): readonly Tx[] {
    return [...this.open];
  }

  /** Restarts the database after a crash: recovery redoes what the log holds and nothing else. */
  crash(): void {
    for (const tx of [...this.open]) {
      if (tx.state === 'committing') this.show(tx);
      else this.rollback(tx);
    }
    this.hooks.outbox.committing.clear();
  }

  private show(tx: Tx): void {
    if (tx.state !== 'committing') return;
    tx.state = 'committed';
    for (const { apply, outboxRow } of tx.changes) {
      apply();
      if (outboxRow !== undefined) this.hooks.outbox.rows.show(outboxRow.id);
    }
    for (const { lock } of tx.changes) if (lock !== undefined) this.locks.release(tx, lock);
    this.end(tx);
  }

  private end(tx: Tx): void {
    this.open.delete(tx);
    const { outbox } = this.hooks;
    if (tx.writer === undefined) return;
    outbox.endXids(tx.writer);
    outbox.writers.delete(tx.writer);
  }
}
