/** Inbox: records which messages had their effect, in the same transaction as the effect.
 *
 *  Invariants: (1) an inbox row commits only with its effect; (2) an expired UUIDv7 is undecidable
 *  or seen, never unseen.
 *
 *  Proof of (2). A drop takes ACCESS EXCLUSIVE on the table, drops partitions, and raises the floor
 *  to their upper end, in one transaction. No remaining partition begins below the floor. A claim
 *  inserts first, which takes ROW EXCLUSIVE on the table until its transaction ends. The two locks
 *  conflict, so each drop either
 *  (a) committed before the claim's INSERT had its lock. Then the row of a dropped id lands in a
 *  partition without a time, because the partition of its time no longer exists. A later statement
 *  reads the floor and sees the drop; or
 *  (b) waits until the claim's transaction has ended. While it runs, no partition is dropped, and
 *  its result stays true.
 *  Therefore a row that lands in a partition by time is not below the floor, and needs no check. A
 *  transaction that is not READ COMMITTED reads all its statements in one snapshot, which may be
 *  older than the drop of (a). It locks the row of the floor, and PostgreSQL refuses that (40001)
 *  if the row has changed since.
 */
import { invariant } from '../../core/errors.ts';
import { GUARD, type GuardedSql, type OpenTransaction, queryInTransaction } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import { canonicalUuid } from '../ids.ts';
import { type InboxNames, inboxNames, isUuidV7 } from './names.ts';
import type { Claim, InboxPort, Once } from './port.ts';

/** Maximum number of ids in one claim. */
export const CLAIM_IDS_MAX = 100_000;

const NONE: ReadonlySet<string> = new Set();

/** Inbox of one table: tells which messages had their effect, inside the caller's transaction. It
 *  holds no connection and may be shared.
 */
export class Inbox implements InboxPort {
  readonly names: InboxNames;
  private readonly guarded: boolean;
  private readonly insertSql: GuardedSql;
  private readonly removeSql: string;
  private readonly floorSql: string;

  /** @param floor `ignored`: a UUIDv7 below the floor without a row is unseen; a late duplicate has
   *  its effect twice
   *  @throws bad_table_name */
  constructor(table = 'inbox', floor: 'guarded' | 'ignored' = 'guarded') {
    const names = inboxNames(table);
    this.names = names;
    this.guarded = floor === 'guarded';
    this.insertSql = insertSql(names);
    this.removeSql = `DELETE FROM ${names.table} WHERE msg_id = ANY ($1::uuid[]) RETURNING msg_id::text AS id`;
    this.floorSql = `SELECT floor::text AS floor, current_setting('transaction_isolation') AS isolation FROM ${names.floor}`;
  }

  /** Returns an inbox on the same table without the floor check. The caller must know from
   *  elsewhere that the effects did not take place. */
  withoutFloor(): Inbox {
    return new Inbox(this.names.table, 'ignored');
  }

  async claim(tx: OpenTransaction, msgIds: readonly string[]): Promise<Claim> {
    const ids = sortedIds(msgIds);
    if (ids.length === 0) return { unseen: NONE, seen: NONE, undecidable: NONE };
    const rows = await queryInTransaction(tx, this.insertSql, [ids]);
    const unseen = new Set<string>();
    const unchecked: string[] = [];
    for (const row of rows) {
      const id = row['id'] as string | null;
      if (id === null) continue;
      unseen.add(id);
      if (this.guarded && row['timeless'] === 'true' && isUuidV7(id)) unchecked.push(id);
    }
    const undecidable = unchecked.length === 0 ? NONE : await this.belowFloor(tx, unchecked);
    for (const id of undecidable) unseen.delete(id);
    const seen = new Set<string>();
    for (const id of ids) if (!unseen.has(id) && !undecidable.has(id)) seen.add(id);
    invariant(
      unseen.size + seen.size + undecidable.size === ids.length,
      'each claimed id is unseen, seen or undecidable',
    );
    return { unseen, seen, undecidable };
  }

  async once<T>(tx: OpenTransaction, msgId: string, effect: () => Promise<T>): Promise<Once<T>> {
    const { unseen, undecidable } = await this.claim(tx, [msgId]);
    if (unseen.size === 0) return { kind: undecidable.size > 0 ? 'undecidable' : 'seen' };
    try {
      return { kind: 'done', value: await effect() };
    } catch (thrown) {
      await abort(tx);
      throw thrown;
    }
  }

