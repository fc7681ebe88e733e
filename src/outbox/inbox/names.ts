/** Names of an inbox's tables, all made from one, and what the time in a UUIDv7 has to do with
 *  them.
 *
 *  An inbox is one table, partitioned by RANGE(msg_id). A UUIDv7 begins with its time, so a range
 *  of ids is a span of time:
 *
 *    NAME_low      ids below every plausible time        NAME_20261121_140000   one width of time, dropped when it is old
 *    NAME_high     ids above every plausible time        NAME_default           plausible times without a partition
 *    NAME_floor    one row: what was dropped             (nearly all ids of other versions lie in low and high)
 */

import { TABLE_NAME } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';

/** Room for the longest suffix within PostgreSQL's 63 bytes. */
const INBOX_NAME_CHARS_MAX = 40;

/** Times that a partition may stand for, ms since the epoch. Narrow, so that ids of other versions
 *  seldom lie between them: what lies in NAME_default is read whenever a partition is attached. */
export const TIME_FROM_MS = Date.UTC(2020, 0, 1);
export const TIME_TO_MS = Date.UTC(2100, 0, 1);

export interface InboxNames {
  /** As given, with its schema where it has one. */
  readonly table: string;
  readonly low: string;
  readonly high: string;
  readonly rest: string;
  readonly floor: string;
  /** Without schema. */
  readonly local: string;
  /** With the dot, or empty. */
  readonly schemaDot: string;
}

/** @throws bad_table_name */
export function plainTableName(name: string, what: string): string {
  if (typeof name === 'string' && TABLE_NAME.test(name)) return name;
  throw outboxError('bad_table_name', `${JSON.stringify(String(name).slice(0, 80))} is not ${what}`, {
    next: 'use name or schema.name, each of lower-case letters, digits and _ (at most 63, no digit first)',
  });
}

/** Returns the names of an inbox's table, partitions and floor.
 *  @param table `name` or `schema.name`
 *  @throws bad_table_name
 *  @example
 *  const { table, floor } = inboxNames('inbox');
 */
export function inboxNames(table: string): InboxNames {
  const name = plainTableName(table, 'a plain name of an inbox table');
  const local = name.slice(name.indexOf('.') + 1);
  if (local.length > INBOX_NAME_CHARS_MAX) {
    throw outboxError(
      'bad_table_name',
      `the inbox name ${local} has ${local.length} characters, at most ${INBOX_NAME_CHARS_MAX} leave room for the names of its partitions`,
      { next: 'use a shorter name' },
    );
  }
  return {
    table: name,
    low: `${name}_low`,
    high: `${name}_high`,
    rest: `${name}_default`,
    floor: `${name}_floor`,
    local,
    schemaDot: name.slice(0, name.length - local.length),
  };
}

/** Local name of the partition that begins at this time: NAME_20261121_140000. */
export function partitionName(names: InboxNames, fromMs: number): string {
  const [day, time] = new Date(fromMs).toISOString().slice(0, 19).split('T') as [string, string];
  return `${names.local}_${day.replaceAll('-', '')}_${time.replaceAll(':', '')}`;
}

/** The smallest UUID whose first 48 bits are this time. */
export function uuidAt(ms: number): string {
  const hex = Math.max(0, Math.floor(ms)).toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-0000-0000-000000000000`;
}

/** The first 48 bits of a canonical UUID: its time in ms where it is of version 7. */
export function leading48(uuid: string): number {
  return Number.parseInt(uuid.slice(0, 8) + uuid.slice(9, 13), 16);
}

/** Version 7 and the variant of RFC 9562; anything else in that shape has no time to judge by. */
export function isUuidV7(uuid: string): boolean {
  const variant = uuid[19] as string;
  return uuid[14] === '7' && variant >= '8' && variant <= 'b';
}

/** isUuidV7 in SQL, of a column; immutable, so that an index may use it, and known to every version
 *  of PostgreSQL. */
export const isUuidV7Sql = (column: string): string =>
  `(get_byte(uuid_send(${column}), 6) >> 4 = 7 AND get_byte(uuid_send(${column}), 8) >> 6 = 2)`;
