/** Names of tables and columns from configuration: each is quoted, or refused. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { columnName, quoted, tableName } from '../../../../src/outbox/reconcile/pairs/identifiers.ts';
import { runs } from '../../../tier.ts';

describe('tableName', () => {
  it.each([
    ['outbox', '"outbox"'],
    ['Outbox', '"outbox"'],
    ['shop.outbox', '"shop"."outbox"'],
    ['"My Shop"."Out""box"', '"My Shop"."Out""box"'],
    ['shop."Outbox"', '"shop"."Outbox"'],
    ['"a.b"', '"a.b"'],
  ])('the table %s is quoted as %s', (text, sql) => {
    expect(tableName(text, 'the table').sql).toBe(sql);
  });

  it.each([
    '',
    'outbox; DROP TABLE orders',
    'outbox WHERE true',
    'a.b.c',
    '"open',
    '""',
    'outbox"',
    '1outbox',
    'outbox--',
    "outbox'",
    '"a\0b"',
    'x'.repeat(64),
    `"${'é'.repeat(32)}"`,
  ])('the table %j is refused', (text) => {
    expect(() => tableName(text, 'the table')).toThrow(expect.objectContaining({ code: 'bad_value' }));
  });

  it('any accepted text becomes one or two complete quoted names', () => {
    const whole = /^(?:"(?:[^"]|"")+"\.)?"(?:[^"]|"")+"$/;
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('a', '"', '.', ' ', ';', '-', "'", 'Z', '\0', '1') }),
        (text) => {
          let sql: string;
          try {
            sql = tableName(text, 'the table').sql;
          } catch {
            return;
          }
          expect(sql).toMatch(whole);
        },
      ),
      { numRuns: runs(2000) },
    );
  });
});

describe('columnName', () => {
  it('a column name is folded unless it is quoted', () => {
    expect(columnName('Msg_Id', 'the column')).toBe('msg_id');
    expect(columnName('"Msg Id"', 'the column')).toBe('Msg Id');
  });

  it.each(['a.b', 'a b', '"a" b', ''])('the column %j is refused', (text) => {
    expect(() => columnName(text, 'the column')).toThrow(expect.objectContaining({ code: 'bad_value' }));
  });

  it('a quote within a name is doubled', () => {
    expect(quoted('a"; DROP TABLE x; --')).toBe('"a""; DROP TABLE x; --"');
  });
});
