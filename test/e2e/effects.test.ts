/** Effects on a real PostgreSQL: calls to a provider that acts and may not answer, retries, order
 *  of a key, dead letters, and runners that die in the middle of a call. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { systemClock, systemRandom } from '../../src/io/clock/system.ts';
import { effect } from '../../src/outbox/effects/add.ts';
import { listDeadEffects, redriveEffects, releaseEffects } from '../../src/outbox/effects/dead.ts';
import { type EffectHandler, effectNotDone, effectRefused } from '../../src/outbox/effects/handler.ts';
import { effectsRunnerEndsSql, effectsTableSql, effectsTraceSql } from '../../src/outbox/effects/table.ts';
import { connectPool, ownDatabase } from '../fixtures/database.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { projectRoot } from '../repository/root.ts';
import { until } from '../wait.ts';
import { effectsWorld, pay, sampleOf, startProvider } from './effects-kit.ts';

const own = launcher();
const world = await effectsWorld();
const provider = await startProvider();
const FAST_RETRY = { firstDelayMs: 5, maxDelayMs: 20, budgetMs: 600_000 };

beforeEach(async () => {
  await world.pool.query('TRUNCATE effects');
  provider.calls.length = 0;
  provider.acts.length = 0;
  provider.after = () => 'answer';
});

const add = (key = 'account-1', input: unknown = { cents: 1 }, name = 'pay'): Promise<string> =>
  world.pool.transaction((tx) => effect(tx, 'effects', { name, key, input }));
const codeOf = async (work: Promise<unknown>): Promise<string | undefined> =>
  findMillraceError(await work.catch((thrown: unknown) => thrown))?.code;

/** Starts a runner in a process of its own. */
function startWorker(
  delivery: string,
  retry: EffectHandler['retry'] = {},
): ChildProcess & { said(): string } {
  const args = [
    join(projectRoot, 'test/e2e/effects.worker.mjs'),
    projectRoot,
    world.url,
    provider.url,
    delivery,
    JSON.stringify(retry),
  ];
  const worker = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  worker.stdout.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  onTestFinished(() => void worker.kill('SIGKILL'));
  return Object.assign(worker, { said: () => said });
}

