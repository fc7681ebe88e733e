/** Merge of the rows of two sides in the order of their ids: finds each row without its
 *  counterpart, each difference of values and each repeated id.
 *
 *  Both sides are read through cursors, a page at a time. Memory: two pages of PAGE_ROWS rows, and
 *  the rows of one id.
 */
import type { SqlSession, SqlValue } from '../../../io/postgres/sql/port.ts';
import { compareIds, epochMs, type IdKind, idOrder, idText, type PairSide } from './side.ts';

/** Rows that one FETCH returns. */
export const PAGE_ROWS = 10_000;

export interface MergedRow {
  readonly id: string;
  /** Time of the row, ms since the epoch, with a fraction. */
  readonly ms: number;
  readonly value: string | null;
  /** True if the row has a state column and it is null. */
  readonly pending: boolean;
}

/** Rows of one id on both sides; at least one side has a row. */
export interface Met {
  readonly id: string;
  readonly left: readonly MergedRow[];
  readonly right: readonly MergedRow[];
}

/** @param where condition on the rows, without parameters */
export function rowsSql(side: PairSide, where: string): string {
  return `SELECT ${idText(side)} AS id, ${epochMs(side.time)} AS ms,
    ${side.value === undefined ? 'NULL::text' : `${side.value}::text`} AS value,
    ${side.state === undefined ? 'false' : `${side.state} IS NULL`} AS pending
    FROM ${side.table.sql} WHERE ${where} ORDER BY ${idOrder(side)}`;
}

/** Reads rows through a cursor, in a transaction that the caller has open. */
export async function* cursorRows(session: SqlSession, name: string, sql: string): AsyncGenerator<MergedRow> {
  // All rows are read, so a plan that returns the first ones soon would be the slower one.
  await session.query('SET LOCAL cursor_tuple_fraction = 1');
  await session.query(`DECLARE ${name} NO SCROLL CURSOR FOR ${sql}`);
  for (;;) {
    const { rows } = await session.query<Readonly<Record<string, unknown>> & MergedRow>(
      `FETCH ${PAGE_ROWS} FROM ${name}`,
    );
    yield* rows;
    if (rows.length < PAGE_ROWS) break;
  }
  await session.query(`CLOSE ${name}`);
}

/** Rows of one side by id; `next` returns undefined at the end. */
class Groups {
  private readonly rows: AsyncIterator<MergedRow>;
  private ahead: MergedRow | undefined;
  private started = false;

  constructor(rows: AsyncIterable<MergedRow>) {
    this.rows = rows[Symbol.asyncIterator]();
  }

  private async advance(): Promise<void> {
    const { value, done } = await this.rows.next();
    this.ahead = done === true ? undefined : value;
  }

  async peek(): Promise<string | undefined> {
    if (!this.started) await this.advance();
    this.started = true;
    return this.ahead?.id;
  }

  /** Removes all rows of the id that `peek` returned. */
  async take(): Promise<readonly MergedRow[]> {
    const first = this.ahead;
    if (first === undefined) return [];
    const group = [first];
    await this.advance();
    while (this.ahead?.id === first.id) {
      group.push(this.ahead);
      await this.advance();
    }
    return group;
  }
}

/** Merges two ordered streams. */
export async function* merged(
  kind: IdKind,
  leftRows: AsyncIterable<MergedRow>,
  rightRows: AsyncIterable<MergedRow>,
): AsyncGenerator<Met> {
  const left = new Groups(leftRows);
  const right = new Groups(rightRows);
  for (;;) {
    const [a, b] = [await left.peek(), await right.peek()];
    if (a === undefined && b === undefined) return;
    const order = a === undefined ? 1 : b === undefined ? -1 : compareIds(kind, a, b);
    yield {
      id: (order <= 0 ? a : b) as string,
      left: order <= 0 ? await left.take() : [],
      right: order >= 0 ? await right.take() : [],
    };
  }
}

/** Ids of a side among the given ones, wherever their rows are. */
export async function idsPresent(
  session: SqlSession,
  side: PairSide,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  if (ids.length === 0) return new Set();
  const type = side.idKind === 'uuid' ? 'uuid' : side.idKind === 'int' ? 'bigint' : 'text';
  const { rows } = await session.query<{ id: string }>(
    `SELECT DISTINCT ${idText(side)} AS id FROM ${side.table.sql} WHERE ${side.id} = ANY ($1::text[]::${type}[])`,
    [ids as readonly SqlValue[]],
  );
  return new Set(rows.map(({ id }) => id));
}
