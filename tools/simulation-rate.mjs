/** Rate of the simulated system of orders, relay and payments: runs each seed twice on one thread a
 *  core, as test/property/effects.test.ts does on one thread, and prints CPU a run and seeds a
 *  minute for one core and for the machine. Ends with 1 at a violation or a seed that did not
 *  repeat its run, so that it also searches new seeds. Uses the compiled product (`npm run build`).
 *
 *    node tools/simulation-rate.mjs [-seeds=300] [-first=1] [-threads=N] [-out=FILE]
 *
 *    -first=random  starts at a random seed and prints it
 *    -out=FILE      adds the run to a record, as docs/results/simulation/runs.json
 *
 *  CPU time includes the threads of the garbage collector and of the compiler. `millrace bench
 *  unit` says how fast the machine is.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { register } from 'node:module';
import { availableParallelism, cpus, release } from 'node:os';
import { dirname } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** Runs of a thread until the compiler of the engine has seen the code. */
const WARM_UP = 100;
/** Size of the young generation of a thread. It is collected about once a run; the default is
 *  collected 2.4 times, and copies what the run still holds each time. */
const YOUNG_MIB = 192;

async function simulation() {
  const hooks = pathToFileURL(`${root}/test/property/faults/typescript-hooks.mjs`);
  register(hooks, { data: { root, fault: null } });
  const from = (name) => import(pathToFileURL(`${root}/test/property/effects-world/${name}.ts`).href);
  const { planOf } = await from('plan');
  const { EffectsWorld } = await from('world');
  return async (seed) => {
    const plan = planOf(seed);
    const world = new EffectsWorld({ seed, plan });
    const violations = await world.run();
    const { trace } = world;
    return { violations, digest: trace.digest(), steps: trace.count, plan };
  };
}

/** Runs a seed twice. Returns its figures, with `failure` if it broke a requirement. */
async function runTwice(run, seed) {
  try {
    const { violations, digest, steps, plan } = await run(seed);
    const again = await run(seed);
    const figures = { seed, steps, faults: plan.faults.length, requests: plan.requests };
    if (violations.length > 0) return { ...figures, failure: violations[0] };
    if (again.digest !== digest) return { ...figures, failure: 'the second run has another digest' };
    return figures;
  } catch (thrown) {
    return { seed, failure: String(thrown) };
  }
}

/** Thread: warms up, then runs the seeds that the main thread sends. */
async function serve() {
  const run = await simulation();
  for (let i = 0; i < WARM_UP; i++) await run(workerData.first + i);
  parentPort.on('message', (seed) => {
    void runTwice(run, seed).then((figures) => parentPort.postMessage(figures));
  });
  parentPort.postMessage('ready');
}

/** Starts threads and resolves when all are warm. */
function threadsOf(count, first) {
  const limits = { maxYoungGenerationSizeMb: YOUNG_MIB };
  return Promise.all(
    Array.from({ length: count }, async () => {
      const worker = new Worker(new URL(import.meta.url), { workerData: { first }, resourceLimits: limits });
      await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
      return worker;
    }),
  );
}

/** Shares the seeds among the threads: each takes the next seed when it has finished one. */
async function measure(workers, first, seeds) {
  const done = [];
  let next = first;
  await Promise.all(
    workers.map(async (worker) => {
      while (next < first + seeds) {
        worker.postMessage(next++);
        done.push(await new Promise((resolve) => worker.once('message', resolve)));
      }
    }),
  );
  return done;
}

function optionsOf(args) {
  const known = { seeds: '300', first: '1', threads: String(availableParallelism()), out: '' };
  for (const arg of args) {
    const [, name, value] = /^-(\w+)=(.+)$/.exec(arg) ?? [];
    if (!(name in known)) throw new Error(`${arg} is none of -seeds, -first, -threads, -out`);
    known[name] = value;
  }
  const first = known.first === 'random' ? Math.floor(Math.random() * 2 ** 31) : Number(known.first);
  return { seeds: Number(known.seeds), first, threads: Number(known.threads), out: known.out };
}

function keep(out, run) {
  const kept = existsSync(out) ? JSON.parse(readFileSync(out, 'utf8')) : { runs: [] };
  const machine = {
    cpu: cpus()[0]?.model ?? '',
    cores: cpus().length,
    os: `linux ${release()}`,
    node: process.version,
  };
  kept.runs.push({ ...run, machine });
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, `${JSON.stringify(kept, null, 1)}\n`);
}

async function main() {
  const { seeds, first, threads, out } = optionsOf(process.argv.slice(2));
  const workers = await threadsOf(threads, first);
  const startMs = performance.now();
  const startCpu = process.cpuUsage();
  const done = await measure(workers, first, seeds);
  const wallMs = performance.now() - startMs;
  const { user, system } = process.cpuUsage(startCpu);
  const failed = done.filter(({ failure }) => failure !== undefined).sort((a, b) => a.seed - b.seed);
  for (const { seed, failure } of failed) process.stdout.write(`seed ${seed}: ${failure}\n`);
  const least = (name) => Math.min(...done.map((one) => one[name] ?? Number.POSITIVE_INFINITY));
  const run = {
    command: `node tools/simulation-rate.mjs -seeds=${seeds} -first=${first} -threads=${threads}`,
    seeds,
    failed: failed.length,
    requests_min: least('requests'),
    faults_min: least('faults'),
    steps_min: least('steps'),
    steps_mean: Math.round(done.reduce((sum, { steps }) => sum + (steps ?? 0), 0) / seeds),
    cpu_ms_a_run: Number(((user + system) / 1000 / seeds / 2).toFixed(2)),
    seeds_a_minute: Math.round((seeds * 60_000) / wallMs),
  };
  process.stdout.write(
    `${seeds} seeds from ${first}, each run twice, ${failed.length} failed\n` +
      `at least ${run.requests_min} requests, ${run.faults_min} faults and ${run.steps_min} steps a run, ${run.steps_mean} steps in the mean\n` +
      `${run.cpu_ms_a_run} ms of CPU a run: ${Math.round(30_000 / run.cpu_ms_a_run)} seeds run twice a minute of one core\n` +
      `${run.seeds_a_minute} seeds run twice a minute on ${threads} threads, by the clock on the wall\n`,
  );
  if (out !== '') keep(out, run);
  process.exit(failed.length === 0 ? 0 : 1);
}

if (isMainThread) await main();
else await serve();
