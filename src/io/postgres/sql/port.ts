/** A SQL database in our words (PostgreSQL's dialect), as two ports: SqlPool for everything, and TextPool, a narrow one for
 *  hot paths, whose statements are known beforehand and whose values are text. Drivers: `pg` for both, libpq for TextPool. */
import { type ErrorTable, errorRow, errorsOf } from '../../../core/errors.ts';

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

/** Of one statement. */
export interface StatementLimits {
  /** Instead of the pool's. */
  readonly answerTimeoutMs?: number;
  /** Gives the connection up when it is aborted: unreachable. What the server makes of the statement is not known. */
  readonly giveUp?: AbortSignal;
}

export interface SqlSession {
  /** One statement. @throws sql_failed with details.sqlstate; unreachable when the connection is gone */
  query<R extends SqlRow = SqlRow>(
    text: string,
    params?: readonly SqlValue[],
    limits?: StatementLimits,
  ): Promise<SqlResult<R>>;
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
  /** What an operator gave the address with, for errors; -postgres unless given. */
  readonly flag?: string;
  readonly connectionsMax: number;
  readonly applicationName: string;
  readonly connectTimeoutMs: number;
  /** After this long without an answer the connection is given up: unreachable. Absent: a statement may take for ever. */
  readonly answerTimeoutMs?: number;
  /** Called each time a connection is given up for that. */
  readonly onOverdue?: () => void;
}

export interface SqlDriver {
  readonly name: string;
  connect(options: SqlOptions): Promise<SqlPool>;
}

/** A statement that is prepared once a connection. */
export interface TextStatement {
  readonly text: string;
  readonly paramCount: number;
}

/** The server's text form of a value; bytea as \\x and hex digits, arrays as literals. Without U+0000. */
export type TextParam = string | null;

/** What a statement gave; borrowed until the function that reads it returns. */
export interface TextRows {
  readonly rowCount: number;
  readonly columnCount: number;
  text(row: number, column: number): string | null;
}

export interface TextExecution {
  /** Has the server give up on the statement: it fails with sqlstate 57014, unless it was done before. */
  readonly cancel?: AbortSignal;
}

export interface TextSession {
  /** One statement; `read` is called once, with its rows.
   *  @throws sql_failed with details.sqlstate; unreachable when the connection is gone or the server did not answer within
   *  answerTimeoutMs. Of an unreachable server `details.sent` says whether it may have got the statement: if so and the
   *  statement was not part of a transaction, what it wrote is either whole or absent. */
  execute<T>(
    statement: TextStatement,
    params: readonly TextParam[],
    read: (rows: TextRows) => T,
    execution?: TextExecution,
  ): Promise<T>;
}

export interface TextPool extends TextSession {
  /** As SqlPool.transaction. */
  transaction<T>(work: (session: TextSession) => Promise<T>): Promise<T>;
  /** Connections that are open; those that were lost are replaced at the next use. */
  connected(): number;
  /** Waits for what is under way. */
  close(): Promise<void>;
}

export interface TextOptions extends SqlOptions {
  /** After this long without an answer the connection is given up. Longer than the server's own statement_timeout, so
   *  that only a server that cannot be heard meets it. */
  readonly answerTimeoutMs: number;
}

export interface TextDriver {
  readonly name: string;
  /** Opens one connection, to see that it can. */
  connect(options: TextOptions): Promise<TextPool>;
}
