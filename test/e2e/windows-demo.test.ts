/** The windows slice of the demo at a small scale: every fact holds in an unmodified run, and each
 *  fact fails when the test corrupts its data. */

import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CASES } from '../../src/demo/windows/cases.ts';
import { killFact, newestManifest, type RunRecord } from '../../src/demo/windows/judge.ts';
import { type WindowsRun, windowsSlice } from '../../src/demo/windows/slice.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { connectPool } from '../fixtures/database.ts';
import { sliceContext } from '../fixtures/demo.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';

const own = launcher();
const stack = await sharedStack();
const context = sliceContext(own, stack, { seed: 11, scale: 0.02 });

let run: WindowsRun;
let pool: SqlPool;

beforeAll(async () => {
  pool = await connectPool(stack.postgres);
  run = await windowsSlice.run(context);
}, 300_000);
afterAll(() => pool.close());

/** Returns the claims whose fact does not hold. */
async function failedClaims(judged: WindowsRun = run): Promise<string[]> {
  return (await windowsSlice.judge(context, judged)).filter((fact) => !fact.holds).map((fact) => fact.claim);
}

/** Corrupts the tables, judges the run, and restores the tables. */
async function judgedAfter(corrupt: string, restore: string, judged = run): Promise<string[]> {
  await pool.query(corrupt);
  try {
    return await failedClaims(judged);
  } finally {
    await pool.query(restore);
  }
}

const firstRow = (table: string): string =>
  `(account_id, window_start) = (SELECT account_id, window_start FROM ${table} ORDER BY account_id, window_start LIMIT 1)`;
/** True if the times of a table are timestamps, as for input with fields; otherwise they are
 *  milliseconds. */
async function isTyped(table: string): Promise<boolean> {
  const { rows } = await pool.query<{ typed: boolean }>(
    `SELECT pg_typeof(window_start) = 'timestamptz'::regtype AS typed FROM ${table} LIMIT 1`,
  );
  return rows[0]?.typed === true;
}
const one = (table: string): string => `(SELECT ctid FROM ${table} LIMIT 1)`;

