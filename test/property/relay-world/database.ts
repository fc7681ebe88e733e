/** Simulated tables of an outbox and of its relays, as the relay's statements see them. A
 *  characteristic part of its text identifies a statement. An unknown statement is an error, so
 *  that no test relies on an answer that no server gives. */
import { coreError } from '../../../src/core/errors.ts';
import {
  type SqlDriver,
  type SqlPool,
  type SqlResult,
  type SqlRow,
  type SqlSession,
  sqlError,
} from '../../../src/io/postgres/sql/port.ts';
import { shardOf } from '../../../src/outbox/relay/shards.ts';
import type { OutboxRow } from '../../../src/outbox/relay/store.ts';
import { formatLsn, parseLsn } from '../../../src/outbox/relay/wal/lsn.ts';
import type { SimProcess } from './process.ts';
import { OutboxRows, type StoredRow } from './rows.ts';

interface Lease {
  owner: string | null;
  epoch: bigint;
  topic: string | null;
  transactional_id: string | null;
  unfenced: readonly string[];
}

/** Transaction that holds the writers' lock on the outbox, as pg_locks shows it. */
export interface Writer {
  vxid: string;
  /** Process of the transaction; null once it is prepared. */
  pid: number | null;
  /** Xid of the transaction, then those of its savepoints; empty before its first write. */
  readonly xids: bigint[];
  /** True between two statements. */
  isIdle: boolean;
}

interface Member {
  readonly relay: string;
  readonly mode: string;
  readonly expiresMs: number;
}

interface SlotRecord {
  confirmed: bigint;
  reason: string | null;
  to: bigint | null;
  /** Version of the row, like its xmin on a server: every write changes it. */
  version: string;
}

/** Functions by which the environment controls the database. */
export interface DatabaseHooks {
  readonly nowMs: () => number;
  readonly after: (ms: number, run: () => void) => () => void;
  /** Waits for the latency to the server or back. */
  readonly delay: () => Promise<void>;
  /** True when a statement or its answer is lost now. */
  readonly isLost: () => boolean;
  readonly onMark: (row: OutboxRow) => void;
  /** Called after each statement, with the process that sent it. */
  readonly onStatement: (process: SimProcess) => void;
  /** True when ids come from one sequence that a relay may read. */
  readonly hasSequence: boolean;
}

type Values = readonly unknown[];
type Answer = readonly object[] | number;
type Statement = (values: Values, text: string) => Answer;

const lost = (): Error => coreError('unreachable', 'the connection is gone');
const SYSTEM = '7';

export class OutboxDatabase {
  readonly rows = new OutboxRows();
  readonly slot = { exists: false, confirmed: 0n, activePid: null as number | null, end: () => {} };
  lsn = 1000n;
  /** Ends of transactions that are in the log and not yet visible to any statement. */
  readonly committing = new Set<bigint>();
  /** Last id that was assigned. */
  lastId = 0n;
  readonly writers = new Set<Writer>();
  leases = new Map<number, Lease>();
  /** Xids that no snapshot sees as ended. */
  private readonly runningXids = new Set<bigint>();
  // The 32-bit xids of pg_locks wrap around in each run.
  private nextXid = XID_SPAN - 10n;
  private pids = 0;
  private members = new Map<string, Member>();
  private record: SlotRecord | undefined;
  private writes = 0;
  /** Number of crashes. Each ends every session. */
  private crashes = 0;
  /** Ends the open transaction of the leases, and rolls it back. */
  private rollBack: () => void = () => {};
  private locked: Promise<void> = Promise.resolve();
  private readonly hooks: DatabaseHooks;

  constructor(hooks: DatabaseHooks) {
    this.hooks = hooks;
  }

  driver(process: SimProcess): SqlDriver {
    return { name: 'simulated', connect: async ({ onConnect }) => this.pool(process, onConnect) };
  }

