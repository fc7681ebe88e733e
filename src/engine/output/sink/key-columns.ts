/** Columns of a PostgreSQL table that hold the key: one for each part, of its own type. A table of
 *  the layout `bits` has an integer key as account_id, 64 bits in an int8. */
import type { SqlRow, SqlSession, SqlValue } from '../../../io/postgres/sql/port.ts';
import {
  isVariable,
  type KeyKind,
  type KeyPart,
  type KeyType,
  type KeyValue,
  keyOfValues,
  keyValues,
} from '../../keys/type.ts';
import { keyColumnNames, type ResultShape } from '../columns.ts';

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
const BITS_NAME = 'account_id';

/** Key of a result or of a late event. */
interface Keyed {
  readonly accountId: bigint;
  readonly key?: Uint8Array | undefined;
}

/** Key columns of a table. */
export class KeyColumns {
  readonly type: KeyType;
  readonly names: readonly string[];
  /** `bits`: account_id, an integer key bit for bit. `integer`: an integer key as a number.
   *  `parts`: a key of canonical bytes. */
  readonly form: 'bits' | 'integer' | 'parts';

  private constructor(type: KeyType, names: readonly string[], form: KeyColumns['form']) {
    this.type = type;
    this.names = names;
    this.form = form;
  }

  /** Column of an integer key in the layout of the fixed format and of earlier versions. */
  static bits(): KeyColumns {
    return new KeyColumns([{ name: BITS_NAME, kind: 'i64' }], [BITS_NAME], 'bits');
  }

  /** Columns with the names and types of the parts. */
  static of(parts: KeyType, names = keyColumnNames(parts, (name) => name.toLowerCase())): KeyColumns {
    return new KeyColumns(parts, names, isVariable(parts) ? 'parts' : 'integer');
  }

  /** Columns of a new table. */
  static ofShape({ parts, isFixed }: Pick<ResultShape, 'parts' | 'isFixed'>): KeyColumns {
    return isFixed ? KeyColumns.bits() : KeyColumns.of(parts);
  }

  /** Type of the keys, with their names; undefined: integers without a name of their own. */
  get keyType(): KeyType | undefined {
    return this.form === 'bits' ? undefined : this.type;
  }

  /** Names as SQL needs them. */
  get quotedNames(): readonly string[] {
    return this.names.map(quoted);
  }

  /** Definitions of the columns. */
  get definitions(): string {
    return this.names
      .map((name, at) => `${quoted(name)} ${SQL_TYPE[(this.type[at] as KeyPart).kind]} NOT NULL`)
      .join(', ');
  }

  values({ accountId, key }: Keyed): readonly SqlValue[] {
    if (this.form === 'parts') return keyValues(this.type, key as Uint8Array);
    const isUnsigned = this.form === 'integer' && this.type[0]?.kind === 'u64';
    return [isUnsigned ? accountId : BigInt.asIntN(64, accountId)];
  }

  /** Key of a row. */
  keyOf(row: SqlRow): Keyed {
    const values = this.names.map((name) => row[name] as KeyValue);
    if (this.form === 'bits') return { accountId: BigInt.asUintN(64, values[0] as bigint) };
    const key = keyOfValues(this.type, values);
    return this.form === 'parts'
      ? { accountId: 0n, key }
      : { accountId: BigInt.asUintN(64, BigInt(values[0] as bigint | string)), key };
  }

  /** Text for messages, and for the comparison of tables. */
  toString(): string {
    return this.names.map((name, at) => `${name} ${SQL_TYPE[(this.type[at] as KeyPart).kind]}`).join(', ');
  }
}

export const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

/** Type of a column as PostgreSQL names it: the kind of a key that it holds, or undefined. */
export const kindOfSqlType = (sql: string): KeyKind | undefined => KIND_OF.get(sql);

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