describe('windows slice', () => {
  it('the windows demo confirms every fact of an unmodified run', async () => {
    const facts = await windowsSlice.judge(context, run);
    expect(facts.filter((fact) => !fact.holds)).toEqual([]);
    expect(facts).toHaveLength(18);
    expect(facts.every((fact) => fact.slice === 'windows' && /\d/.test(fact.seen))).toBe(true);
  });

  describe.each(CASES.flat().map(({ name }, at) => ({ name, at })))('$name', ({ name, at }) => {
    const record = (): RunRecord => {
      const one = run.runs[at] as RunRecord;
      expect(one.name).toBe(name);
      return one;
    };
    /** Judges one run only, because judging all of them takes long. */
    const alone = (of: RunRecord = record()): WindowsRun => ({ runs: [of] });
    const claim = (): RegExp => new RegExp(`^${record().name}: the sink equals`);

    it.each(['count', 'sum', 'min', 'max', 'last_update_ts'])(
      'the windows demo detects a sink row whose %s is off by one',
      async (column) => {
        const { sinkTable } = record();
        const where = firstRow(sinkTable);
        const step = (await isTyped(sinkTable)) && column === 'last_update_ts' ? "interval '1 ms'" : '1';
        const found = await judgedAfter(
          `UPDATE ${sinkTable} SET ${column} = ${column} + ${step} WHERE ${where}`,
          `UPDATE ${sinkTable} SET ${column} = ${column} - ${step} WHERE ${where}`,
          alone(),
        );
        expect(found).toContainEqual(expect.stringMatching(claim()));
      },
    );

    it('the windows demo detects a missing sink row', async () => {
      const { sinkTable } = record();
      await pool.query(
        `CREATE TABLE kept_${own.suffix} AS SELECT * FROM ${sinkTable} WHERE ctid = ${one(sinkTable)}`,
      );
      const found = await judgedAfter(
        `DELETE FROM ${sinkTable} WHERE ctid = ${one(sinkTable)}`,
        `INSERT INTO ${sinkTable} SELECT * FROM kept_${own.suffix}`,
        alone(),
      );
      await pool.query(`DROP TABLE kept_${own.suffix}`);
      expect(found).toContainEqual(expect.stringMatching(claim()));
      expect(await failedClaims(alone())).toEqual([]);
    });

    it('the windows demo detects an extra sink row, even an empty one', async () => {
      const { sinkTable } = record();
      const isTimes = await isTyped(sinkTable);
      const [from, to, last] = [1_750_000_020_000, 1_750_000_040_000, 0].map((ms) =>
        isTimes ? `to_timestamp(${ms} / 1000.0)` : ms,
      );
      const found = await judgedAfter(
        `INSERT INTO ${sinkTable} VALUES (-5, ${from}, ${to}, 0, 0, 0, 0, ${last}, false)`,
        `DELETE FROM ${sinkTable} WHERE account_id = -5`,
        alone(),
      );
      expect(found).toContainEqual(expect.stringMatching(claim()));
    });

    it('the windows demo detects a wrong overflow mark', async () => {
      const { sinkTable } = record();
      const where = firstRow(sinkTable);
      const found = await judgedAfter(
        `UPDATE ${sinkTable} SET overflow = true WHERE ${where}`,
        `UPDATE ${sinkTable} SET overflow = false WHERE ${where}`,
        alone(),
      );
      expect(found).toContainEqual(expect.stringMatching(claim()));
    });

    it('the windows demo detects a recorded dropped_late that is off by one', async () => {
      const path = (await newestManifest(record().stateDir))?.path as string;
      const clean = await readFile(path, 'utf8');
      await writeFile(
        path,
        clean.replace(/"dropped_late": (\d+)/, (_, n: string) => `"dropped_late": ${Number(n) + 1}`),
      );
      const found = await failedClaims(alone());
      await writeFile(path, clean);
      expect(found).toEqual([expect.stringMatching(new RegExp(`^${record().name}: dropped_late`))]);
    });

    it('the windows demo detects a kill that came too early, too late, too near its checkpoint, before any checkpoint, or never', async () => {
      const { kill, events, pastCheckpoint } = record();
      const over = (how: Partial<RunRecord['kill']>): RunRecord => ({
        ...record(),
        kill: { ...kill, ...how },
      });
      const claim = new RegExp(`^${record().name}: the engine was killed`);
      for (const how of [
        { consumed: Math.floor(events * 0.19) },
        { held: Math.ceil(events * 0.81) },
        { checkpointed: kill.consumed - pastCheckpoint + 1 },
        { checkpointed: 0 },
        { signal: 'SIGTERM' },
      ]) {
        expect(killFact(over(how))).toMatchObject({ claim: expect.stringMatching(claim), holds: false });
      }
      expect(await failedClaims(alone(over({ signal: null })))).toEqual([expect.stringMatching(claim)]);
    });
  });

  it.each([2, 3])(
    'the windows demo detects state on disk of the run at %i that was never written',
    async (at) => {
      const record = run.runs[at] as RunRecord;
      const failedClaim = expect.stringMatching(new RegExp(`^${record.name}: state was spilled to disk`));
      const path = (await newestManifest(record.stateDir))?.path as string;
      const clean = await readFile(path, 'utf8');
      await writeFile(path, clean.replace(/"last_id": \d+/, '"last_id": 0'));
      const found = await failedClaims({ runs: [record] });
      await writeFile(path, clean);
      expect(found).toEqual([failedClaim]);
      const { kill } = record;
      expect(await failedClaims({ runs: [{ ...record, kill: { ...kill, pieces: 0 } }] })).toEqual([
        failedClaim,
      ]);
    },
  );

  it('the windows demo detects an error that the drops do not explain', async () => {
    const { sinkTable } = run.runs[1] as RunRecord;
    const where = firstRow(sinkTable);
    const found = await judgedAfter(
      `UPDATE ${sinkTable} SET count = count + 1 WHERE ${where}`,
      `UPDATE ${sinkTable} SET count = count - 1 WHERE ${where}`,
    );
    expect(found).toContainEqual(expect.stringContaining('the error against the true order'));
    expect(await failedClaims()).toEqual([]);
  });

  it('the windows demo detects an order topic with fewer schema versions, invalid orders, or orders that the oracle did not read', async () => {
    const record = run.runs[4] as RunRecord;
    const { arrival } = record;
    const { writers = {} } = arrival;
    expect(Object.keys(writers)).toHaveLength(5);
    const [first = '', ...others] = Object.entries(writers).map(([id]) => id);
    const without = Object.fromEntries(others.map((id) => [id, writers[id] as number]));
    expect(first).not.toBe('');
    for (const how of [{ writers: without }, { invalid: ['1'] }, { consumed: ['69999'] }])
      expect(await failedClaims({ runs: [{ ...record, arrival: { ...arrival, ...how } }] })).toEqual([
        expect.stringContaining('an independent reading of the Order topic'),
      ]);
  });
});
