// Builds the kernels, and the readers of Kafka's wire format, with AddressSanitizer and
// UndefinedBehaviorSanitizer and runs their checks: unit checks, then the corpus of every fuzz
// target with mutations. The kernels that use threads are built again with ThreadSanitizer. Objects
// are cached in .millrace/native-test by the hash of their inputs, so that a second run compiles
// nothing.
//
//   node tools/native-test.mjs [-runs=20000] [-seed=1]
//
// Prints one line for each program on stdout, `NAME inputs=N mutations=N`; exits with 1 on any
// finding. With clang the same fuzz targets build for libFuzzer: clang++ -std=c++20
// -fsanitize=fuzzer,address,undefined -Inative FUZZ_TARGET.cc
// $(find native/kernel native/broker/wire -name '*.cc') -lcrypto -lz -llz4 -lzstd -lsnappy
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const cache = join(root, '.millrace', 'native-test');
const compiler = process.env.CXX ?? 'c++';
const option = (name, otherwise) =>
  process.argv.find((arg) => arg.startsWith(`-${name}=`))?.slice(name.length + 2) ?? otherwise;
const runs = option('runs', '20000');
const seed = option('seed', '1');

const PLAIN_FLAGS = [
  '-std=c++20',
  '-g1',
  '-O1',
  '-Wall',
  '-Wextra',
  '-Wconversion',
  '-Werror',
  '-fno-omit-frame-pointer',
  '-ffp-contract=off',
  '-Inative',
  // Enables the checks of native/kernel/invariant.h.
  '-DMILLRACE_INVARIANTS',
];
const FLAGS = [...PLAIN_FLAGS, '-fsanitize=address,undefined', '-fno-sanitize-recover=all'];
const THREAD_FLAGS = [...PLAIN_FLAGS, '-fsanitize=thread', '-pthread'];
/** Sources that ThreadSanitizer checks, and its programs. */
const THREADED = /^native\/kernel\/(?:(?:rows|session|shard|window)\/\w+|event|hash|packed)\.cc$/;
const THREADED_TESTS = ['shard/workers_test', 'window_test', 'session_test'];

/** Libraries of native/broker/wire. */
const LIBRARIES = ['-lcrypto', '-lz', '-llz4', '-lzstd', '-lsnappy'];

const within = (folder, suffix) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(suffix))
    .sort()
    .map((name) => join(folder, name));
const read = (path) => readFileSync(join(root, path));
const hash = (...parts) => {
  const sum = createHash('sha256');
  for (const part of parts) sum.update(part).update('\0');
  return sum.digest('hex').slice(0, 16);
};

const version = spawnSync(compiler, ['--version'], { encoding: 'utf8' });
if (version.status !== 0) {
  process.stderr.write(`native-test: ${compiler} does not run; install a C++ compiler or set CXX\n`);
  process.exit(3);
}
const headers = ['native/kernel', 'native/layout', 'native/broker/wire', 'native/test']
  .flatMap((folder) => within(folder, '.h'))
  .map(read);
const commonOf = (flags) => hash(version.stdout, flags.join(' '), ...headers);

/** Runs a command and returns its output. On failure writes the output to stderr and exits. */
function run(command, args, cwd = root) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    child.stdout.on('data', (chunk) => {
      output += chunk;
    });
    child.stderr.on('data', (chunk) => {
      output += chunk;
    });
    child.on('close', (code, signal) => {
      if (code !== 0) {
        process.stderr.write(`${command} ${args.join(' ')}\n${output}\nnative-test: ${code ?? signal}\n`);
        process.exit(1);
      }
      resolve(output);
    });
  });
}

const used = new Set();
const KEPT_UNUSED_MS = 3_600_000;

/** Builds a file once, under a name that contains the hash of its inputs. An incomplete file is
 *  never visible. */
async function make(name, args, flags = FLAGS) {
  const target = join(cache, name);
  used.add(name);
  if (existsSync(target)) return target;
  const unfinished = `${target}.${process.pid}`;
  await run(compiler, [...flags, ...args, '-o', unfinished]);
  renameSync(unfinished, target);
  return target;
}