  /** Crashes: the transactions of these rows are lost, and with them the last values of the
   *  sequence. */
  crash(lost: readonly OutboxRow[]): void {
    this.crashes++;
    for (const { id } of lost) this.rows.delete(id);
    this.lastId = [...this.rows.ids()].reduce((a, b) => (a > b ? a : b), 0n);
    for (const writer of this.writers) this.endXids(writer);
    this.writers.clear();
    this.rollBack();
  }

  /** Pending rows in id order. The array is borrowed until the next change. */
  pending(): readonly OutboxRow[] {
    return this.rows.pending;
  }

  /** Opens a transaction with the writers' lock, before it draws an id. */
  openWriter(): Writer {
    const pid = ++this.pids;
    const writer: Writer = { vxid: `${pid}/1`, pid, xids: [], isIdle: false };
    this.writers.add(writer);
    return writer;
  }

  /** Assigns an xid to the transaction, or to one of its savepoints. */
  assignXid(writer: Writer): void {
    const xid = this.nextXid++;
    writer.xids.push(xid);
    this.runningXids.add(xid);
  }

  prepare(writer: Writer): void {
    writer.vxid = `-1/${writer.xids[0]}`;
    writer.pid = null;
  }

  /** Ends the transaction for snapshots; its locks are released later. */
  endXids({ xids }: Writer): void {
    for (const xid of xids) this.runningXids.delete(xid);
  }

  private pool(process: SimProcess, onConnect: () => void = () => {}): SqlPool {
    let connectedAt: number | undefined;
    const connect = (): void => {
      if (connectedAt === this.crashes) return;
      connectedAt = this.crashes;
      onConnect();
    };
    connect();
    const notUsed = (): never => {
      throw new Error('not used');
    };
    return {
      query: async <R extends SqlRow>(text: string, values: Values = []) => {
        connect();
        return (await this.ask(process, text, values)) as SqlResult<R>;
      },
      transaction: (work) => this.transaction(process, work),
      systemIdentifier: async () => SYSTEM,
      copyIn: notUsed,
      close: async () => {},
    };
  }

  private async ask(process: SimProcess, text: string, values: Values): Promise<SqlResult> {
    const { crashes } = this;
    const isLost = (): boolean => this.hooks.isLost() || this.crashes !== crashes;
    await this.hooks.delay();
    if (isLost()) throw await process.receive(lost());
    const answer = this.answer(text, values);
    this.hooks.onStatement(process);
    await this.hooks.delay();
    if (isLost()) throw await process.receive(lost());
    return process.receive(
      typeof answer === 'number'
        ? { rows: [], rowCount: answer }
        : { rows: answer as SqlRow[], rowCount: answer.length },
    );
  }

  /** Runs transactions one after another, as the advisory lock does. The server ends a session that
   *  stays idle in its transaction for one lease. */
  private async transaction<T>(process: SimProcess, work: (session: SqlSession) => Promise<T>): Promise<T> {
    const before = this.locked;
    let unlock = (): void => {};
    this.locked = new Promise((resolve) => {
      unlock = resolve;
    });
    await before;
    const kept = {
      leases: new Map([...this.leases].map(([shard, lease]) => [shard, { ...lease }])),
      members: new Map(this.members),
    };
    let isOver = false;
    const end = (commits: boolean): void => {
      if (isOver) return;
      isOver = true;
      cancel();
      if (!commits) Object.assign(this, kept);
      unlock();
    };
    const cancel = this.hooks.after(LEASE_IDLE_MS, () => end(false));
    this.rollBack = () => end(false);
    const query = async (text: string, values: Values = []): Promise<SqlResult> => {
      if (isOver) throw lost();
      const result = await this.ask(process, text, values);
      if (isOver) throw lost();
      return result;
    };
    try {
      const done = await work({ query } as unknown as SqlSession);
      await this.hooks.delay();
      if (isOver) throw lost();
      end(true);
      // The transaction has committed, and its answer may be lost.
      if (this.hooks.isLost()) throw await process.receive(sqlError('commit_unknown', 'no answer to COMMIT'));
      await process.receive(undefined);
      return done;
    } catch (thrown) {
      end(false);
      throw thrown;
    }
  }

