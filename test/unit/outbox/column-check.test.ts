/** Answers about columns that a table may lack: for each client, and not for ever. */
import { describe, expect, it } from 'vitest';
import { ABSENT_MS, ColumnCheck } from '../../../src/outbox/database/column-check.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';

/** Database whose table has the columns, and a transaction of it. */
class Fake {
  readonly columns: Set<string>;
  asked = 0;

  constructor(...columns: readonly string[]) {
    this.columns = new Set(columns);
  }

  async query(_text: string, [, column]: readonly string[]) {
    this.asked++;
    return { rows: [{ n: this.columns.has(column as string) ? '1' : '0' }] };
  }
}

/** A new transaction of a pool. */
const transactionOf = (pool: Fake) => ({
  catalog: pool,
  query: (text: string, params: readonly string[]) => pool.query(text, params),
});

describe('a column check', () => {
  it('a client is asked for a present column once, also through other transactions of its pool', async () => {
    const check = new ColumnCheck(new VirtualClock());
    const pool = new Fake('traceparent');
    for (let n = 0; n < 3; n++) {
      expect(await check.has(transactionOf(pool), 'outbox', 'traceparent')).toBe(true);
      expect(await check.has(pool, 'outbox', 'traceparent')).toBe(true);
    }
    expect(pool.asked).toBe(1);
  });

  it('tables of one name in two databases have their own answers, whichever is asked first', async () => {
    const check = new ColumnCheck(new VirtualClock());
    const [one, two] = [new Fake('traceparent'), new Fake('headers')];
    for (const column of ['traceparent', 'headers'])
      for (const database of [one, two, one])
        expect(await check.has(transactionOf(database), 'outbox', column)).toBe(database.columns.has(column));
    expect(await check.has(one, 'other', 'traceparent')).toBe(true);
    expect([one.asked, two.asked]).toEqual([3, 2]);
  });

  it('an absent column is asked for again after a while, so that a migration is noticed', async () => {
    const clock = new VirtualClock();
    const check = new ColumnCheck(clock);
    const pool = new Fake();
    expect(await check.has(pool, 'outbox', 'traceparent')).toBe(false);
    pool.columns.add('traceparent');
    await clock.advance(ABSENT_MS - 1);
    expect(await check.has(pool, 'outbox', 'traceparent')).toBe(false);
    await clock.advance(1);
    expect(await check.has(pool, 'outbox', 'traceparent')).toBe(true);
    expect(pool.asked).toBe(2);
  });
});
