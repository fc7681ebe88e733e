/** SQL of a table of effects: claims, leases and outcomes.
 *
 *  Invariants: (1) an effect is claimed only if no earlier effect of its name and key is waiting or
 *  a dead letter that blocks, and no other is running; (2) every outcome is written under the owner
 *  and the attempt that was claimed, so an owner whose lease expired changes nothing. The clock of
 *  the database decides about all times.
 *
 *  Two claims at the same time read older states of the table. A redrive between them makes an
 *  earlier effect due, so each may find another first effect of one key. The unique index of
 *  effectsOneRunningSql refuses the second claim.
 */
import { findMillraceError } from '../../core/errors.ts';
import { refusedState, type SqlPool, type SqlSession } from '../../io/postgres/sql/port.ts';
import { hasColumn } from '../database/column-check.ts';
import type { Effect } from './handler.ts';
import type { ClaimKey } from './leases.ts';
import type { DeadReason, ExpiredAttempt, ExpiredOutcome } from './retry.ts';
import { effectsName } from './table.ts';

/** Effect that this owner has claimed. */
export interface Claimed extends Effect, ClaimKey {
  /** Time since the first attempt, ms. */
  readonly triedMs: number;
}

/** Attempt whose owner let the lease expire. */
export interface Expired extends ExpiredAttempt {
  readonly id: string;
  readonly name: string;
  readonly key: string;
}

/** Outcome of an expired attempt. `blocks`: a dead letter that blocks its key. */
export type ExpiredVerdict = ExpiredOutcome & { readonly blocks: boolean };

/** New state of an effect whose attempt has an outcome. */
export type Ending =
  | { readonly state: 'done'; readonly result: unknown }
  | { readonly state: 'waiting'; readonly delayMs: number; readonly error: string }
  | { readonly state: 'dead'; readonly reason: DeadReason; readonly error: string; readonly blocks: boolean };

interface ClaimedRow {
  readonly row: bigint;
  readonly effect_id: string;
  readonly key: string;
  readonly input: string;
  readonly attempts: number;
  readonly traceparent: string | null;
  readonly tracestate: string | null;
  readonly tried_ms: number;
}

interface ExpiredRow {
  readonly row: bigint;
  readonly effect_id: string;
  readonly name: string;
  readonly key: string;
  readonly attempts: number;
  readonly ends: number | null;
  readonly tried_ms: number;
}

const ERROR_CHARS_MAX = 2000;
const UNIQUE_VIOLATION = '23505';
const MS = `* interval '1 millisecond'`;
/** Condition: the row is still that of the claim in the first three parameters. */
const MINE = `id = $1::bigint AND owner = $2::uuid AND attempts = $3::int AND state = 'running'`;

const textOf = (message: string): string => message.slice(0, ERROR_CHARS_MAX).replaceAll('\u0000', ' ');

export class EffectStore {
  readonly table: string;
  private readonly pool: SqlPool;
  private readonly owner: string;

  /** @param owner UUID of this runner. @throws bad_table_name */
  constructor(pool: SqlPool, table: string, owner: string) {
    this.pool = pool;
    this.table = effectsName(table);
    this.owner = owner;
  }

  /** Claims due effects of a name, the longest due first. None, if another runner has claimed a key
   *  at the same time. */
  async claim(name: string, limit: number, leaseMs: number): Promise<readonly Claimed[]> {
    try {
      return await this.claimHeads(name, limit, leaseMs);
    } catch (thrown) {
      if (refusedState(findMillraceError(thrown)) === UNIQUE_VIOLATION) return [];
      throw thrown;
    }
  }