  private answer(text: string, values: Values): Answer {
    let run = this.known.get(text);
    if (run === undefined) {
      run = this.statements.find(([part]) => text.includes(part))?.[1];
      if (run === undefined) throw new Error(`the simulated database does not know: ${text}`);
      this.known.set(text, run);
    }
    return run(values, text);
  }

  /** Statements that were executed before, by text. */
  private readonly known = new Map<string, Statement>();

  private readonly statements: ReadonlyArray<readonly [string, Statement]> = [
    ['has_table_privilege', () => [this.shape()]],
    ['is_called', () => [{ id: this.lastId }]],
    ['WITH locks AS MATERIALIZED', () => this.lockRows()],
    ["state LIKE 'idle in transaction%'", ([pids]) => this.idleWithoutXid(pids as readonly number[])],
    ['unnest($1::text[]) AS name', () => []],
    ['SELECT FROM pg_attribute WHERE attrelid', () => [{}]],
    ['array_agg(session)', ([witnesses]) => this.sessions(witnesses as readonly string[])],
    ['SET LOCAL', () => 0],
    ['pg_advisory_xact_lock', () => 1],
    ['DELETE FROM relay_members AS m', () => this.removeDead()],
    ['INSERT INTO relay_members', ([, relay, mode, ms]) => this.renew(relay, mode, ms)],
    ['DELETE FROM relay_members', ([, relay]) => Number(this.members.delete(relay as string))],
    ['FROM relay_members', () => this.living()],
    ['DELETE FROM relay_leases', ([, shards]) => this.removeLeases(shards as number)],
    ['SET unfenced = unfenced ||', ([, ids]) => this.addUnfenced(ids as readonly string[])],
    ['INSERT INTO relay_leases', ([, shards, topic]) => this.makeLeases(shards as number, topic as string)],
    ['SET owner = NULL', ([, owner, shards]) => this.release(owner as string, shards)],
    [
      'UPDATE relay_leases SET owner = $2',
      ([, owner, shards, id]) => this.take(owner as string, shards, id as string | null),
    ],
    ["SET unfenced = '{}'", ([, owner, ids]) => this.clearFenced(owner as string, ids as readonly string[])],
    ['SELECT shard, owner, epoch', () => this.leaseRows()],
    ['SELECT shard, epoch FROM relay_leases', () => this.leaseRows()],
    ['published_at = now()', (values, text) => this.mark(values, text)],
    ['published_at IS NULL AS pending FROM', ([ids]) => this.statesOf(idsOf(ids as string))],
    ['date_part', (values, text) => this.readPage(values, text)],
    ['AS top, min(id) AS low', () => [{ top: null, low: null, n: 0n, age: null }]],
    ["'session' AS kind", () => []],
    ['AS retained', (_, text) => (text.includes('safe_wal_size') ? this.lookAtSlot() : [])],
    ['AS digest', () => []],
    ...this.walStatements(),
  ];

