/** What every SQL driver promises of a server that says nothing any more, run against a real one by test/e2e/sql.test.ts. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pgReplicationDriver } from '../../src/io/replication/pg.ts';
import { pgDriver } from '../../src/io/sql/pg.ts';
import type { TextDriver, TextStatement } from '../../src/io/sql/port.ts';
import { type SilentGate, silentGate } from './sql-gate.ts';
import { failure } from './sql-kit.ts';

/** Long enough for a busy machine to bring the answers that do come. */
const ANSWER_MS = 6000;

export function silenceContract(textDrivers: readonly TextDriver[], postgres: () => string): void {
  describe('a server that falls silent', () => {
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

    it('costs pg one wait a transaction and the connection, and is counted', async () => {
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

    it('gives pg no connection back that owes an answer to a ROLLBACK', async () => {
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

    it('is waited for as long as a statement asks for, until it is given up', async () => {
      const pool = await pgDriver.connect(options());
      try {
        const patient = { answerTimeoutMs: 30_000 };
        const slow = await pool.query(`SELECT 7 AS n FROM pg_sleep(${(2 * ANSWER_MS) / 1000})`, [], patient);
        expect(slow.rows).toEqual([{ n: 7 }]);
        const giveUp = new AbortController();
        const waiting = failure(pool.query('SELECT pg_sleep(60)', [], { ...patient, giveUp: giveUp.signal }));
        setTimeout(() => giveUp.abort(), 50);
        expect((await waiting).code).toBe('unreachable');
        const late = pool.query('SELECT 8', [], { giveUp: giveUp.signal });
        expect((await failure(late)).code).toBe('unreachable');
        expect((await pool.query('SELECT 9 AS n')).rows).toEqual([{ n: 9 }]);
        expect(overdue).toBe(0);
      } finally {
        await pool.close();
      }
    });

    it.each(textDrivers)('costs $name the connection, and is counted', async (driver) => {
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
    });

    it('keeps nobody waiting who wants to replicate', async () => {
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
