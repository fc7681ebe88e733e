/** A SQL database in our words (PostgreSQL's dialect). Drivers: `pg` here, `pg-native` for hot paths later. */
import { type ErrorTable, errorRow, errorsOf } from '../../core/errors.ts';

/** What every driver throws, beside core's `unreachable`. `details.sqlstate` holds the server's code where it gave one. */
export const SQL_ERRORS = {
  /** The server refused a statement; the session is usable. */
  sql_failed: errorRow('internal'),
  /** The connection went away around COMMIT: the transaction is either whole or absent. Read back, then decide. */
  commit_unknown: errorRow('unavailable'),
} as const satisfies ErrorTable;

export const sqlError = errorsOf(SQL_ERRORS);

/** What a parameter may be. bigint travels as a decimal text, Uint8Array as bytea, arrays as PostgreSQL arrays. */
export type SqlValue = string | number | bigint | boolean | null | Uint8Array | Date | readonly SqlValue[];

/** int8 columns are bigint, bytea Uint8Array, timestamptz Date, json text untouched (string), numeric string. */
export type SqlRow = Readonly<Record<string, unknown>>;

export interface SqlResult<R extends SqlRow = SqlRow> {
  readonly rows: readonly R[];
  /** Rows touched by the statement. */
  readonly rowCount: number;
}

export interface SqlSession {
  /** One statement. @throws sql_failed with details.sqlstate; unreachable when the connection is gone */
  query<R extends SqlRow = SqlRow>(text: string, params?: readonly SqlValue[]): Promise<SqlResult<R>>;
  /** COPY table (columns) FROM STDIN, text format; each row its values in column order. Returns rows copied. */
  copyIn(table: string, columns: readonly string[], rows: Iterable<readonly SqlValue[]>): Promise<number>;
}

export interface SqlPool extends SqlSession {
  /** Runs `work` in one transaction on one connection; commits when it settles, rolls back when it throws. A COMMIT
   *  whose outcome is unknown is thrown as commit_unknown. */
  transaction<T>(work: (session: SqlSession) => Promise<T>): Promise<T>;
  /** system_identifier of the cluster, decimal text. */
  systemIdentifier(): Promise<string>;
  close(): Promise<void>;
}

export interface SqlOptions {
  readonly url: string;
  readonly connectionsMax: number;
  readonly applicationName: string;
  readonly connectTimeoutMs: number;
}

export interface SqlDriver {
  readonly name: string;
  connect(options: SqlOptions): Promise<SqlPool>;
}
