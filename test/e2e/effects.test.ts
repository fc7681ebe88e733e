/** Effects on a real PostgreSQL: calls to a provider that acts and may not answer, retries, order of
 *  a key, dead letters, and runners that die in the middle of a call. */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { effect } from '../../src/outbox/effects/add.ts';
import { listDeadEffects, redriveEffects, releaseEffects } from '../../src/outbox/effects/dead.ts';
import { effectNotDone, effectRefused } from '../../src/outbox/effects/handler.ts';
import { projectRoot } from '../repository/root.ts';
import { until } from '../wait.ts';
import { effectsWorld, pay, startProvider } from './effects-kit.ts';

const world = await effectsWorld();
const provider = await startProvider();
const FAST_RETRY = { firstDelayMs: 5, maxDelayMs: 20, budgetMs: 600_000 };

beforeEach(async () => {
  await world.pool.query('TRUNCATE effects');
  provider.calls.length = 0;
  provider.acts.length = 0;
  provider.silent = () => false;
});

const add = (key = 'account-1', input: unknown = { cents: 1 }, name = 'pay'): Promise<string> =>
  world.pool.transaction((tx) => effect(tx, 'effects', { name, key, input }));
const codeOf = async (work: Promise<unknown>): Promise<string | undefined> =>
  findMillraceError(await work.catch((thrown: unknown) => thrown))?.code;

describe('effects of a transaction', () => {
  it('an effect is called after its commit, once, under its id, and its result and consequence are kept', async () => {
    await world.pool.query('CREATE TABLE paid (effect uuid, charge text)');
    const { stop } = world.runner({
      pay: {
        call: pay(provider),
        done: async (tx, { id }, result) => {
          await tx.query('INSERT INTO paid VALUES ($1::uuid, $2)', [id, (result as { charge: string }).charge]);
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

  it('an effect outside of a transaction, and one that cannot become a row, is refused with nothing written', async () => {
    expect(await codeOf(effect(world.pool, 'effects', { name: 'pay', key: 'k', input: 1 }))).toBe('not_in_transaction');
    const good = { name: 'pay', key: 'k', input: 1 };
    for (const wrong of [
      { ...good, name: 'Pay money' },
      { ...good, key: '' },
      { ...good, key: 'x'.repeat(501) },
      { ...good, input: undefined },
      { ...good, input: 'x'.repeat(300_000) },
      { ...good, id: '7' },
      { ...good, traceparent: 'x' },
    ])
      expect(await codeOf(world.pool.transaction((tx) => effect(tx, 'effects', wrong)))).toBe('bad_effect');
    expect(await codeOf(world.pool.transaction((tx) => effect(tx, 'Effects"', good)))).toBe('bad_table_name');
    expect(await world.rows()).toEqual([]);
  });
});

describe('a provider that acts and does not answer', () => {
  it('an effect at least once is called again under the same id, and the provider acts once', async () => {
    provider.silent = (_, calls) => calls < 3;
    const { stop } = world.runner({ pay: { call: pay(provider), timeoutMs: 100, retry: FAST_RETRY } });
    const id = await add();
    const [row] = await world.settled('done');
    expect(row).toMatchObject({ attempts: 3, error: null });
    expect([provider.calls, provider.acts]).toEqual([[id, id, id], [id]]);
    await stop();
  });

  it('an effect at most once becomes a dead letter of unknown outcome, and is redriven only if that is confirmed', async () => {
    provider.silent = (_, calls) => calls < 2;
    const { stop } = world.runner({
      pay: { call: pay(provider), timeoutMs: 100, delivery: 'at_most_once', retry: FAST_RETRY },
    });
    const id = await add();
    expect(await world.settled('dead')).toMatchObject([{ reason: 'unknown_outcome', attempts: 1 }]);
    expect(await codeOf(redriveEffects(world.pool, 'effects', { reasons: ['unknown_outcome'] }))).toBe('bad_option');
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
  it('effects of a key are called in order, each after the one before it is done, while other keys go on', async () => {
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
      { id: first[0], reason: 'refused', error: 'the card was declined', attempts: 1, blocks: true, behind: 1 },
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
    ['at_least_once', ['done', 'done']],
    ['at_most_once', ['dead', 'waiting']],
  ] as const)('a runner that is killed in a call %s leaves the effect to another runner', async (delivery, states) => {
    provider.silent = (_, calls) => calls < 2;
    const worker = spawn(
      process.execPath,
      [join(projectRoot, 'test/e2e/effects.worker.mjs'), projectRoot, world.url, provider.url, delivery],
      { stdio: 'inherit' },
    );
    const id = await add();
    await add();
    await until('a call in flight', () => provider.calls.length === 1);
    worker.kill('SIGKILL');
    await new Promise((resolve) => worker.once('exit', resolve));
    const { stop } = world.runner({ pay: { call: pay(provider), delivery, retry: FAST_RETRY } }, { leaseMs: 500 });
    await until('the outcome of both', async () => {
      const found = (await world.rows()).map(({ state }) => state);
      return found.join() === states.join() && found;
    });
    expect(provider.acts.filter((one) => one === id)).toEqual([id]);
    expect(provider.calls.filter((one) => one === id)).toHaveLength(delivery === 'at_least_once' ? 2 : 1);
    await stop();
  });
});
