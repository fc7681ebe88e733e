/** Interleaves a claim and a drop at each statement of either: an id whose row was dropped is never
 *  reported as unseen. */

import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import type { SqlSession } from '../../src/io/postgres/sql/port.ts';
import { Inbox } from '../../src/outbox/inbox/once.ts';
import {
  dropPartitions,
  listPartitions,
  makePartitions,
  readFloorMs,
} from '../../src/outbox/inbox/retention/partitions.ts';
import { connectPool } from '../fixtures/database.ts';
import { gated, HOUR_MS, idAt, inboxWorld, settledOrBlocked, T0 } from './inbox-kit.ts';

const world = await inboxWorld();
const inbox = new Inbox('inbox');

type Isolation = 'READ COMMITTED' | 'REPEATABLE READ' | 'SERIALIZABLE';

interface Verdict {
  readonly known: string;
  readonly fresh: string;
}

/** Upper bound of the statements of a claim and of a drop. */
const STEPS_MAX = 24;
let nextHour = 0;

/** Creates one hour with a known id and a later hour for a fresh id. Hours of earlier rounds
 *  remain. */
async function round() {
  const fromMs = T0 + nextHour * HOUR_MS;
  nextHour += 2;
  await makePartitions(world.pool, inbox.names, { fromMs, toMs: fromMs + 2 * HOUR_MS, widthMs: HOUR_MS });
  const known = idAt(fromMs + 5);
  await world.pool.transaction((session) => inbox.claim(session, [known]));
  return { cutoffMs: fromMs + HOUR_MS, known, fresh: idAt(fromMs + HOUR_MS + 7) };
}

async function claimIn(
  session: SqlSession,
  isolation: Isolation,
  known: string,
  fresh: string,
): Promise<Verdict> {
  await session.query(`SET TRANSACTION ISOLATION LEVEL ${isolation}`);
  // A service has run statements before the claim, so the snapshot of its transaction is older than
  // the claim.
  await session.query('SELECT count(*) FROM pg_class');
  const claim = await inbox.claim(session, [known, fresh]);
  await session.query('SELECT 1');
  const kindOf = (id: string): string =>
    claim.unseen.has(id) ? 'unseen' : claim.seen.has(id) ? 'seen' : 'undecidable';
  return { known: kindOf(known), fresh: kindOf(fresh) };
}

/** Returns `busy` if the work failed with a lock timeout, a deadlock or a serialization failure and
 *  committed nothing. */
async function outcome<T>(work: Promise<T>): Promise<T | 'busy'> {
  try {
    return await work;
  } catch (thrown) {
    const sqlstate = findMillraceError(thrown)?.details['sqlstate'];
    if (sqlstate === '55P03' || sqlstate === '40001' || sqlstate === '40P01') return 'busy';
    throw thrown;
  }
}

/** Runs `first` up to its statement `at`, then `second` until it ends or waits for a lock, then
 *  both to their ends. `reached` is false if `first` has no statement `at`. */
async function interleave<A, B>(
  at: number,
  first: (gate: (session: SqlSession) => SqlSession) => Promise<A>,
  second: () => Promise<B>,
): Promise<{ readonly reached: boolean; readonly first: A | 'busy'; readonly second: B | 'busy' }> {
  let reached = false;
  let other: Promise<B | 'busy'> | undefined;
  const a = await outcome(
    first((session) =>
      gated(session, async (step) => {
        if (step !== at) return;
        reached = true;
        let isDone = false;
        other = outcome(second()).finally(() => {
          isDone = true;
        });
        other.catch(() => {});
        await settledOrBlocked(world, () => isDone);
      }),
    ),
  );
  const b = await (other ?? outcome(second()));
  return { reached, first: a, second: b };
}

async function check(known: string, fresh: string, claim: Verdict | 'busy'): Promise<void> {
  if (claim !== 'busy') {
    expect(['seen', 'undecidable']).toContain(claim.known);
    expect(claim.fresh).toBe('unseen');
  }
  const again = await world.pool.transaction((session) => inbox.claim(session, [known, fresh]));
  expect(again.unseen.has(known)).toBe(false);
  expect(again.unseen.has(fresh)).toBe(claim === 'busy');
}

