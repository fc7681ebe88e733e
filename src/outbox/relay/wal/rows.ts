/** Queries of the outbox by row: pending ids, rows by id, and their state. */
import type { SqlPool, SqlRow } from '../../../io/postgres/sql/port.ts';
import { type RecordCells, recordFieldsOf } from '../../append/record-columns.ts';
import { outboxError } from '../../errors.ts';
import { type OptionalColumns, type OutboxRow, optionalSelect, outdatedSelect } from '../store.ts';

interface PendingRow extends SqlRow, RecordCells {
  readonly id: bigint;
  readonly aggregate_id: string;
  readonly msg_id: string;
  readonly event_type: string;
  readonly payload: Uint8Array;
  readonly created_at: Date;
  readonly traceparent: string | null;
  readonly pending: boolean;
}

export interface RowState {
  /** Row; without its payload where it is not pending. */
  readonly row: OutboxRow;
  readonly pending: boolean;
}

export interface RowPage {
  /** Rows found, ascending. */
  readonly states: readonly RowState[];
  /** Highest id that was read; rows with higher ids were left out because of their bytes. */
  readonly through: bigint;
}

/** Filter by key: `only` these keys, or all `except` these. */
export interface KeyFilter {
  readonly only?: ReadonlySet<string>;
  readonly except?: ReadonlySet<string>;
}

interface PageCells {
  readonly followed: boolean;
  readonly outdated?: boolean;
}

/** Error of a stream or sweep that does not read all columns of its table; the next one does. */
export const columnsChanged = (table: string): Error =>
  outboxError('table_unusable', `the columns of ${table} have changed`, {
    next: 'nothing: the relay starts its stream again and reads them',
  });

function stateOf(found: PendingRow): RowState {
  const record = recordFieldsOf(found);
  const row: OutboxRow = {
    id: found.id,
    aggregateId: found.aggregate_id,
    msgId: found.msg_id,
    eventType: found.event_type,
    payload: found.payload,
    createdAt: found.created_at,
    ...(found.traceparent === null ? {} : { traceparent: found.traceparent }),
    ...(record === undefined ? {} : { record }),
  };
  return { row, pending: found.pending };
}

/** Visible rows in one snapshot. */
export interface VisibleRows {
  readonly ids: readonly bigint[];
  /** Every transaction with a lower number has ended, and its rows are visible unless deleted. */
  readonly oldest: bigint;
}

/** Pending ids at one time, and a position of the log above the commits of all of them. */
export interface Sighting {
  readonly ids: readonly bigint[];
  readonly lsn: string;
}

export class OutboxRows {
  private readonly pool: SqlPool;
  private readonly table: string;
  private readonly columns: string;

  constructor(pool: SqlPool, table: string, optional: OptionalColumns) {
    this.pool = pool;
    this.table = table;
    this.columns = `id, aggregate_id, msg_id, event_type, created_at, ${optionalSelect(optional)}, published_at IS NULL AS pending, CASE WHEN published_at IS NULL THEN payload ELSE ''::bytea END AS payload${outdatedSelect(optional, table)}`;
  }

  /** Reads the lowest pending ids up to `to`, ascending, in one snapshot, which shows no row
   *  without the earlier rows of its key. */
  async pendingIds(to: bigint, limit: number, filter: KeyFilter = {}): Promise<BigInt64Array> {
    const { sql, keys } = whereOf(filter, '$3');
    // One bytea of 8 bytes an id: a row or a bigint for each id would cost many times that.
    const { rows } = await this.pool.query<{ ids: Uint8Array | null }>(
      `SELECT string_agg(int8send(id), ''::bytea ORDER BY id) AS ids
       FROM (SELECT id FROM ${this.table} WHERE published_at IS NULL AND id <= $1 ${sql} ORDER BY id LIMIT $2) AS seen`,
      [to, limit, ...keys],
    );
    const bytes = rows[0]?.ids ?? new Uint8Array();
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const ids = new BigInt64Array(bytes.byteLength / 8);
    for (let i = 0; i < ids.length; i++) ids[i] = view.getBigInt64(i * 8);
    return ids;
  }

  /** Reads the visible rows of ascending `ids`. It stops where the payloads of pending rows exceed
   *  `bytesMax`, but returns at least one row.
   *  @throws table_unusable when the table has columns that this object does not read */
  async byId(ids: readonly bigint[], bytesMax: number): Promise<RowPage> {
    const { rows } = await this.pool.query<PendingRow & PageCells>(
      `SELECT * FROM (
         SELECT *, sum(octet_length(payload)) OVER lower AS total, lead(id) OVER lower IS NOT NULL AS followed
         FROM (SELECT ${this.columns} FROM ${this.table} WHERE id = ANY($1::bigint[])) AS seen
         WINDOW lower AS (ORDER BY id ROWS UNBOUNDED PRECEDING)) AS measured
       WHERE total <= $2::bigint OR total = octet_length(payload) ORDER BY id`,
      [ids, bytesMax],
    );
    if (rows[0]?.outdated === true) throw columnsChanged(this.table);
    const last = rows.at(-1);
    const through = last?.followed === true ? last.id : (ids.at(-1) ?? 0n);
    return { states: rows.map(stateOf), through };
  }

