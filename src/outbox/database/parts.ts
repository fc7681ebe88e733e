/** Numbered migrations of the library's tables in a service's database, under the names that the
 *  service gives; later releases add migrations. A table that the service's own scripts created is
 *  accepted and upgraded. */

import { outboxJsonSql, outboxRecordSql, outboxTableSql } from '../append/table.ts';
import {
  effectsOneRunningSql,
  effectsRunnerEndsSql,
  effectsTableSql,
  effectsTraceSql,
} from '../effects/table.ts';
import { idempotencyTableSql } from '../idempotency/table.ts';
import { inboxTableSql, parkedDigestSql, parkedTableSql } from '../inbox/table.ts';
import type { Migration } from './migrations.ts';

/** Table names, each `name` or `schema.name`. */
export interface ServiceParts {
  readonly outboxTable?: string;
  readonly inbox?: string;
  /** Table of the records that the inbox's consumer quarantines. */
  readonly parkedTable?: string;
  /** Table of calls to third parties. */
  readonly effectsTable?: string;
  /** Table of the keys of idempotent endpoints. */
  readonly idempotencyTable?: string;
}

/** Wraps DDL in a check that the table is missing. `sql` creates the table in its first statement
 *  and contains no dollar sign. */
const whereMissing = (table: string, sql: string): string =>
  `DO $$ BEGIN\nIF to_regclass('${table}') IS NULL THEN\n${sql}END IF;\nEND $$;\n`;

type Part = readonly [table: string | undefined, ...scripts: ReadonlyArray<(table: string) => string>];

/** Migrations of each named part, and the owner that each is recorded under. @throws
 *  bad_table_name */
export function partMigrations({
  outboxTable,
  inbox,
  parkedTable,
  effectsTable,
  idempotencyTable,
}: ServiceParts): ReadonlyArray<{ readonly owner: string; readonly migrations: readonly Migration[] }> {
  const made = (sqlOf: (table: string) => string) => (table: string) => whereMissing(table, sqlOf(table));
  const parts: Readonly<Record<string, Part>> = {
    outbox: [outboxTable, made(outboxTableSql), outboxJsonSql, outboxRecordSql],
    inbox: [inbox, made(inboxTableSql)],
    parked: [parkedTable, made(parkedTableSql), parkedDigestSql],
    effects: [
      effectsTable,
      made(effectsTableSql),
      effectsTraceSql,
      effectsRunnerEndsSql,
      effectsOneRunningSql,
    ],
    idempotency: [idempotencyTable, made(idempotencyTableSql)],
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
