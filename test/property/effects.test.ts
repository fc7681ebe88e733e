/** The whole system of orders, relay and payments under virtual time, from seeds. */
import { describe, expect, it } from 'vitest';
import { planOf } from './effects-world/plan.ts';
import { EffectsWorld } from './effects-world/world.ts';

const FIRST = process.env['MILLRACE_TEST_SEED'] === 'random' ? Math.floor(Math.random() * 2 ** 31) : 1;
const SEEDS = Array.from({ length: 100 }, (_, i) => FIRST + i);

describe('orders, relay and payments under faults', () => {
  it('each intent has one order, one record at least and one charge, whatever fails', async () => {
    for (const seed of SEEDS) {
      const world = new EffectsWorld({ seed, plan: planOf(seed) });
      const violations = await world.run();
      expect({ seed, violations }).toEqual({ seed, violations: [] });
    }
  });
});
