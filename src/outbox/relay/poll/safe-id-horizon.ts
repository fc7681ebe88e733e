/** How far up the outbox every id is decided: committed and visible, or never to come.
 *
 *  nextval is outside transactions, so an id may become visible after a higher one. An INSERT locks the table before it takes an id.
 *  So: S = the last id given out, read first; V = the transactions that hold the lock of writers on the table, or on one of its
 *  partitions, seen after that; once none of V is left, every id up to S is decided.
 *
 *  A transaction of V that stays longer than `stragglerAfterMs` must not pin the scan of all others: what it may still fill is
 *  remembered as a range beside it, and each read asks, in its own snapshot, whether that transaction has ended.
 *
 *  Invariants: (1) `decided` only rises, and only after a read that began when none of V was left has covered what lies
 *  below; (2) an id above `decided` that was not read is looked for by every read; (3) without a sequence that gives ids out in
 *  order nothing is ever decided: reads start at the lowest pending id.
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
  /** By virtual transaction; the xid once it has one. */
  readonly members: Map<string, bigint | undefined>;
}

const XID_SPAN = 1n << 32n;

/** The 64-bit form of an xid that is at most 2^31 behind `top`. */
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
  /** Decided as soon as a read that begins from here on has covered what lies below. */
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

  /** To be taken before a read; `covered` with it after the read has covered everything up to the cursor. */
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

  /** Whether a look can change anything for a scan that has come to `cursor`. */
  wants(cursor: bigint): boolean {
    if (this.table.sequence === undefined) return false;
    return (
      this.late.length > 0 ||
      this.generation !== undefined ||
      (cursor > this.decidedId && this.candidate === undefined)
    );
  }

  /** Looks at the sequence and at who writes. */
  async look(): Promise<void> {
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
      // The transaction's own is older than those of its savepoints.
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
      // It may have been prepared under another number since the last look, when it had no xid that we knew.
      if (xid !== undefined) continue;
      for (const [other, row] of holders) if (row.pid === null) generation.members.set(other, xidOf(row));
    }
    for (const vxid of idle) generation.members.delete(vxid);
    if (this.isOld(generation)) {
      const from = this.decidedId + 1n;
      for (const [vxid, xid] of generation.members) {
        // In the middle of its first statement: there is nothing yet to ask a snapshot for.
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

  /** Of an old generation, the members that hold the lock, have written nothing and run no statement: what they write one day
   *  has ids above. */
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
    // A straggler takes further ids while it lasts.
    this.late = this.late.map((one) => (one.ended || one.to >= upTo ? one : { ...one, to: upTo }));
    if (this.candidate === undefined || upTo > this.candidate) this.candidate = upTo;
  }
}
