/** Effects on a real PostgreSQL under faults between the runner and the database: lost answers,
 *  refusals that pass, clocks that step, and a redrive during a call of its key. */
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { coreError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import type { Metrics } from '../../src/core/metrics.ts';
import { systemClock, systemRandom } from '../../src/io/clock/system.ts';
import { sqlError } from '../../src/io/postgres/sql/port.ts';
import { migrate } from '../../src/outbox/database/migrations.ts';
import { partMigrations } from '../../src/outbox/database/parts.ts';
import { effect } from '../../src/outbox/effects/add.ts';
import { listDeadEffects, redriveEffects, releaseEffects } from '../../src/outbox/effects/dead.ts';
import { effectRefused } from '../../src/outbox/effects/handler.ts';
import { effectsOneRunningSql } from '../../src/outbox/effects/table.ts';
import { until } from '../wait.ts';
import { effectsWorld, lossyPool, sampleOf } from './effects-kit.ts';

const world = await effectsWorld();
const FAST_RETRY = { firstDelayMs: 5, maxDelayMs: 20, budgetMs: 600_000 };
const SLOW_RETRY = { firstDelayMs: 600_000, maxDelayMs: 600_000 };
const HALF = { ...systemRandom, fraction: () => 0.5 };
const NO_ANSWER = coreError('unreachable', 'the connection was lost');
const NO_COMMIT_ANSWER = sqlError(
  'commit_unknown',
  'the connection was lost while the transaction committed',
);

beforeEach(async () => {
  await world.pool.query('TRUNCATE effects');
});

const add = (key: string, name = 'pay', table = 'effects'): Promise<string> =>
  world.pool.transaction((tx) => effect(tx, table, { name, key, input: 1 }));

/** Call that ends when the test releases it, or ends itself. */
function hold(): { readonly held: Promise<void>; release(): void } {
  let release = (): void => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  onTestFinished(() => release());
  return { held, release: () => release() };
}

/** Log that collects its warnings and errors. */
function collectingLog() {
  const lines: string[] = [];
  const push = (_: unknown, message: string): void => void lines.push(message);
  return { lines, log: { ...silentLogger, warn: push, error: push } };
}

const OUTCOMES = ['done', 'retry', 'dead', 'lost'];
const attemptsOf = (metrics: Metrics): Readonly<Record<string, number>> =>
  Object.fromEntries(
    OUTCOMES.map((outcome) => [
      outcome,
      sampleOf(metrics, 'effect_attempts_total', { name: 'pay', outcome }),
    ]),
  );
const isCounted = (metrics: Metrics): boolean =>
  Object.values(attemptsOf(metrics)).some((count) => count > 0);

describe('a claim whose answer is lost', () => {
  it('an effect is called after the lease of its claim, although another call keeps its runner busy', async () => {
    let isLost = false;
    const pool = lossyPool(world.pool, ({ text, params, rowCount }) => {
      if (isLost || !text.includes('WITH heads') || params[0] !== 'pay' || rowCount === 0) return undefined;
      isLost = true;
      return NO_ANSWER;
    });
    const { held, release } = hold();
    const called: string[] = [];
    const call = async ({ name, id }: { readonly name: string; readonly id: string }): Promise<void> => {
      called.push(id);
      if (name === 'busy') await held;
    };
    const { stop } = world.runner(
      { busy: { call, timeoutMs: 600_000 }, pay: { call, retry: FAST_RETRY } },
      { pool, leaseMs: 1500 },
    );
    const busy = await add('a', 'busy');
    await until('a call in flight', () => called.includes(busy));
    const id = await add('a');
    await until('a lost answer', () => isLost);
    await until('the call of the claimed effect', () => called.includes(id));
    expect(called.filter((one) => one === id)).toHaveLength(1);
    release();
    await world.settled('done');
    await stop();
  });
});

describe('a lease that ends early', () => {
  it('a call is aborted when the clock of the database steps beyond the end of its lease, and no other call is', async () => {
    const { held, release } = hold();
    const { held: forgotten } = hold();
    const aborted: string[] = [];
    const called: string[] = [];
    const { metrics, stop } = world.runner(
      {
        pay: {
          call: async ({ key, attempt }, signal) => {
            signal.addEventListener('abort', () => aborted.push(key));
            called.push(key);
            if (key === 'kept') return held;
            return attempt === 1 ? forgotten : undefined;
          },
          timeoutMs: 600_000,
          retry: FAST_RETRY,
          breaker: { failures: 1, openMs: 3_600_000, openMaxMs: 3_600_000 },
        },
      },
      { leaseMs: 15_000 },
    );
    await add('kept');
    await add('stepped');
    await until('two calls in flight', () => called.length === 2);
    await world.pool.query(
      `UPDATE effects SET lease_until = clock_timestamp() - interval '1 hour' WHERE key = 'stepped'`,
    );
    await until('the second call of the effect', () => called.length === 3);
    expect(aborted).toEqual(['stepped']);
    expect([...called].sort()).toEqual(['kept', 'stepped', 'stepped']);
    // The end of a lease is no failure of the third party.
    expect(sampleOf(metrics, 'effect_breaker_open', { name: 'pay' })).toBe(0);
    release();
    await world.settled('done');
    await stop();
  });

  it('claims that came too late to begin the call leave the breaker closed', async () => {
    let late = 0;
    const leaseMs = 30_000;
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + late * 2 * leaseMs };
    // The process is suspended between the claim and its answer, three times.
    const pool = lossyPool(world.pool, ({ text, rowCount }) => {
      if (text.includes('WITH heads') && rowCount > 0 && late < 3) late++;
      return undefined;
    });
    const breaker = { failures: 2, openMs: 36_000_000, openMaxMs: 36_000_000 };
    let calls = 0;
    const call = async (): Promise<void> => void calls++;
    const { metrics, stop } = world.runner(
      { pay: { call, delivery: 'at_most_once', breaker, retry: FAST_RETRY } },
      { pool, clock, leaseMs },
    );
    await add('a');
    expect(await world.settled('done')).toMatchObject([{ attempts: 4 }]);
    await until('the count of the attempts', () => attemptsOf(metrics)['done'] === 1);
    expect(attemptsOf(metrics)).toEqual({ done: 1, retry: 3, dead: 0, lost: 0 });
    expect([calls, sampleOf(metrics, 'effect_breaker_open', { name: 'pay' })]).toEqual([1, 0]);
    await stop();
  });
});