  /** Returns the ids below the floor; their rows are deleted again.
   *  @throws tables_missing */
  private async belowFloor(tx: OpenTransaction, ids: readonly string[]): Promise<ReadonlySet<string>> {
    const { rows } = await tx.query(this.floorSql, []);
    const [row] = rows;
    if (row === undefined) {
      throw outboxError(
        'tables_missing',
        `${this.names.floor} has no row, so it is unknown what was dropped`,
        {
          next: `put the row back with its last floor, or, where nothing was ever dropped: INSERT INTO ${this.names.floor} DEFAULT VALUES`,
        },
      );
    }
    if (row['isolation'] !== 'read committed') await tx.query(`${this.floorSql} FOR SHARE`, []);
    const floor = row['floor'] as string;
    const below = ids.filter((id) => id < floor);
    if (below.length === 0) return NONE;
    const removed = await tx.query(this.removeSql, [below]);
    invariant(removed.rows.length === below.length, 'an inbox row that this transaction inserted is gone');
    return new Set(below);
  }
}

/** Inserts the missing ids and returns them with the kind of their partition. The guarded form
 *  returns one row without an id when it inserted none. Names of columns have no underscore, so
 *  that clients which convert names to camel case leave them as they are. */
function insertSql(names: InboxNames): GuardedSql {
  // Sorted, so that transactions that share ids cannot deadlock.
  const insert = (guard: string): string => `
INSERT INTO ${names.table} (msg_id) SELECT msg_id FROM unnest($1::uuid[]) AS given(msg_id)${guard} ORDER BY msg_id
ON CONFLICT (msg_id) DO NOTHING
RETURNING msg_id::text AS id,
  (tableoid IN ('${names.low}'::regclass, '${names.high}'::regclass, '${names.rest}'::regclass))::text AS timeless`;
  return {
    plain: insert(''),
    guarded: `WITH ${GUARD}, claimed AS (${insert(', guard WHERE guard.open')})
SELECT guard.open::text AS open, claimed.id, claimed.timeless FROM guard LEFT JOIN claimed ON true`,
  };
}

const INBOXES = new Map<string, Inbox>();

/** Runs an effect unless the message had it already: `Inbox.once` of an inbox by its name. The
 *  effect and the inbox row commit or roll back together with the caller's transaction.
 *  @throws not_in_transaction, bad_message_id, tables_missing; errors of the effect, after which
 *    the transaction can only be rolled back
 *  @example
 *  const charge = 'INSERT INTO charges (id) VALUES ($1)';
 *  const result = await once(client, msgId, () => client.query(charge, [msgId]));
 *  if (result.kind === 'seen') console.log('a duplicate had no effect');
 */
export function once<T>(
  tx: OpenTransaction,
  msgId: string,
  effect: () => Promise<T>,
  table = 'inbox',
): Promise<Once<T>> {
  const inbox = INBOXES.get(table) ?? new Inbox(table);
  INBOXES.set(table, inbox);
  return inbox.once(tx, msgId, effect);
}

/** Returns the distinct ids in the order of PostgreSQL's uuid, which is that of the text.
 *  @throws bad_message_id */
function sortedIds(msgIds: readonly string[]): string[] {
  if (msgIds.length > CLAIM_IDS_MAX) {
    throw outboxError('bad_message_id', `a claim takes at most ${CLAIM_IDS_MAX} ids, not ${msgIds.length}`, {
      next: 'claim in several transactions',
    });
  }
  const ids = new Set<string>();
  for (const given of msgIds) {
    const id = typeof given === 'string' ? canonicalUuid(given) : undefined;
    if (id !== given) {
      throw outboxError(
        'bad_message_id',
        `${JSON.stringify(String(given).slice(0, 60))} is not a message id; nothing was written`,
        { next: 'give UUIDs as lower-case 8-4-4-4-12' },
      );
    }
    ids.add(id);
  }
  return [...ids].sort();
}

/** Aborts the transaction, so that COMMIT rolls back. */
async function abort(tx: OpenTransaction): Promise<void> {
  // Without dollar quotes, which some clients read as parameters.
  await tx.query(`DO 'BEGIN RAISE EXCEPTION ''the effect of a message failed''; END'`, []).catch(() => {});
}
