/** Safe-id horizon: the id up to which every row is decided, that is committed and visible, or
 *  never to come.
 *
 *  nextval is outside transactions, so an id may become visible after a higher one. An INSERT locks
 *  the table before it draws an id. So: S = the last id given out, read first; V = the transactions
 *  that hold the writers' lock on the table or one of its partitions, read after S. Once all
 *  transactions of V have ended, every id up to S is decided.
 *
 *  A transaction of V that lasts longer than `stragglerAfterMs` (a straggler) must not hold back
 *  the scan of all others. The range of ids that it may still fill is kept beside the horizon. Each
 *  read asks, in its own snapshot, whether that transaction has ended.
 *
 *  Invariants: (1) `decided` only grows, and only after a read that started when V had ended has
 *  covered all lower ids; (2) every read also looks for ids above `decided` that were not read; (3)
 *  without a sequence that gives ids out in order nothing is ever decided, and reads start at the
 *  lowest pending id.
 */
import type { Clock } from '../../../core/clock.ts';
import type { SqlPool, SqlRow } from '../../../io/postgres/sql/port.ts';
import type { OutboxTable, Straggler } from '../store.ts';

interface Holder extends SqlRow {
  readonly vxid: string;
  /** Null for a prepared transaction. */
  readonly pid: number | null;
  readonly xids: readonly string[] | null;
  readonly top: string;
}

interface Generation {
  readonly upTo: bigint;
  readonly sinceMs: number;
  /** Xid of each virtual transaction, once it has one. */
  readonly members: Map<string, bigint | undefined>;
}

const XID_SPAN = 1n << 32n;

/** Widens a 32-bit xid that is at most 2^31 behind `top` to 64 bits. */
export function widen(xid: bigint, top: bigint): bigint {
  const wide = (top & ~(XID_SPAN - 1n)) | xid;
  return wide > top ? wide - XID_SPAN : wide;
}

export class SafeIdHorizon {
  private readonly pool: SqlPool;
  private readonly table: OutboxTable;
  private readonly clock: Clock;
  private readonly stragglerAfterMs: number;
  private decidedId = -1n;
  /** Next value of the horizon; it becomes valid once a read that starts from now on has covered
   *  all lower ids. */
  private candidate: bigint | undefined;
  private generation: Generation | undefined;
  private late: Array<Straggler & { ended: boolean }> = [];

  constructor(pool: SqlPool, table: OutboxTable, clock: Clock, stragglerAfterMs: number) {
    this.pool = pool;
    this.table = table;
    this.clock = clock;
    this.stragglerAfterMs = stragglerAfterMs;
  }

  get decided(): bigint {
    return this.decidedId;
  }

  stragglers(): readonly Straggler[] {
    return this.late;
  }

  /** State to take before a read, and to pass to `covered` after the read has covered everything up
   *  to the cursor. */
  mark(): { readonly candidate: bigint | undefined; readonly ended: readonly Straggler[] } {
    return { candidate: this.candidate, ended: this.late.filter(({ ended }) => ended) };
  }

  covered(mark: ReturnType<SafeIdHorizon['mark']>): void {
    const { candidate, ended } = mark;
    if (candidate !== undefined) {
      if (candidate > this.decidedId) this.decidedId = candidate;
      if (this.candidate === candidate) this.candidate = undefined;
    }
    if (ended.length > 0) this.late = this.late.filter((one) => !ended.includes(one));
  }

  /** True when a poll can change anything for a scan that has reached `cursor`. */
  needsPoll(cursor: bigint): boolean {
    if (this.table.sequence === undefined) return false;
    return (
      this.late.length > 0 ||
      this.generation !== undefined ||
      (cursor > this.decidedId && this.candidate === undefined)
    );
  }