  private async claimHeads(name: string, limit: number, leaseMs: number): Promise<readonly Claimed[]> {
    const { table } = this;
    const state = (await this.has('tracestate')) ? 'tracestate' : 'NULL::text AS tracestate';
    const { rows } = await this.pool.query<ClaimedRow & Record<string, unknown>>(
      `WITH heads AS MATERIALIZED (
         SELECT e.id FROM ${table} e
         WHERE e.name = $1 AND e.state = 'waiting' AND e.due_at <= clock_timestamp()
           AND NOT EXISTS (SELECT FROM ${table} b WHERE b.name = e.name AND b.key = e.key AND b.id < e.id
             AND b.state <> 'done' AND (b.state <> 'dead' OR b.blocks))
           AND e.key <> ALL (ARRAY(SELECT r.key FROM ${table} r WHERE r.name = $1 AND r.state = 'running'))
         ORDER BY e.due_at, e.id LIMIT $2::int FOR UPDATE OF e SKIP LOCKED)
       UPDATE ${table} t SET state = 'running', owner = $3::uuid, attempts = attempts + 1,
         lease_until = clock_timestamp() + $4::float8 ${MS}, first_tried_at = coalesce(first_tried_at, clock_timestamp())
       FROM heads WHERE t.id = heads.id
       RETURNING t.id AS row, effect_id::text AS effect_id, key, input::text AS input, attempts, traceparent, ${state},
         (extract(epoch FROM clock_timestamp() - first_tried_at) * 1000)::float8 AS tried_ms`,
      [name, limit, this.owner, leaseMs],
    );
    return rows.map((row) => ({
      row: row.row,
      id: row.effect_id,
      name,
      key: row.key,
      input: JSON.parse(row.input),
      attempt: row.attempts,
      traceparent: row.traceparent ?? undefined,
      tracestate: row.tracestate ?? undefined,
      triedMs: row.tried_ms,
    }));
  }

  /** Renews the leases of these claims. Returns those that are still this owner's. */
  async renew(claims: readonly ClaimKey[], leaseMs: number): Promise<readonly ClaimKey[]> {
    const { rows } = await this.pool.query<{ row: bigint; attempt: number }>(
      `UPDATE ${this.table} t SET lease_until = clock_timestamp() + $2::float8 ${MS}
       FROM unnest($3::bigint[], $4::int[]) AS mine (id, attempt)
       WHERE t.id = mine.id AND t.attempts = mine.attempt AND t.state = 'running' AND t.owner = $1::uuid
         AND t.lease_until > clock_timestamp()
       RETURNING t.id AS row, t.attempts AS attempt`,
      [this.owner, leaseMs, claims.map(({ row }) => row), claims.map(({ attempt }) => attempt)],
    );
    return rows;
  }

  /** Ends some of the claims whose owners let their lease expire, as `judge` decides.
   *  @returns them with the new states; fewer than `limit` when no other is left */
  async endExpired(
    names: readonly string[],
    limit: number,
    judge: (expired: Expired) => ExpiredVerdict,
  ): Promise<ReadonlyArray<readonly [Expired, ExpiredVerdict]>> {
    const { table } = this;
    const counts = await this.has('runner_ends');
    return this.pool.transaction(async (tx) => {
      // A row that another runner has locked is ended by that runner.
      const { rows } = await tx.query<ExpiredRow & Record<string, unknown>>(
        `SELECT id AS row, effect_id::text AS effect_id, name, key, attempts, ${counts ? 'runner_ends + 1' : 'NULL::int'} AS ends,
           (extract(epoch FROM clock_timestamp() - first_tried_at) * 1000)::float8 AS tried_ms
         FROM ${table} WHERE state = 'running' AND lease_until < clock_timestamp() AND name = ANY ($1::text[])
         ORDER BY lease_until LIMIT $2::int FOR UPDATE SKIP LOCKED`,
        [names, limit],
      );
      const ended = rows.map((row) => {
        const expired = {
          ...{ id: row.effect_id, name: row.name, key: row.key, attempt: row.attempts },
          triedMs: row.tried_ms,
          runnerEnds: row.ends ?? undefined,
        };
        return [expired, judge(expired)] as const;
      });
      if (ended.length === 0) return ended;
      const verdicts = ended.map(([, verdict]) => verdict);
      await tx.query(
        `UPDATE ${table} t SET owner = NULL, lease_until = NULL, state = g.state, reason = g.reason, error = g.error,
           blocks = g.blocks, due_at = clock_timestamp() + g.delay_ms ${MS}${counts ? ', runner_ends = t.runner_ends + 1' : ''}
         FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::boolean[], $6::float8[])
           AS g (id, state, reason, error, blocks, delay_ms) WHERE t.id = g.id`,
        [
          rows.map(({ row }) => row),
          verdicts.map(({ state }) => state),
          verdicts.map((verdict) => (verdict.state === 'dead' ? verdict.reason : null)),
          verdicts.map(({ error }) => textOf(error)),
          verdicts.map(({ blocks }) => blocks),
          verdicts.map((verdict) => (verdict.state === 'dead' ? 0 : verdict.delayMs)),
        ],
      );
      return ended;
    });
  }

