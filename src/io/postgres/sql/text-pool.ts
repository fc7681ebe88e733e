/** The pool of TextPool's drivers: which connection runs what, and what becomes of a connection afterwards.
 *
 *  Invariants: (1) a connection runs one statement or transaction at a time; (2) one whose state is in doubt (lost, answer
 *  overdue, cancelled, transaction not ended) is closed, never given to the next; (3) after a failed attempt to connect,
 *  further ones within CONNECT_AGAIN_MS fail with the same error, so that a dead server is not hammered.
 */
import { coreError, MillraceError } from '../../../core/errors.ts';
import { commitUnknown, rolledBackAtCommit } from './faults.ts';
import type { TextExecution, TextParam, TextPool, TextRows, TextSession, TextStatement } from './port.ts';

const CONNECT_AGAIN_MS = 50;

/** One connection of a driver. */
export interface TextConnection {
  readonly backendPid: string;
  /** False from the moment it is known to be lost. */
  alive(): boolean;
  /** Prepares the statement at first use. @throws as TextSession.execute */
  run<T>(statement: TextStatement, params: readonly TextParam[], read: (rows: TextRows) => T): Promise<T>;
  /** A statement without parameters and result; its command tag. */
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
    this.idle.push(await this.open());
  }

  connected(): number {
    return this.busy + this.idle.filter((one) => one.alive()).length;
  }

  execute<T>(
    statement: TextStatement,
    params: readonly TextParam[],
    read: (rows: TextRows) => T,
    execution?: TextExecution,
  ): Promise<T> {
    return this.withConnection((connection, doubt) =>
      this.run(connection, doubt, statement, params, read, execution),
    );
  }

  transaction<T>(work: (session: TextSession) => Promise<T>): Promise<T> {
    return this.withConnection(async (connection, doubt) => {
      await connection.command('BEGIN');
      const session: TextSession = {
        execute: (statement, params, read, execution) =>
          this.run(connection, doubt, statement, params, read, execution),
      };
      let value: T;
      try {
        value = await work(session);
      } catch (thrown) {
        if (connection.alive()) await connection.command('ROLLBACK').catch(doubt);
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
    doubt: () => void,
    statement: TextStatement,
    params: readonly TextParam[],
    read: (rows: TextRows) => T,
    execution: TextExecution | undefined,
  ): Promise<T> {
    const cancel = execution?.cancel;
    if (cancel === undefined) return connection.run(statement, params, read);
    const onAbort = (): void => {
      // The signal may reach the server after the statement's end, and would then hit the next one.
      doubt();
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

  /** Through a connection of its own: libpq's own way waits for the server on the calling thread. */
  private cancel(backendPid: string): void {
    this.open()
      .then(async (side) => {
        await side.run(CANCEL, [backendPid], () => undefined).finally(() => side.close());
      })
      // Who cannot cancel waits for the answer, or for its time to run out.
      .catch(() => {});
  }

  private async withConnection<T>(
    work: (connection: TextConnection, doubt: () => void) => Promise<T>,
  ): Promise<T> {
    while (this.busy >= this.connectionsMax && !this.closing) {
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
    if (this.closing) throw closed();
    this.busy++;
    let connection: TextConnection | undefined;
    let doubtful = false;
    try {
      connection = this.takeIdle() ?? (await this.connect());
      return await work(connection, () => {
        doubtful = true;
      });
    } finally {
      this.busy--;
      if (connection !== undefined) this.giveBack(connection, doubtful);
      this.waiting.shift()?.();
      if (this.busy === 0) this.drained?.();
    }
  }

  private takeIdle(): TextConnection | undefined {
    for (let one = this.idle.pop(); one !== undefined; one = this.idle.pop()) {
      if (one.alive()) return one;
      one.close();
    }
    return undefined;
  }

  private giveBack(connection: TextConnection, doubtful: boolean): void {
    if (doubtful || !connection.alive()) connection.close();
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