/** Runs at most two jobs at a time: a compiler with sanitizers needs much memory. */
async function inPairs(jobs) {
  const results = new Array(jobs.length);
  let next = 0;
  const worker = async () => {
    while (next < jobs.length) {
      const mine = next++;
      results[mine] = await jobs[mine]();
    }
  };
  await Promise.all([worker(), worker()]);
  return results;
}

mkdirSync(cache, { recursive: true });
const kernels = [...within('native/kernel', '.cc'), ...within('native/broker/wire', '.cc')];
const tests = within('native/test', '.cc');
async function compiled(paths, flags) {
  const common = commonOf(flags);
  const objectName = (path) => `${basename(path, '.cc')}-${hash(common, read(path))}.o`;
  return new Map(
    await inPairs(paths.map((path) => async () => [path, await make(objectName(path), ['-c', path], flags)])),
  );
}
const objects = await compiled([...kernels, ...tests], FLAGS);
const kernelObjects = kernels.map((path) => objects.get(path));
const replay = objects.get('native/test/replay.cc');
const programs = tests.filter((path) => /_(fuzz|test)\.cc$/.test(path));
const built = await inPairs(
  programs.map((path) => async () => {
    const parts = [objects.get(path), ...kernelObjects, ...(path.endsWith('_fuzz.cc') ? [replay] : [])];
    const name = basename(path, '.cc');
    return [name, await make(`${name}-${hash(...parts)}`, [...parts, ...LIBRARIES])];
  }),
);
await inPairs(
  built.map(([name, program]) => async () => {
    const corpus = join(root, 'native', 'test', 'corpus', name.replace('_fuzz', ''));
    const output = await run(program, name.endsWith('_fuzz') ? [corpus, runs, seed] : [], cache);
    process.stdout.write(`${name} ${output.trim().split('\n').at(-1)}\n`);
    if (!name.endsWith('_test')) return;
    // Proves that the sanitizers are active: each planted fault must be found.
    for (const fault of ['overrun', 'overflow', 'check']) {
      if (spawnSync(program, [fault]).status === 0) {
        process.stderr.write(`native-test: the planted fault ${fault} was not found\n`);
        process.exit(1);
      }
    }
    process.stdout.write(`${name} sanitizers=active\n`);
  }),
);

/** Runs a program under ThreadSanitizer. Its runtime cannot map its memory where the system places
 *  programs at too many addresses; then it runs without that. */
function runThreaded(program, args = []) {
  const plain = spawnSync(program, args, { encoding: 'utf8' });
  if (!`${plain.stderr}`.includes('unexpected memory mapping')) return plain;
  return spawnSync('setarch', [process.arch === 'arm64' ? 'aarch64' : 'x86_64', '-R', program, ...args], {
    encoding: 'utf8',
  });
}

const threadedObjects = await compiled(
  [
    ...kernels.filter((path) => THREADED.test(path)),
    ...THREADED_TESTS.map((name) => `native/test/${name}.cc`),
  ],
  THREAD_FLAGS,
);
await inPairs(
  THREADED_TESTS.map((name) => async () => {
    const parts = [...threadedObjects]
      .filter(([path]) => !path.startsWith('native/test/') || path === `native/test/${name}.cc`)
      .map(([, object]) => object);
    const program = await make(`threads-${basename(name)}-${hash(...parts)}`, parts, THREAD_FLAGS);
    const checked = runThreaded(program);
    if (checked.status !== 0) {
      process.stderr.write(
        `${checked.stdout}${checked.stderr}\nnative-test: ${name} under ThreadSanitizer\n`,
      );
      process.exit(1);
    }
    if (runThreaded(program, ['race']).status === 0) {
      process.stderr.write('native-test: the planted fault race was not found\n');
      process.exit(1);
    }
    process.stdout.write(`${basename(name)} threads=clean\n`);
  }),
);

// Removes results of earlier sources. Crash files are kept for inspection.
for (const name of readdirSync(cache)) {
  const path = join(cache, name);
  const stale = !used.has(name) && !name.startsWith('crash-');
  if (stale && Date.now() - statSync(path).mtimeMs > KEPT_UNUSED_MS) rmSync(path, { force: true });
}