describe('an outcome that meets a fault of the database', () => {
  it('an outcome that the database refuses for a time is written again, without another call', async () => {
    // Out of disk, deadlock, read-only, serialization failure.
    const refusals = ['53100', '40P01', '25006', '40001'];
    let calls = 0;
    const { metrics, stop } = world.runner({
      pay: {
        call: async () => ({ charge: ++calls }),
        done: async (tx) => {
          const state = refusals.shift();
          if (state !== undefined)
            await tx.query(`DO 'BEGIN RAISE EXCEPTION ''not now'' USING ERRCODE = ''${state}''; END'`);
        },
        delivery: 'at_most_once',
      },
    });
    await add('a');
    expect(await world.settled('done', 'dead')).toMatchObject([
      { state: 'done', attempts: 1, error: null, result: '{"charge":1}' },
    ]);
    await until('the count of the attempt', () => attemptsOf(metrics)['done'] === 1);
    expect(attemptsOf(metrics)).toEqual({ done: 1, retry: 0, dead: 0, lost: 0 });
    expect([calls, refusals]).toEqual([1, []]);
    await stop();
  });

  it('an outcome whose commit had no answer is read back, and is not reported as lost', async () => {
    await world.pool.query('CREATE TABLE booked (n int)');
    let isDone = false;
    let isLost = false;
    const pool = lossyPool(world.pool, ({ text }) => {
      if (text !== 'COMMIT' || !isDone || isLost) return undefined;
      isLost = true;
      return NO_COMMIT_ANSWER;
    });
    const { lines, log } = collectingLog();
    let calls = 0;
    const { metrics, stop } = world.runner(
      {
        pay: {
          call: async () => void calls++,
          done: async (tx) => {
            await tx.query('INSERT INTO booked VALUES (1)');
            isDone = true;
          },
        },
      },
      { pool, log },
    );
    await add('a');
    await until('the count of the attempt', () => isCounted(metrics));
    expect(attemptsOf(metrics)).toEqual({ done: 1, retry: 0, dead: 0, lost: 0 });
    expect(isLost).toBe(true);
    expect(lines).not.toContain('an effect has no result');
    expect([calls, (await world.pool.query('SELECT n FROM booked')).rows]).toEqual([1, [{ n: 1 }]]);
    await stop();
  });

  it('the schedule of a retry whose statement had no answer is read back', async () => {
    let isLost = false;
    const pool = lossyPool(world.pool, ({ text }) => {
      if (isLost || !text.includes(`SET state = 'waiting', owner = NULL`)) return undefined;
      isLost = true;
      return NO_ANSWER;
    });
    const { lines, log } = collectingLog();
    const call = (): Promise<never> => Promise.reject(new Error('away'));
    const { metrics, stop } = world.runner({ pay: { call, retry: SLOW_RETRY } }, { pool, log, random: HALF });
    await add('a');
    await until('the count of the attempt', () => isCounted(metrics));
    expect(attemptsOf(metrics)).toEqual({ done: 0, retry: 1, dead: 0, lost: 0 });
    expect(isLost).toBe(true);
    expect(lines).not.toContain('an effect has no result');
    await stop();
  });
});