  private walStatements(): ReadonlyArray<readonly [string, Statement]> {
    return [
      ['server_version_num', () => [WAL_SHAPE]],
      ['p.pubinsert', () => [{ good: true }]],
      ['pg_create_logical_replication_slot', () => this.makeSlot()],
      ['pg_terminate_backend', () => this.endSender()],
      ['max(id) AS id', () => [{ id: this.pending().at(-1)?.id ?? null }]],
      ['UPDATE relay_slots SET updated_at', () => this.claim()],
      ['SELECT confirmed_lsn::text', ([, version]) => this.readRecord(version)],
      ['INSERT INTO relay_slots', ([, version, , ...record]) => this.saveRecord(version, record)],
      ['SET unswept = NULL', ([, version]) => this.allow(version, 0n, null, null)],
      [
        'greatest(confirmed_lsn',
        ([, version, lsn, reason, to]) => this.allow(version, lsnOf(lsn), reason, to),
      ],
      ['pg_logical_emit_message', () => this.emit()],
      ['string_agg(int8send', ([to, limit, keys], text) => this.idBytes(to, limit, keys, text)],
      [
        'octet_length(payload)) OVER',
        ([ids, bytesMax]) => this.byId(ids as readonly bigint[], bytesMax as number),
      ],
      ['pg_current_wal_insert_lsn', ([limit, keys]) => this.sight(limit as number, keys)],
      ['AND published_at IS NULL', ([ids]) => this.visible(ids as readonly bigint[], true)],
      ["ELSE ' ' || msg_id", ([ids]) => this.marksOf(ids as readonly bigint[])],
      ['SELECT pg_current_xact_id()', () => [{ number: this.snapshotOf([])[0].next }]],
      ['pg_current_snapshot', ([ids]) => this.snapshotOf(ids as readonly bigint[])],
    ];
  }

  /** The sessions of the relays, and whether one of the witnesses is among them. */
  private sessions(witnesses: readonly string[]): Answer {
    const session = `1 ${this.crashes}`;
    return [{ sessions: [session], lives: witnesses.includes(session) }];
  }

  private emit(): Answer {
    this.lsn += 10n;
    return 1;
  }

  private removeDead(): Answer {
    for (const [name, { expiresMs }] of this.members)
      if (expiresMs < this.hooks.nowMs()) this.members.delete(name);
    return 0;
  }

  private renew(relay: unknown, mode: unknown, ms: unknown): Answer {
    const expiresMs = this.hooks.nowMs() + (ms as number);
    this.members.set(relay as string, { relay: relay as string, mode: mode as string, expiresMs });
    return 1;
  }

  private living(): Answer {
    return [...this.members.values()]
      .map(({ relay, mode, expiresMs }) => ({ relay, mode, left_ms: expiresMs - this.hooks.nowMs() }))
      .sort((a, b) => (a.relay < b.relay ? -1 : 1));
  }

  private makeLeases(shards: number, topic: string): Answer {
    for (let shard = 0; shard < shards; shard++) {
      const known = this.leases.get(shard);
      if (known === undefined)
        this.leases.set(shard, { owner: null, epoch: 0n, topic, transactional_id: null, unfenced: [] });
      else known.topic = topic;
    }
    return shards;
  }

  private removeLeases(shards: number): Answer {
    for (const shard of this.leases.keys()) if (shard >= shards) this.leases.delete(shard);
    return 0;
  }

  private addUnfenced(ids: readonly string[]): Answer {
    const first = this.leases.get(0) as Lease;
    first.unfenced = [...first.unfenced, ...ids];
    return 1;
  }

  private release(owner: string, shards: unknown): Answer {
    for (const [shard, lease] of this.leases)
      if (lease.owner === owner && (shards === undefined || (shards as number[]).includes(shard)))
        Object.assign(lease, { owner: null, transactional_id: null });
    return 0;
  }

  private take(owner: string, shards: unknown, transactionalId: string | null): Answer {
    for (const shard of shards as number[]) {
      const lease = this.leases.get(shard) as Lease;
      if (lease.owner !== null && lease.transactional_id !== null)
        lease.unfenced = [...lease.unfenced, lease.transactional_id];
      lease.owner = owner;
      lease.transactional_id = transactionalId;
      lease.epoch++;
    }
    return 0;
  }

  private clearFenced(owner: string, ids: readonly string[]): Answer {
    let count = 0;
    for (const lease of this.leases.values()) {
      const { unfenced } = lease;
      if (lease.owner !== owner || unfenced.length === 0) continue;
      if (!unfenced.every((id) => ids.includes(id))) continue;
      lease.unfenced = [];
      count++;
    }
    return count;
  }