describe('effects of a transaction', () => {
  it('an effect is called after its commit, once, under its id, and its result and consequence are kept', async () => {
    await world.pool.query('CREATE TABLE paid (effect uuid, charge text)');
    const { metrics, stop } = world.runner({
      pay: {
        call: pay(provider),
        done: async (tx, { id }, result) => {
          await tx.query('INSERT INTO paid VALUES ($1::uuid, $2)', [
            id,
            (result as { charge: string }).charge,
          ]);
        },
      },
    });
    const undone = world.pool.transaction(async (tx) => {
      await effect(tx, 'effects', { name: 'pay', key: 'k', input: 1 });
      throw new Error('undo');
    });
    await expect(undone).rejects.toThrow('undo');
    const ids = await Promise.all([add(), add('account-2')]);
    const rows = await world.settled('done');
    const counted = (name: string) => metrics.snapshot().find((one) => one.name === name)?.samples[0];
    expect(counted('effect_attempts_total')).toMatchObject({
      labels: { name: 'pay', outcome: 'done' },
      value: 2,
    });
    expect(counted('effect_attempt_seconds')).toMatchObject({ count: 2 });
    expect(counted('effect_rows')).toMatchObject({ labels: { name: 'pay' } });
    expect(rows.map(({ effect_id }) => effect_id).sort()).toEqual([...ids].sort());
    expect(rows.map(({ effect_id, result }) => [effect_id, JSON.parse(result as string)])).toEqual(
      rows.map(({ effect_id }) => [effect_id, { charge: effect_id }]),
    );
    expect([...provider.calls].sort()).toEqual([...ids].sort());
    const { rows: paid } = await world.pool.query('SELECT charge FROM paid ORDER BY charge');
    expect(paid).toEqual([...ids].sort().map((charge) => ({ charge })));
    await stop();
  });

  it('an effect with the id of a message is added once, however often the message is delivered', async () => {
    const id = randomUUID();
    for (let n = 0; n < 3; n++)
      await world.pool.transaction((tx) => effect(tx, 'effects', { id, name: 'pay', key: 'k', input: n }));
    expect((await world.rows()).map(({ effect_id }) => effect_id)).toEqual([id]);
  });

  it('effects of one message and several names are all called, under ids of their own, however often it is delivered', async () => {
    const messageId = randomUUID();
    const ids: string[] = [];
    for (let n = 0; n < 2; n++)
      await world.pool.transaction(async (tx) => {
        for (const name of ['pay', 'mail'])
          ids.push(await effect(tx, 'effects', { messageId, name, key: 'k', input: n }));
      });
    const called: string[] = [];
    const call: EffectHandler['call'] = async ({ id, name }) => void called.push(`${name} ${id}`);
    const { stop } = world.runner({ pay: { call }, mail: { call } });
    await world.settled('done');
    expect(new Set(ids).size).toBe(2);
    expect(ids.slice(2)).toEqual(ids.slice(0, 2));
    expect([...called].sort()).toEqual([`mail ${ids[1]}`, `pay ${ids[0]}`]);
    await stop();
  });

  it.each([
    ['name', { name: 'mail' }],
    ['key', { key: 'l' }],
  ])('an effect with the id of an effect of another %s is refused, not dropped', async (_what, other) => {
    const good = { id: randomUUID(), name: 'pay', key: 'k', input: 1 };
    await world.pool.transaction((tx) => effect(tx, 'effects', good));
    const thrown = await world.pool
      .transaction((tx) => effect(tx, 'effects', { ...good, ...other }))
      .catch((error: unknown) => findMillraceError(error));
    expect(thrown).toMatchObject({
      code: 'bad_effect',
      message: expect.stringContaining(`the id ${good.id} is that of an effect "pay" of the key "k"`),
      next: expect.stringContaining('messageId'),
    });
    expect(await world.rows()).toHaveLength(1);
  });

  it('an effect outside of a transaction, and one that cannot become a row, is refused with nothing written', async () => {
    expect(await codeOf(effect(world.pool, 'effects', { name: 'pay', key: 'k', input: 1 }))).toBe(
      'not_in_transaction',
    );
    const good = { name: 'pay', key: 'k', input: 1 };
    for (const wrong of [
      { ...good, name: 'Pay money' },
      { ...good, key: '' },
      { ...good, key: 'x'.repeat(501) },
      { ...good, input: undefined },
      { ...good, input: { cents: Number.NaN } },
      { ...good, input: new Map() },
      { ...good, input: 'x'.repeat(300_000) },
      { ...good, id: '7' },
      { ...good, messageId: '7' },
      { ...good, id: randomUUID(), messageId: randomUUID() },
      { ...good, traceparent: 'x' },
    ])
      expect(await codeOf(world.pool.transaction((tx) => effect(tx, 'effects', wrong)))).toBe('bad_effect');
    expect(await codeOf(world.pool.transaction((tx) => effect(tx, 'Effects"', good)))).toBe('bad_table_name');
    expect(await world.rows()).toEqual([]);
  });
});

describe('tables of one name in two databases', () => {
  const TRACE = {
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    tracestate: 'vendor=1',
  };

  it('an effect of each database has the tracestate exactly where its table has the column', async () => {
    const { postgres } = await sharedStack();
    const url = await ownDatabase(postgres, `${world.schema}_two`);
    const two = await connectPool(url);
    onTestFinished(() => two.close());
    const given = { name: 'pay', key: 'k', input: 1, ...TRACE };
    for (const [table, order] of [
      ['first_absent', [world.pool, two]],
      ['first_present', [two, world.pool]],
    ] as const) {
      for (const pool of order) {
        await pool.query(effectsTableSql(table));
        if (pool === two) await pool.query(effectsTraceSql(table));
        await pool.transaction((tx) => effect(tx, table, given));
      }
      expect((await world.pool.query(`SELECT traceparent FROM ${table}`)).rows).toEqual([
        { traceparent: TRACE.traceparent },
      ]);
      expect((await two.query(`SELECT traceparent, tracestate FROM ${table}`)).rows).toEqual([TRACE]);
    }
  });
});

