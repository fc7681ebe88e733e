/** One connection through libpq, without a wait on the event loop.
 *
 *  Invariants: (1) at most one statement is under way; (2) it ends with an answer, a lost connection, or after
 *  answerTimeoutMs; (3) libpq's object is not freed within one of its own callbacks, and is referred to until its socket
 *  watcher is closed. The binding tells nobody of an error on the socket (it hears only what can be read), so a tick looks
 *  after a statement that takes long.
 */
import { coreError, type MillraceError } from '../../../core/errors.ts';
import { errorOf, type Where } from './faults.ts';
import { type Libpq, newLibpq } from './pg-native-load.ts';
import type { TextParam, TextRows, TextStatement } from './port.ts';
import type { TextConnection } from './text-pool.ts';

/** How long a lost connection may stay unnoticed. */
const TICK_MS = 200;
/** Statements of one connection; they are known beforehand, so more are a bug of the caller. */
const STATEMENTS_MAX = 256;
/** invalid_sql_statement_name: the server forgot it (a pooler between, DISCARD ALL). */
const FORGOTTEN = '26000';
const TUPLES = 'PGRES_TUPLES_OK';
const FINE = new Set([TUPLES, 'PGRES_COMMAND_OK', 'PGRES_EMPTY_QUERY']);

export interface NativeOptions {
  readonly conninfo: string;
  readonly where: Where;
  readonly answerTimeoutMs: number;
  readonly onOverdue: (() => void) | undefined;
}

interface UnderWay {
  readonly startMs: number;
  read(): void;
  fail(error: MillraceError): void;
}

export class NativeConnection implements TextConnection {
  backendPid = '';
  private readonly pq: Libpq;
  private readonly options: NativeOptions;
  private readonly names = new Map<TextStatement, string>();
  private underWay: UnderWay | undefined;
  /** Of the result that is being read. */
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
      if (known === undefined || (thrown as MillraceError).details?.['sqlstate'] !== FORGOTTEN) throw thrown;
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
      if (this.underWay !== undefined) {
        reject(coreError('internal', 'a statement is under way on this connection'));
        return;
      }
      if (this.lost !== undefined) {
        reject(this.faultOf(this.lost, false));
        return;
      }
      this.refusal = undefined;
      this.underWay = {
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
    // The binding watches for one direction at a time.
    this.pq.writable(() => {
      if (!this.alive()) return;
      this.pq.startReader();
      this.flush();
    });
  }

  private onReadable(): void {
    if (!this.alive()) return;
    const { pq } = this;
    if (this.underWay === undefined) {
      // Unasked it speaks to say goodbye; what it says libpq would print. Whatever else it may be, another connection is near.
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

  /** Every result of the statement has been read; the last one is there to be looked at. */
  private settle(): void {
    const { underWay, refusal } = this;
    this.underWay = undefined;
    this.stopTicking();
    if (refusal?.code === 'unreachable') {
      this.lost ??= refusal;
      this.pq.stopReader();
    }
    if (refusal === undefined) underWay?.read();
    else underWay?.fail(refusal);
  }

  private tick(): void {
    this.onReadable();
    if (this.underWay === undefined || this.lost !== undefined) return;
    const { answerTimeoutMs, onOverdue } = this.options;
    if (performance.now() - this.underWay.startMs <= answerTimeoutMs) return;
    this.lose(`no answer within ${answerTimeoutMs} ms`);
    onOverdue?.();
  }

  private stopTicking(): void {
    clearInterval(this.ticking);
    this.ticking = undefined;
  }

  private lose(why: string): void {
    // The last words of the server say more than the socket.
    const told = this.refusal?.code === 'unreachable' ? this.refusal : undefined;
    this.lost ??=
      told ??
      this.faultOf(errorOf({ message: firstLine(why) }, this.options.where, true, this.refusal), true);
    this.stopTicking();
    // The end of a socket can be read for ever.
    this.pq.stopReader();
    const { underWay } = this;
    this.underWay = undefined;
    underWay?.fail(this.lost);
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

/** The watcher is closed at the end of the turn in which finish is called; until then libpq's object must live. */
const finishing = new Set<Libpq>();

function finish(pq: Libpq): void {
  finishing.add(pq);
  pq.finish();
  setImmediate(() => setImmediate(() => finishing.delete(pq)));
}

const firstLine = (text: string): string => text.split('\n')[0] as string;

/** libpq hands out a text alone, in the server's words where the server refused. */
function connectError(message: string, where: Where): MillraceError {
  const line = message
    .split('\n')
    .filter((one) => one.trim() !== '')
    .join('; ');
  const fatal = /FATAL: +(.*)$/.exec(line);
  const sqlstate = /authentication failed|no pg_hba\.conf entry/.test(line)
    ? '28000'
    : /database ".*" does not exist/.test(line)
      ? '3D000'
      : undefined;
  return errorOf({ sqlstate, message: fatal?.[1] ?? line }, where, true, undefined);
}