  private leaseRows(): Answer {
    return [...this.leases].map(([shard, lease]) => ({ shard, ...lease }));
  }

  /** A relay with a planted fault marks a range (test/property/effects-planted-faults.test.ts). */
  private mark([ids, shards, epochs, , wanted, msgIds]: Values, text: string): Answer {
    const held = (shards as number[]).filter(
      (shard, i) => this.leases.get(shard)?.epoch === (epochs as bigint[])[i],
    );
    if (held.length !== wanted) return 0;
    let count = 0;
    const named = idsOf(ids as string);
    const highest = named.reduce((a, b) => (a > b ? a : b), 0n);
    const range = text.includes('WHERE id <=');
    const messages = new Set(textsOf(msgIds as string));
    for (const id of range ? [...this.rows.ids()].filter((each) => each <= highest) : named) {
      const found = this.rows.get(id);
      if (found === undefined || !found.isVisible || found.isMarked) continue;
      if (!range && !messages.has(found.row.msgId)) continue;
      this.hooks.onMark(found.row);
      this.rows.mark(id);
      count++;
    }
    return count;
  }

  private statesOf(ids: readonly bigint[]): Answer {
    return ids.flatMap((id) => {
      const found = this.rows.get(id);
      return found?.isVisible === true ? [{ id, msg_id: found.row.msgId, pending: !found.isMarked }] : [];
    });
  }

  private shape(): object {
    if (!this.hooks.hasSequence) return SHAPE;
    return { ...SHAPE, sequence: 'public.outbox_id_seq', sequence_cache: 1n, may_read_sequence: true };
  }

  private lockRows(): Answer {
    return [...this.writers].map(({ vxid, pid, xids }) => ({
      vxid,
      pid,
      top: String(this.nextXid),
      xids: xids.length === 0 ? null : xids.map((xid) => String(xid % XID_SPAN)),
    }));
  }

  private idleWithoutXid(pids: readonly number[]): Answer {
    return [...this.writers]
      .filter(({ pid, xids, isIdle }) => pid !== null && pids.includes(pid) && xids.length === 0 && isIdle)
      .map(({ pid }) => ({ pid }));
  }

  /** Executes the scan of readPending: above the cursor, between the horizon and the cursor, and
   *  the ranges of stragglers. */
  private readPage(values: Values, text: string): Answer {
    const [cursor, limit, owned, except, decided, bytesMax] = values as [
      bigint,
      number,
      readonly number[],
      readonly bigint[],
      bigint,
      number,
    ];
    const below = text.includes('id > $5');
    const late = text.includes('pg_visible_in_snapshot') ? this.endedRanges(values.slice(6)) : [];
    const skipped = new Set(except);
    const shards = text.includes('get_byte') ? new Set(owned) : undefined;
    const isAsked = (id: bigint): boolean =>
      id > cursor || (below && id > decided) || late.some(({ from, to }) => id >= from && id <= to);
    const found: OutboxRow[] = [];
    for (const row of this.pending()) {
      if (found.length === limit) break;
      if (!isAsked(row.id) || skipped.has(row.id)) continue;
      if (shards?.has(shardOf(row.aggregateId, this.leases.size)) !== false) found.push(row);
    }
    return cutToBytes(found, bytesMax).map(({ row, followed }) => ({ ...columnsOf(row), followed }));
  }

  /** Ranges of ids whose transaction has ended in the snapshot. */
  private endedRanges([xids, lows, highs]: Values): ReadonlyArray<{ from: bigint; to: bigint }> {
    return (xids as readonly string[]).flatMap((xid, i) => {
      const range = { from: (lows as bigint[])[i] as bigint, to: (highs as bigint[])[i] as bigint };
      return this.runningXids.has(BigInt(xid)) ? [] : [range];
    });
  }

