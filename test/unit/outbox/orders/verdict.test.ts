/** Classes of SQL errors, and the choice of the libpq driver. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import { whyNotNative } from '../../../../src/io/postgres/sql/pg-native.ts';
import { sqlError } from '../../../../src/io/postgres/sql/port.ts';
import { classifySqlError } from '../../../../src/outbox/orders/write/classify-sql-error.ts';

const refused = (sqlstate: string): Error => sqlError('sql_failed', 'no', { details: { sqlstate } });

describe('class of a failed transaction', () => {
  it.each([
    ['40P01', 'conflict'],
    ['40001', 'conflict'],
    ['55P03', 'key_locked'],
    ['57014', 'timeout'],
    ['53100', 'unavailable'],
    ['53200', 'unavailable'],
    ['58030', 'unavailable'],
    ['25006', 'unavailable'],
    ['57P03', 'unavailable'],
    ['23514', 'row'],
    ['23505', 'row'],
    ['22003', 'row'],
    ['42P01', 'bug'],
    ['42501', 'bug'],
  ])('the class of sqlstate %s is %s', (sqlstate, errorClass) => {
    expect(classifySqlError(refused(sqlstate))).toBe(errorClass);
  });

  it('the class distinguishes a statement that may have run from a statement that was never sent', () => {
    const lost = (sent: boolean): Error => coreError('unreachable', 'gone', { details: { sent } });
    expect([true, false].map((sent) => classifySqlError(lost(sent)))).toEqual(['unknown', 'unavailable']);
    expect(classifySqlError(sqlError('commit_unknown', 'gone'))).toBe('unknown');
  });

  it('an unknown error is a bug', () => {
    for (const thrown of [new TypeError('x'), 'text', undefined, sqlError('sql_failed', 'no')])
      expect(classifySqlError(thrown)).toBe('bug');
  });
});

describe('choice of the libpq driver', () => {
  it('the libpq driver leaves addresses that require TLS to pg', () => {
    const at = 'postgres://u@127.0.0.1/x';
    expect(whyNotNative(at, {})).toBeUndefined();
    expect(whyNotNative(`${at}?sslmode=disable`)).toBeUndefined();
    for (const more of [
      '?sslmode=require',
      '?ssl=true',
      '?sslrootcert=/x',
      '?application_name=a&sslmode=prefer',
    ])
      expect(whyNotNative(at + more)).toMatch(/TLS/);
  });

  it.each([
    [{ PGSSLMODE: 'require' }, /TLS \(PGSSLMODE\)/],
    [{ PGSSLMODE: 'prefer' }, /TLS \(PGSSLMODE\)/],
    [{ PGSSLROOTCERT: '/x' }, /TLS \(PGSSLROOTCERT\)/],
    [{ PGSSLCERT: '/x' }, /TLS \(PGSSLCERT\)/],
    [{ PGSSLKEY: '/x' }, /TLS \(PGSSLKEY\)/],
    [{ PGSSLNEGOTIATION: 'direct' }, /TLS \(PGSSLNEGOTIATION\)/],
    [{}, undefined],
    [{ PGSSLMODE: '' }, undefined],
    [{ PGSSLMODE: 'disable', PGSSLROOTCERT: '/x' }, undefined],
  ])('the libpq driver leaves an environment that requires TLS to pg: %j', (env, why) => {
    const at = 'postgres://u@127.0.0.1/x';
    if (why === undefined) expect(whyNotNative(at, env)).toBeUndefined();
    else expect(whyNotNative(at, env)).toMatch(why);
    // The address takes precedence, as with pg.
    expect(whyNotNative(`${at}?sslmode=disable`, env)).toBeUndefined();
  });
});
