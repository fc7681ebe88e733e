/** Dead letters of a table of effects: lists them, redrives them under their ids, and lets later
 *  effects of their keys pass. */
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import { hasColumn } from '../database/column-check.ts';
import { outboxError } from '../errors.ts';
import { canonicalUuid } from '../ids.ts';
import type { DeadReason } from './retry.ts';
import { effectsName } from './table.ts';

export const DEAD_REASONS: readonly DeadReason[] = ['refused', 'budget', 'unknown_outcome', 'runner_ended'];

/** Choice of dead letters; each absent field admits all. */
export interface DeadFilter {
  readonly names?: readonly string[];
  readonly keys?: readonly string[];
  readonly reasons?: readonly DeadReason[];
  readonly ids?: readonly string[];
}

export interface DeadEffect {
  readonly id: string;
  readonly name: string;
  readonly key: string;
  readonly reason: DeadReason;
  readonly error: string;
  readonly attempts: number;
  /** True while later effects of its key wait for it. */
  readonly blocks: boolean;
  /** Number of later effects of its key that are not done. */
  readonly behind: number;
  readonly createdAt: Date;
}

/** Rows that one statement changes. */
const CHUNK_ROWS = 1000;

const WHERE = `state = 'dead' AND ($1::text[] IS NULL OR name = ANY ($1::text[])) AND ($2::text[] IS NULL OR key = ANY ($2::text[]))
  AND ($3::text[] IS NULL OR reason = ANY ($3::text[])) AND ($4::uuid[] IS NULL OR effect_id = ANY ($4::uuid[]))`;

type Parameters = readonly [
  names: readonly string[] | null,
  keys: readonly string[] | null,
  reasons: readonly string[] | null,
  ids: readonly string[] | null,
];

/** @throws bad_option */
function parametersOf({ names, keys, reasons, ids }: DeadFilter): Parameters {
  const wrong = ids?.find((id) => canonicalUuid(id) === undefined);
  if (wrong !== undefined)
    throw outboxError('bad_option', `${JSON.stringify(wrong.slice(0, 60))} is not the id of an effect`, {
      next: 'give UUIDs, as the list of dead letters shows them',
    });
  const unknown = reasons?.find((reason) => !DEAD_REASONS.includes(reason));
  if (unknown !== undefined)
    throw outboxError('bad_option', `there is no reason ${JSON.stringify(unknown)}`, {
      next: `give one of ${DEAD_REASONS.join(', ')}`,
    });
  return [names ?? null, keys ?? null, reasons ?? null, ids ?? null];
}

/** Lists dead letters, the oldest first.
 *  @throws bad_table_name, bad_option, tables_missing; unreachable, sql_failed
 *  @example
 *  for (const { id, error } of await listDeadEffects(pool, 'effects')) console.log(id, error);
 */
export async function listDeadEffects(
  pool: SqlPool,
  table: string,
  filter: DeadFilter = {},
  limit = CHUNK_ROWS,
): Promise<readonly DeadEffect[]> {
  const parameters = parametersOf(filter);
  const name = await requireEffects(pool, table);
  const { rows } = await pool.query<{
    effect_id: string;
    name: string;
    key: string;
    reason: DeadReason;
    error: string | null;
    attempts: number;
    blocks: boolean;
    behind: bigint;
    created_at: Date;
  }>(
    `SELECT effect_id::text AS effect_id, name, key, reason, error, attempts, blocks, created_at,
       (SELECT count(*) FROM ${name} l WHERE l.name = e.name AND l.key = e.key AND l.id > e.id AND l.state <> 'done') AS behind
     FROM ${name} e WHERE ${WHERE} ORDER BY id LIMIT $5::int`,
    [...parameters, limit],
  );
  return rows.map((row) => ({
    id: row.effect_id,
    name: row.name,
    key: row.key,
    reason: row.reason,
    error: row.error ?? '',
    attempts: row.attempts,
    blocks: row.blocks,
    behind: Number(row.behind),
    createdAt: row.created_at,
  }));
}

/** Makes dead letters due again, with a new budget and their own ids, so that the third party
 *  recognizes what it has done before. A run that ends early can be repeated.
 *  @param unknownWereNotDone required for letters of unknown outcome: confirms that the third party
 *    has not acted
 *  @returns their number
 *  @throws bad_table_name, bad_option, tables_missing; unreachable, sql_failed
 *  @example
 *  await redriveEffects(pool, 'effects', { names: ['capture'], reasons: ['budget'] });
 */
export async function redriveEffects(
  pool: SqlPool,
  table: string,
  filter: DeadFilter,
  unknownWereNotDone = false,
): Promise<number> {
  const all = filter.reasons ?? DEAD_REASONS;
  const reasons = unknownWereNotDone ? all : all.filter((reason) => reason !== 'unknown_outcome');
  if (reasons.length === 0)
    throw outboxError('bad_option', 'effects of unknown outcome may have been done', {
      next: 'ask the third party about their ids, and set unknownWereNotDone for those that it does not know',
    });
  const count = (await hasColumn(pool, effectsName(table), 'runner_ends')) ? ', runner_ends = 0' : '';
  return changeAll(
    pool,
    table,
    { ...filter, reasons },
    `state = 'waiting', attempts = 0, first_tried_at = NULL, reason = NULL, blocks = true, due_at = clock_timestamp()${count}`,
  );
}

/** Lets later effects of the keys pass their dead letters, which stay and can be redriven.
 *  @returns the number of letters that blocked
 *  @throws bad_table_name, bad_option, tables_missing; unreachable, sql_failed
 *  @example
 *  await releaseEffects(pool, 'effects', { keys: [accountId] });
 */
export function releaseEffects(pool: SqlPool, table: string, filter: DeadFilter): Promise<number> {
  return changeAll(pool, table, filter, 'blocks = false', 'AND blocks');
}

/** Checks that the table exists, for an error that names it. @throws tables_missing */
async function requireEffects(pool: SqlPool, table: string): Promise<string> {
  const name = effectsName(table);
  const { rows } = await pool.query<{ found: boolean }>('SELECT to_regclass($1) IS NOT NULL AS found', [
    name,
  ]);
  if (rows[0]?.found === true) return name;
  throw outboxError('tables_missing', `there is no table ${name} in this database`, {
    next: 'name the table with -schema and -table, or create it with effectsTableSql',
  });
}

async function changeAll(
  pool: SqlPool,
  table: string,
  filter: DeadFilter,
  set: string,
  where = '',
): Promise<number> {
  const parameters = parametersOf(filter);
  const name = await requireEffects(pool, table);
  for (let sum = 0; ; ) {
    const { rowCount } = await pool.query(
      `UPDATE ${name} SET ${set} WHERE id = ANY (ARRAY(
         SELECT id FROM ${name} WHERE ${WHERE} ${where} ORDER BY id LIMIT ${CHUNK_ROWS} FOR UPDATE))`,
      [...parameters],
    );
    sum += rowCount;
    if (rowCount < CHUNK_ROWS) return sum;
  }
}
