/** SqlPool driver over `pg`: PostgreSQL's wire protocol in JavaScript.
 *
 *  Statements with parameters are prepared once for each connection, so a repeated statement is
 *  parsed and planned once. A connection that failed in a transaction or has an overdue answer is
 *  closed, never returned to the pool, and gets no further statement.
 */
import pg from 'pg';
import { MillraceError } from '../../../core/errors.ts';
import { pgConnection } from '../tls.ts';
import { commitUnknown, firstFault, rolledBackAtCommit, toError, type Where, whereOf } from './faults.ts';
import { KEEPALIVE, PgClient, socketOf } from './pg-client.ts';
import { copyIn, RowsFailure } from './pg-copy.ts';
import { parserOf, toParameter } from './pg-values.ts';
import type {
  SqlDriver,
  SqlOptions,
  SqlPool,
  SqlResult,
  SqlRow,
  SqlSession,
  SqlValue,
  StatementLimits,
} from './port.ts';

/** Most prepared statements of a connection; further texts are sent unnamed, so that generated
 *  texts do not fill the server's memory. */
const PREPARED_TEXTS_MAX = 512;

/** Message of pg for a statement that exceeded its `query_timeout`. */
const OVERDUE_TEXT = 'Query read timeout';

/** Statement with a timeout, which pg accepts and its types do not declare. */
interface TimedQuery extends pg.QueryConfig {
  query_timeout?: number;
}

interface SessionParts {
  readonly catalog: object;
  readonly client: pg.ClientBase;
  readonly names: Map<string, string>;
  readonly where: Where;
  readonly answerTimeoutMs: number | undefined;
  readonly onOverdue: (() => void) | undefined;
}

class PgSession implements SqlSession {
  private readonly parts: SessionParts;
  private lost = false;

  constructor(parts: SessionParts) {
    this.parts = parts;
  }

  get catalog(): object {
    return this.parts.catalog;
  }

  /** True when the connection is lost, or an answer is overdue. */
  get isLost(): boolean {
    return this.lost;
  }

  async query<R extends SqlRow = SqlRow>(
    text: string,
    params: readonly SqlValue[] = [],
    limits: StatementLimits = {},
  ): Promise<SqlResult<R>> {
    const result = await this.ask<R>(statementOf(this.parts.names, text, params), limits);
    return { rows: result.rows, rowCount: result.rowCount ?? 0 };
  }

  /** Runs a statement without parameters and result; returns its command tag. */
  async command(text: string): Promise<string> {
    return (await this.ask({ text }, {})).command;
  }

  async copyIn(
    table: string,
    columns: readonly string[],
    rows: Iterable<readonly SqlValue[]>,
  ): Promise<number> {
    try {
      return await copyIn(this.parts.client, table, columns, rows);
    } catch (thrown) {
      if (thrown instanceof RowsFailure) throw thrown.thrown;
      throw this.faultOf(thrown, this.parts.answerTimeoutMs);
    }
  }

  private async ask<R extends SqlRow>(
    statement: TimedQuery,
    { answerTimeoutMs = this.parts.answerTimeoutMs, giveUp }: StatementLimits,
  ): Promise<pg.QueryResult<R>> {
    const { client } = this.parts;
    if (answerTimeoutMs !== undefined) statement.query_timeout = answerTimeoutMs;
    const cut = (): void => {
      socketOf(client).destroy();
    };
    giveUp?.addEventListener('abort', cut, { once: true });
    if (giveUp?.aborted === true) cut();
    try {
      return await client.query<R>(statement);
    } catch (thrown) {
      throw this.faultOf(thrown, answerTimeoutMs);
    } finally {
      giveUp?.removeEventListener('abort', cut);
    }
  }

  private faultOf(thrown: unknown, answerTimeoutMs: number | undefined): MillraceError {
    const { where, onOverdue } = this.parts;
    const isOverdue = thrown instanceof Error && thrown.message === OVERDUE_TEXT;
    if (isOverdue) onOverdue?.();
    const error = toError(
      isOverdue ? new Error(`Connection terminated: no answer within ${answerTimeoutMs} ms`) : thrown,
      where,
    );
    if (error.code === 'unreachable') this.lost = true;
    return error;
  }
}

