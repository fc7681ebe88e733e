/** Outbox table of a relay: checks its columns, and reads its pending rows. */
import type { SqlPool, SqlRow } from '../../io/postgres/sql/port.ts';
import {
  hasRecordColumnsSql,
  RECORD_COLUMNS,
  RECORD_SELECT,
  RECORD_TYPES,
  type RecordCells,
  type RecordFields,
  recordFieldsOf,
} from '../append/record-columns.ts';
import { TABLE_NAME } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import { shardSql } from './shards.ts';

export interface OutboxRow {
  readonly id: bigint;
  readonly aggregateId: string;
  readonly msgId: string;
  readonly eventType: string;
  readonly payload: Uint8Array;
  readonly createdAt: Date;
  /** W3C trace context of the transaction that wrote the row; null or absent where it is not
   *  known. */
  readonly traceparent?: string | null;
  /** Choices of the row about its record; absent where it makes none. */
  readonly record?: RecordFields;
}

interface PendingRow extends SqlRow, RecordCells {
  readonly id: bigint;
  readonly aggregate_id: string;
  readonly msg_id: string;
  readonly event_type: string;
  readonly payload: Uint8Array;
  readonly created_ms: number;
  readonly traceparent: string | null;
}

/** Properties of the table, read once at the start. */
export interface OutboxTable {
  /** Table name as SQL text contains it. */
  readonly name: string;
  /** `schema.table`, independent of the search path; part of the names of leases, sockets and
   *  transactional ids. */
  readonly fullName: string;
  readonly hasTraceparent: boolean;
  /** True when the table has the record columns. */
  readonly hasRecordColumns: boolean;
  /** Sequence of the column id, if it gives ids out in order (CACHE 1); else undefined. */
  readonly sequence: string | undefined;
}

/** Accepted types of each column, the preferred type first. */
const COLUMNS: Readonly<Record<string, readonly string[]>> = {
  id: ['bigint'],
  aggregate_id: ['uuid'],
  msg_id: ['uuid'],
  event_type: ['text', 'character varying'],
  payload: ['bytea'],
  published_at: ['timestamp with time zone'],
  created_at: ['timestamp with time zone'],
};

interface Shape extends SqlRow {
  readonly full_name: string | null;
  readonly kind: string | null;
  readonly columns: readonly string[] | null;
  readonly may_read: boolean | null;
  readonly may_mark: boolean | null;
  readonly sequence: string | null;
  readonly sequence_cache: bigint | null;
  readonly may_read_sequence: boolean | null;
}

/** Reads the properties of the table. @throws tables_missing, table_unusable: a column, its type or
 *  a privilege */