describe('a provider that acts and does not answer', () => {
  it.each(['silence', 'cut'] as const)(
    'an effect at least once is called again under the same id after %s, and the provider acts once',
    async (how) => {
      provider.after = (_, calls) => (calls < 3 ? how : 'answer');
      const timeoutMs = how === 'silence' ? 100 : 60_000;
      const { stop } = world.runner({ pay: { call: pay(provider), timeoutMs, retry: FAST_RETRY } });
      const id = await add();
      const [row] = await world.settled('done');
      // On a machine that stalls, an answered call may also be out of time.
      expect(row?.attempts).toBeGreaterThanOrEqual(3);
      expect(row?.error).toBeNull();
      expect(provider.acts).toEqual([id]);
      expect(new Set(provider.calls)).toEqual(new Set([id]));
      await stop();
    },
  );

  it('an effect at most once becomes a dead letter of unknown outcome, and is redriven only if that is confirmed', async () => {
    provider.after = (_, calls) => (calls < 2 ? 'cut' : 'answer');
    const { stop } = world.runner({
      pay: { call: pay(provider), delivery: 'at_most_once', retry: FAST_RETRY },
    });
    const id = await add();
    expect(await world.settled('dead')).toMatchObject([{ reason: 'unknown_outcome', attempts: 1 }]);
    expect(await codeOf(redriveEffects(world.pool, 'effects', { reasons: ['unknown_outcome'] }))).toBe(
      'bad_option',
    );
    expect(await redriveEffects(world.pool, 'effects', {})).toBe(0);
    expect(await redriveEffects(world.pool, 'effects', { ids: [id] }, true)).toBe(1);
    await world.settled('done');
    expect(provider.calls).toEqual([id, id]);
    await stop();
  });

  it('an effect at most once is called again after an error that excludes an act', async () => {
    let calls = 0;
    const { stop } = world.runner({
      pay: {
        call: async () => {
          if (++calls < 3) throw effectNotDone('connection refused', 1);
        },
        delivery: 'at_most_once',
        retry: FAST_RETRY,
      },
    });
    await add();
    expect(await world.settled('done')).toMatchObject([{ attempts: 3 }]);
    await stop();
  });
});