  /** Marks an effect as done, with the local consequence in the same transaction. False: another
   *  owner has it, and nothing was written. */
  async finish(
    claimed: Claimed,
    result: string | null,
    consequence: (tx: SqlSession) => Promise<void>,
  ): Promise<boolean> {
    let isMine = false;
    await this.pool.transaction(async (tx) => {
      const { rowCount } = await tx.query(
        `UPDATE ${this.table} SET state = 'done', owner = NULL, lease_until = NULL, result = $4::text::json,
           error = NULL, ended_at = clock_timestamp() WHERE ${MINE}`,
        [...this.claimOf(claimed), result],
      );
      isMine = rowCount === 1;
      if (isMine) await consequence(tx);
    });
    return isMine;
  }

  /** Schedules the next attempt. False: another owner has the effect. */
  async retry(claimed: Claimed, delayMs: number, error: string): Promise<boolean> {
    const count = (await this.has('runner_ends')) ? 'runner_ends = 0, ' : '';
    const { rowCount } = await this.pool.query(
      `UPDATE ${this.table} SET state = 'waiting', owner = NULL, lease_until = NULL, error = $5, ${count}
         due_at = clock_timestamp() + $4::float8 ${MS} WHERE ${MINE}`,
      [...this.claimOf(claimed), delayMs, textOf(error)],
    );
    return rowCount === 1;
  }

  /** Makes the effect a dead letter. False: another owner has it. */
  async bury(claimed: Claimed, reason: DeadReason, error: string, blocks: boolean): Promise<boolean> {
    const { rowCount } = await this.pool.query(
      `UPDATE ${this.table} SET state = 'dead', owner = NULL, lease_until = NULL, reason = $4, error = $5,
         blocks = $6::boolean WHERE ${MINE}`,
      [...this.claimOf(claimed), reason, textOf(error), blocks],
    );
    return rowCount === 1;
  }

  /** True when the row has this ending of the claimed attempt: a statement without an answer has
   *  taken effect. */
  async hasEnding({ row, attempt }: Claimed, ending: Ending): Promise<boolean> {
    const error = ending.state === 'done' ? null : textOf(ending.error);
    const { rows } = await this.pool.query(
      `SELECT id FROM ${this.table} WHERE id = $1::bigint AND attempts = $2::int AND state = $3
         AND error IS NOT DISTINCT FROM $4::text`,
      [row, attempt, ending.state, error],
    );
    return rows.length === 1;
  }

  /** Deletes some of the effects that were done before this time, without those that another runner
   *  deletes. Returns their number. */
  async prune(olderThanMs: number, rowsMax: number): Promise<number> {
    const { table } = this;
    const { rowCount } = await this.pool.query(
      `DELETE FROM ${table} WHERE id = ANY (ARRAY(SELECT id FROM ${table} WHERE state = 'done'
         AND ended_at < clock_timestamp() - $1::float8 ${MS} ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED))`,
      [olderThanMs, rowsMax],
    );
    return rowCount;
  }

  /** Counts effects by name and state, except those that are done. A dead letter that does not
   *  block its key counts as `released`. */
  async counts(): Promise<
    ReadonlyArray<{ readonly name: string; readonly state: string; readonly n: number }>
  > {
    const { rows } = await this.pool.query<{ name: string; state: string; n: bigint }>(
      `SELECT name, CASE WHEN state = 'dead' AND NOT blocks THEN 'released' ELSE state END AS state, count(*) AS n
       FROM ${this.table} WHERE state <> 'done' GROUP BY 1, 2`,
    );
    return rows.map(({ name, state, n }) => ({ name, state, n: Number(n) }));
  }

  /** True when the table has the column: a table of an earlier release lacks some. */
  private has(column: string): Promise<boolean> {
    return hasColumn(this.pool, this.table, column);
  }

  private claimOf({ row, attempt }: Claimed): readonly [bigint, string, number] {
    return [row, this.owner, attempt];
  }
}
