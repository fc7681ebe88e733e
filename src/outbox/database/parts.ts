/** The library's own tables of a service, by the names that the service gives them, as numbered migrations that later releases add to.
 *  A table that the service's scripts made is taken as it is and brought up to date. */

import { outboxJsonSql, outboxTableSql } from '../append/table.ts';
import { inboxTableSql, parkedDigestSql, parkedTableSql } from '../inbox/table.ts';
import type { Migration } from './migrations.ts';

/** Tables by `name` or `schema.name`. */
export interface ServiceParts {
  readonly outboxTable?: string;
  readonly inbox?: string;
  /** Of records that the inbox's consumer sets aside. */
  readonly parkedTable?: string;
}

/** `sql` makes the table first, and nothing of it holds a dollar sign. */
const whereMissing = (table: string, sql: string): string =>
  `DO $$ BEGIN\nIF to_regclass('${table}') IS NULL THEN\n${sql}END IF;\nEND $$;\n`;

type Part = readonly [table: string | undefined, ...scripts: ReadonlyArray<(table: string) => string>];

/** The scripts of each part that is named, with whom they are applied for. @throws bad_table_name */
export function partMigrations({
  outboxTable,
  inbox,
  parkedTable,
}: ServiceParts): ReadonlyArray<{ readonly owner: string; readonly migrations: readonly Migration[] }> {
  const made = (sqlOf: (table: string) => string) => (table: string) => whereMissing(table, sqlOf(table));
  const parts: Readonly<Record<string, Part>> = {
    outbox: [outboxTable, made(outboxTableSql), outboxJsonSql],
    inbox: [inbox, made(inboxTableSql)],
    parked: [parkedTable, made(parkedTableSql), parkedDigestSql],
  };
  return Object.entries(parts).flatMap(([part, [table, ...scripts]]) => {
    if (table === undefined) return [];
    const migrations = scripts.map((sqlOf, index) => ({
      number: index + 1,
      name: `${part} ${table} ${index + 1}`,
      sql: sqlOf(table),
    }));
    return [{ owner: `${part} ${table}`, migrations }];
  });
}
