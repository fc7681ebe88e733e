/** Ports of the simulated database for one process: TextPool for orders, SqlPool for payments.
 *  Each request travels to the server and back; either way may be lost, and a dead or stopped
 *  process gets no answer. */
import {
  type SqlPool,
  type SqlResult,
  type SqlRow,
  type SqlSession,
  sqlError,
  type TextPool,
  type TextRows,
  type TextSession,
} from '../../../src/io/postgres/sql/port.ts';
import type { SimProcess } from '../relay-world/process.ts';
import type { Row, Tables, Values } from './tables.ts';
import { gone, type Transactions, type Tx } from './transactions.ts';

/** lock_timeout of orders, as its pool sets it. */
export const ORDERS_LOCK_MS = 40;
/** Limit of a wait for a row in payments. */
const PAYMENTS_LOCK_MS = 5000;
/** Time for which the server lets a session idle in its transaction. */
const IDLE_MS = 2000;

export interface SessionHooks {
  /** Waits for the latency of one way. */
  readonly travel: () => Promise<void>;
  /** True when a request or an answer is lost now. */
  readonly isLost: () => boolean;
  /** True while the server does not run. */
  readonly isDown: () => boolean;
  /** Called at the server after each step, before the answer leaves. */
  readonly onStep: (process: SimProcess, what: string) => void;
  readonly after: (ms: number, run: () => void) => () => void;
  /** Called when a COMMIT got no answer. */
  readonly onUnknownCommit: () => void;
}

interface Parts {
  readonly tables: Tables;
  readonly transactions: Transactions;
  readonly hooks: SessionHooks;
}

/** One request: to the server, executed there, and the answer back. */
async function request<T>(
  { hooks }: Parts,
  process: SimProcess,
  what: string,
  execute: () => Promise<T>,
): Promise<T> {
  if (process.isDead) return new Promise<never>(() => {});
  await hooks.travel();
  if (hooks.isDown()) throw await process.receive(gone(false));
  if (hooks.isLost()) throw await process.receive(gone(true));
  let result: { readonly value: T } | { readonly thrown: unknown };
  try {
    result = { value: await execute() };
  } catch (thrown) {
    result = { thrown };
  }
  hooks.onStep(process, what);
  await hooks.travel();
  if (hooks.isLost() || hooks.isDown()) throw await process.receive(gone(true));
  const answer = await process.receive(result);
  if ('thrown' in answer) throw answer.thrown;
  return answer.value;
}

/** Runs one statement in a transaction of its own. */
async function alone<T>(
  parts: Parts,
  process: SimProcess,
  lockMs: number,
  run: (tx: Tx) => Promise<T>,
): Promise<T> {
  const { transactions } = parts;
  const tx = transactions.begin(process, lockMs);
  tx.isBusy = true;
  try {
    const done = await run(tx);
    if (tx.changes.length === 0) transactions.rollback(tx);
    else await transactions.commit(tx);
    return done;
  } catch (thrown) {
    transactions.rollback(tx);
    throw thrown;
  }
}

/** Transaction of a client, over several requests. */
class Block {
  private readonly parts: Parts;
  private readonly process: SimProcess;
  private readonly tx: Tx;
  private readonly marks: number[] = [];
  private cancelIdle: () => void = () => {};

  constructor(parts: Parts, process: SimProcess, lockMs: number) {
    this.parts = parts;
    this.process = process;
    this.tx = parts.transactions.begin(process, lockMs);
    this.waitForClient();
  }

  statement<T>(text: string, run: (tx: Tx) => Promise<T>): Promise<T | undefined> {
    return request(this.parts, this.process, text, () => this.busy(() => this.execute(text, run)));
  }

  /** @throws commit_unknown when COMMIT gets no answer */
  async commit(): Promise<void> {
    const { parts, process, tx } = this;
    try {
      await request(parts, process, 'COMMIT', () =>
        this.busy(async () => {
          if (tx.changes.length === 0) parts.transactions.rollback(tx);
          else await parts.transactions.commit(tx);
        }),
      );
    } catch (thrown) {
      if ((thrown as { details?: { sent?: unknown } }).details?.sent !== true) throw thrown;
      parts.hooks.onUnknownCommit();
      throw sqlError('commit_unknown', 'COMMIT got no answer', { cause: thrown });
    } finally {
      // A request that never arrived leaves the session to the server, which ends it.
      this.waitForClient();
    }
  }