  /** Reads which of `ids` are visible, pending or not, and the lower bound of the snapshot that
   *  shows them. */
  async visibleOf(ids: readonly bigint[]): Promise<VisibleRows> {
    const { rows } = await this.pool.query<{ ids: string | null; oldest: string }>(
      `SELECT (SELECT string_agg(id::text, ',') FROM ${this.table} WHERE id = ANY($1::bigint[])) AS ids,
         pg_snapshot_xmin(pg_current_snapshot())::text AS oldest`,
      [ids],
    );
    const row = rows[0] as (typeof rows)[0];
    return {
      ids: row.ids === null ? [] : row.ids.split(',').map(BigInt),
      oldest: BigInt(row.oldest),
    };
  }

  /** Assigns a transaction number above that of every transaction that has written. The upper bound
   *  of a snapshot may be lower: it leaves out commits that wait for a synchronous standby, but the
   *  log has them. A statement of its own, because one that also writes WAL may wait too. */
  async numberAbove(): Promise<bigint> {
    const { rows } = await this.pool.query<{ number: string }>('SELECT pg_current_xact_id()::text AS number');
    return BigInt((rows[0] as (typeof rows)[0]).number);
  }

  /** Returns those of the rows that were published: marked ones, and deleted ones, because only a
   *  marked row may be deleted. A missing row is deleted once every transaction below `ended` has
   *  ended; before, it may be not visible yet. */
  async published(rows: readonly OutboxRow[], ended: bigint): Promise<ReadonlySet<OutboxRow>> {
    const { rows: found } = await this.pool.query<{ seen: string | null; oldest: string }>(
      `SELECT string_agg(id::text || CASE WHEN published_at IS NULL THEN '' ELSE ' ' || msg_id::text END, ',') AS seen,
         pg_snapshot_xmin(pg_current_snapshot())::text AS oldest
       FROM ${this.table} WHERE id = ANY($1::bigint[])`,
      [rows.map(({ id }) => id)],
    );
    const { seen, oldest } = found[0] as (typeof found)[0];
    /** Message of each visible row that is marked; undefined for a pending one. */
    const marked = new Map<string, string | undefined>();
    for (const one of seen?.split(',') ?? []) {
      const [id, msgId] = one.split(' ');
      marked.set(id as string, msgId);
    }
    const areEnded = BigInt(oldest) >= ended;
    return new Set(
      rows.filter(({ id, msgId }) => {
        const key = id.toString();
        return marked.has(key) ? marked.get(key) === msgId : areEnded;
      }),
    );
  }

  /** Reads which of `ids` are pending. */
  async pendingOf(ids: readonly bigint[]): Promise<readonly bigint[]> {
    const { rows } = await this.pool.query<{ id: bigint }>(
      `SELECT id FROM ${this.table} WHERE id = ANY($1::bigint[]) AND published_at IS NULL`,
      [ids],
    );
    return rows.map(({ id }) => id);
  }

  /** Reads the lowest pending ids of keys outside `except`. */
  async sight(limit: number, except: ReadonlySet<string>): Promise<Sighting> {
    const { sql, keys } = whereOf({ except }, '$2');
    // The position is read after the snapshot of the statement was taken, so everything that the
    // snapshot shows committed below it.
    const { rows } = await this.pool.query<{ ids: readonly bigint[]; lsn: string }>(
      `WITH seen AS MATERIALIZED (SELECT id FROM ${this.table} WHERE published_at IS NULL ${sql} ORDER BY id LIMIT $1)
       SELECT coalesce((SELECT array_agg(id ORDER BY id) FROM seen), '{}'::bigint[]) AS ids,
              pg_current_wal_insert_lsn()::text AS lsn`,
      [limit, ...keys],
    );
    return rows[0] as { ids: readonly bigint[]; lsn: string };
  }
}

function whereOf(
  { only, except }: KeyFilter,
  parameter: string,
): { readonly sql: string; readonly keys: ReadonlyArray<readonly string[]> } {
  if (only !== undefined) return { sql: `AND aggregate_id = ANY(${parameter}::uuid[])`, keys: [[...only]] };
  if (except === undefined || except.size === 0) return { sql: '', keys: [] };
  return { sql: `AND aggregate_id <> ALL(${parameter}::uuid[])`, keys: [[...except]] };
}
