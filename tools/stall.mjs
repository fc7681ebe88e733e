// Proves that the tests tolerate scheduling stalls: runs the suite while two busy loops compete for
// the cores, and while random processes of the run's process tree (test workers, commands, brokers,
// database) are stopped for 0.5 to 4 s and continued. A seed determines the times, the processes
// and the durations.
//
//   tools/stall [-seeds=1-10] [-resume] [-busy=2] [-out=FILE] [-- COMMAND …]
//
//   -seeds=1-10   one run of the command for each seed; also a list, as in -seeds=3,7
//   -resume       skips seeds that -out already holds for the current sources
//   -busy=2       number of busy loops
//   -out=FILE     record of the runs, from the root; default: docs/results/stall/runs.json
//   COMMAND       default: npm test. Its last line is `N passed, N failed`.
//
// Each recorded run names the build that it tested, as `millrace version` prints it.
// Exit code 0 if no run failed, 1 if a run failed, 2 for a wrong option, 130 or 143 after SIGINT or
// SIGTERM. Linux only: it reads /proc.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { cpus, release } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** Bounds of a stop, and of the pause before the next stop. Milliseconds. */
const STOP_MS = [500, 4000];
const PAUSE_MS = [250, 3000];
/** Environment variable that marks the processes of a run. Children inherit it, also when they are
 *  re-parented. */
const MARK = 'MILLRACE_STALL_RUN';

/** Pseudo-random generator mulberry32, whose state is a 32-bit word. Source: public domain. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function usage(why) {
  process.stderr.write(`stall: ${why}; see the head of tools/stall.mjs\n`);
  process.exit(2);
}

function seedsOf(text) {
  const range = /^(\d+)-(\d+)$/.exec(text);
  const seeds = range
    ? Array.from({ length: Number(range[2]) - Number(range[1]) + 1 }, (_, at) => Number(range[1]) + at)
    : text.split(',').map(Number);
  if (text === '' || seeds.length === 0 || seeds.some((seed) => !Number.isSafeInteger(seed) || seed < 0))
    usage(`-seeds=${text} is neither a range nor a list of whole numbers`);
  return seeds;
}

function optionsOf(argv) {
  const cut = argv.indexOf('--');
  const flags = cut < 0 ? argv : argv.slice(0, cut);
  const options = {
    seedText: '1-10',
    busy: 2,
    resume: false,
    out: 'docs/results/stall/runs.json',
    command: cut < 0 ? ['npm', 'test', '--silent'] : argv.slice(cut + 1),
  };
  for (const flag of flags) {
    if (flag.startsWith('-seeds=')) options.seedText = flag.slice('-seeds='.length);
    else if (/^-busy=\d+$/.test(flag)) options.busy = Number(flag.slice('-busy='.length));
    else if (flag.startsWith('-out=')) options.out = flag.slice('-out='.length);
    else if (flag === '-resume') options.resume = true;
    else usage(`unknown option ${flag}`);
  }
  if (options.command.length === 0) usage('no command after --');
  return { ...options, seeds: seedsOf(options.seedText) };
}

/** Digest of every file that git tracks or would track, except docs: identifies the tested
 *  sources. */
function digestOfSources() {
  const paths = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '-z'], { cwd: root })
    .toString()
    .split('\0')
    .filter((path) => path !== '' && !path.startsWith('docs/') && existsSync(join(root, path)));
  const sum = createHash('sha256');
  for (const path of paths.sort())
    sum
      .update(path)
      .update('\0')
      .update(readFileSync(join(root, path)))
      .update('\0');
  return sum.digest('hex').slice(0, 16);
}

/** Digest of the build that the run tested, as `millrace version` prints it; null without a
 *  build. */
function buildOf() {
  const { status, stdout } = spawnSync(process.execPath, [join(root, 'bin', 'millrace'), 'version'], {
    encoding: 'utf8',
  });
  return (status === 0 && / build ([0-9a-f]+)\s*$/.exec(stdout)?.[1]) || null;
}

/** Processes of the run by pid. */
function processesOf(mark, isWanted) {
  const needle = Buffer.from(`${MARK}=${mark}`);
  const found = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      if (!readFileSync(`/proc/${name}/environ`).includes(needle)) continue;
      const stat = readFileSync(`/proc/${name}/stat`, 'latin1');
      const state = stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3);
      if (isWanted(state)) found.push(Number(name));
    } catch {
      // The process ended meanwhile.
    }
  }
  return found.sort((a, b) => a - b);
}