export async function describeOutbox(pool: SqlPool, table: string, owner = 'orders'): Promise<OutboxTable> {
  if (!TABLE_NAME.test(table)) {
    throw outboxError('table_unusable', `-table=${table} is not a plain table name`, {
      next: 'give table or schema.table in lower-case letters, digits and _',
    });
  }
  const { rows } = await pool
    .query<Shape>(
      `SELECT n.nspname || '.' || c.relname AS full_name, c.relkind::text AS kind,
       (SELECT array_agg(attname || ' ' || regexp_replace(format_type(atttypid, NULL), '\\(.*', '')) FROM pg_attribute
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS columns,
       has_table_privilege(c.oid, 'SELECT') AS may_read,
       has_column_privilege(c.oid, 'published_at', 'UPDATE') AS may_mark,
       s.name AS sequence, q.seqcache AS sequence_cache,
       CASE WHEN s.name IS NOT NULL THEN has_sequence_privilege(s.name, 'SELECT') END AS may_read_sequence
     FROM (SELECT to_regclass($1) AS oid) AS t
     LEFT JOIN pg_class c ON c.oid = t.oid
     LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN LATERAL (SELECT pg_get_serial_sequence(c.oid::regclass::text, 'id') AS name
       WHERE EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'id')) AS s ON true
     LEFT JOIN pg_sequence q ON q.seqrelid = s.name::regclass AND q.seqincrement = 1 AND NOT q.seqcycle`,
      [table],
    )
    .catch((thrown: unknown) => {
      const state = (thrown as { details?: { sqlstate?: unknown } }).details?.sqlstate;
      // 42703: has_column_privilege of a column that does not exist.
      if (state !== '42703') throw thrown;
      throw outboxError('table_unusable', `the table ${table} has no column published_at`, {
        next: 'see the outbox table of docs/how-to/outbox.md',
      });
    });
  const found = rows[0] as Shape;
  if (found.full_name === null) {
    throw outboxError('tables_missing', `there is no table ${table} in this database`, {
      next: `run \`millrace ${owner} -migrate\` on it first, or name the outbox with -schema or -table`,
    });
  }
  const unusable = (why: string, next: string): Error =>
    outboxError('table_unusable', `the table ${found.full_name} ${why}`, { next });
  if (found.kind !== 'r' && found.kind !== 'p') throw unusable('is not a table', 'name a table with -table');
  const types = new Map(
    (found.columns ?? []).map((column) => {
      const space = column.indexOf(' ');
      return [column.slice(0, space), column.slice(space + 1)];
    }),
  );
  for (const [column, wanted] of Object.entries(COLUMNS)) {
    const type = types.get(column);
    const next = `make it ${column} ${wanted[0]}; see the outbox table of docs/how-to/outbox.md`;
    if (type === undefined) throw unusable(`has no column ${column}`, next);
    if (!wanted.includes(type)) throw unusable(`has ${column} ${type}`, next);
  }
  if (found.may_read !== true || found.may_mark !== true) {
    const what = found.may_read !== true ? 'may not be read' : 'may not be marked (published_at)';
    throw unusable(`${what} by this user`, 'GRANT SELECT, UPDATE ON it to the relay');
  }
  const usable = found.sequence_cache === 1n && found.may_read_sequence === true;
  return {
    name: table,
    fullName: found.full_name,
    hasTraceparent: types.get('traceparent') === 'text',
    hasRecordColumns: RECORD_COLUMNS.every((column) =>
      RECORD_TYPES.some((type) => types.get(column) === type),
    ),
    sequence: usable ? (found.sequence as string) : undefined,
  };
}

/** Which optional columns a table has. */
export type OptionalColumns = Pick<OutboxTable, 'hasTraceparent' | 'hasRecordColumns'>;

/** Column `outdated` of a statement on a table that was described without the record columns: true
 *  when it has them. In the snapshot of a row that uses them it is true. */
export const outdatedSelect = ({ hasRecordColumns }: OptionalColumns, table: string): string =>
  hasRecordColumns ? '' : `, ${hasRecordColumnsSql(`'${table}'::regclass`)} AS outdated`;

/** Expressions that read the optional columns; the trace context is null where it has no column. */
export const optionalSelect = ({ hasTraceparent, hasRecordColumns }: OptionalColumns): string =>
  `${hasTraceparent ? 'traceparent' : 'NULL::text AS traceparent'}${hasRecordColumns ? `, ${RECORD_SELECT}` : ''}`;

const rowColumns = (table: OptionalColumns): string =>
  `id, aggregate_id, msg_id, event_type, payload, date_part('epoch', created_at) * 1000 AS created_ms, ${optionalSelect(table)}`;

function toRow(found: PendingRow): OutboxRow {
  const row = {
    id: found.id,
    aggregateId: found.aggregate_id,
    msgId: found.msg_id,
    eventType: found.event_type,
    payload: found.payload,
    createdAt: new Date(found.created_ms),
    traceparent: found.traceparent,
  };
  const record = recordFieldsOf(found);
  return record === undefined ? row : { ...row, record };
}

const BYTES = 'coalesce(octet_length(payload), 0)';

/** Shards whose rows a statement reads. */
export interface ShardFilter {
  readonly shards: number;
  readonly owned: readonly number[];
}

const filterSql = (filter: ShardFilter, parameter: string): string =>
  filter.owned.length === filter.shards ? '' : `AND ${shardSql(filter.shards)} = ANY(${parameter}::int[])`;

/** Range of ids that an open transaction may still insert into. */
export interface Straggler {
  readonly xid: bigint;
  readonly from: bigint;
  readonly to: bigint;
}

