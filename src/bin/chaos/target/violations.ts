/** Reads the violations of a target from its database. */
import type { ChaosTarget } from '../../../chaos/target/document.ts';
import {
  SENT_COLUMNS,
  SENT_DDL,
  SENT_TABLE,
  type Violations,
  violationsOf,
  violationsQuery,
} from '../../../chaos/target/judge.ts';
import { sleep, type Timers } from '../../../core/clock.ts';
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { SqlPool, SqlValue } from '../../../io/postgres/sql/port.ts';

const READ_EVERY_MS = 500;

/** Rows of the table of sent requests. */
export type SentRows = () => Iterable<readonly SqlValue[]>;

export class ViolationReader {
  private readonly connect: () => Promise<SqlPool>;
  private readonly query: string;
  private readonly clock: Timers;
  private pool: SqlPool | undefined;

  /** @param connect opens a pool of one connection, because the sent requests are in a temporary
   *    table */
  constructor(connect: () => Promise<SqlPool>, reconcile: ChaosTarget['reconcile'], clock: Timers) {
    this.connect = connect;
    this.query = violationsQuery(reconcile);
    this.clock = clock;
  }

  /** Reads once. @throws bad_value where the query fails; unreachable */
  async read(sent: SentRows): Promise<Violations> {
    this.pool ??= await this.connect();
    const { pool } = this;
    await pool.query(SENT_DDL);
    const { rows } = await pool.query(`SELECT FROM ${SENT_TABLE} LIMIT 1`);
    // A connection that was lost took the table with it.
    if (rows.length === 0) await pool.copyIn(SENT_TABLE, SENT_COLUMNS, sent());
    try {
      return await pool.transaction(async (session) => {
        await session.query('SET TRANSACTION READ ONLY');
        const found = await session.query<{ violation: string }>(this.query);
        return violationsOf(found.rows.map(({ violation }) => violation));
      });
    } catch (cause) {
      if (findMillraceError(cause)?.code !== 'sql_failed') throw cause;
      throw coreError('bad_value', `the query reconcile fails: ${(cause as Error).message}`, {
        next: 'correct reconcile in the file of the target',
        cause,
      });
    }
  }

  /** Reads until there is no violation, and at most `timeoutMs`: a violation that ends was work in
   *  flight. @throws unreachable where the database does not answer in that time */
  settled(sent: SentRows, timeoutMs: number, signal: AbortSignal): Promise<Violations> {
    return this.until(({ count }) => count === 0, sent, timeoutMs, signal);
  }

  /** Reads once, and again where the database does not answer. @throws unreachable */
  answered(sent: SentRows, timeoutMs: number, signal: AbortSignal): Promise<Violations> {
    return this.until(() => true, sent, timeoutMs, signal);
  }

  private async until(
    isEnough: (found: Violations) => boolean,
    sent: SentRows,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<Violations> {
    const endMs = this.clock.monotonicMs() + timeoutMs;
    for (;;) {
      const isLast = (): boolean => signal.aborted || this.clock.monotonicMs() >= endMs;
      try {
        const found = await this.read(sent);
        if (isEnough(found) || isLast()) return found;
      } catch (thrown) {
        if (findMillraceError(thrown)?.kind !== 'unavailable' || isLast()) throw thrown;
      }
      await sleep(this.clock, READ_EVERY_MS, signal);
    }
  }

  async close(): Promise<void> {
    await this.pool?.close();
    this.pool = undefined;
  }
}