describe('order of a key', () => {
  it('effects of a key are called in order, each after the one before it is done, while other keys continue', async () => {
    const called: number[] = [];
    let blocked = true;
    const { stop } = world.runner({
      pay: {
        call: async ({ input, key }) => {
          if (key === 'slow' && blocked) throw new Error('away');
          called.push(input as number);
        },
        retry: FAST_RETRY,
      },
    });
    for (let n = 0; n < 3; n++) await add('slow', n);
    for (let n = 10; n < 13; n++) await add('fast', n);
    await until('the effects of the other key', () => called.length === 3);
    expect(called).toEqual([10, 11, 12]);
    blocked = false;
    await world.settled('done');
    expect(called.slice(3)).toEqual([0, 1, 2]);
    await stop();
  });

  it('a dead letter blocks its key until it is redriven under its id, or released', async () => {
    const called: string[] = [];
    let declines = true;
    const { stop } = world.runner({
      pay: {
        call: async ({ id, input }) => {
          if (declines && input === 'declined') throw effectRefused('the card was declined');
          called.push(id);
        },
      },
    });
    const first = [await add('a', 'declined'), await add('a', 'second')];
    const second = [await add('b', 'declined'), await add('b', 'second')];
    await until('two dead letters', async () => (await listDeadEffects(world.pool, 'effects')).length === 2);
    expect(await listDeadEffects(world.pool, 'effects', { keys: ['a'] })).toMatchObject([
      {
        id: first[0],
        reason: 'refused',
        error: 'the card was declined',
        attempts: 1,
        blocks: true,
        behind: 1,
      },
    ]);
    expect(called).toEqual([]);
    expect(await releaseEffects(world.pool, 'effects', { keys: ['a'] })).toBe(1);
    await until('the effect behind the released letter', () => called.includes(first[1] as string));
    declines = false;
    expect(await redriveEffects(world.pool, 'effects', { names: ['pay'] })).toBe(2);
    await world.settled('done');
    expect(called).toEqual(expect.arrayContaining([...first, ...second]));
    expect(called.indexOf(second[0] as string)).toBeLessThan(called.indexOf(second[1] as string));
    await stop();
  });

  it('a dead letter of a handler that releases blocks nothing', async () => {
    const { stop } = world.runner({
      pay: {
        call: async ({ input }) => {
          if (input === 'declined') throw effectRefused('no');
        },
        onDead: 'release',
      },
    });
    await add('a', 'declined');
    await add('a', 'second');
    expect((await world.settled('dead', 'done')).map(({ state }) => state)).toEqual(['dead', 'done']);
    await stop();
  });

  it('a released dead letter leaves the gauge of the alert at 0, and a new one is counted from 0', async () => {
    const { metrics, stop } = world.runner(
      {
        pay: {
          call: async () => {
            throw effectRefused('no');
          },
        },
      },
      { leaseMs: 500 },
    );
    const attempts = () => metrics.snapshot().find(({ name }) => name === 'effect_attempts_total');
    expect(attempts()?.samples).toContainEqual(
      expect.objectContaining({ labels: { name: 'pay', outcome: 'dead' }, value: 0 }),
    );
    const rows = (state: string) => sampleOf(metrics, 'effect_rows', { name: 'pay', state });
    await add('a');
    await until('a dead letter that blocks', () => rows('dead') === 1);
    expect(rows('released')).toBe(0);
    expect(await releaseEffects(world.pool, 'effects', { keys: ['a'] })).toBe(1);
    await until('a released letter', () => rows('released') === 1);
    expect(rows('dead')).toBe(0);
    await add('b');
    await until('a new dead letter', () => rows('dead') === 1);
    expect(rows('released')).toBe(1);
    expect(sampleOf(metrics, 'effect_attempts_total', { name: 'pay', outcome: 'dead' })).toBe(2);
    await stop();
  });

  it('an effect whose budget is used up becomes a dead letter', async () => {
    const { stop } = world.runner({
      pay: {
        call: async () => {
          throw new Error('still away');
        },
        retry: { firstDelayMs: 1, maxDelayMs: 5, budgetMs: 50 },
      },
    });
    await add();
    expect(await world.settled('dead')).toMatchObject([{ reason: 'budget', error: 'still away' }]);
    await stop();
  });
});

