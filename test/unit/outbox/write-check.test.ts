/** The write check: after certain errors a database counts as refusing writes, until a trial write
 *  succeeds. */
import { describe, expect, it } from 'vitest';
import { coreError, type MillraceError } from '../../../src/core/errors.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { sqlError } from '../../../src/io/postgres/sql/port.ts';
import { WriteCheck } from '../../../src/outbox/database/write-check.ts';

const refused = (sqlstate: string): MillraceError =>
  sqlError(
    /^(53|58|25006)/.test(sqlstate) ? 'sql_unavailable' : 'sql_failed',
    `PostgreSQL refused a statement: ${sqlstate}`,
    { details: { sqlstate } },
  );

function world() {
  let nowMs = 0;
  const trials: Array<unknown> = [];
  let tried = 0;
  const check = new WriteCheck({
    trial: async () => {
      tried++;
      const outcome = trials.shift();
      if (outcome !== undefined) throw outcome;
    },
    monotonicMs: () => nowMs,
    log: silentLogger,
  });
  return {
    check,
    /** Results of the next trials: an error, or undefined for a success. */
    trials,
    tried: () => tried,
    pass: (ms: number) => {
      nowMs += ms;
    },
    says: () =>
      check.check().then(
        () => 'good',
        (thrown: MillraceError) => `${thrown.code}: ${thrown.message}`,
      ),
  };
}

describe('write check', () => {
  it('writes are assumed to work without a trial until the database refuses one', async () => {
    const { says, tried, pass } = world();
    for (let i = 0; i < 5; i++) {
      expect(await says()).toBe('good');
      pass(10_000);
    }
    expect(tried()).toBe(0);
  });

  it('writes are tried once a second after a refusal, until a trial succeeds', async () => {
    const { check, says, tried, pass, trials } = world();
    check.failed(refused('53100'));
    trials.push(refused('53100'), refused('58030'));
    expect(await says()).toMatch(/^database_unavailable: the database refuses writes: .*53100$/);
    expect(await says()).toMatch(/53100$/);
    expect(tried()).toBe(1);
    pass(1000);
    expect(await says()).toMatch(/58030$/);
    pass(999);
    expect(await says()).toMatch(/58030$/);
    expect(tried()).toBe(2);
    pass(1);
    expect(await says()).toBe('good');
    pass(1000);
    expect(await says()).toBe('good');
    expect(tried()).toBe(3);
  });

  it('writes count as accepted again as soon as a write is committed', async () => {
    const { check, says, tried } = world();
    check.failed(refused('53100'));
    check.wrote();
    expect(await says()).toBe('good');
    expect(tried()).toBe(0);
  });

  it('writes stay refused while a trial is inconclusive', async () => {
    const { check, says, trials } = world();
    check.failed(refused('53100'));
    trials.push(coreError('unreachable', 'no answer'));
    expect(await says()).toMatch(/53100$/);
  });

  it.each(['53100', '53200', '58030', '25006', '42501', '42P01'])(
    'writes count as refused with sqlstate %s',
    async (sqlstate) => {
      const { check, says, trials } = world();
      check.failed(refused(sqlstate));
      trials.push(refused(sqlstate));
      expect(await says()).toContain(sqlstate);
    },
  );

  it.each([
    refused('23514'),
    refused('40P01'),
    refused('55P03'),
    refused('57014'),
    sqlError('sql_failed', 'rolled back'),
    coreError('unreachable', 'the connection is gone', { details: { sqlstate: '53300' } }),
    new Error('a bug'),
  ])('writes do not count as refused with %s, which may not affect the next write', async (thrown) => {
    const { check, says, tried } = world();
    check.failed(thrown);
    expect(await says()).toBe('good');
    expect(tried()).toBe(0);
  });
});
