/** Late events in PostgreSQL: the table `…_late` beside that of the results, one row an event.
 *
 *  The primary key is the place of the record, so writing an event again changes nothing. Each
 *  partition keeps its newest events, as in the engine's own store. account_id is stored as the
 *  results store it. */
import type { SqlPool, SqlValue } from '../../../io/postgres/sql/port.ts';
import { engineError } from '../../errors.ts';
import type { SideTopic } from '../side/sender.ts';
import type { LateEvent } from './events.ts';
import { newestOf, TrimPlan } from './store.ts';

const COLUMNS = [
  'source_partition',
  'source_offset',
  'account_id',
  'event_ts',
  'value',
  'reason',
  'watermark_ms',
  'timestamp_ms',
];

export interface PostgresLateParts {
  readonly pool: SqlPool;
  /** Table of the results. */
  readonly table: string;
  /** Events of each partition that are kept, at least 1. */
  readonly keep: number;
}

export class PostgresLateEvents implements SideTopic<LateEvent> {
  private readonly parts: PostgresLateParts;
  private readonly table: string;
  private readonly trims: TrimPlan;

  constructor(parts: PostgresLateParts) {
    this.parts = parts;
    this.table = `${parts.table}_late`;
    this.trims = new TrimPlan(parts.keep);
  }

  async migrate(): Promise<void> {
    await this.parts.pool.transaction(async (session) => {
      await session.query('SELECT pg_advisory_xact_lock(hashtext($1))', [`millrace:${this.table}`]);
      await session.query(`CREATE TABLE IF NOT EXISTS ${this.table} (
        source_partition int4 NOT NULL, source_offset int8 NOT NULL, account_id int8 NOT NULL,
        event_ts int8 NOT NULL, value int8 NOT NULL, reason text NOT NULL, watermark_ms int8 NOT NULL,
        timestamp_ms int8, PRIMARY KEY (source_partition, source_offset))`);
      await session.query(
        `CREATE INDEX IF NOT EXISTS ${this.table}_key ON ${this.table} (account_id, event_ts)`,
      );
    });
  }

  /** @throws sink_missing */
  async check(): Promise<void> {
    try {
      await this.parts.pool.query(`SELECT ${COLUMNS.join(', ')} FROM ${this.table} LIMIT 0`);
    } catch (thrown) {
      const sqlstate = (thrown as { details?: { sqlstate?: unknown } }).details?.sqlstate;
      if (sqlstate !== '42P01' && sqlstate !== '42703') throw thrown;
      throw engineError('sink_missing', `the sink has no table ${this.table} for late events`, {
        next: 'run the engine with -migrate once, or give -late-keep=0',
        cause: thrown,
      });
    }
  }

  async send(copies: readonly LateEvent[]): Promise<void> {
    const { pool, keep } = this.parts;
    const newest = newestOf(copies, keep);
    const stage = `${this.table}_stage`;
    await pool.transaction(async (session) => {
      await session.query(
        `CREATE TEMP TABLE IF NOT EXISTS ${stage} (LIKE ${this.table}) ON COMMIT DELETE ROWS`,
      );
      await session.copyIn(stage, COLUMNS, this.cells([...newest.values()].flat()));
      await session.query(
        `INSERT INTO ${this.table} (${COLUMNS.join(', ')}) SELECT ${COLUMNS.join(', ')}
         FROM ${stage} ON CONFLICT (source_partition, source_offset) DO NOTHING`,
      );
    });
    for (const [partition, events] of newest)
      if (this.trims.isDue(partition, events.length)) await this.trim(partition);
  }

  private async trim(partition: number): Promise<void> {
    const { pool, keep } = this.parts;
    await pool.query(
      `DELETE FROM ${this.table} WHERE source_partition = $1 AND source_offset < (SELECT source_offset FROM ${this.table}
         WHERE source_partition = $1 ORDER BY source_offset DESC OFFSET $2 LIMIT 1)`,
      [partition, keep - 1],
    );
  }

  private *cells(events: readonly LateEvent[]): Iterable<readonly SqlValue[]> {
    for (const event of events)
      yield [
        event.partition,
        event.offset,
        BigInt.asIntN(64, event.accountId),
        event.eventTs,
        event.value,
        event.reason,
        event.watermarkMs,
        event.timestampMs ?? null,
      ];
  }
}
