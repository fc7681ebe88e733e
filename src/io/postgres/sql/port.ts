/** Ports of a SQL database (PostgreSQL's dialect). SqlPool is for everything. TextPool is narrow
 *  and for hot paths: its statements are known beforehand and its values are text. Drivers: `pg`
 *  for both, libpq for TextPool. */
import { type ErrorTable, errorRow, errorsOf, type MillraceError } from '../../../core/errors.ts';

/** Errors of every driver, beside core's `unreachable`. `details.sqlstate` has the server's code,
 *  if any. */
export const SQL_ERRORS = {
  /** The server refused a statement; the session is usable. */
  sql_failed: errorRow('internal'),
  /** The server refused a statement that it can accept later: it is out of disk, memory or a
   *  configured limit, read-only, or about to stop. */
  sql_unavailable: errorRow('unavailable'),
  /** The connection was lost during COMMIT: the transaction is either whole or absent. Read back,
   *  then decide. */
  commit_unknown: errorRow('unavailable'),
  /** The first connection of a pool: the server does not accept the credentials. A later connection
   *  is `unreachable`, because the server accepted them before. */
  postgres_unauthenticated: errorRow('invalid'),
  /** The first connection of a pool: the TLS handshake failed. */
  postgres_untrusted: errorRow('invalid'),
} as const satisfies ErrorTable;

export const sqlError = errorsOf(SQL_ERRORS);

/** SQLSTATE of the statement that the server refused; undefined for any other error. */
export function refusedState(error: MillraceError | undefined): string | undefined {
  if (error?.code !== 'sql_failed' && error?.code !== 'sql_unavailable') return undefined;
  const { sqlstate } = error.details;
  return typeof sqlstate === 'string' ? sqlstate : undefined;
}

/** Parameter value. A bigint travels as decimal text, Uint8Array as bytea, arrays as PostgreSQL
 *  arrays. */
export type SqlValue = string | number | bigint | boolean | null | Uint8Array | Date | readonly SqlValue[];

/** Row of a result: int8 columns are bigint, bytea Uint8Array, timestamptz Date, json unparsed
 *  text, numeric string. */
export type SqlRow = Readonly<Record<string, unknown>>;

export interface SqlResult<R extends SqlRow = SqlRow> {
  readonly rows: readonly R[];
  /** Rows that the statement returned or changed. */
  readonly rowCount: number;
}

/** Limits of one statement. */
export interface StatementLimits {
  /** Timeout of the answer instead of the pool's. */
  readonly answerTimeoutMs?: number;
  /** Aborting closes the connection: unreachable. The outcome of the statement on the server is
   *  then unknown. */
  readonly giveUp?: AbortSignal;
}

export interface SqlSession {
  /** Pool of the session, which all sessions on the same database and search path share. */
  readonly catalog?: object;
  /** Runs one statement. @throws sql_failed with details.sqlstate; unreachable when the connection
   *  is lost */
  query<R extends SqlRow = SqlRow>(
    text: string,
    params?: readonly SqlValue[],
    limits?: StatementLimits,
  ): Promise<SqlResult<R>>;
  /** Runs COPY table (columns) FROM STDIN in text format; a row has its values in column order.
   *  Returns the number of copied rows. */
  copyIn(table: string, columns: readonly string[], rows: Iterable<readonly SqlValue[]>): Promise<number>;
}

export interface SqlPool extends SqlSession {
  /** Runs `work` in one transaction on one connection; commits when it settles, rolls back when it
   *  throws. A COMMIT whose outcome is unknown is thrown as commit_unknown. */
  transaction<T>(work: (session: SqlSession) => Promise<T>): Promise<T>;
  /** system_identifier of the cluster, decimal text. */
  systemIdentifier(): Promise<string>;
  close(): Promise<void>;
}

export interface SqlOptions {
  readonly url: string;
  /** Flag that gives the address, for error texts; default -postgres. */
  readonly flag?: string;
  readonly connectionsMax: number;
  readonly applicationName: string;
  readonly connectTimeoutMs: number;
  /** Timeout of an answer: the connection is then closed, and the statement fails with unreachable.
   *  Absent: no timeout. */
  readonly answerTimeoutMs?: number;
  /** Called each time an answer timeout closes a connection. */
  readonly onOverdue?: () => void;
  /** Called each time a SqlPool has opened a connection, before the first statement on it. */
  readonly onConnect?: () => void;
}

export interface SqlDriver {
  readonly name: string;
  connect(options: SqlOptions): Promise<SqlPool>;
}

/** Statement that is prepared once for each connection. */
export interface TextStatement {
  readonly text: string;
  readonly paramCount: number;
}

/** Value in the server's text format; bytea as \\x and hex digits, arrays as literals. Without
 *  U+0000. */
export type TextParam = string | null;

/** Result of a statement; borrowed until the function that reads it returns. */
export interface TextRows {
  readonly rowCount: number;
  readonly columnCount: number;
  text(row: number, column: number): string | null;
}

export interface TextExecution {
  /** Aborting cancels the statement on the server: it fails with sqlstate 57014, unless it had
   *  already ended. */
  readonly cancel?: AbortSignal;
}

export interface TextSession {
  /** Runs one statement; `read` is called once with its rows.
   *  @throws sql_failed with details.sqlstate; unreachable when the connection is lost or no answer
   *  arrived within answerTimeoutMs. `details.sent` of unreachable is true when the server may have
   *  received the statement: a statement outside a transaction then took effect either whole or not
   *  at all. */
  execute<T>(
    statement: TextStatement,
    params: readonly TextParam[],
    read: (rows: TextRows) => T,
    execution?: TextExecution,
  ): Promise<T>;
}

export interface TextPool extends TextSession {
  /** Runs a transaction, as SqlPool.transaction. */
  transaction<T>(work: (session: TextSession) => Promise<T>): Promise<T>;
  /** Number of open connections; lost ones are replaced at the next use. */
  connected(): number;
  /** Waits for statements in flight. */
  close(): Promise<void>;
}

export interface TextOptions extends SqlOptions {
  /** Timeout of an answer, after which the connection is closed. It must exceed the server's
   *  statement_timeout, so that only an unreachable server meets it. */
  readonly answerTimeoutMs: number;
}

export interface TextDriver {
  readonly name: string;
  /** Opens a pool with one connection, to check that the server accepts it. */
  connect(options: TextOptions): Promise<TextPool>;
}
