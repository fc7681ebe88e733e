/** One libpq connection that never blocks the event loop.
 *
 *  Invariants: (1) at most one statement is in flight; (2) a statement ends with an answer, a lost
 *  connection, or after answerTimeoutMs; (3) libpq's object is not freed within one of its own
 *  callbacks, and is referenced until its socket watcher is closed. The binding reports readable
 *  data only and no socket errors, so a timer checks a statement that takes long.
 */
import { coreError, type MillraceError } from '../../../core/errors.ts';
import { errorOf, type Where } from './faults.ts';
import { type Libpq, newLibpq } from './pg-native-load.ts';
import type { TextParam, TextRows, TextStatement } from './port.ts';
import type { TextConnection } from './text-pool.ts';

/** Interval of the check; a lost connection can stay unnoticed this long. */
const TICK_MS = 200;
/** Most prepared statements of one connection. The statements are known beforehand, so more are a
 *  bug of the caller. */
const STATEMENTS_MAX = 256;
/** SQLSTATE invalid_sql_statement_name: the statement is no longer prepared (DISCARD ALL, a
 *  connection pooler). */
const NOT_PREPARED = '26000';
const TUPLES = 'PGRES_TUPLES_OK';
const FINE = new Set([TUPLES, 'PGRES_COMMAND_OK', 'PGRES_EMPTY_QUERY']);

export interface NativeOptions {
  readonly conninfo: string;
  readonly where: Where;
  readonly answerTimeoutMs: number;
  readonly onOverdue: (() => void) | undefined;
}

interface InFlight {
  readonly startMs: number;
  read(): void;
  fail(error: MillraceError): void;
}

export class NativeConnection implements TextConnection {
  backendPid = '';
  private readonly pq: Libpq;
  private readonly options: NativeOptions;
  private readonly names = new Map<TextStatement, string>();
  private inFlight: InFlight | undefined;
  /** Server error in the results that are being read. */
  private refusal: MillraceError | undefined;
  private lost: MillraceError | undefined;
  private ticking: NodeJS.Timeout | undefined;
  private freed = false;
  private prepared = 0;

  private constructor(pq: Libpq, options: NativeOptions) {
    this.pq = pq;
    this.options = options;
    pq.setNonBlocking(true);
    pq.on('readable', () => this.onReadable());
    pq.startReader();
  }

  static async open(options: NativeOptions): Promise<NativeConnection> {
    const pq = newLibpq();
    await new Promise<void>((resolve, reject) => {
      pq.connect(options.conninfo, (error) => {
        if (error === undefined || error === null) {
          resolve();
          return;
        }
        setImmediate(() => finish(pq));
        reject(connectError(error.message, options.where));
      });
    });
    const connection = new NativeConnection(pq, options);
    try {
      connection.backendPid = await connection.run(
        { text: 'SELECT pg_backend_pid()', paramCount: 0 },
        [],
        (rows) => rows.text(0, 0) as string,
      );
    } catch (thrown) {
      connection.close();
      throw thrown;
    }
    return connection;
  }

  alive(): boolean {
    return this.lost === undefined && !this.freed;
  }

  async run<T>(
    statement: TextStatement,
    params: readonly TextParam[],
    read: (rows: TextRows) => T,
  ): Promise<T> {
    for (const param of params) {
      if (param?.includes('\0')) throw coreError('bad_value', 'a SQL parameter holds U+0000');
    }
    const known = this.names.get(statement);
    const name = known ?? (await this.prepare(statement));
    try {
      return await this.send(
        () => this.pq.sendQueryPrepared(name, params),
        () => read(this.rows()),
      );
    } catch (thrown) {
      if (known === undefined || (thrown as MillraceError).details?.['sqlstate'] !== NOT_PREPARED)
        throw thrown;
      const again = await this.prepare(statement);
      return this.send(
        () => this.pq.sendQueryPrepared(again, params),
        () => read(this.rows()),
      );
    }
  }

  command(text: string): Promise<string> {
    return this.send(
      () => this.pq.sendQuery(text),
      () => this.pq.cmdStatus(),
    );
  }

  close(): void {
    if (this.freed) return;
    this.freed = true;
    this.stopTicking();
    this.lose('the connection was closed');
    const { pq } = this;
    pq.stopReader();
    setImmediate(() => finish(pq));
  }

  private async prepare(statement: TextStatement): Promise<string> {
    if (this.names.size >= STATEMENTS_MAX) throw coreError('internal', 'too many prepared statements');
    const name = `millrace_${this.prepared++}`;
    await this.send(
      () => this.pq.sendPrepare(name, statement.text, statement.paramCount),
      () => undefined,
    );
    this.names.set(statement, name);
    return name;
  }