  /** Reads the sequence and the transactions that write, and advances the horizon. */
  async poll(): Promise<void> {
    if (this.table.sequence === undefined) return;
    const last = await this.pool.query<{ id: bigint }>(
      `SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END AS id FROM ${this.table.sequence}`,
    );
    const { rows } = await this.pool.query<Holder>(
      `WITH locks AS MATERIALIZED (SELECT * FROM pg_locks),
       writers AS (
         SELECT DISTINCT virtualtransaction AS vxid, pid FROM locks
         WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND relation IN (SELECT relid FROM pg_partition_tree($1::regclass) UNION ALL SELECT $1::regclass))
       SELECT vxid, pid, pg_snapshot_xmax(pg_current_snapshot())::text AS top,
         (SELECT array_agg(transactionid::text) FROM locks
          WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted AND virtualtransaction = vxid) AS xids
       FROM writers`,
      [this.table.name],
    );
    const holders = new Map(rows.map((row) => [row.vxid, row]));
    const xidOf = (row: Holder): bigint | undefined => {
      const wide = (row.xids ?? []).map((xid) => widen(BigInt(xid), BigInt(row.top)));
      // The xid of a transaction is lower than those of its savepoints.
      return wide.length === 0 ? undefined : wide.reduce((a, b) => (a < b ? a : b));
    };
    const livingXids = new Set(rows.map(xidOf));
    for (const one of this.late) one.ended = !livingXids.has(one.xid);
    const idle = await this.idleWithoutXid(holders);
    this.advance(holders, livingXids, xidOf, idle);
    if (this.generation === undefined) {
      const upTo = last.rows[0]?.id ?? 0n;
      const members = new Map(
        rows.filter((row) => !this.isStraggler(xidOf(row))).map((row) => [row.vxid, xidOf(row)]),
      );
      if (members.size === 0) this.propose(upTo);
      else this.generation = { upTo, sinceMs: this.clock.monotonicMs(), members };
    }
  }

  private isStraggler(xid: bigint | undefined): boolean {
    return this.late.some((one) => one.xid === xid);
  }

  private advance(
    holders: ReadonlyMap<string, Holder>,
    livingXids: ReadonlySet<bigint | undefined>,
    xidOf: (row: Holder) => bigint | undefined,
    idle: ReadonlySet<string>,
  ): void {
    const generation = this.generation;
    if (generation === undefined) return;
    for (const [vxid, known] of generation.members) {
      const holder = holders.get(vxid);
      const xid = known ?? (holder === undefined ? undefined : xidOf(holder));
      if (holder !== undefined || (xid !== undefined && livingXids.has(xid))) {
        generation.members.set(vxid, xid);
        continue;
      }
      generation.members.delete(vxid);
      // The transaction may have been prepared since the last poll, under another virtual xid,
      // before its xid was known here.
      if (xid !== undefined) continue;
      for (const [other, row] of holders) if (row.pid === null) generation.members.set(other, xidOf(row));
    }
    for (const vxid of idle) generation.members.delete(vxid);
    if (this.isOld(generation)) {
      const from = this.decidedId + 1n;
      for (const [vxid, xid] of generation.members) {
        // The transaction runs its first statement and has no xid yet, so no snapshot can be asked
        // about it.
        if (xid === undefined) continue;
        this.late.push({ xid, from, to: generation.upTo, ended: false });
        generation.members.delete(vxid);
      }
    }
    if (generation.members.size > 0) return;
    this.generation = undefined;
    this.propose(generation.upTo);
  }

  private isOld(generation: Generation): boolean {
    return this.clock.monotonicMs() - generation.sinceMs >= this.stragglerAfterMs;
  }

  /** Members of an old generation that hold the lock, have written nothing and run no statement:
   *  their later rows get higher ids. */
  private async idleWithoutXid(holders: ReadonlyMap<string, Holder>): Promise<ReadonlySet<string>> {
    const generation = this.generation;
    if (generation === undefined || !this.isOld(generation)) return new Set();
    const waiting = [...generation.members]
      .map(([vxid]) => holders.get(vxid))
      .filter((row): row is Holder => row !== undefined && row.xids === null && row.pid !== null);
    if (waiting.length === 0) return new Set();
    const { rows } = await this.pool.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE pid = ANY($1::int[]) AND state LIKE 'idle in transaction%' AND backend_xid IS NULL`,
      [waiting.map(({ pid }) => pid as number)],
    );
    const pids = new Set(rows.map(({ pid }) => pid));
    return new Set(waiting.filter(({ pid }) => pids.has(pid as number)).map(({ vxid }) => vxid));
  }

  private propose(upTo: bigint): void {
    // A straggler draws further ids while it lasts.
    this.late = this.late.map((one) => (one.ended || one.to >= upTo ? one : { ...one, to: upTo }));
    if (this.candidate === undefined || upTo > this.candidate) this.candidate = upTo;
  }
}
