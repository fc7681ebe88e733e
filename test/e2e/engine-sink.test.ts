/** The PostgreSQL sink on a real server: upserts of absolute values, keys bit for bit, pages in unsigned order. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { FiredWindow, WindowResult } from '../../src/engine/accumulator.ts';
import { PostgresSink } from '../../src/engine/sink/postgres.ts';
import { pgDriver } from '../../src/io/sql/pg.ts';
import type { SqlPool } from '../../src/io/sql/port.ts';
import { launcher } from './engine-kit.ts';
import { sharedStack } from './stack.ts';

const { suffix } = launcher();
const stack = await sharedStack();
const U64_MAX = (1n << 64n) - 1n;
const I64_MIN = -(1n << 63n);

/** Rows [account_id, count, sum as 128 bits, min, max, last_update_ts], ascending. */
function fired(
  windowStart: number,
  rows: readonly (readonly [bigint, bigint, bigint, bigint, bigint, bigint])[],
): FiredWindow {
  const cells = new BigInt64Array(rows.length * 8);
  rows.forEach(([id, count, sum, min, max, last], row) => {
    cells.set(
      [id, count, sum, sum >> 64n, min, max, last, 0n].map((one) => BigInt.asIntN(64, one)),
      row * 8,
    );
  });
  return { windowStart, windowEnd: windowStart + 10, rowCount: rows.length, rows: cells.buffer };
}

const whole = (window: FiredWindow) => ({ window, from: 0, to: window.rowCount });

async function all(sink: PostgresSink): Promise<WindowResult[]> {
  const rows: WindowResult[] = [];
  for await (const page of sink.read()) rows.push(...page);
  return rows;
}

describe('postgres sink', () => {
  let pool: SqlPool;
  const table = `sink_${suffix}`;
  let sink: PostgresSink;
  beforeAll(async () => {
    pool = await pgDriver.connect({
      url: stack.postgres,
      connectionsMax: 4,
      applicationName: 'test',
      connectTimeoutMs: 5000,
    });
    sink = new PostgresSink(pool, table);
  });
  afterAll(async () => {
    await pool.query(`DROP VIEW IF EXISTS ${table}_unsigned`);
    await pool.query(`DROP TABLE IF EXISTS ${table}`);
    await pool.close();
  });

  it('says that its table is missing, and makes it, several at once and again', async () => {
    await expect(sink.check()).rejects.toMatchObject({
      code: 'sink_missing',
      next: expect.stringContaining('-migrate'),
    });
    await Promise.all([sink.migrate(), sink.migrate(), sink.migrate()]);
    await sink.migrate();
    await sink.check();
  });

  it('keeps every bit of keys and values, and gives them back in unsigned order', async () => {
    const first = fired(-10, [
      [0n, 1n, 5n, 5n, 5n, -7n],
      [7n, 2n, -1n, I64_MIN, 3n, -1n],
      [1n << 63n, 3n, 1n << 63n, 0n, 9n, -2n],
      [U64_MAX, 1n, I64_MIN * 3n, I64_MIN, -1n, -3n],
    ]);
    const second = fired(0, [[7n, 1n, 1n, 1n, 1n, 4n]]);
    await sink.write([whole(first), whole(second)]);
    const rows = await all(sink);
    expect(rows.map((row) => [row.accountId, row.windowStart])).toEqual([
      [0n, -10],
      [7n, -10],
      [7n, 0],
      [1n << 63n, -10],
      [U64_MAX, -10],
    ]);
    expect(rows.map((row) => row.overflow)).toEqual([false, false, false, true, true]);
    expect(rows[1]).toMatchObject({
      windowEnd: 0,
      count: 2n,
      sum: -1n,
      min: I64_MIN,
      max: 3n,
      lastUpdateTs: -1n,
    });
    expect(rows[3]?.sum).toBe(I64_MIN);
    const { rows: seen } = await pool.query(
      `SELECT account_id::text AS id FROM ${table}_unsigned ORDER BY account_id DESC LIMIT 1`,
    );
    expect(seen).toEqual([{ id: String(U64_MAX) }]);
  });

  it('does not touch a row that is written again, and replaces one that changed', async () => {
    const versions = async () =>
      (await pool.query(`SELECT account_id, xmin::text AS version FROM ${table} ORDER BY 1, window_start`))
        .rows;
    const before = await versions();
    await sink.write([whole(fired(0, [[7n, 1n, 1n, 1n, 1n, 4n]]))]);
    expect(await versions()).toEqual(before);
    await sink.write([whole(fired(0, [[7n, 2n, 2n, 1n, 1n, 5n]]))]);
    expect(await versions()).not.toEqual(before);
    expect((await all(sink)).find((row) => row.windowStart === 0)).toMatchObject({
      count: 2n,
      sum: 2n,
      lastUpdateTs: 5n,
    });
  });

  it('writes a part of a window and reads more than a page', async () => {
    const many = fired(
      100,
      Array.from({ length: 45_000 }, (_, i) => [BigInt(i), 1n, 1n, 1n, 1n, 100n] as const),
    );
    await sink.write([{ window: many, from: 10_000, to: 45_000 }]);
    const rows = (await all(sink)).filter((row) => row.windowStart === 100);
    expect(rows).toHaveLength(35_000);
    expect([rows[0]?.accountId, rows.at(-1)?.accountId]).toEqual([10_000n, 44_999n]);
  });
});
