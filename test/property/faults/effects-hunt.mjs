/** Plants a fault into the compiled product and runs the whole system of orders, relay and payments
 *  from seeds until the auditor sees it; or only relays, for a fault with `world: 'relay'`.
 *  Arguments: root of the repository, maximum number of seeds, the fault as JSON (or null). Prints
 *  the seed and the first violation; nothing if no seed shows the fault. */
import { register } from 'node:module';
import { pathToFileURL } from 'node:url';

const [root, seeds, given] = process.argv.slice(2);
const fault = JSON.parse(given);
register('./typescript-hooks.mjs', { parentURL: import.meta.url, data: { root, fault } });
const from = (name) => import(pathToFileURL(`${root}/test/property/${name}.ts`).href);
const { planOf } = await from('effects-world/plan');
const { EffectsWorld } = await from('effects-world/world');
const { relayViolations } = await from('relay-world/run');

/** A system that a fault stops for good never becomes complete. */
async function violationsOf(seed) {
  if (fault?.world === 'relay')
    return relayViolations(seed, 'poll', 'mark').catch((thrown) => [thrown.message]);
  const world = new EffectsWorld({ seed, plan: { ...planOf(seed), ...fault?.plan } });
  return world.run().catch((thrown) => [...world.auditor.violations, thrown.message]);
}

for (let seed = 1; seed <= Number(seeds); seed++) {
  const violations = await violationsOf(seed);
  if (violations.length === 0) continue;
  process.stdout.write(`${seed} ${violations[0]}`);
  break;
}
// Timers of the simulation hold nothing open, but a fault may.
process.exit(0);