  private lookAtSlot(): Answer {
    if (!this.slot.exists) return [];
    const { confirmed, activePid } = this.slot;
    const own = {
      slot_type: 'logical',
      plugin: 'pgoutput',
      database: 'd',
      mine: 'd',
      wal_status: 'reserved',
    };
    return [
      {
        ...own,
        active_pid: activePid === null ? null : String(activePid),
        confirmed: formatLsn(confirmed),
        current: formatLsn(this.lsn),
      },
    ];
  }

  private makeSlot(): Answer {
    if (this.slot.exists) throw sqlError('sql_failed', 'the slot exists', { details: { sqlstate: '42710' } });
    this.slot.exists = true;
    // A slot is consistent once every transaction before it is visible.
    const first = [...this.committing].reduce((a, b) => (a < b ? a : b), this.lsn + 1n);
    this.slot.confirmed = first - 1n;
    return [{ lsn: formatLsn(this.lsn) }];
  }

  private endSender(): Answer {
    const { activePid } = this.slot;
    if (activePid === null) return [];
    this.slot.end();
    return [{ pid: activePid }];
  }

  private claim(): Answer {
    if (this.record === undefined) return [];
    this.record.version = this.nextVersion();
    return this.readRecord(this.record.version);
  }

  private nextVersion(): string {
    return String(++this.writes);
  }

  private readRecord(wanted: unknown): Answer {
    if (this.record === undefined || this.record.version !== wanted) return [];
    const { confirmed, reason, to, version } = this.record;
    return [{ confirmed: formatLsn(confirmed), system: SYSTEM, reason, to, version }];
  }

  private saveRecord(wanted: unknown, [confirmed, reason, to]: Values): Answer {
    if (this.record !== undefined && this.record.version !== wanted) return [];
    this.record = {
      confirmed: lsnOf(confirmed),
      reason: reason as string | null,
      to: to as bigint | null,
      version: this.nextVersion(),
    };
    return [{ version: this.record.version }];
  }

  /** Writes as a relay of an earlier release does, without a claim and without parked rows. */
  noteUnclaimed(confirmed: bigint): void {
    if (this.record === undefined) return;
    this.allow(this.record.version, confirmed, null, null);
  }

  /** Reason in relay_slots why rows below the slot may be pending. */
  get unswept(): string | null {
    return this.record?.reason ?? null;
  }

  private allow(wanted: unknown, confirmed: bigint, reason: unknown, to: unknown): Answer {
    if (this.record === undefined || this.record.version !== wanted) return [];
    if (confirmed > this.record.confirmed) this.record.confirmed = confirmed;
    return this.saveRecord(wanted, [formatLsn(this.record.confirmed), reason, to]);
  }

  private idBytes(to: unknown, limit: unknown, keys: unknown, text: string): Answer {
    const found = this.filtered(keys, text)
      .filter(({ id }) => id <= (to as bigint))
      .slice(0, limit as number);
    const bytes = Buffer.alloc(found.length * 8);
    for (const [i, { id }] of found.entries()) bytes.writeBigInt64BE(id, i * 8);
    return [{ ids: new Uint8Array(bytes) }];
  }

  private filtered(keys: unknown, text: string): readonly OutboxRow[] {
    if (keys === undefined) return this.pending();
    const only = text.includes('aggregate_id = ANY');
    const named = new Set(keys as readonly string[]);
    return this.pending().filter(({ aggregateId }) => named.has(aggregateId) === only);
  }

  private byId(ids: readonly bigint[], bytesMax: number): Answer {
    const found = ids.flatMap((id) => {
      const stored = this.rows.get(id);
      return stored?.isVisible === true ? [stored] : [];
    });
    // The payload of a marked row is not read.
    const read = ({ row, isMarked }: StoredRow): OutboxRow =>
      isMarked ? { ...row, payload: NO_BYTES } : row;
    const kept = cutToBytes(found.map(read), bytesMax);
    return kept.map(({ row, followed }, i) => ({
      ...columnsOf(row),
      created_at: row.createdAt,
      pending: found[i]?.isMarked === false,
      followed,
    }));
  }

