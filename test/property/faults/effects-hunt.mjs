/** Plants a fault into the compiled product and runs the whole system of orders, relay and payments
 *  from seeds until the auditor sees it. Arguments: root of the repository, maximum number of
 *  seeds, the fault as JSON (or null). Prints the seed and what was violated; nothing if no seed
 *  shows the fault. */
import { register } from 'node:module';
import { pathToFileURL } from 'node:url';

const [root, seeds, given] = process.argv.slice(2);
const fault = JSON.parse(given);
register('./typescript-hooks.mjs', { parentURL: import.meta.url, data: { root, fault } });
const from = (name) => import(pathToFileURL(`${root}/test/property/effects-world/${name}.ts`).href);
const { planOf } = await from('plan');
const { EffectsWorld } = await from('world');

for (let seed = 1; seed <= Number(seeds); seed++) {
  const plan = { ...planOf(seed), ...fault?.plan };
  const world = new EffectsWorld({ seed, plan });
  // A system that a fault stops for good never becomes complete.
  const violations = await world.run().catch((thrown) => [...world.auditor.violations, thrown.message]);
  if (violations.length === 0) continue;
  process.stdout.write(`${seed} ${violations[0]}`);
  break;
}
// Timers of the simulation hold nothing open, but a fault may.
process.exit(0);