function signal(pid, name) {
  try {
    process.kill(pid, name);
    return true;
  } catch {
    return false;
  }
}

/** Ends the run early: no process of the run outlives this tool, and none stays stopped. */
function endRunOn(name, code, mark) {
  const handler = () => {
    for (const pid of processesOf(mark, () => true)) signal(pid, 'SIGKILL');
    process.exit(code);
  };
  process.once(name, handler);
  return () => process.off(name, handler);
}

/** Stops and continues processes of the run until `over()`; returns the number of stops. */
async function stall(mark, draw, over) {
  const between = ([low, high]) => low + draw() * (high - low);
  const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  let stops = 0;
  while (!over()) {
    await wait(between(PAUSE_MS));
    // A process that is already stopped is left alone: the test that stopped it continues it.
    const candidates = processesOf(mark, (state) => state !== 'T' && state !== 'Z');
    const pid = candidates[Math.floor(draw() * candidates.length)];
    if (over() || pid === undefined || !signal(pid, 'SIGSTOP')) continue;
    stops++;
    await wait(between(STOP_MS));
    signal(pid, 'SIGCONT');
  }
  return stops;
}

/** Starts busy loops, which end with this process. */
function busyLoops(count) {
  const program = `for (;;) if (process.ppid !== ${process.pid}) process.exit();`;
  const loops = Array.from({ length: count }, () =>
    spawn(process.execPath, ['-e', program], { stdio: 'ignore' }),
  );
  return () => {
    for (const loop of loops) loop.kill('SIGKILL');
  };
}

async function runOnce(seed, { command, busy }) {
  const mark = randomUUID();
  const started = Date.now();
  const child = spawn(command[0], command.slice(1), {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, [MARK]: mark },
  });
  const logPath = join(root, '.millrace', `stall-${seed}.log`);
  mkdirSync(dirname(logPath), { recursive: true });
  writeFileSync(logPath, '');
  let output = '';
  const keep = (chunk) => {
    output = (output + chunk).slice(-4096);
    writeFileSync(logPath, chunk, { flag: 'a' });
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', (chunk) => writeFileSync(logPath, chunk, { flag: 'a' }));
  let code;
  const closed = new Promise((resolve) =>
    child.on('close', (status) => {
      code = status ?? -1;
      resolve();
    }),
  );
  const handlers = [endRunOn('SIGINT', 130, mark), endRunOn('SIGTERM', 143, mark)];
  const quiet = busyLoops(busy);
  const stops = await stall(mark, generator(seed), () => code !== undefined);
  quiet();
  await closed;
  for (const remove of handlers) remove();
  const tally = /(\d+) passed, (\d+) failed\s*$/.exec(output);
  return {
    seed,
    passed: tally ? Number(tally[1]) : 0,
    failed: tally ? Number(tally[2]) : 1,
    exit: code,
    build: buildOf(),
    stops,
    seconds: Math.round((Date.now() - started) / 1000),
  };
}

function readRuns(path, sources) {
  if (!existsSync(path)) return [];
  const kept = JSON.parse(readFileSync(path, 'utf8'));
  return kept.sources === sources ? kept.runs : [];
}

const options = optionsOf(process.argv.slice(2));
const out = join(root, options.out);
const sources = digestOfSources();
const runs = options.resume ? readRuns(out, sources) : [];
for (const seed of options.seeds) {
  if (runs.some((run) => run.seed === seed)) continue;
  process.stderr.write(`stall: seed ${seed}: ${options.command.join(' ')}\n`);
  const run = await runOnce(seed, options);
  runs.push(run);
  runs.sort((a, b) => a.seed - b.seed);
  const document = {
    command: `tools/stall -seeds=${options.seedText}`,
    suite: options.command.join(' '),
    sources,
    busy_loops: options.busy,
    machine: {
      cpu: cpus()[0]?.model ?? '',
      cores: cpus().length,
      os: `linux ${release()}`,
      node: process.version,
    },
    runs,
  };
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(`${out}.part`, `${JSON.stringify(document, null, 1)}\n`);
  renameSync(`${out}.part`, out);
  process.stdout.write(
    `seed ${seed}: ${run.passed} passed, ${run.failed} failed, exit ${run.exit}, ${run.stops} stops, ${run.seconds} s\n`,
  );
}
const bad = runs.filter((run) => options.seeds.includes(run.seed) && (run.failed > 0 || run.exit !== 0));
process.stdout.write(
  `${options.seeds.length - bad.length} of ${options.seeds.length} seeds without a failure\n`,
);
process.exitCode = bad.length === 0 ? 0 : 1;