describe('an effect that ends its runner', () => {
  /** Ends a runner at its call of the effect with SIGKILL, this number of times. */
  async function endRunners(times: number, retry: EffectHandler['retry']): Promise<void> {
    provider.after = () => 'silence';
    for (let ended = 0; ended < times; ended++) {
      const before = provider.calls.length;
      const worker = startWorker('at_least_once', retry);
      await until('a call in flight', () => provider.calls.length > before);
      worker.kill('SIGKILL');
      await new Promise((resolve) => worker.once('exit', resolve));
    }
  }
  const isDead = (): Promise<boolean> =>
    world.rows().then((rows) => rows.some(({ state }) => state === 'dead'));

  it('an effect becomes a dead letter after its last allowed runner, blocks its key, and leaves other keys', async () => {
    const retry = { ...FAST_RETRY, runnerEndsMax: 3 };
    const id = await add('poison');
    await endRunners(3, retry);
    provider.after = () => 'answer';
    const [behind, other] = [await add('poison'), await add('account-2')];
    const { metrics, stop } = world.runner({ pay: { call: pay(provider), retry } }, { leaseMs: 500 });
    await until('a dead letter', isDead);
    await until('the effect of the other key', () => provider.acts.includes(other));
    expect(await listDeadEffects(world.pool, 'effects')).toMatchObject([
      { id, reason: 'runner_ended', attempts: 3, blocks: true, behind: 1 },
    ]);
    expect((await world.rows())[0]?.error).toContain('its runner ended during attempt 3');
    expect(provider.calls.filter((one) => one === id)).toHaveLength(3);
    expect(provider.acts).not.toContain(behind);
    const attempts = metrics.snapshot().find(({ name }) => name === 'effect_attempts_total');
    expect(attempts?.samples).toContainEqual(
      expect.objectContaining({ labels: { name: 'pay', outcome: 'dead' }, value: 1 }),
    );
    // A redrive starts a new count.
    expect(await redriveEffects(world.pool, 'effects', { reasons: ['runner_ended'] })).toBe(1);
    await world.settled('done');
    expect(provider.acts).toContain(behind);
    await stop();
  });

  it('an effect waits for its backoff after the end of its runner, as after a failed attempt', async () => {
    await add();
    await endRunners(1, {});
    const { stop } = world.runner(
      { pay: { call: pay(provider), retry: { firstDelayMs: 600_000, maxDelayMs: 600_000 } } },
      { leaseMs: 500, random: { ...systemRandom, fraction: () => 0.5 } },
    );
    await until('an effect that waits', async () => (await world.rows())[0]?.state === 'waiting');
    const { rows } = await world.pool.query<{ after: number; runner_ends: number }>(
      'SELECT extract(epoch FROM due_at - clock_timestamp())::float8 AS after, runner_ends FROM effects',
    );
    expect(rows[0]?.after).toBeGreaterThan(0);
    expect(rows[0]?.after).toBeLessThanOrEqual(300);
    expect(rows[0]?.runner_ends).toBe(1);
    await stop();
  });

  it('an attempt with an outcome resets the count of ended runners', async () => {
    await add();
    await world.pool.query('UPDATE effects SET runner_ends = 2, attempts = 2, first_tried_at = now()');
    const retry = { firstDelayMs: 600_000, runnerEndsMax: 3 };
    const { stop } = world.runner({ pay: { call: () => Promise.reject(new Error('away')), retry } });
    await until('a failed attempt', async () => (await world.rows())[0]?.error === 'away');
    const { rows } = await world.pool.query('SELECT state, attempts, runner_ends FROM effects');
    expect(rows).toEqual([{ state: 'waiting', attempts: 3, runner_ends: 0 }]);
    await stop();
  });

  it('an effect of a table without the count becomes a dead letter after its budget of time', async () => {
    await world.pool.query(effectsTableSql('old_effects'));
    const insert = (key: string, age: string): Promise<unknown> =>
      world.pool.query(
        `INSERT INTO old_effects (effect_id, name, key, input, state, attempts, owner, lease_until, first_tried_at)
         VALUES (gen_random_uuid(), 'pay', $1, '1', 'running', 40, gen_random_uuid(), now() - interval '1 s', now() - $2::interval)`,
        [key, age],
      );
    await insert('young', '1 s');
    await insert('old', '1 hour');
    const retry = { firstDelayMs: 600_000, maxDelayMs: 600_000, budgetMs: 1_800_000 };
    const { stop } = world.runner({ pay: { call: pay(provider), retry } }, { table: 'old_effects' });
    await until('a dead letter', async () => (await listDeadEffects(world.pool, 'old_effects')).length === 1);
    const [letter] = await listDeadEffects(world.pool, 'old_effects');
    expect(letter).toMatchObject({ key: 'old', reason: 'budget', attempts: 40 });
    expect(letter?.error).toContain('its runner ended during attempt 40');
    const { rows } = await world.pool.query(`SELECT state FROM old_effects WHERE key = 'young'`);
    expect(rows).toEqual([{ state: 'waiting' }]);
    // The migration of a table in use, which may be repeated.
    for (let n = 0; n < 2; n++) await world.pool.query(effectsRunnerEndsSql('old_effects'));
    await world.pool.query(`UPDATE old_effects SET reason = 'runner_ended' WHERE state = 'dead'`);
    await stop();
  });
});

