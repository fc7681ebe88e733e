/** Late events in PostgreSQL: the table `…_late` beside that of the results, one row an event.
 *
 *  The primary key is the place of the event: of its record, and of its element in a job that folds
 *  the elements of a list. So writing an event again changes nothing. Each
 *  partition keeps its newest events, as in the engine's own store. The key has the columns that
 *  it has in the table of the results. */
import { decimalText } from '../../../core/decimal/exact.ts';
import type { SqlPool, SqlValue } from '../../../io/postgres/sql/port.ts';
import { engineError } from '../../errors.ts';
import { DECIMAL_PRECISION, type ResultShape } from '../columns.ts';
import { KeyColumns, otherColumns } from '../sink/key-columns.ts';
import { findTable } from '../sink/table.ts';
import type { LateEvent } from './events.ts';
import type { LatePeer } from './kept.ts';
import { newestOf, TrimPlan } from './store.ts';

const RECORD_PLACE = ['source_partition', 'source_offset'];
/** Place of an element of a record's list. */
const ELEMENT_PLACE = [...RECORD_PLACE, 'source_element'];
const FIELDS = ['event_ts', 'value', 'reason', 'watermark_ms', 'timestamp_ms'];

export interface PostgresLateParts {
  readonly pool: SqlPool;
  /** Table of the results. */
  readonly table: string;
  /** Events of each partition that are kept, at least 1. */
  readonly keep: number;
  /** True: `bind` creates the table if it is missing. */
  readonly migrates: boolean;
}

export class PostgresLateEvents implements LatePeer {
  private readonly parts: PostgresLateParts;
  private readonly table: string;
  private readonly trims: TrimPlan;
  private keys = KeyColumns.bits();
  /** Decimal places of the values; undefined: they are integers. */
  private scale: number | undefined;
  private place = RECORD_PLACE;
  /** Text of the key columns that the table was found to have; undefined before `bind`. */
  private bound: string | undefined;

  constructor(parts: PostgresLateParts) {
    this.parts = parts;
    this.table = `${parts.table}_late`;
    this.trims = new TrimPlan(parts.keep);
  }

  /** Creates the table if it may, and checks it. The same key again changes nothing.
   *  @throws sink_missing */
  async bind(shape: ResultShape): Promise<void> {
    // The table of the results may have the layout of an earlier version.
    const results = await findTable(this.parts.pool, this.parts.table);
    const isBits = results?.keys?.form === 'bits' && shape.keyType === undefined;
    const keys = isBits ? KeyColumns.bits() : KeyColumns.ofShape(shape);
    const text = keys.toString();
    if (text === this.bound && shape.valueScale === this.scale) return;
    this.keys = keys;
    this.place = shape.hasElements === true ? ELEMENT_PLACE : RECORD_PLACE;
    this.scale = shape.valueScale;
    if (this.parts.migrates) await this.migrate();
    await this.check();
    const found = await otherColumns(this.parts.pool, this.table, [...this.place, ...FIELDS]);
    if (found !== text)
      throw this.missing(
        `the key of table ${this.table}, which is for late events, is not (${text})`,
        'run the engine with -migrate once, with a -sink-table that does not exist yet, or give -late-keep=0 to keep no late events',
      );
    const type = (await findTable(this.parts.pool, this.table))?.types.get('value');
    const wanted = this.scale === undefined ? 'bigint' : this.valueType;
    if (type !== wanted)
      throw this.missing(
        `the column value of table ${this.table} is ${type}, and the values of late events need ${wanted}`,
        'run the engine with -migrate once, with a -sink-table that does not exist yet, or give -late-keep=0 to keep no late events',
      );
    this.bound = text;
  }

  private get valueType(): string {
    return this.scale === undefined ? 'int8' : `numeric(${DECIMAL_PRECISION},${this.scale})`;
  }

  /** Checks the table as far as it does not depend on the key. @throws sink_missing */
  async check(): Promise<void> {
    try {
      await this.parts.pool.query(
        `SELECT ${[...this.place, ...FIELDS].join(', ')} FROM ${this.table} LIMIT 0`,
      );
    } catch (thrown) {
      const sqlstate = (thrown as { details?: { sqlstate?: unknown } }).details?.sqlstate;
      if (sqlstate !== '42P01' && sqlstate !== '42703') throw thrown;
      if (this.place === ELEMENT_PLACE)
        throw this.missing(
          `the sink has no table ${this.table} for late elements of lists: it does not exist, or has no source_element, as that of a job whose events are records`,
          'run the engine with -migrate once, with a -sink-table that does not exist yet, or give -late-keep=0 to keep no late events',
          thrown,
        );
      throw this.missing(
        `the sink has no table ${this.table} for late events; a sink that an earlier version created has none`,
        'run the engine with -migrate once more, which creates the table, or give -late-keep=0 to keep no late events',
        thrown,
      );
    }
  }

  private missing(what: string, next: string, cause?: unknown): Error {
    return engineError('sink_missing', what, { next, ...(cause === undefined ? {} : { cause }) });
  }

  private async migrate(): Promise<void> {
    const { table, keys, place } = this;
    await this.parts.pool.transaction(async (session) => {
      await session.query('SELECT pg_advisory_xact_lock(hashtext($1))', [`millrace:${table}`]);
      await session.query(`CREATE TABLE IF NOT EXISTS ${table} (
        source_partition int4 NOT NULL, source_offset int8 NOT NULL,
        ${place === ELEMENT_PLACE ? 'source_element int4 NOT NULL, ' : ''}${keys.definitions},
        event_ts int8 NOT NULL, value ${this.valueType} NOT NULL, reason text NOT NULL, watermark_ms int8 NOT NULL,
        timestamp_ms int8, PRIMARY KEY (${place.join(', ')}))`);
      const found = await otherColumns(session, table, [...place, ...FIELDS]);
      // A table by another key is refused by `bind`.
      if (found === keys.toString())
        await session.query(
          `CREATE INDEX IF NOT EXISTS ${table}_key ON ${table} (${keys.quotedNames.join(', ')}, event_ts)`,
        );
    });
  }

  async send(copies: readonly LateEvent[]): Promise<void> {
    const { pool, keep } = this.parts;
    const newest = newestOf(copies, keep);
    const stage = `${this.table}_stage`;
    const columns = [...this.place, ...this.keys.quotedNames, ...FIELDS].join(', ');
    await pool.transaction(async (session) => {
      await session.query(
        `CREATE TEMP TABLE IF NOT EXISTS ${stage} (LIKE ${this.table}) ON COMMIT DELETE ROWS`,
      );
      await session.copyIn(
        stage,
        [...this.place, ...this.keys.names, ...FIELDS],
        this.cells([...newest.values()].flat()),
      );
      await session.query(
        `INSERT INTO ${this.table} (${columns}) SELECT ${columns}
         FROM ${stage} ON CONFLICT (${this.place.join(', ')}) DO NOTHING`,
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
        ...(this.place === ELEMENT_PLACE ? [event.element ?? 0] : []),
        ...this.keys.values(event),
        event.eventTs,
        this.scale === undefined ? event.value : decimalText(event.value, this.scale),
        event.reason,
        event.watermarkMs,
        event.timestampMs ?? null,
      ];
  }
}
