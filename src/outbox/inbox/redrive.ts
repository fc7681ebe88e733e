/** Redrives parked records after the cause was fixed. Each record has its own transaction, which
 *  applies its effect and deletes it from the table. Records come in the order of their partition.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { SqlPool, SqlRow, SqlSession } from '../../io/postgres/sql/port.ts';
import { outboxError } from '../errors.ts';
import { canonicalUuid } from '../ids.ts';
import { type ClientWork, runInClient, type TransactionRunner } from './client-transaction.ts';
import { plainTableName } from './names.ts';
import type { Inbox } from './once.ts';
import { PARKED_BYTES_MAX } from './parked.ts';
import type { InboxRecord, ParkReason } from './port.ts';

export interface RedriveOptions<T = SqlSession> {
  readonly pool: SqlPool;
  /** The consumer's own runner, if it has one. */
  readonly transaction?: TransactionRunner<T> | undefined;
  readonly inbox: Inbox;
  readonly parkedTable: string;
  readonly reasons: readonly ParkReason[];
  /** The consumer's own handler. A record that fails again stays parked, with the new error. */
  readonly handle: (session: T, record: InboxRecord) => Promise<void>;
  /** Required to redrive undecidable records: confirms that their effects are known to be missing.
   */
  readonly undecidableAreMissing?: boolean;
  readonly log: Logger;
}

export interface Redriven {
  /** Records whose effect was applied now. */
  readonly done: number;
  /** Records whose effect took place before; deleted from the table. */
  readonly seen: number;
  /** Records that failed again or were truncated when they were parked; they stay in the table. */
  readonly left: number;
}

interface ParkedRow extends SqlRow {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  readonly digest: Uint8Array;
  readonly msg_id: string | null;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: string;
  readonly parked_at: Date;
}

const COLUMNS = 'topic, partition, "offset", digest, msg_id, key, value, headers::text AS headers, parked_at';
/** Condition on the key of a row, which is in the first parameters. */
const THIS_ROW = 'topic = $1::text AND partition = $2::int AND "offset" = $3::bigint AND digest = $4::bytea';
const DETAIL_CHARS_MAX = 1000;

/** Processes parked records of the given reasons again, one transaction each, and deletes those
 *  that succeed. A run that ends early can be repeated.
 *  @returns how many had their effect now, had it before, and are still parked
 *  @throws bad_table_name, bad_event for reasons that cannot be redriven like this; unreachable,
 *    sql_failed
 *  @example
 *  const { done, seen, left } = await redriveParked({
 *    pool,
 *    inbox: new Inbox('inbox'),
 *    parkedTable: 'parked',
 *    reasons: ['refused'],
 *    handle: applyParcel,
 *    log,
 *  });
 */
export async function redriveParked<T = SqlSession>(options: RedriveOptions<T>): Promise<Redriven> {
  const { pool, transaction, reasons, log } = options;
  const table = plainTableName(options.parkedTable, 'a plain name of a table of parked records');
  if (reasons.includes('undecidable') && options.undecidableAreMissing !== true) {
    throw outboxError('bad_event', 'undecidable records may have had their effects', {
      next: 'find out which are missing, delete the others from the table, and set undecidableAreMissing',
    });
  }
  const sums = { done: 0, seen: 0, left: 0 };
  let after = keyOf({ topic: '', partition: -1, offset: -1n, digest: new Uint8Array() });
  for (;;) {
    const { rows } = await pool.query<ParkedRow>(
      `SELECT ${COLUMNS} FROM ${table} WHERE reason = ANY ($1::text[]) AND (topic, partition, "offset", digest) > ($2, $3::int, $4::bigint, $5::bytea)
       ORDER BY topic, partition, "offset", digest LIMIT 1`,
      [[...reasons], ...after],
    );
    const [row] = rows;
    if (row === undefined) return sums;
    after = keyOf(row);
    try {
      const kind =
        transaction === undefined
          ? await pool.transaction((session) =>
              redriveOne(
                { tx: session, own: session as T, effect: (call) => call() },
                { table, row, options },
              ),
            )
          : await runInClient(transaction, (client) => redriveOne(client, { table, row, options }));
      if (kind !== undefined) sums[kind]++;
    } catch (thrown) {
      if (findMillraceError(thrown)?.kind === 'unavailable') throw thrown;
      sums.left++;
      const detail = (thrown instanceof Error ? thrown.message : String(thrown)).slice(0, DETAIL_CHARS_MAX);
      log.warn({ ...place(row), error: detail }, 'parked record failed again');
      await pool.query(`UPDATE ${table} SET detail = $5 WHERE ${THIS_ROW}`, [
        ...after,
        detail.replaceAll('\u0000', ' '),
      ]);
    }
  }
}

type Key = Pick<ParkedRow, 'topic' | 'partition' | 'offset' | 'digest'>;

const keyOf = ({ topic, partition, offset, digest }: Key) => [topic, partition, offset, digest] as const;

const place = (row: ParkedRow) => ({
  topic: row.topic,
  partition: row.partition,
  offset: row.offset.toString(),
});

/** Redrives one record. Undefined: another redrive already deleted it. */
async function redriveOne<T>(
  { tx, own, effect }: ClientWork<T>,
  {
    table,
    row,
    options,
  }: { readonly table: string; readonly row: ParkedRow; readonly options: RedriveOptions<T> },
): Promise<'done' | 'seen' | undefined> {
  const { inbox, handle, undecidableAreMissing } = options;
  const { rows } = await tx.query(`DELETE FROM ${table} WHERE ${THIS_ROW} RETURNING topic`, [...keyOf(row)]);
  if (rows.length === 0) return undefined;
  const record = recordOf(row);
  const effective = undecidableAreMissing === true ? inbox.withoutFloor() : inbox;
  const once = await effective.once(tx, record.msgId, () => effect(() => handle(own, record)));
  if (once.kind === 'undecidable')
    throw outboxError('poison_record', 'the id is older than the floor of the inbox');
  return once.kind;
}

function recordOf(row: ParkedRow): InboxRecord {
  const msgId = canonicalUuid(row.msg_id ?? '');
  if (msgId === undefined) throw outboxError('poison_record', 'the record has no message id');
  if ((row.key?.length ?? 0) >= PARKED_BYTES_MAX || (row.value?.length ?? 0) >= PARKED_BYTES_MAX)
    throw outboxError(
      'poison_record',
      `the table keeps ${PARKED_BYTES_MAX} bytes of a record, not all of this one`,
    );
  const headers = JSON.parse(row.headers) as ReadonlyArray<readonly [string, string | null]>;
  return {
    topic: row.topic,
    partition: row.partition,
    offset: row.offset,
    msgId,
    key: row.key,
    value: row.value,
    timestampMs: row.parked_at.getTime(),
    headers: headers.map(([name, value]) => [name, value === null ? null : Buffer.from(value, 'base64')]),
  };
}
