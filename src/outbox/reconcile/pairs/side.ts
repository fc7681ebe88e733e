/** Side of a comparison: a table whose rows have the id of an intent or of its effect, and a time.
 *
 *  Ids are UUIDs, integers or texts, of one kind on both sides. A row is known by the hash of its
 *  id; the seed of the hash is the value that both sides have in common, such as an amount. The sum
 *  of the hashes of a set of rows is its digest: equal counts and equal sums mean equal sets,
 *  except with a probability of about 2^-64. Sums are exact (numeric), so a row that occurs twice
 *  counts twice. An id that occurs twice on both sides is in equal digests; where no unique index
 *  excludes it, repeated ids are searched for.
 */
import type { SqlSession } from '../../../io/postgres/sql/port.ts';
import { outboxError } from '../../errors.ts';
import { isUuidV7Sql } from '../../inbox/names.ts';
import { columnName, quoted, type TableName, tableName } from './identifiers.ts';

/** Table and columns as a user names them. */
export interface SideConfig {
  readonly table: string;
  /** Column of the id that both sides have in common: uuid, integer or text. */
  readonly id: string;
  /** Column of the time when the row was made, timestamptz. */
  readonly time: string;
  /** Indexed column through which -watch finds the rows of a time: the id (default), the time, or
   *  an integer that grows with the time, such as a sequence. */
  readonly order?: string;
  /** Integer column that must be equal on both sides. */
  readonly value?: string;
  /** Column that is null until the row has been published. */
  readonly state?: string;
}

export type IdKind = 'uuid' | 'int' | 'text';

/** Checked side; every name is quoted. */
export interface PairSide {
  readonly table: TableName;
  readonly id: string;
  readonly idKind: IdKind;
  /** True if a unique index excludes that an id occurs twice. */
  readonly isUnique: boolean;
  readonly time: string;
  readonly order:
    | { readonly by: 'id' }
    | { readonly by: 'time' }
    | { readonly by: 'int'; readonly column: string };
  readonly value: string | undefined;
  readonly state: string | undefined;
}

const KINDS: Readonly<Record<string, IdKind>> = {
  uuid: 'uuid',
  int2: 'int',
  int4: 'int',
  int8: 'int',
  text: 'text',
  varchar: 'text',
  bpchar: 'text',
};

function unusable(table: TableName, why: string, next: string): Error {
  return outboxError('table_unusable', `table ${table.given} ${why}`, { next });
}

/** Checks that the table and its columns exist and have usable types.
 *  @param what side that an error names, such as `the outbox of pair shop`
 *  @throws bad_value, tables_missing, table_unusable */
export async function readSide(session: SqlSession, config: SideConfig, what: string): Promise<PairSide> {
  const table = tableName(config.table, `the table of ${what}`);
  const { rows: found } = await session.query<{ oid: string | null }>(
    'SELECT to_regclass($1)::oid::text AS oid',
    [table.sql],
  );
  const oid = found[0]?.oid ?? null;
  if (oid === null)
    throw outboxError('tables_missing', `the database has no table ${table.given}, which is ${what}`, {
      next: 'correct the name or its schema, or connect to the database that has it',
    });
  const { rows } = await session.query<{ name: string; type: string }>(
    `SELECT a.attname::text AS name, t.typname::text AS type FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
     WHERE a.attrelid = $1::text::oid AND a.attnum > 0 AND NOT a.attisdropped`,
    [oid],
  );
  const types = new Map(rows.map(({ name, type }) => [name, type]));
  const column = (text: string, role: string): { readonly sql: string; readonly type: string } => {
    const name = columnName(text, `the ${role} of ${what}`);
    const type = types.get(name);
    if (type === undefined)
      throw unusable(
        table,
        `has no column ${name}, the ${role} of ${what}`,
        'correct the name of the column',
      );
    return { sql: quoted(name), type };
  };
  const side = sideOf(table, config, column);
  const { rows: unique } = await session.query<{ found: boolean }>(
    `SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
       WHERE i.indrelid = $1::text::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
         AND i.indnkeyatts = 1 AND a.attname = $2) AS found`,
    [oid, columnName(config.id, `the id column of ${what}`)],
  );
  return { ...side, isUnique: unique[0]?.found === true };
}

type FindColumn = (text: string, role: string) => { readonly sql: string; readonly type: string };

