/** Contract of every SQL driver for a server that becomes silent, run against a real server by
 *  test/e2e/sql.test.ts. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pgReplicationDriver } from '../../src/io/postgres/replication/pg.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { TextDriver, TextStatement } from '../../src/io/postgres/sql/port.ts';
import { type SilentGate, silentGate } from './sql-gate.ts';
import { failure, heldLock } from './sql-kit.ts';

/** Answer timeout, long enough that a busy machine delivers all answers that do arrive. */
const ANSWER_MS = 6000;

export function silenceContract(textDrivers: readonly TextDriver[], postgres: () => string): void {
  describe('silent server', () => {
    let gate: SilentGate;
    let overdue = 0;
    const options = () => {
      overdue = 0;
      return {
        url: gate.url,
        connectionsMax: 1,
        applicationName: 'sql-silence',
        connectTimeoutMs: 30_000,
        answerTimeoutMs: ANSWER_MS,
        onOverdue: () => {
          overdue++;
        },
      };
    };
    beforeAll(async () => {
      gate = await silentGate(postgres());
    });
    afterAll(() => gate.close());

    it('pg waits once per transaction, drops the connection and counts the timeout', async () => {
      const pool = await pgDriver.connect(options());
      try {
        const error = await failure(
          pool.transaction(async (session) => {
            await session.query('SELECT 1');
            gate.silence();
            await session.query('SELECT 2');
          }),
        );
        expect([error.code, overdue]).toEqual(['unreachable', 1]);
        expect(error.message).toContain(`no answer within ${ANSWER_MS} ms`);
        gate.speak();
        expect((await pool.query('SELECT 3 AS n')).rows).toEqual([{ n: 3 }]);
        gate.silenceOn('COMMIT');
        expect((await failure(pool.transaction((session) => session.query('SELECT 4')))).code).toBe(
          'commit_unknown',
        );
        gate.speak();
        expect((await pool.query('SELECT 5 AS n')).rows).toEqual([{ n: 5 }]);
        expect(overdue).toBe(2);
      } finally {
        gate.speak();
        await pool.close();
      }
    });

    it('pg does not reuse a connection whose ROLLBACK got no answer', async () => {
      const pool = await pgDriver.connect(options());
      try {
        gate.silenceOn('ROLLBACK');
        const refused = await failure(pool.transaction((session) => session.query('SELECT 1/0')));
        expect([refused.code, refused.details['sqlstate']]).toEqual(['sql_failed', '22012']);
        gate.speak();
        expect((await pool.query('SELECT 6 AS n')).rows).toEqual([{ n: 6 }]);
      } finally {
        gate.speak();
        await pool.close();
      }
    });

    it('a statement waits for its answer until its own timeout or its abort', async () => {
      const pool = await pgDriver.connect(options());
      const hasty = await pgDriver.connect(options());
      const holder = await pgDriver.connect({ ...options(), connectionsMax: 2, answerTimeoutMs: 600_000 });
      let lock = await heldLock(holder);
      try {
        const patient = { answerTimeoutMs: 600_000 };
        const slow = pool.query(`${lock.statement}, 7 AS n`, [], patient);
        await lock.waiting();
        // The answer timeout of the pool has passed, proven by a statement that began later.
        expect((await failure(hasty.query(lock.statement))).code).toBe('unreachable');
        await lock.release();
        expect((await slow).rows).toMatchObject([{ n: 7 }]);
        expect(overdue).toBe(1);
        lock = await heldLock(holder);
        const giveUp = new AbortController();
        const waiting = failure(pool.query(lock.statement, [], { ...patient, giveUp: giveUp.signal }));
        await lock.waiting();
        giveUp.abort();
        expect((await waiting).code).toBe('unreachable');
        const late = pool.query('SELECT 8', [], { giveUp: giveUp.signal });
        expect((await failure(late)).code).toBe('unreachable');
        expect((await pool.query('SELECT 9 AS n')).rows).toEqual([{ n: 9 }]);
        expect(overdue).toBe(1);
      } finally {
        await lock.release();
        for (const one of [pool, hasty, holder]) await one.close();
      }
    });

    it.each(textDrivers)(
      'the driver $name drops the connection of a silent server and counts the timeout',
      async (driver) => {
        const one: TextStatement = { text: 'SELECT 1', paramCount: 0 };
        const pool = await driver.connect(options());
        const ask = (): Promise<string | null> => pool.execute(one, [], (rows) => rows.text(0, 0));
        try {
          expect(await ask()).toBe('1');
          gate.silence();
          const error = await failure(ask());
          expect([error.code, error.details['sent'], overdue]).toEqual(['unreachable', true, 1]);
          gate.speak();
          expect(await ask()).toBe('1');
        } finally {
          gate.speak();
          await pool.close();
        }
      },
    );

    it('a replication connection is refused after its timeout', async () => {
      gate.silenceOn('IDENTIFY_SYSTEM');
      try {
        const asked = { url: gate.url, applicationName: 'sql-silence', connectTimeoutMs: ANSWER_MS };
        expect((await failure(pgReplicationDriver.connect(asked))).code).toBe('unreachable');
      } finally {
        gate.speak();
      }
    });
  });
}
