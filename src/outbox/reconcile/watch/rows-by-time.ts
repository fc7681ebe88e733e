/** Finds the rows of a span of time by an index: of a UUIDv7 the span is a range of ids; of a table
 *  with a sequence, or with an index on the time, a window that covers the span with a margin.
 *
 *  Ids of both sides are compared within the same range of ids, so the margin of a window changes
 *  the rows that are read, never the rows that are compared. A row that lies outside of its window
 *  is found by its id afterwards (bucket.ts).
 */
import type { SqlSession } from '../../../io/postgres/sql/port.ts';
import { outboxError } from '../../errors.ts';
import { isUuidV7, leading48, TIME_FROM_MS, TIME_TO_MS, uuidAt } from '../../inbox/names.ts';
import { epochMs, idText, type PairSide } from '../pairs/side.ts';

/** Greatest difference between the time in an id, or of its neighbours in a sequence, and the time
 *  of its row. */
const SLACK_MS = 10_000;
/** Rows that must have an id with a time before a watch starts. */
const SAMPLE_ROWS = 1000;
/** Remembered results of searches. */
const SEARCHES_MAX = 64;

export interface TimeSpan {
  readonly fromMs: number;
  /** Exclusive. */
  readonly toMs: number;
}

interface Found {
  readonly at: bigint;
  readonly ms: number;
}

/** Rows of one side by time. */
export class RowsByTime {
  readonly side: PairSide;
  private readonly session: SqlSession;
  private readonly searches = new Map<number, bigint>();

  constructor(session: SqlSession, side: PairSide) {
    this.session = session;
    this.side = side;
  }

  /** True if rows are read by more than the range of their ids, so a row may lie outside. */
  get isWindow(): boolean {
    return this.side.order.by !== 'id';
  }

  /** Checks that ids grow with the time. @throws table_unusable */
  async requireTimedIds(): Promise<void> {
    const { side } = this;
    const name = side.table.given;
    const next =
      'compare without -watch, at intervals, or use ids of version 7 (append gives them) or of a sequence';
    if (side.idKind === 'text')
      throw outboxError('table_unusable', `the ids of ${name} are texts, which have no time`, { next });
    if (side.idKind === 'int') {
      if (side.order.by === 'id') return;
      throw outboxError('table_unusable', `the integer ids of ${name} must be its order column`, {
        next: 'leave the order column out',
      });
    }
    // A BRIN index on the time finds rows of a span, and no order.
    const newest =
      side.order.by === 'time'
        ? `WHERE ${side.time} > now() - interval '10 minutes'`
        : `ORDER BY ${side.order.by === 'int' ? side.order.column : side.id} DESC`;
    const { rows } = await this.session.query<{ id: string }>(
      `SELECT ${idText(side)} AS id FROM ${side.table.sql} ${newest} LIMIT ${SAMPLE_ROWS}`,
    );
    const other = rows.find(({ id }) => !isUuidV7(id));
    if (other === undefined) return;
    throw outboxError(
      'table_unusable',
      `the id ${other.id} of ${name} is not of version 7, so it has no time`,
      {
        next,
      },
    );
  }

  /** Bound of the ids at a time. For integer ids this is the first id of a row from then on. */
  async idAt(ms: number): Promise<string> {
    if (this.side.idKind === 'uuid') return uuidAt(ms);
    return String(await this.search(this.side.id, ms));
  }

  /** Condition on rows besides the range of their ids; empty: none.
   *  @param nowMs time of the database: no row is younger */
  async window({ fromMs, toMs }: TimeSpan, nowMs: number): Promise<string> {
    const { side } = this;
    const [from, to] = [fromMs - SLACK_MS, toMs + SLACK_MS];
    if (side.order.by === 'time')
      return ` AND ${side.time} >= to_timestamp(${from}::float8 / 1000) AND ${side.time} < to_timestamp(${to}::float8 / 1000)`;
    if (side.order.by === 'id') return '';
    const { column } = side.order;
    const lower = ` AND ${column} >= ${await this.search(column, from)}`;
    return to >= nowMs ? lower : `${lower} AND ${column} < ${await this.search(column, to)}`;
  }

  /** Time of the oldest row; undefined: the table is empty. */
  async oldestMs(): Promise<number | undefined> {
    const { side } = this;
    const where =
      side.order.by === 'id' && side.idKind === 'uuid'
        ? ` WHERE ${side.id} >= '${uuidAt(TIME_FROM_MS)}'`
        : '';
    const by = side.order.by === 'int' ? side.order.column : side.order.by === 'time' ? side.time : side.id;
    const { rows } = await this.session.query<{ ms: number }>(
      `SELECT ${epochMs(side.time)} AS ms FROM ${side.table.sql}${where} ORDER BY ${by} LIMIT 1`,
    );
    return rows[0]?.ms;
  }

  /** Earliest time from `ms` on at which the side may have a row; infinite: it has none. */
  async nextMs(ms: number): Promise<number> {
    const { side } = this;
    if (side.idKind !== 'uuid' || side.order.by === 'time') return ms;
    if (side.order.by === 'int') {
      const found = await this.firstFrom(
        side.order.column,
        await this.search(side.order.column, ms - SLACK_MS),
      );
      return found === undefined ? Number.POSITIVE_INFINITY : Math.max(ms, found.ms - SLACK_MS);
    }
    const { rows } = await this.session.query<{ id: string }>(
      `SELECT ${idText(side)} AS id FROM ${side.table.sql} WHERE ${side.id} >= $1::uuid AND ${side.id} < $2::uuid
       ORDER BY ${side.id} LIMIT 1`,
      [uuidAt(ms), uuidAt(TIME_TO_MS)],
    );
    return rows[0] === undefined ? Number.POSITIVE_INFINITY : leading48(rows[0].id);
  }

  private async firstFrom(column: string, at: bigint): Promise<Found | undefined> {
    const { rows } = await this.session.query<{ at: bigint; ms: number }>(
      `SELECT ${column}::bigint AS at, ${epochMs(this.side.time)} AS ms FROM ${this.side.table.sql}
       WHERE ${column} >= $1::bigint ORDER BY ${column} LIMIT 1`,
      [at],
    );
    return rows[0];
  }

  /** First value of the column whose row is not before `ms`; above all values, if there is none.
   *  The result is remembered, so that the end of a span is the begin of the next. */
  private async search(column: string, ms: number): Promise<bigint> {
    const known = this.searches.get(ms);
    if (known !== undefined) return known;
    const { rows } = await this.session.query<{ low: bigint | null; high: bigint | null }>(
      `SELECT min(${column})::bigint AS low, max(${column})::bigint AS high FROM ${this.side.table.sql}`,
    );
    let low = rows[0]?.low ?? 0n;
    let high = (rows[0]?.high ?? -1n) + 1n;
    while (low < high) {
      const middle = (low + high) / 2n;
      const found = await this.firstFrom(column, middle);
      if (found !== undefined && found.ms < ms) low = found.at + 1n;
      else high = middle;
    }
    if (this.searches.size >= SEARCHES_MAX) this.searches.delete(this.searches.keys().next().value as number);
    this.searches.set(ms, low);
    return low;
  }
}
