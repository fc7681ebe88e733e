/** `-where` in Flink SQL: two values of logic, types of fields and forms of literals. */
import { expect, it } from 'vitest';
import { compileFilter } from '../../../../src/core/filter/compile.ts';
import type { FieldType, FlinkFields } from '../../../../src/engine/flink/fields.ts';
import { filterSql } from '../../../../src/engine/flink/filter.ts';

const TYPES: Readonly<Record<string, FieldType>> = {
  n: 'BIGINT',
  d: 'DOUBLE',
  f: 'FLOAT',
  s: 'STRING',
  b: 'BOOLEAN',
  x: 'other',
};
const source: FlinkFields = {
  columns: [],
  names: new Set(),
  reader: undefined,
  of: (path) => ({ sql: path.join('.'), type: TYPES[path[0] as string] as FieldType }),
};
const sql = (filter: string): string => filterSql(compileFilter(filter), source);

it.each([
  ['n = 1', 'COALESCE(n = 1, FALSE)'],
  ['n != 1', 'COALESCE(n <> 1, FALSE)'],
  ['not n > 1', 'NOT COALESCE(n > 1, FALSE)'],
  ['n > 0.25', 'COALESCE(n > 0.25, FALSE)'],
  ['n > 1e-7', 'COALESCE(n > 0.0000001, FALSE)'],
  ['n < 2.5e3', 'COALESCE(n < 2500, FALSE)'],
  ['n < 12345678901234567890', "COALESCE(n < CAST('12345678901234567890' AS DECIMAL(38, 0)), FALSE)"],
  ['d >= 3', "COALESCE(d >= CAST('3' AS DOUBLE), FALSE)"],
  ['f = 0.5', "COALESCE(CAST(f AS DOUBLE) = CAST('0.5' AS DOUBLE), FALSE)"],
  ['s = "it\'s"', "COALESCE(s = 'it''s', FALSE)"],
  ['s < "m"', "COALESCE(s < 'm', FALSE)"],
  ['b = true', 'COALESCE(b = TRUE, FALSE)'],
  ['n = "1"', 'FALSE'],
  ['s != 1', 'FALSE'],
  ['n = null', '(n IS NULL)'],
  ['x is not null', '(x IS NOT NULL)'],
  ['n in (1, "a", 2)', 'COALESCE(n IN (1, 2), FALSE)'],
  ['n in (1, null)', '(n IS NULL OR COALESCE(n IN (1), FALSE))'],
  ['n not in (1, null)', '(n IS NOT NULL AND NOT (n IS NULL OR COALESCE(n IN (1), FALSE)))'],
  ['n not in ("a")', '(n IS NOT NULL AND NOT FALSE)'],
  [
    'n = 1 and (s = "a" or b = false)',
    "(COALESCE(n = 1, FALSE) AND (COALESCE(s = 'a', FALSE) OR COALESCE(b = FALSE, FALSE)))",
  ],
])('the filter %s becomes %s', (filter, text) => {
  expect(sql(filter)).toBe(text);
});

it.each(['x = 1', 'b < true', 's > "\ue000"', 'd = 9007199254740992', `n = 1${'0'.repeat(38)}`])(
  'the filter %s is refused by the name of its field',
  (filter) => {
    expect(() => sql(filter)).toThrow(expect.objectContaining({ code: 'flink_unsupported' }));
  },
);