describe('a redrive behind released effects', () => {
  it('a redriven dead letter waits for the call of a later effect of its key, and is then the first', async () => {
    const { held, release } = hold();
    const called: string[] = [];
    let declines = true;
    const { stop } = world.runner({
      pay: {
        call: async ({ id, key }) => {
          if (declines && key === 'a') throw effectRefused('the card was declined');
          called.push(id);
          if (key === 'a') await held;
        },
        timeoutMs: 600_000,
      },
    });
    const first = await add('a');
    await until('a dead letter', async () => (await listDeadEffects(world.pool, 'effects')).length === 1);
    declines = false;
    const second = await add('a');
    const third = await add('a');
    await releaseEffects(world.pool, 'effects', { keys: ['a'] });
    await until('a call in flight', () => called.includes(second));
    expect(await redriveEffects(world.pool, 'effects', { ids: [first] })).toBe(1);
    // The runner claims whatever is due together with this effect.
    const probe = await add('b');
    await until('the effect of another key', () => called.includes(probe));
    expect(called).toEqual([second, probe]);
    release();
    await world.settled('done');
    expect(called).toEqual([second, probe, first, third]);
    await stop();
  });

  it('a claim that does not see a claim of its key yet is refused by the database', async () => {
    const [first, second] = [await add('a'), await add('a')];
    await world.pool.query(
      `UPDATE effects SET state = 'dead', reason = 'budget', blocks = false WHERE effect_id = $1::uuid`,
      [first],
    );
    const called: string[] = [];
    const waits = async (): Promise<boolean> =>
      (
        await world.pool.query(
          `SELECT 1 AS found FROM pg_stat_activity
           WHERE wait_event_type = 'Lock' AND query LIKE '%WITH heads%' AND application_name = $1`,
          [world.schema],
        )
      ).rows.length > 0;
    const { stop } = await world.pool.transaction(async (tx) => {
      await tx.query(
        `UPDATE effects SET state = 'running', owner = gen_random_uuid(), attempts = 1, first_tried_at = now(),
           lease_until = now() + interval '1 hour' WHERE effect_id = $1::uuid`,
        [second],
      );
      await redriveEffects(world.pool, 'effects', { ids: [first] });
      const runner = world.runner({ pay: { call: async ({ id }) => void called.push(id) } });
      await until('a claim that waits for the other', waits);
      return runner;
    });
    const probe = await add('b');
    await until('the effect of another key', () => called.includes(probe));
    expect(called).toEqual([probe]);
    await world.pool.query(
      `UPDATE effects SET state = 'done', owner = NULL, lease_until = NULL, ended_at = now() WHERE effect_id = $1::uuid`,
      [second],
    );
    await world.settled('done');
    expect(called).toEqual([probe, first]);
    await stop();
  });
});

describe('a table of an earlier release', () => {
  it('a table is migrated while its effects run, and then refuses a second running effect of a key', async () => {
    const [part] = partMigrations({ effectsTable: 'older' });
    const all = part?.migrations ?? [];
    const owner = part?.owner ?? '';
    await migrate(world.pool, world.schema, owner, all.slice(0, 3));
    const { held, release } = hold();
    const called: string[] = [];
    const call = async ({ id }: { readonly id: string }): Promise<void> => {
      called.push(id);
      await held;
    };
    const { stop } = world.runner({ pay: { call, timeoutMs: 600_000 } }, { table: 'older' });
    const [first, second, other] = [
      await add('a', 'pay', 'older'),
      await add('a', 'pay', 'older'),
      await add('b', 'pay', 'older'),
    ];
    await until('two calls in flight', () => called.length === 2);
    expect(await migrate(world.pool, world.schema, owner, all)).toHaveLength(1);
    await world.pool.query(effectsOneRunningSql('older'));
    const run = (id: string): Promise<unknown> =>
      world.pool.query(`UPDATE older SET state = 'running' WHERE effect_id = $1::uuid`, [id]);
    await expect(run(second)).rejects.toMatchObject({ details: { sqlstate: '23505' } });
    release();
    await until('the last call', () => called.length === 3);
    expect([...called].sort()).toEqual([first, second, other].sort());
    expect(called.indexOf(first)).toBeLessThan(called.indexOf(second));
    await stop();
  });
});
