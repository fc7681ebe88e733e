import { it } from 'vitest';
import { planOf } from './effects-world/plan.ts';
import { EffectsWorld } from './effects-world/world.ts';
import { writeFileSync } from 'node:fs';
it('debug', async () => {
  const seed = Number(process.env['SEED']);
  const world = new EffectsWorld({ seed, plan: planOf(seed), keepsSteps: true });
  const violations = await world.run().catch((e) => [String(e)]);
  writeFileSync('/tmp/trace.txt', world.trace.steps.join('') + JSON.stringify(violations) + JSON.stringify(planOf(seed)));
});
