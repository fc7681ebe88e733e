/** Rate of the simulated system of orders, relay and payments: runs each seed twice, as
 *  test/property/effects.test.ts does, and prints schedules a minute and CPU a run. Uses the
 *  compiled product (`npm run build`).
 *
 *    node tools/simulation-rate.mjs [seeds] [first seed]
 *
 *  CPU time includes the threads of the garbage collector and of the compiler. `millrace bench
 *  unit` says how fast the machine is.
 */
import { register } from 'node:module';
import { dirname } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const seeds = Number(process.argv[2] ?? 300);
const first = Number(process.argv[3] ?? 1);
/** Runs until the compiler of the engine has seen the code. */
const WARM_UP = 100;

const hooks = pathToFileURL(`${root}/test/property/faults/typescript-hooks.mjs`);
register(hooks, { data: { root, fault: null } });
const from = (name) => import(pathToFileURL(`${root}/test/property/effects-world/${name}.ts`).href);
const { planOf } = await from('plan');
const { EffectsWorld } = await from('world');

async function run(seed) {
  const plan = planOf(seed);
  const world = new EffectsWorld({ seed, plan });
  const violations = await world.run();
  if (violations.length > 0) throw new Error(`seed ${seed}: ${violations[0]}`);
  return { steps: world.trace.count, digest: world.trace.digest(), plan };
}

async function runTwice(seed) {
  const one = await run(seed);
  if ((await run(seed)).digest !== one.digest) throw new Error(`seed ${seed} did not repeat its run`);
  return one;
}

for (let i = 0; i < WARM_UP; i++) await run(first + i);
const startMs = performance.now();
const startCpu = process.cpuUsage();
let leastSteps = Number.POSITIVE_INFINITY;
let leastFaults = Number.POSITIVE_INFINITY;
let leastRequests = Number.POSITIVE_INFINITY;
for (let seed = first; seed < first + seeds; seed++) {
  const { steps, plan } = await runTwice(seed);
  leastSteps = Math.min(leastSteps, steps);
  leastFaults = Math.min(leastFaults, plan.faults.length);
  leastRequests = Math.min(leastRequests, plan.requests);
}
const wallMs = performance.now() - startMs;
const { user, system } = process.cpuUsage(startCpu);
const cpuMs = (user + system) / 1000;
const perMinute = (ms) => Math.round((seeds * 60_000) / ms);
process.stdout.write(
  `${seeds} seeds, each run twice; at least ${leastRequests} requests, ${leastFaults} faults, ${leastSteps} steps\n` +
    `${(cpuMs / seeds / 2).toFixed(1)} ms of CPU and ${(wallMs / seeds / 2).toFixed(1)} ms a run\n` +
    `${2 * perMinute(wallMs)} runs a minute, ${perMinute(wallMs)} seeds run twice a minute, on one thread\n`,
);
process.exit(0);