describe('the retention of effects', () => {
  it('a turn deletes all effects that were done before the retention, in batches, and no other', async () => {
    await world.pool.query(
      `INSERT INTO effects (effect_id, name, key, input, state, ended_at)
       SELECT gen_random_uuid(), 'pay', n::text, '1', 'done', now() - CASE WHEN n > 5 THEN interval '1 hour' ELSE interval '0' END
       FROM generate_series(1, 12345) AS n`,
    );
    // Time stands still, so the runner has a single turn.
    const clock = { ...systemClock, monotonicMs: () => 0 };
    const { stop } = world.runner({ pay: { call: pay(provider) } }, { clock, keepMs: 1_800_000 });
    await until('the rows within the retention', async () => (await world.rows()).length === 5);
    expect((await world.rows()).map(({ key }) => key)).toEqual(['1', '2', '3', '4', '5']);
    await stop();
  });

  it('a drain ends the deletions after their current batch', async () => {
    await world.pool.query(
      `INSERT INTO effects (effect_id, name, key, input, state, ended_at)
       SELECT gen_random_uuid(), 'pay', n::text, '1', 'done', now() - interval '1 hour' FROM generate_series(1, 5000) AS n`,
    );
    const holder = await world.pool.transaction(async (tx) => {
      // The deletion of the first batch waits for this lock.
      await tx.query('LOCK TABLE effects IN SHARE MODE');
      const { stop } = world.runner({ pay: { call: pay(provider) } }, { keepMs: 1 });
      await until('a deletion that waits', async () => {
        const { rows } = await world.pool.query(
          `SELECT 1 AS found FROM pg_stat_activity
           WHERE wait_event_type = 'Lock' AND query LIKE 'DELETE FROM effects%' AND application_name = $1`,
          [world.schema],
        );
        return rows.length === 1;
      });
      return { stopped: stop() };
    });
    await holder.stopped;
    expect(await world.rows()).toHaveLength(4000);
  });
});

describe('several runners', () => {
  it('two runners call each effect once while none fails', async () => {
    const called: string[] = [];
    const call = async ({ id }: { readonly id: string }): Promise<void> => void called.push(id);
    const runners = [world.runner({ pay: { call } }), world.runner({ pay: { call } })];
    const ids: string[] = [];
    for (let n = 0; n < 100; n++) ids.push(await add(`account-${n % 7}`, n));
    await world.settled('done');
    expect([...called].sort()).toEqual([...ids].sort());
    for (const { stop } of runners) await stop();
  });

  it('a consequence that fails is a failed attempt, and nothing of it is kept', async () => {
    await world.pool.query('CREATE TABLE booked (n int PRIMARY KEY)');
    let tries = 0;
    const { stop } = world.runner({
      pay: {
        call: async () => 'ok',
        done: async (tx) => {
          await tx.query('INSERT INTO booked VALUES (1)');
          if (++tries < 2) throw new Error('no room');
        },
        retry: FAST_RETRY,
      },
    });
    await add();
    expect(await world.settled('done')).toMatchObject([{ attempts: 2 }]);
    expect((await world.pool.query('SELECT n FROM booked')).rows).toEqual([{ n: 1 }]);
    await stop();
  });

  it.each([
    ['at_least_once', ['done', 'done'], 2],
    ['at_most_once', ['dead', 'waiting'], 1],
  ] as const)(
    'a runner that is killed in a call %s leaves the effect to another runner',
    async (delivery, states, calls) => {
      const worker = startWorker(delivery);
      const id = await add();
      provider.after = (called, times) => (called === id && times === 1 ? 'silence' : 'answer');
      await until('a call in flight', () => provider.calls.length === 1);
      await add();
      worker.kill('SIGKILL');
      await new Promise((resolve) => worker.once('exit', resolve));
      const { stop } = world.runner({ pay: { call: pay(provider), delivery } }, { leaseMs: 500 });
      await until('the outcome of both', async () => {
        const found = (await world.rows()).map(({ state }) => state);
        return found.join() === states.join() && found;
      });
      expect(provider.acts.filter((one) => one === id)).toEqual([id]);
      expect(provider.calls.filter((one) => one === id)).toHaveLength(calls);
      await stop();
    },
  );

  it('a runner that was suspended for longer than its lease changes nothing afterwards', async () => {
    const worker = startWorker('at_least_once');
    const id = await add();
    provider.after = (_, times) => (times === 1 ? 'silence' : 'answer');
    await until('a call in flight', () => provider.calls.length === 1);
    worker.kill('SIGSTOP');
    const { stop } = world.runner({ pay: { call: pay(provider) } }, { leaseMs: 500 });
    const [before] = await world.settled('done');
    worker.kill('SIGCONT');
    await until('the word of the other runner that it lost the effect', () =>
      worker.said().includes('"lost"'),
    );
    expect(await world.rows()).toEqual([before]);
    expect(provider.acts).toEqual([id]);
    worker.kill('SIGKILL');
    await stop();
  });

  it('the open breaker of one third party does not hold the effects of another', async () => {
    let failed = 0;
    const away = async (): Promise<never> => {
      failed++;
      throw effectNotDone('away');
    };
    const { metrics, stop } = world.runner({
      mail: { call: away, breaker: { failures: 3, openMs: 600_000 }, concurrency: 2, retry: FAST_RETRY },
      pay: { call: pay(provider) },
    });
    for (let n = 0; n < 10; n++) await add(`person-${n}`, n, 'mail');
    await until('an open breaker', () => {
      const open = metrics.snapshot().find(({ name }) => name === 'effect_breaker_open');
      return open?.samples.some(({ labels, value }) => labels['name'] === 'mail' && value === 1) === true;
    });
    const id = await add();
    await until('the other effect', () => provider.acts.includes(id));
    // The third failure opened it; one further call was in flight.
    expect(failed).toBeLessThanOrEqual(4);
    await stop();
  });
});