export interface PendingScan {
  /** The scan reads ids above `cursor`. It also reads ids in (`decided`, `cursor`] outside
   *  `except`, because they may not have been visible before. */
  readonly cursor: bigint;
  readonly decided: bigint;
  /** Ids in flight above the lower of `cursor` and `decided`. */
  readonly except: readonly bigint[];
  readonly stragglers: readonly Straggler[];
  readonly filter: ShardFilter;
  readonly limit: number;
  /** Limit of the payload bytes; a single larger row is read alone. */
  readonly bytesMax: number;
}

export interface PendingPage {
  readonly rows: readonly OutboxRow[];
  /** True when further rows were left out because of their bytes. */
  readonly cut: boolean;
  /** True when the table got the record columns after it was described. The rows lack them and must
   *  not be published. */
  readonly isOutdated: boolean;
}

interface PageCells {
  readonly followed: boolean;
  readonly outdated?: boolean;
}

/** A hashed subplan: `<> ALL` of a parameter compares each row with each element, and a thousand
 *  rows in flight are a million comparisons a read. */
const NOT_EXCEPTED = 'id NOT IN (SELECT unnest($4::bigint[]))';

/** Reads the lowest pending rows of a scan, ascending, at most `limit`, fewer where their payloads
 *  are large. All rows come from one snapshot, so a row is never returned without the earlier
 *  committed rows of its key. */
export async function readPending(
  pool: SqlPool,
  table: OutboxTable,
  scan: PendingScan,
): Promise<PendingPage> {
  const shard = filterSql(scan.filter, '$3');
  const part = (where: string): string =>
    `(SELECT ${rowColumns(table)} FROM ${table.name} WHERE published_at IS NULL AND ${where} ${shard} ORDER BY id LIMIT $2)`;
  const parts = [part(`id > $1 ${scan.except.length === 0 ? '' : `AND ${NOT_EXCEPTED}`}`)];
  const parameters: Array<bigint | number | readonly number[] | readonly bigint[]> = [
    scan.cursor,
    scan.limit,
    scan.filter.owned,
    scan.except,
  ];
  if (scan.decided < scan.cursor) {
    parameters.push(scan.decided);
    parts.unshift(part(`id > $5 AND id <= $1 AND ${NOT_EXCEPTED}`));
  } else parameters.push(0n);
  parameters.push(scan.bytesMax);
  if (scan.stragglers.length > 0) {
    parts.unshift(
      `(SELECT p.* FROM unnest($7::text[], $8::bigint[], $9::bigint[]) AS late(xid, low, high) CROSS JOIN LATERAL (
          SELECT ${rowColumns(table)} FROM ${table.name}
          WHERE pg_visible_in_snapshot(late.xid::xid8, pg_current_snapshot())
            AND published_at IS NULL AND id BETWEEN late.low AND late.high AND ${NOT_EXCEPTED} ${shard}
          ORDER BY id LIMIT $2) AS p)`,
    );
  }
  // octet_length does not read a payload that is stored out of line (TOAST).
  const chosen = table.hasRecordColumns
    ? `, ${RECORD_COLUMNS.join(', ')}`
    : outdatedSelect(table, table.name);
  const text = `SELECT id, aggregate_id, msg_id, event_type, payload, created_ms, traceparent${chosen}, followed FROM (
      SELECT *, sum(${BYTES}) OVER lower AS total, lead(id) OVER lower IS NOT NULL AS followed FROM (
        SELECT * FROM (${parts.join(' UNION ALL ')}) AS pending
        WHERE $3::int[] IS NOT NULL AND $4::bigint[] IS NOT NULL AND $5::bigint IS NOT NULL ORDER BY id LIMIT $2) AS page
      WINDOW lower AS (ORDER BY id ROWS UNBOUNDED PRECEDING)) AS measured
    WHERE total <= $6::bigint OR total = ${BYTES} ORDER BY id`;
  const { rows } = await pool.query<PendingRow & PageCells>(text, [
    ...parameters,
    ...(scan.stragglers.length === 0
      ? []
      : [
          scan.stragglers.map(({ xid }) => xid.toString()),
          scan.stragglers.map(({ from }) => from),
          scan.stragglers.map(({ to }) => to),
        ]),
  ]);
  return {
    rows: rows.map(toRow),
    cut: rows.at(-1)?.followed === true,
    isOutdated: rows[0]?.outdated === true,
  };
}