  private send<T>(start: () => boolean, read: () => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.inFlight !== undefined) {
        reject(coreError('internal', 'a statement is in flight on this connection'));
        return;
      }
      if (this.lost !== undefined) {
        reject(this.faultOf(this.lost, false));
        return;
      }
      this.refusal = undefined;
      this.inFlight = {
        startMs: performance.now(),
        read: () => {
          try {
            resolve(read());
          } catch (thrown) {
            reject(thrown);
          }
        },
        fail: reject,
      };
      if (!start()) {
        this.lose(this.pq.errorMessage());
        return;
      }
      this.flush();
      this.ticking ??= setInterval(() => this.tick(), TICK_MS);
    });
  }

  private flush(): void {
    if (!this.alive()) return;
    const left = this.pq.flush();
    if (left < 0) this.lose(this.pq.errorMessage());
    if (left !== 1) return;
    // The binding watches the socket for one direction at a time.
    this.pq.writable(() => {
      if (!this.alive()) return;
      this.pq.startReader();
      this.flush();
    });
  }

  private onReadable(): void {
    if (!this.alive()) return;
    const { pq } = this;
    if (this.inFlight === undefined) {
      // Data without a statement in flight is the server's farewell, which libpq would print. The
      // connection is dropped whatever the data is; the pool opens another.
      this.lose('the server ended an idle connection');
      return;
    }
    if (!pq.consumeInput()) {
      this.lose(pq.errorMessage());
      return;
    }
    while (!pq.isBusy()) {
      if (!pq.getResult()) {
        this.settle();
        return;
      }
      const status = pq.resultStatus();
      if (!FINE.has(status)) this.refusal = this.refusalOf(status);
    }
  }

  /** Ends the statement after its last result, which libpq still holds for `read`. */
  private settle(): void {
    const { inFlight, refusal } = this;
    this.inFlight = undefined;
    this.stopTicking();
    if (refusal?.code === 'unreachable') {
      this.lost ??= refusal;
      this.pq.stopReader();
    }
    if (refusal === undefined) inFlight?.read();
    else inFlight?.fail(refusal);
  }

  private tick(): void {
    this.onReadable();
    if (this.inFlight === undefined || this.lost !== undefined) return;
    const { answerTimeoutMs, onOverdue } = this.options;
    if (performance.now() - this.inFlight.startMs <= answerTimeoutMs) return;
    this.lose(`no answer within ${answerTimeoutMs} ms`);
    onOverdue?.();
  }

  private stopTicking(): void {
    clearInterval(this.ticking);
    this.ticking = undefined;
  }

  private lose(why: string): void {
    // The server's own error is more precise than the socket's.
    const serverError = this.refusal?.code === 'unreachable' ? this.refusal : undefined;
    this.lost ??=
      serverError ??
      this.faultOf(errorOf({ message: firstLine(why) }, this.options.where, true, this.refusal), true);
    this.stopTicking();
    // A closed socket stays readable, so stop watching it.
    this.pq.stopReader();
    const { inFlight } = this;
    this.inFlight = undefined;
    inFlight?.fail(this.lost);
  }

  private refusalOf(status: string): MillraceError {
    const fields = this.pq.resultErrorFields() ?? {};
    const fault = {
      sqlstate: fields['sqlState'],
      message: fields['messagePrimary'] ?? (firstLine(this.pq.errorMessage()) || status),
      detail: fields['messageDetail'],
      constraint: fields['constraintName'],
      table: fields['tableName'],
    };
    const error = errorOf(fault, this.options.where, fault.sqlstate === undefined, undefined);
    return error.code === 'unreachable' ? this.faultOf(error, true) : error;
  }

  private faultOf(error: MillraceError, sent: boolean): MillraceError {
    return coreError('unreachable', error.message, {
      ...(error.next === undefined ? {} : { next: error.next }),
      cause: error,
      details: { ...error.details, sent },
    });
  }

  private rows(): TextRows {
    const { pq } = this;
    const columnCount = pq.nfields();
    const rowCount = pq.resultStatus() === TUPLES ? pq.ntuples() : Number(pq.cmdTuples());
    return {
      rowCount,
      columnCount,
      text: (row, column) => (pq.getisnull(row, column) ? null : pq.getvalue(row, column)),
    };
  }
}

/** Objects whose socket watcher closes at the end of the turn of `finish`; they must live until
 *  then. */
const finishing = new Set<Libpq>();

function finish(pq: Libpq): void {
  finishing.add(pq);
  pq.finish();
  setImmediate(() => setImmediate(() => finishing.delete(pq)));
}

const firstLine = (text: string): string => text.split('\n')[0] as string;

/** Error of a failed connect. libpq gives only a text: the server's message when the server
 *  refused. */
function connectError(message: string, where: Where): MillraceError {
  const line = message
    .split('\n')
    .filter((part) => part.trim() !== '')
    .join('; ');
  const fatal = /FATAL: +(.*)$/.exec(line);
  const sqlstate = /authentication failed|no pg_hba\.conf entry/.test(line)
    ? '28000'
    : /database ".*" does not exist/.test(line)
      ? '3D000'
      : undefined;
  return errorOf({ sqlstate, message: fatal?.[1] ?? line }, where, true, undefined);
}