describe('millrace effects', () => {
  const effects = async (...args: string[]) => {
    const { postgres } = await sharedStack();
    const { code, stdout, stderr } = await own.run([
      'effects',
      ...args,
      `-postgres=${postgres}`,
      `-schema=${world.schema}`,
    ]);
    return { code, out: stdout, err: stderr };
  };

  it('effects lists dead letters, releases them and redrives them under their ids', async () => {
    const ids = [await add('a'), await add('b')];
    await world.pool.query(
      `UPDATE effects SET state = 'dead', reason = 'budget', error = 'still away', attempts = 7`,
    );
    const listed = await effects('list');
    expect(listed).toMatchObject({ code: 0 });
    expect(listed.out).toContain(`${ids[0]} pay a budget, 7 attempts, 0 behind it wait: still away`);
    expect(await effects('release', '-key=a')).toMatchObject({
      code: 0,
      out: '1 dead letters no longer block their keys\n',
    });
    expect(await effects('redrive', '-reason=budget', `-id=${ids[1]}`)).toMatchObject({
      code: 0,
      out: '1 dead letters are due again\n',
    });
    expect((await world.rows()).map(({ state, attempts }) => [state, attempts])).toEqual([
      ['dead', 7],
      ['waiting', 0],
    ]);
    expect(await effects('redrive', '-all')).toMatchObject({
      code: 0,
      out: '1 dead letters are due again\n',
    });
    expect((await effects()).out).toBe('no dead letters\n');
  });

  it.each([
    [['drop'], 2, 'effects accepts list, redrive or release, not "drop"'],
    [['redrive'], 2, 'effects redrive without a filter would change every dead letter'],
    [['list', '-reason=old'], 2, 'there is no reason "old"'],
    [['list', '-id=7'], 2, '"7" is not the id of an effect'],
    [['redrive', '-reason=unknown_outcome'], 2, 'effects of unknown outcome may have been done'],
    [['list', '-table=none'], 3, 'there is no table none'],
    [['list', '-table=orders;'], 2, 'is not a plain name of a table of effects'],
  ])('effects %s is refused with one error', async (args, code, message) => {
    const { err, ...ended } = await effects(...args);
    expect(ended.code).toBe(code);
    expect(err).toContain(message);
  });
});