  rollback(): void {
    this.cancelIdle();
    this.parts.transactions.rollback(this.tx);
  }

  private async execute<T>(text: string, run: (tx: Tx) => Promise<T>): Promise<T | undefined> {
    const { transactions } = this.parts;
    if (text.startsWith('SAVEPOINT')) this.marks.push(this.tx.changes.length);
    else if (text.startsWith('RELEASE')) this.marks.pop();
    else if (text.startsWith('ROLLBACK TO')) transactions.rollbackTo(this.tx, this.marks.at(-1) as number);
    else return run(this.tx);
    return undefined;
  }

  private async busy<T>(work: () => Promise<T>): Promise<T> {
    const { tx, process, parts } = this;
    this.cancelIdle();
    if (tx.state !== 'open') throw gone(true);
    tx.isBusy = true;
    try {
      return await work();
    } finally {
      tx.isBusy = false;
      if (process.isDead) parts.transactions.rollback(tx);
      else this.waitForClient();
    }
  }

  private waitForClient(): void {
    const { tx, parts } = this;
    this.cancelIdle();
    if (tx.state === 'open')
      this.cancelIdle = parts.hooks.after(IDLE_MS, () => parts.transactions.endIdle(tx));
  }
}

/** Runs the work of a client in one transaction. */
async function transact<T>(
  parts: Parts,
  process: SimProcess,
  lockMs: number,
  work: (block: Block) => Promise<T>,
): Promise<T> {
  const block = await request(parts, process, 'BEGIN', async () => new Block(parts, process, lockMs));
  try {
    const done = await work(block);
    await block.commit();
    return done;
  } catch (thrown) {
    // The client closes a connection that failed, and the server ends what was open. After a COMMIT
    // without an answer, the server may take its time to see that.
    if ((thrown as { code?: unknown }).code !== 'commit_unknown') block.rollback();
    throw thrown;
  }
}

const textRows = (rows: ReadonlyArray<readonly string[]>): TextRows => ({
  rowCount: rows.length,
  columnCount: rows[0]?.length ?? 0,
  text: (row, column) => rows[row]?.[column] ?? null,
});

export function textPoolOf(parts: Parts, process: SimProcess): TextPool {
  const session = (block: Block): TextSession => ({
    execute: async ({ text }, params, read) => {
      const rows = await block.statement(text, (tx) => parts.tables.text(tx, text, params));
      return read(textRows(rows ?? []));
    },
  });
  return {
    execute: async ({ text }, params, read) => {
      const execute = (tx: Tx) => parts.tables.text(tx, text, params);
      const run = () => alone(parts, process, ORDERS_LOCK_MS, execute);
      return read(textRows(await request(parts, process, text, run)));
    },
    transaction: (work) => transact(parts, process, ORDERS_LOCK_MS, (block) => work(session(block))),
    connected: () => 1,
    close: async () => {},
  };
}

const resultOf = (rows: readonly Row[]): SqlResult => ({ rows, rowCount: rows.length });

export function sqlPoolOf(parts: Parts, process: SimProcess): SqlPool {
  const notUsed = (): never => {
    throw new Error('not used');
  };
  const query = async (text: string, values: Values = []): Promise<SqlResult> => {
    const execute = (tx: Tx) => parts.tables.row(tx, text, values);
    return resultOf(
      await request(parts, process, text, () => alone(parts, process, PAYMENTS_LOCK_MS, execute)),
    );
  };
  const session = (block: Block): SqlSession => ({
    query: async <R extends SqlRow>(text: string, values: Values = []) => {
      const rows = await block.statement(text, (tx) => parts.tables.row(tx, text, values));
      return resultOf(rows ?? []) as SqlResult<R>;
    },
    copyIn: notUsed,
  });
  return {
    query: query as SqlPool['query'],
    transaction: (work) => transact(parts, process, PAYMENTS_LOCK_MS, (block) => work(session(block))),
    systemIdentifier: async () => '7',
    copyIn: notUsed,
    close: async () => {},
  };
}
