/** Connection pool of the TextPool drivers.
 *
 *  Invariants: (1) a connection runs one statement or transaction at a time; (2) a connection in a
 *  doubtful state (lost, answer overdue, cancelled, transaction not ended) is closed and not
 *  reused; (3) for CONNECT_AGAIN_MS after a failed connect, further attempts fail with the same
 *  error, so that an unreachable server is not flooded.
 */
import { coreError, MillraceError } from '../../../core/errors.ts';
import { commitUnknown, firstFault, rolledBackAtCommit } from './faults.ts';
import type { TextExecution, TextParam, TextPool, TextRows, TextSession, TextStatement } from './port.ts';

const CONNECT_AGAIN_MS = 50;

/** One connection of a driver. */
export interface TextConnection {
  readonly backendPid: string;
  /** False once the connection is known to be lost. */
  alive(): boolean;
  /** Runs a statement; prepares it at its first use. @throws as TextSession.execute */
  run<T>(statement: TextStatement, params: readonly TextParam[], read: (rows: TextRows) => T): Promise<T>;
  /** Runs a statement without parameters and result; returns its command tag. */
  command(text: string): Promise<string>;
  close(): void;
}

const CANCEL: TextStatement = { text: 'SELECT pg_cancel_backend($1::int4)', paramCount: 1 };

const closed = (): MillraceError =>
  coreError('unreachable', 'the pool of connections is closed', { details: { sent: false } });

export class ConnectionPool implements TextPool {
  private readonly open: () => Promise<TextConnection>;
  private readonly connectionsMax: number;
  private readonly idle: TextConnection[] = [];
  private readonly waiting: Array<() => void> = [];
  private busy = 0;
  private refused: { readonly error: MillraceError; readonly untilMs: number } | undefined;
  private closing = false;
  private drained: (() => void) | undefined;

  constructor(open: () => Promise<TextConnection>, connectionsMax: number) {
    this.open = open;
    this.connectionsMax = connectionsMax;
  }

  /** Opens one connection and keeps it. */
  async start(): Promise<void> {
    try {
      this.idle.push(await this.open());
    } catch (thrown) {
      throw firstFault(thrown);
    }
  }

  connected(): number {
    return this.busy + this.idle.filter((unused) => unused.alive()).length;
  }

  execute<T>(
    statement: TextStatement,
    params: readonly TextParam[],
    read: (rows: TextRows) => T,
    execution?: TextExecution,
  ): Promise<T> {
    return this.withConnection((connection, markDoubtful) =>
      this.run(connection, markDoubtful, statement, params, read, execution),
    );
  }

  transaction<T>(work: (session: TextSession) => Promise<T>): Promise<T> {
    return this.withConnection(async (connection, markDoubtful) => {
      await connection.command('BEGIN');
      const session: TextSession = {
        execute: (statement, params, read, execution) =>
          this.run(connection, markDoubtful, statement, params, read, execution),
      };
      let value: T;
      try {
        value = await work(session);
      } catch (thrown) {
        if (connection.alive()) await connection.command('ROLLBACK').catch(markDoubtful);
        throw thrown;
      }
      let tag: string;
      try {
        tag = await connection.command('COMMIT');
      } catch (thrown) {
        throw thrown instanceof MillraceError && thrown.code === 'unreachable'
          ? commitUnknown(thrown)
          : thrown;
      }
      if (tag !== 'COMMIT') throw rolledBackAtCommit();
      return value;
    });
  }

  async close(): Promise<void> {
    this.closing = true;
    for (const wake of this.waiting.splice(0)) wake();
    if (this.busy > 0) {
      await new Promise<void>((resolve) => {
        this.drained = resolve;
      });
    }
    for (const connection of this.idle.splice(0)) connection.close();
  }

  private async run<T>(
    connection: TextConnection,
    markDoubtful: () => void,
    statement: TextStatement,
    params: readonly TextParam[],
    read: (rows: TextRows) => T,
    execution: TextExecution | undefined,
  ): Promise<T> {
    const cancel = execution?.cancel;
    if (cancel === undefined) return connection.run(statement, params, read);
    const onAbort = (): void => {
      // The cancel request may arrive after the end of the statement, and would then cancel the
      // next one.
      markDoubtful();
      this.cancel(connection.backendPid);
    };
    if (cancel.aborted) onAbort();
    cancel.addEventListener('abort', onAbort, { once: true });
    try {
      return await connection.run(statement, params, read);
    } finally {
      cancel.removeEventListener('abort', onAbort);
    }
  }

  /** Cancels a statement through another connection: libpq's own cancel blocks the calling thread.
   */
  private cancel(backendPid: string): void {
    this.open()
      .then(async (side) => {
        await side.run(CANCEL, [backendPid], () => undefined).finally(() => side.close());
      })
      // Without a successful cancel the caller waits for the answer or its timeout.
      .catch(() => {});
  }

  private async withConnection<T>(
    work: (connection: TextConnection, markDoubtful: () => void) => Promise<T>,
  ): Promise<T> {
    while (this.busy >= this.connectionsMax && !this.closing) {
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
    if (this.closing) throw closed();
    this.busy++;
    let connection: TextConnection | undefined;
    let isDoubtful = false;
    try {
      connection = this.popIdle() ?? (await this.connect());
      return await work(connection, () => {
        isDoubtful = true;
      });
    } finally {
      this.busy--;
      if (connection !== undefined) this.returnConnection(connection, isDoubtful);
      this.waiting.shift()?.();
      if (this.busy === 0) this.drained?.();
    }
  }

  private popIdle(): TextConnection | undefined {
    for (let unused = this.idle.pop(); unused !== undefined; unused = this.idle.pop()) {
      if (unused.alive()) return unused;
      unused.close();
    }
    return undefined;
  }

  private returnConnection(connection: TextConnection, isDoubtful: boolean): void {
    if (isDoubtful || !connection.alive()) connection.close();
    else this.idle.push(connection);
  }

  private async connect(): Promise<TextConnection> {
    if (this.refused !== undefined && performance.now() < this.refused.untilMs) throw this.refused.error;
    try {
      const connection = await this.open();
      this.refused = undefined;
      return connection;
    } catch (thrown) {
      if (!(thrown instanceof MillraceError)) throw thrown;
      const error = coreError('unreachable', thrown.message, {
        ...(thrown.next === undefined ? {} : { next: thrown.next }),
        cause: thrown,
        details: { ...thrown.details, sent: false },
      });
      this.refused = { error, untilMs: performance.now() + CONNECT_AGAIN_MS };
      throw error;
    }
  }
}
