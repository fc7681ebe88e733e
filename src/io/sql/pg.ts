/** The `pg` driver: PostgreSQL over its wire protocol in JavaScript.
 *
 *  Statements with parameters are prepared once a connection under a name of their own, so that a repeated statement is
 *  parsed and planned once. A connection that failed in a transaction is thrown away, never given back to the pool.
 */
import pg from 'pg';
import { MillraceError } from '../../core/errors.ts';
import { addressOf, commitUnknown, rolledBackAtCommit, toError } from './faults.ts';
import { copyIn, RowsFailure } from './pg-copy.ts';
import { parserOf, toParameter } from './pg-values.ts';
import type { SqlDriver, SqlOptions, SqlPool, SqlResult, SqlRow, SqlSession, SqlValue } from './port.ts';

/** Texts beyond this many are sent unnamed: a caller that builds texts must not fill the server's memory. */
const PREPARED_TEXTS_MAX = 512;

class PgSession implements SqlSession {
  protected readonly names: Map<string, string>;
  protected readonly where: string;
  private readonly client: pg.ClientBase;

  constructor(client: pg.ClientBase, names: Map<string, string>, where: string) {
    this.client = client;
    this.names = names;
    this.where = where;
  }

  async query<R extends SqlRow = SqlRow>(
    text: string,
    params: readonly SqlValue[] = [],
  ): Promise<SqlResult<R>> {
    try {
      const result = await this.client.query<R>(statementOf(this.names, text, params));
      return { rows: result.rows, rowCount: result.rowCount ?? 0 };
    } catch (thrown) {
      throw toError(thrown, this.where);
    }
  }

  async copyIn(
    table: string,
    columns: readonly string[],
    rows: Iterable<readonly SqlValue[]>,
  ): Promise<number> {
    try {
      return await copyIn(this.client, table, columns, rows);
    } catch (thrown) {
      if (thrown instanceof RowsFailure) throw thrown.thrown;
      throw toError(thrown, this.where);
    }
  }
}

function statementOf(names: Map<string, string>, text: string, params: readonly SqlValue[]): pg.QueryConfig {
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
  private readonly where: string;
  private readonly names = new Map<string, string>();
  private closing: Promise<void> | undefined;

  constructor(pool: pg.Pool, where: string) {
    this.pool = pool;
    this.where = where;
    // An idle connection that the server ends is replaced at the next use; unheard, the event would end the process.
    pool.on('error', () => {});
  }

  /** Runs `work` on one connection, which goes back to the pool unless what it threw makes its state doubtful. */
  private async withSession<T>(work: (session: PgSession, client: pg.PoolClient) => Promise<T>): Promise<T> {
    let client: pg.PoolClient;
    try {
      client = await this.pool.connect();
    } catch (thrown) {
      throw toError(thrown, this.where);
    }
    // While checked out the pool does not listen for a lost connection; the statement under way reports it.
    const ignore = (): void => {};
    client.on('error', ignore);
    let broken = false;
    try {
      return await work(new PgSession(client, this.names, this.where), client);
    } catch (thrown) {
      broken = !(thrown instanceof MillraceError) || thrown.code !== 'sql_failed';
      throw thrown;
    } finally {
      client.off('error', ignore);
      client.release(broken);
    }
  }

  query<R extends SqlRow = SqlRow>(text: string, params: readonly SqlValue[] = []): Promise<SqlResult<R>> {
    return this.withSession((session) => session.query<R>(text, params));
  }

  copyIn(table: string, columns: readonly string[], rows: Iterable<readonly SqlValue[]>): Promise<number> {
    return this.withSession((session) => session.copyIn(table, columns, rows));
  }

  transaction<T>(work: (session: SqlSession) => Promise<T>): Promise<T> {
    return this.withSession(async (session, client) => {
      await session.query('BEGIN');
      let value: T;
      try {
        value = await work(session);
      } catch (thrown) {
        await session.query('ROLLBACK').catch(() => {});
        throw thrown;
      }
      let command: string;
      try {
        command = (await client.query('COMMIT')).command;
      } catch (thrown) {
        const error = toError(thrown, this.where);
        throw error.code === 'unreachable' ? commitUnknown(error) : error;
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
    const where = addressOf(options.url);
    const pool = new PgPool(
      new pg.Pool({
        connectionString: options.url,
        max: options.connectionsMax,
        application_name: options.applicationName,
        connectionTimeoutMillis: options.connectTimeoutMs,
        keepAlive: true,
        ...(options.answerTimeoutMs === undefined ? {} : { query_timeout: options.answerTimeoutMs }),
        types: { getTypeParser: parserOf as typeof pg.types.getTypeParser },
      }),
      where,
    );
    try {
      await pool.query('SELECT 1');
    } catch (thrown) {
      await pool.close().catch(() => {});
      throw thrown;
    }
    return pool;
  },
};
