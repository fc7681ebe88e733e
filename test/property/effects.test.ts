/** The whole system of orders, relay and payments under virtual time, from seeds: the product's own
 *  processes on a simulated database, broker, network and clocks. The auditor
 *  (effects-world/audit.ts) is written from the requirements. `charges` has no UNIQUE(order_id)
 *  here, so that only the inbox prevents a second charge.
 *
 *  MILLRACE_TEST_SEED=random starts at a random seed; a failure names the seed that repeats it.
 */
import { describe, expect, it } from 'vitest';
import { SeededRandom } from '../../src/sim/clock.ts';
import { isFull } from '../tier.ts';
import { goldenPlan, KINDS, type Plan, planOf } from './effects-world/plan.ts';
import { EffectsWorld, type WorldOptions } from './effects-world/world.ts';

const FIRST = process.env['MILLRACE_TEST_SEED'] === 'random' ? Math.floor(Math.random() * 2 ** 31) : 1;
const SEEDS = Array.from({ length: isFull ? 300 : 15 }, (_, i) => FIRST + i);
const STEPS_MIN = 1000;
/** Runs with two kills. */
const PAIRS = isFull ? 100 : 5;
/** Distance of the steps after which the golden run is killed. */
const KILL_EVERY = isFull ? 1 : 17;

/** Two steps of a run with at least STEPS_MIN. Their distance has every order of magnitude, so that
 *  the second kill also meets the recovery from the first. */
function pairOfSteps(seed: number): readonly [number, number] {
  const random = new SeededRandom(seed ^ 0x7061_6972);
  const first = 1 + Math.floor((random.fraction() * STEPS_MIN) / 2);
  return [first, first + Math.floor((STEPS_MIN / 2) ** random.fraction())];
}

async function ran(options: WorldOptions) {
  const world = new EffectsWorld(options);
  const violations = await world.run();
  return { world, violations, steps: world.trace.count, digest: world.trace.digest() };
}

describe('orders, relay and payments under faults', () => {
  it('each intent has one order and one charge, whatever fails, and a seed repeats its run step by step', async () => {
    const met = new Map<string, number>();
    for (const seed of SEEDS) {
      const first = await ran({ seed, plan: planOf(seed) });
      expect({ seed, violations: first.violations }).toEqual({ seed, violations: [] });
      expect(first.steps).toBeGreaterThanOrEqual(STEPS_MIN);
      const again = await ran({ seed, plan: planOf(seed) });
      expect({ seed, digest: again.digest }).toEqual({ seed, digest: first.digest });
      for (const [what, count] of first.world.met) met.set(what, (met.get(what) ?? 0) + count);
    }
    expect([...met.keys()]).toEqual(
      expect.arrayContaining([
        ...KINDS,
        'a commit without an answer',
        'a mark lost in a crash of the database',
        'a repeated publication absorbed',
        'an injected duplicate absorbed',
      ]),
    );
  });

  it.each([
    ['poll', 'mark'],
    ['wal', 'mark'],
    ['poll', 'broker'],
  ] as const)(
    'each step of a run in %s mode with the fence %s may be the last of its process',
    async (mode, fence) => {
      const plan: Plan = goldenPlan(mode, fence);
      const golden = await ran({ seed: FIRST, plan });
      expect(golden.violations).toEqual([]);
      for (let step = 1; step <= golden.steps; step += KILL_EVERY) {
        const { violations } = await ran({ seed: FIRST, plan, killAtSteps: [step] });
        expect({ step, violations }).toEqual({ step, violations: [] });
      }
    },
  );

  it('pairs of kills leave one charge for each order', async () => {
    for (const seed of SEEDS.slice(0, PAIRS)) {
      const plan = { ...planOf(seed), faults: [] };
      const killAtSteps = pairOfSteps(seed);
      const { world, violations } = await ran({ seed, plan, killAtSteps });
      const kills = world.met.get('a kill at a step');
      expect({ seed, killAtSteps, kills, violations }).toEqual({
        ...{ seed, killAtSteps, kills: 2, violations: [] },
      });
    }
  });
});

describe('a dedup TTL below the redelivery horizon', () => {
  /** Repeats come later than the inbox remembers. */
  const late = (seed: number): Plan => ({ ...planOf(seed), lostReport: 0.2, fence: 'mark' });
  const TTL_MS = 60;

  it('an inbox whose floor is ignored lets an order be charged twice, and the auditor names the order', async () => {
    const found: string[] = [];
    for (const seed of SEEDS.slice(0, 10)) {
      const { violations } = await ran({ seed, plan: late(seed), inboxTtlMs: TTL_MS, floor: 'ignored' });
      found.push(...violations);
    }
    expect(found.join('\n')).toMatch(/the order [0-9a-f-]{36} is charged twice/);
  });

  it('an inbox whose floor is guarded lets no order be charged twice, and parks late messages', async () => {
    let parked = 0;
    for (const seed of SEEDS.slice(0, 10)) {
      const { world, violations } = await ran({ seed, plan: late(seed), inboxTtlMs: TTL_MS });
      expect(violations.filter((what) => what.includes('twice'))).toEqual([]);
      parked += world.tables.parked.length;
    }
    expect(parked).toBeGreaterThan(0);
  });
});
