/** Names of an inbox's tables, all derived from one name, and the time in a UUIDv7.
 *
 *  An inbox is one table, partitioned by RANGE(msg_id). A UUIDv7 begins with its time, so a range
 *  of ids is a range of time:
 *
 *    NAME_low               ids below every plausible time
 *    NAME_high              ids above every plausible time
 *    NAME_20261121_140000   one width of time, dropped when it is old
 *    NAME_default           plausible times without a partition
 *    NAME_floor             one row: the upper end of the dropped times
 *
 *  Nearly all ids of other versions lie in low and high.
 */

import { TABLE_NAME } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';

/** Leaves room for the longest suffix within PostgreSQL's 63 bytes. */
const INBOX_NAME_CHARS_MAX = 40;

/** Range of plausible times, ms since the epoch. The range is narrow, so that few ids of other
 *  versions lie in it: attaching a partition scans NAME_default. */
export const TIME_FROM_MS = Date.UTC(2020, 0, 1);
export const TIME_TO_MS = Date.UTC(2100, 0, 1);

export interface InboxNames {
  /** Name as given, with its schema if it has one. */
  readonly table: string;
  readonly low: string;
  readonly high: string;
  readonly rest: string;
  readonly floor: string;
  /** Name without the schema. */
  readonly local: string;
  /** Schema with its dot, or empty. */
  readonly schemaDot: string;
}

/** Returns `name` if SQL text can contain it without quotes.
 *  @param what description of a valid name, for the error text
 *  @throws bad_table_name */
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

/** Returns the local name of the partition that begins at this time: NAME_20261121_140000. */
export function partitionName(names: InboxNames, fromMs: number): string {
  const [day, time] = new Date(fromMs).toISOString().slice(0, 19).split('T') as [string, string];
  return `${names.local}_${day.replaceAll('-', '')}_${time.replaceAll(':', '')}`;
}

/** Returns the smallest UUID whose first 48 bits are this time. */
export function uuidAt(ms: number): string {
  const hex = Math.max(0, Math.floor(ms)).toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-0000-0000-000000000000`;
}

/** Returns the first 48 bits of a canonical UUID: the time of a UUIDv7, ms. */
export function leading48(uuid: string): number {
  return Number.parseInt(uuid.slice(0, 8) + uuid.slice(9, 13), 16);
}

/** True for version 7 with the variant of RFC 9562. UUIDs of other versions have no time. */
export function isUuidV7(uuid: string): boolean {
  const variant = uuid[19] as string;
  return uuid[14] === '7' && variant >= '8' && variant <= 'b';
}

/** SQL condition: isUuidV7 of a column. It is immutable, so that an index may use it, and works in
 *  every version of PostgreSQL. */
export const isUuidV7Sql = (column: string): string =>
  `(get_byte(uuid_send(${column}), 6) >> 4 = 7 AND get_byte(uuid_send(${column}), 8) >> 6 = 2)`;