describe.each<Isolation>(['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])(
  'claim at %s',
  (isolation) => {
    it('a claim stopped before each of its statements never reports a dropped id as unseen during a drop', async () => {
      const seen = new Set<string>();
      for (let at = 0; at < STEPS_MAX; at++) {
        const { cutoffMs, known, fresh } = await round();
        const run = await interleave(
          at,
          (gate) => world.pool.transaction((session) => claimIn(gate(session), isolation, known, fresh)),
          () => world.pool.transaction((session) => dropPartitions(session, inbox.names, cutoffMs)),
        );
        await check(known, fresh, run.first);
        seen.add(run.first === 'busy' ? 'busy' : run.first.known);
        if (!run.reached) break;
      }
      // Both outcomes occurred: the drop came first, and the claim came first.
      expect(seen).toContain('seen');
      expect([...seen].some((one) => one === 'undecidable' || one === 'busy')).toBe(true);
    });

    it('a claim during a drop stopped before each of its statements never reports a dropped id as unseen', async () => {
      const seen = new Set<string>();
      for (let at = 0; at < STEPS_MAX; at++) {
        const { cutoffMs, known, fresh } = await round();
        const run = await interleave(
          at,
          (gate) => world.pool.transaction((session) => dropPartitions(gate(session), inbox.names, cutoffMs)),
          () => world.pool.transaction((session) => claimIn(session, isolation, known, fresh)),
        );
        await check(known, fresh, run.second);
        seen.add(run.second === 'busy' ? 'busy' : run.second.known);
        if (!run.reached) break;
      }
      expect(seen).toContain('seen');
      expect([...seen].some((one) => one === 'undecidable' || one === 'busy')).toBe(true);
    });
  },
);

describe('partition creation during a drop', () => {
  it('a partition created during a drop never begins below the floor, even if the default isolation is repeatable read', async () => {
    const pool = await connectPool(`${world.url}%20-c%20default_transaction_isolation=repeatable%5C%20read`, {
      name: world.schema,
    });
    try {
      const { rows } = await pool.query('SHOW transaction_isolation');
      expect(rows).toEqual([{ transaction_isolation: 'repeatable read' }]);
      for (let at = 0; at < STEPS_MAX; at++) {
        const fromMs = T0 + nextHour * HOUR_MS;
        nextHour += 2;
        const span = { fromMs, toMs: fromMs + 2 * HOUR_MS, widthMs: HOUR_MS };
        // The second hour exists and is dropped while the first hour is created.
        await makePartitions(pool, inbox.names, { ...span, fromMs: fromMs + HOUR_MS });
        const run = await interleave(
          at,
          (gate) =>
            makePartitions(
              {
                query: (text, params) => pool.query(text, params),
                copyIn: (table, columns, copied) => pool.copyIn(table, columns, copied),
                transaction: (work) => pool.transaction((session) => work(gate(session))),
                systemIdentifier: () => pool.systemIdentifier(),
                close: () => pool.close(),
              },
              inbox.names,
              span,
            ),
          () => pool.transaction((session) => dropPartitions(session, inbox.names, span.toMs)),
        );
        const floorMs = await readFloorMs(pool, inbox.names);
        const left = await listPartitions(pool, inbox.names);
        expect(left.filter((one) => one.fromMs < floorMs)).toEqual([]);
        if (!run.reached) break;
      }
    } finally {
      await pool.close();
    }
  });
});

describe('partition attachment during a claim', () => {
  it('an attached partition gets the rows of the default partition, and no claim fails at its range', async () => {
    for (let at = 0; at < STEPS_MAX; at++) {
      const fromMs = T0 + nextHour++ * HOUR_MS;
      const known = idAt(fromMs + 5);
      const other = idAt(fromMs + 6);
      await world.pool.transaction((session) => inbox.claim(session, [known]));
      const run = await interleave(
        at,
        (gate) => world.pool.transaction((session) => claimIn(gate(session), 'READ COMMITTED', known, other)),
        () => makePartitions(world.pool, inbox.names, { fromMs, toMs: fromMs + HOUR_MS, widthMs: HOUR_MS }),
      );
      expect(run.first).toEqual({ known: 'seen', fresh: 'unseen' });
      await makePartitions(world.pool, inbox.names, { fromMs, toMs: fromMs + HOUR_MS, widthMs: HOUR_MS });
      const { rows } = await world.pool.query<{ n: bigint }>(
        'SELECT count(*) AS n FROM inbox_default WHERE msg_id = ANY ($1::uuid[])',
        [[known, other]],
      );
      expect(rows[0]?.n).toBe(0n);
      if (!run.reached) break;
    }
  });
});