function sideOf(table: TableName, config: SideConfig, column: FindColumn): Omit<PairSide, 'isUnique'> {
  const id = column(config.id, 'id column');
  const idKind = KINDS[id.type];
  if (idKind === undefined)
    throw unusable(table, `has ids of type ${id.type}`, 'compare ids of type uuid, integer or text');
  const time = column(config.time, 'time column');
  if (time.type !== 'timestamptz')
    throw unusable(
      table,
      `has times of type ${time.type}`,
      'compare a column of type timestamptz, because a time without a zone depends on the session',
    );
  const value = config.value === undefined ? undefined : column(config.value, 'value column');
  if (value !== undefined && KINDS[value.type] !== 'int')
    throw unusable(table, `has values of type ${value.type}`, 'compare an integer column');
  const order = column(config.order ?? config.id, 'order column');
  const isInt = KINDS[order.type] === 'int';
  if (order.sql !== id.sql && order.sql !== time.sql && !isInt)
    throw unusable(
      table,
      `is ordered by a column of type ${order.type}`,
      'give the id column, the time column, or an integer column that grows with the time',
    );
  return {
    table,
    id: id.sql,
    idKind,
    time: time.sql,
    order:
      order.sql === id.sql
        ? { by: 'id' }
        : order.sql === time.sql
          ? { by: 'time' }
          : { by: 'int', column: order.sql },
    value: value?.sql,
    state: config.state === undefined ? undefined : column(config.state, 'state column').sql,
  };
}

const HASHES: Readonly<Record<IdKind, (id: string, seed: string) => string>> = {
  uuid: (id, seed) => `uuid_hash_extended(${id}, ${seed})`,
  int: (id, seed) => `hashint8extended(${id}::bigint, ${seed})`,
  // A nondeterministic collation would give equal hashes to different texts.
  text: (id, seed) => `hashtextextended(${id}::text COLLATE "C", ${seed})`,
};

/** Seed of a row without a value; no amount has it. */
const NO_VALUE = `'-9223372036854775808'::bigint`;

/** Hash of the id alone. */
export const idHash = (side: PairSide): string => HASHES[side.idKind](side.id, '0');

/** Hash of the id and the value. */
export const rowHash = (side: PairSide): string =>
  HASHES[side.idKind](
    side.id,
    side.value === undefined ? '0' : `coalesce(${side.value}::bigint, ${NO_VALUE})`,
  );

/** Id in a form that results and parameters have in common. */
export const idText = (side: PairSide): string => `${side.id}::text`;

/** Order of ids that both servers and this process have in common. */
export const idOrder = (side: PairSide): string =>
  side.idKind === 'text' ? `${side.id}::text COLLATE "C"` : side.id;

/** Compares ids in the order of idOrder. */
export function compareIds(kind: IdKind, a: string, b: string): number {
  if (a === b) return 0;
  if (kind === 'int') return BigInt(a) < BigInt(b) ? -1 : 1;
  if (kind === 'uuid') return a < b ? -1 : 1;
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

export const epochMs = (expression: string): string => `(extract(epoch FROM ${expression}) * 1000)::float8`;

export const timestampOf = (parameter: string): string => `to_timestamp(${parameter}::float8 / 1000)`;

/** Time in a UUIDv7. The function of PostgreSQL 17 also reads version 1, which has a time too. */
export const uuidTimeSql = (id: string, serverVersion: number): string =>
  serverVersion >= 170_000
    ? `uuid_extract_timestamp(${id})`
    : `(CASE WHEN get_byte(uuid_send(${id}), 6) >> 4 = 7 THEN
        to_timestamp(('x' || encode(substring(uuid_send(${id}) FROM 1 FOR 6), 'hex'))::bit(48)::bigint / 1000.0) END)`;

/** True for a UUID of another version than 7. */
export const isTimelessSql = (id: string, serverVersion: number): string =>
  serverVersion >= 170_000 ? `uuid_extract_version(${id}) IS DISTINCT FROM 7` : `NOT ${isUuidV7Sql(id)}`;

export async function serverVersionOf(session: SqlSession): Promise<number> {
  const { rows } = await session.query<{ version: number }>(
    `SELECT current_setting('server_version_num')::int AS version`,
  );
  return rows[0]?.version ?? 0;
}

/** Text outside of ASCII: its hash depends on the encoding of the database. */
const PROBE = `SELECT uuid_hash_extended('0192f0c1-2d3e-7f40-8a5b-6c7d8e9fa0b1'::uuid, 7)::text || ' ' ||
  hashint8extended(-5, 7)::text || ' ' || hashtextextended(U&'\\00e9' COLLATE "C", 7)::text AS hashes`;

/** Checks that two servers compute equal hashes. @throws table_unusable */
export async function requireEqualHashes(left: SqlSession, right: SqlSession): Promise<void> {
  const probe = async (session: SqlSession): Promise<string | undefined> =>
    (await session.query<{ hashes: string }>(PROBE)).rows[0]?.hashes;
  if ((await probe(left)) === (await probe(right))) return;
  throw outboxError('table_unusable', 'the two databases compute different hashes of the same ids', {
    next: 'compare databases with the same encoding on servers with the same byte order',
  });
}