  private sight(limit: number, keys: unknown): Answer {
    const skipped = new Set((keys ?? []) as readonly string[]);
    const ids = this.pending()
      .filter(({ aggregateId }) => !skipped.has(aggregateId))
      .map(({ id }) => id);
    return [{ ids: ids.slice(0, limit), lsn: formatLsn(this.lsn) }];
  }

  private visible(ids: readonly bigint[], pending: boolean): Array<{ readonly id: bigint }> {
    return ids.flatMap((id) => {
      const found = this.rows.get(id);
      return found?.isVisible === true && !(pending && found.isMarked) ? [{ id }] : [];
    });
  }

  /** Visible rows, each marked one with its message, and the lower bound of the snapshot. */
  private marksOf(ids: readonly bigint[]): Answer {
    const seen = ids.flatMap((id) => {
      const found = this.rows.get(id);
      if (found?.isVisible !== true) return [];
      return [found.isMarked ? `${id} ${found.row.msgId}` : `${id}`];
    });
    const [{ oldest }] = this.snapshotOf([]);
    return [{ seen: seen.length === 0 ? null : seen.join(','), oldest }];
  }

  /** Visible rows and the bounds of the snapshot. The number of a row's transaction is its id. */
  private snapshotOf(
    ids: readonly bigint[],
  ): [{ readonly ids: string | null; readonly oldest: string; readonly next: string }] {
    let next = 1n;
    let oldest: bigint | undefined;
    for (const { row, isVisible } of this.rows.values()) {
      const { id } = row;
      if (id >= next) next = id + 1n;
      if (!isVisible && (oldest === undefined || id < oldest)) oldest = id;
    }
    const seen = this.visible(ids, false).map(({ id }) => id);
    return [
      {
        ids: seen.length === 0 ? null : seen.join(','),
        oldest: String(oldest ?? next),
        next: String(next),
      },
    ];
  }
}

/** Time for which the server lets a session idle in a transaction of the leases. */
export const LEASE_IDLE_MS = 3000;

const XID_SPAN = 1n << 32n;

const NO_BYTES = new Uint8Array();

/** Returns rows until their payloads exceed the bytes, but at least one row with a payload, and
 *  whether more rows follow. */
function cutToBytes(
  rows: readonly OutboxRow[],
  bytesMax: number,
): ReadonlyArray<{ readonly row: OutboxRow; readonly followed: boolean }> {
  let total = 0;
  let kept = 0;
  for (const { payload } of rows) {
    total += payload.length;
    if (total > bytesMax && total > payload.length) break;
    kept++;
  }
  return rows.slice(0, kept).map((row, i) => ({ row, followed: i + 1 < rows.length }));
}

const textsOf = (text: string): readonly string[] => (text === '{}' ? [] : text.slice(1, -1).split(','));
const idsOf = (text: string): readonly bigint[] => textsOf(text).map(BigInt);
const lsnOf = (text: unknown): bigint => parseLsn(text as string) ?? 0n;
const columnsOf = (row: OutboxRow) => ({
  id: row.id,
  aggregate_id: row.aggregateId,
  msg_id: row.msgId,
  event_type: row.eventType,
  payload: row.payload,
  created_ms: row.createdAt.getTime(),
  traceparent: null,
});
/** Shape of the table without a sequence: each read starts at the lowest pending id. */
const SHAPE = {
  full_name: 'public.outbox',
  kind: 'r',
  columns: [
    'id bigint',
    'aggregate_id uuid',
    'msg_id uuid',
    'event_type text',
    'payload bytea',
    'published_at timestamp with time zone',
    'created_at timestamp with time zone',
  ],
  may_read: true,
  may_mark: true,
  sequence: null,
  sequence_cache: null,
  may_read_sequence: null,
};
const WAL_SHAPE = {
  level: 'logical',
  version: 180_000,
  schema: 'public',
  name: 'outbox',
  optional: null,
  tail: '00000000',
};
