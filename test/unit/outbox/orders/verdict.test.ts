/** Classification of a failed transaction by its error. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import { whyNotNative } from '../../../../src/io/postgres/sql/pg-native.ts';
import { sqlError } from '../../../../src/io/postgres/sql/port.ts';
import { verdictOf } from '../../../../src/outbox/orders/write/classify-sql-error.ts';

const refused = (sqlstate: string): Error => sqlError('sql_failed', 'no', { details: { sqlstate } });

describe('classification of a failed transaction', () => {
  it.each([
    ['40P01', 'again'],
    ['40001', 'again'],
    ['55P03', 'held'],
    ['57014', 'late'],
    ['53100', 'down'],
    ['53200', 'down'],
    ['58030', 'down'],
    ['25006', 'down'],
    ['57P03', 'down'],
    ['23514', 'row'],
    ['23505', 'row'],
    ['22003', 'row'],
    ['42P01', 'broken'],
    ['42501', 'broken'],
  ])('sqlstate %s is classified as %s', (sqlstate, verdict) => {
    expect(verdictOf(refused(sqlstate))).toBe(verdict);
  });

  it('the classification distinguishes a statement that may have run from a statement that was never sent', () => {
    const lost = (sent: boolean): Error => coreError('unreachable', 'gone', { details: { sent } });
    expect([true, false].map((sent) => verdictOf(lost(sent)))).toEqual(['unknown', 'down']);
    expect(verdictOf(sqlError('commit_unknown', 'gone'))).toBe('unknown');
  });

  it('an unknown error is classified as a bug', () => {
    for (const thrown of [new TypeError('x'), 'text', undefined, sqlError('sql_failed', 'no')])
      expect(verdictOf(thrown)).toBe('broken');
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
