/** Columns of a PostgreSQL table that hold the key: one for each part, of its own type. */
import type { SqlRow, SqlSession, SqlValue } from '../../../io/postgres/sql/port.ts';
import {
  type KeyKind,
  type KeyPart,
  type KeyType,
  type KeyValue,
  keyOfValues,
  keyValues,
  partNames,
} from '../../keys/type.ts';

/** u64 needs more than the 64 bits of int8. Texts compare by bytes, as keys do. */
const SQL_TYPE: Readonly<Record<KeyKind, string>> = {
  i64: 'int8',
  u64: 'numeric(20,0)',
  string: 'text COLLATE "C"',
  bytes: 'bytea',
  uuid: 'uuid',
};
const KIND_OF = new Map(
  Object.entries(SQL_TYPE).map(([kind, sql]) => [sql.replace(/ COLLATE.*/, ''), kind as KeyKind]),
).set('bigint', 'i64');
const NAME_CHARS_MAX = 50;

/** Columns of a result, and of a late event, beside the key: a key has the same columns in both
 *  tables. */
const TAKEN = new Set([
  ...['window_start', 'window_end', 'count', 'sum', 'min', 'max', 'last_update_ts', 'overflow'],
  ...['source_partition', 'source_offset', 'event_ts', 'value', 'reason', 'watermark_ms', 'timestamp_ms'],
]);

/** Names of the columns: the names of the parts in small letters, with `key_` before a name that
 *  another column of a result or of a late event has, and numbers after equal ones. */
function columnNames(type: KeyType): readonly string[] {
  const used = new Set(TAKEN);
  return partNames(type).map((name) => {
    const plain = name
      .toLowerCase()
      .replace(/[^a-z0-9_]/g, '_')
      .slice(0, NAME_CHARS_MAX);
    const base = used.has(plain) || !/^[a-z_]/.test(plain) ? `key_${plain}` : plain;
    let free = base;
    for (let n = 2; used.has(free); n++) free = `${base}_${n}`;
    used.add(free);
    return free;
  });
}

/** Key columns of a table. */
export class KeyColumns {
  readonly type: KeyType;
  readonly names: readonly string[];

  constructor(type: KeyType, names = columnNames(type)) {
    this.type = type;
    this.names = names;
  }

  /** Definitions of the columns. */
  get definitions(): string {
    return this.names
      .map((name, at) => `${quoted(name)} ${SQL_TYPE[(this.type[at] as KeyPart).kind]} NOT NULL`)
      .join(', ');
  }

  values(key: Uint8Array): readonly SqlValue[] {
    return keyValues(this.type, key);
  }

  /** Canonical bytes of the key of a row. */
  key(row: SqlRow): Uint8Array {
    return keyOfValues(
      this.type,
      this.names.map((name) => row[name] as KeyValue),
    );
  }

  /** Text for messages. */
  toString(): string {
    return this.names.map((name, at) => `${name} ${SQL_TYPE[(this.type[at] as KeyPart).kind]}`).join(', ');
  }
}

export const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

/** Key columns of an existing table; undefined: its key is the integer account_id, or it is no
 *  table of results. */
export async function columnsOf(session: SqlSession, table: string): Promise<KeyColumns | undefined> {
  const { rows } = await session.query<{ readonly name: string; readonly type: string }>(
    `SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod)::text AS type
     FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
     JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
     WHERE i.indrelid = to_regclass($1) AND i.indisprimary ORDER BY k.place`,
    [table],
  );
  const parts = rows.slice(0, -2);
  const isResult =
    rows
      .slice(-2)
      .map(({ name }) => name)
      .join() === 'window_start,window_end';
  if (!isResult || parts.length === 0) return undefined;
  if (parts.length === 1 && parts[0]?.name === 'account_id' && parts[0].type === 'bigint') return undefined;
  const type: KeyPart[] = [];
  for (const { name, type: sql } of parts) {
    const kind = KIND_OF.get(sql);
    if (kind === undefined) return undefined;
    type.push({ name, kind });
  }
  return new KeyColumns(
    type,
    parts.map(({ name }) => name),
  );
}

/** Text of the columns of a table that cannot be null, without those of the given names, in the
 *  form of KeyColumns; undefined: there is no such table. */
export async function otherColumns(
  session: Pick<SqlSession, 'query'>,
  table: string,
  known: readonly string[],
): Promise<string | undefined> {
  const { rows } = await session.query<{ readonly name: string; readonly type: string }>(
    `SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod)::text AS type FROM pg_attribute a
     WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND a.attnotnull AND NOT a.attisdropped ORDER BY a.attnum`,
    [table],
  );
  if (rows.length === 0) return undefined;
  return rows
    .filter(({ name }) => !known.includes(name))
    .map(({ name, type }) => {
      const kind = KIND_OF.get(type);
      return `${name} ${kind === undefined ? type : SQL_TYPE[kind]}`;
    })
    .join(', ');
}