function statementOf(names: Map<string, string>, text: string, params: readonly SqlValue[]): TimedQuery {
  const values = params.map(toParameter);
  if (params.length === 0) return { text, values };
  let name = names.get(text);
  if (name === undefined && names.size < PREPARED_TEXTS_MAX) {
    name = `millrace_${names.size}`;
    names.set(text, name);
  }
  return name === undefined ? { text, values } : { name, text, values };
}

class PgPool implements SqlPool {
  private readonly pool: pg.Pool;
  private readonly where: Where;
  private readonly options: SqlOptions;
  private readonly names = new Map<string, string>();
  private closing: Promise<void> | undefined;

  constructor(pool: pg.Pool, where: Where, options: SqlOptions) {
    this.pool = pool;
    this.where = where;
    this.options = options;
    // The pool replaces a lost idle connection at the next use; an error event without a listener
    // would end the process.
    pool.on('error', () => {});
    pool.on('connect', () => options.onConnect?.());
  }

  /** Runs `work` on one connection, which returns to the pool unless an error makes its state
   *  doubtful. */
  private async withSession<T>(work: (session: PgSession) => Promise<T>): Promise<T> {
    let client: pg.PoolClient;
    try {
      client = await this.pool.connect();
    } catch (thrown) {
      throw toError(thrown, this.where);
    }
    const { where, names } = this;
    const { answerTimeoutMs, onOverdue } = this.options;
    const session = new PgSession({ catalog: this, client, names, where, answerTimeoutMs, onOverdue });
    let broken = false;
    try {
      return await work(session);
    } catch (thrown) {
      broken = !(thrown instanceof MillraceError) || thrown.code !== 'sql_failed';
      throw thrown;
    } finally {
      client.release(broken || session.isLost);
    }
  }

  query<R extends SqlRow = SqlRow>(
    text: string,
    params: readonly SqlValue[] = [],
    limits: StatementLimits = {},
  ): Promise<SqlResult<R>> {
    return this.withSession((session) => session.query<R>(text, params, limits));
  }

  copyIn(table: string, columns: readonly string[], rows: Iterable<readonly SqlValue[]>): Promise<number> {
    return this.withSession((session) => session.copyIn(table, columns, rows));
  }

  transaction<T>(work: (session: SqlSession) => Promise<T>): Promise<T> {
    return this.withSession(async (session) => {
      await session.query('BEGIN');
      let value: T;
      try {
        value = await work(session);
      } catch (thrown) {
        // A lost connection rolls back by itself; a ROLLBACK on it would wait for a second timeout.
        if (!session.isLost) await session.query('ROLLBACK').catch(() => {});
        throw thrown;
      }
      let command: string;
      try {
        command = await session.command('COMMIT');
      } catch (thrown) {
        throw thrown instanceof MillraceError && thrown.code === 'unreachable'
          ? commitUnknown(thrown)
          : thrown;
      }
      if (command !== 'COMMIT') throw rolledBackAtCommit();
      return value;
    });
  }

  async systemIdentifier(): Promise<string> {
    const { rows } = await this.query<{ id: string }>(
      'SELECT system_identifier::text AS id FROM pg_control_system()',
    );
    return (rows[0] as { id: string }).id;
  }

  close(): Promise<void> {
    this.closing ??= this.pool.end();
    return this.closing;
  }
}

export const pgDriver: SqlDriver = {
  name: 'pg',
  async connect(options: SqlOptions): Promise<SqlPool> {
    const where = whereOf(options);
    const pool = new PgPool(
      new pg.Pool({
        ...pgConnection(options.url),
        max: options.connectionsMax,
        application_name: options.applicationName,
        connectionTimeoutMillis: options.connectTimeoutMs,
        ...KEEPALIVE,
        Client: PgClient,
        ...(options.answerTimeoutMs === undefined ? {} : { query_timeout: options.answerTimeoutMs }),
        types: { getTypeParser: parserOf as typeof pg.types.getTypeParser },
      }),
      where,
      options,
    );
    try {
      await pool.query('SELECT 1');
    } catch (thrown) {
      await pool.close().catch(() => {});
      throw firstFault(thrown);
    }
    return pool;
  },
};
