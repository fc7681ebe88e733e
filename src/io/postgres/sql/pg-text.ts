/** TextPool driver over `pg`, for machines where libpq does not load. */
import type pg from 'pg';
import { coreError, type MillraceError } from '../../../core/errors.ts';
import { type PgConnection, pgConnection } from '../tls.ts';
import { toError, type Where, whereOf } from './faults.ts';
import { KEEPALIVE, PgClient } from './pg-client.ts';
import type { TextDriver, TextOptions, TextParam, TextPool, TextRows, TextStatement } from './port.ts';
import { ConnectionPool, type TextConnection } from './text-pool.ts';

const NOT_PREPARED = '26000';
type Row = ReadonlyArray<string | null>;

const asText = {
  getTypeParser: () => (value: string) => value,
} as unknown as pg.CustomTypesConfig;

class PgTextConnection implements TextConnection {
  readonly backendPid: string;
  private readonly client: pg.Client;
  private readonly where: Where;
  private readonly answerTimeoutMs: number;
  private readonly onOverdue: (() => void) | undefined;
  private readonly names = new Map<TextStatement, string>();
  private lost: MillraceError | undefined;
  private count = 0;

  constructor(client: pg.Client, where: Where, { answerTimeoutMs, onOverdue }: TextOptions) {
    this.client = client;
    this.where = where;
    this.answerTimeoutMs = answerTimeoutMs;
    this.onOverdue = onOverdue;
    this.backendPid = String((client as unknown as { readonly processID: number }).processID);
    client.on('error', (error) => this.lose(error));
    client.on('end', () => this.lose(new Error('Connection terminated')));
  }

  alive(): boolean {
    return this.lost === undefined;
  }

  async run<T>(
    statement: TextStatement,
    params: readonly TextParam[],
    read: (rows: TextRows) => T,
  ): Promise<T> {
    for (const param of params) {
      if (param?.includes('\0')) throw coreError('bad_value', 'a SQL parameter holds U+0000');
    }
    let result: pg.QueryArrayResult<Array<string | null>>;
    const known = this.names.get(statement);
    try {
      result = await this.ask(this.config(statement, params));
    } catch (thrown) {
      if (known === undefined || (thrown as MillraceError).details?.['sqlstate'] !== NOT_PREPARED)
        throw thrown;
      this.names.delete(statement);
      result = await this.ask(this.config(statement, params));
    }
    const rows: readonly Row[] = result.rows;
    return read({
      rowCount: result.rowCount ?? 0,
      columnCount: result.fields.length,
      text: (row, column) => (rows[row] as Row)[column] as string | null,
    });
  }

  async command(text: string): Promise<string> {
    return (await this.ask({ text, values: [], rowMode: 'array', types: asText })).command;
  }

  close(): void {
    this.lost ??= toError(new Error('Connection terminated'), this.where);
    this.client.end().catch(() => {});
  }

  private config(
    statement: TextStatement,
    params: readonly TextParam[],
  ): pg.QueryArrayConfig<Array<string | null>> {
    let name = this.names.get(statement);
    if (name === undefined) {
      name = `millrace_${this.count++}`;
      this.names.set(statement, name);
    }
    return { name, text: statement.text, values: [...params], rowMode: 'array', types: asText };
  }

  private async ask(
    config: pg.QueryArrayConfig<Array<string | null>>,
  ): Promise<pg.QueryArrayResult<Array<string | null>>> {
    if (this.lost !== undefined) {
      throw coreError('unreachable', this.lost.message, { cause: this.lost, details: { sent: false } });
    }
    let overdue: NodeJS.Timeout | undefined;
    try {
      const answer = this.client.query<Array<string | null>>(config);
      const late = new Promise<never>((_, reject) => {
        overdue = setTimeout(() => {
          const error = new Error(`Connection terminated: no answer within ${this.answerTimeoutMs} ms`);
          this.lose(error);
          this.onOverdue?.();
          reject(error);
        }, this.answerTimeoutMs);
      });
      return await Promise.race([answer, late]);
    } catch (thrown) {
      const error = toError(thrown, this.where);
      if (error.code !== 'unreachable') throw error;
      this.lose(thrown);
      throw this.lost;
    } finally {
      clearTimeout(overdue);
    }
  }

  private lose(thrown: unknown): void {
    if (this.lost !== undefined) return;
    const error = toError(thrown, this.where);
    this.lost = coreError('unreachable', error.message, {
      ...(error.next === undefined ? {} : { next: error.next }),
      cause: thrown,
      details: { ...error.details, sent: true },
    });
  }
}

async function open(options: TextOptions, where: Where, connection: PgConnection): Promise<PgTextConnection> {
  const client = new PgClient({
    ...connection,
    application_name: options.applicationName,
    connectionTimeoutMillis: options.connectTimeoutMs,
    ...KEEPALIVE,
  });
  try {
    await client.connect();
  } catch (thrown) {
    client.end().catch(() => {});
    throw toError(thrown, where);
  }
  return new PgTextConnection(client, where, options);
}

export const pgTextDriver: TextDriver = {
  name: 'pg',
  async connect(options): Promise<TextPool> {
    const where = whereOf(options);
    const connection = pgConnection(options.url);
    const pool = new ConnectionPool(() => open(options, where, connection), options.connectionsMax);
    await pool.start();
    return pool;
  },
};
