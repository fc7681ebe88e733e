// Runs the fast tier and the package test on the other Node.js versions that Millrace supports
// (test/runtimes). The full tier calls it. Each version has a copy of the sources in
// .millrace/runtimes, set up by bin/bootstrap as on a fresh clone, so that native packages are
// compiled for that version.
//
//   node tools/runtimes.mjs [-node=22|24]      the last line is `N passed, N failed`
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run as runProgram } from './run.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const home = join(root, '.millrace', 'runtimes');
const FILES = ['package.json', 'package-lock.json', '.npmrc'];
/** Outputs of bin/bootstrap in this clone that do not depend on the Node.js version; they are
 *  copied instead of rebuilt. */
const SHARED = ['build', 'prebuilds', '.millrace/librdkafka', '.millrace/kafka-jars', '.millrace/oracles'];
/** Major versions; each has a package of the same number in test/runtimes/package.json. */
export const RUNTIMES = ['22', '24'];

const NEXT = 'connect to the package registry, then run this again';
const run = (what, command, args, options) => runProgram(what, command, args, options, NEXT);

/** Folder with the runtimes of the lock file, installed once: node_modules/node22/bin/node and so
 *  on. */
export function runtimesDir(say = () => {}) {
  const hash = createHash('sha256');
  for (const name of FILES) hash.update(readFileSync(join(root, 'test/runtimes', name)));
  const dir = join(home, hash.digest('hex').slice(0, 16));
  if (existsSync(join(dir, 'stamp'))) return dir;
  say('downloading Node.js 22 and 24 for the tests (about 105 MB)');
  // Downloaded into a temporary folder and renamed, so that a broken download never counts as an
  // installation.
  const part = join(home, `aside-${process.pid}`);
  rmSync(part, { recursive: true, force: true });
  mkdirSync(part, { recursive: true });
  try {
    for (const name of FILES) copyFileSync(join(root, 'test/runtimes', name), join(part, name));
    run('npm ci', 'npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: part });
    writeFileSync(join(part, 'stamp'), '');
    if (!existsSync(dir)) renameSync(part, dir);
  } finally {
    rmSync(part, { recursive: true, force: true });
  }
  return dir;
}

/** Copies the sources that git lists (including new, excluding ignored files) into the folder of a
 *  runtime. Keeps what an earlier run set up there, and copies the outputs in SHARED. */
function copySources(tree) {
  const listed = run(
    'git ls-files',
    'git',
    ['ls-files', '-z', '--cached', '--others', '--exclude-standard'],
    {
      cwd: root,
    },
  );
  const kept = ['node_modules', 'build', 'prebuilds', '.millrace', '.git'];
  mkdirSync(tree, { recursive: true });
  const old = run('find', 'find', ['.', '-mindepth', '1', '-maxdepth', '1', '-printf', '%f\\0'], {
    cwd: tree,
  });
  for (const name of old.split('\0'))
    if (name !== '' && !kept.includes(name)) rmSync(join(tree, name), { recursive: true, force: true });
  for (const path of listed.split('\0')) {
    if (path === '' || !existsSync(join(root, path))) continue;
    mkdirSync(dirname(join(tree, path)), { recursive: true });
    cpSync(join(root, path), join(tree, path), { verbatimSymlinks: true });
  }
  // Its own git repository, because tests query git for the files of the project.
  if (!existsSync(join(tree, '.git'))) run('git init', 'git', ['init', '--quiet'], { cwd: tree });
  run('git add', 'git', ['add', '--all'], { cwd: tree });
  mkdirSync(join(tree, '.millrace'), { recursive: true });
  for (const name of SHARED) {
    if (!existsSync(join(root, name)) || existsSync(join(tree, name))) continue;
    cpSync(join(root, name), join(tree, name), { recursive: true, verbatimSymlinks: true });
  }
}

/** @returns numbers of passed and failed tests on this major version; output goes to stderr */
function runOn(major, dir) {
  const tree = join(home, `tree-${major}`);
  copySources(tree);
  const node = join(dir, 'node_modules', `node${major}`);
  const env = { ...process.env, PATH: `${join(node, 'bin')}${delimiter}${process.env.PATH}` };
  // npm's own environment variables refer to the headers of the calling Node.js.
  for (const name of Object.keys(env)) if (/^npm_/i.test(name)) delete env[name];
  env.npm_config_nodedir = node;
  const version = run('node', 'node', ['--version'], { env }).trim();
  process.stderr.write(`\n== Node.js ${version}\n`);
  const setUp = spawnSync(join(tree, 'bin', 'bootstrap'), [], { cwd: tree, env, stdio: ['ignore', 2, 2] });
  if (setUp.status !== 0)
    throw new Error(`bin/bootstrap on Node.js ${version} ended with ${setUp.status ?? setUp.signal}`);
  const tests = spawnSync('node', ['tools/test.mjs', '-tier=runtime'], {
    ...{ cwd: tree, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 2] },
  });
  const tally = /(\d+) passed, (\d+) failed\s*$/.exec(tests.stdout ?? '');
  if (tally === null)
    throw new Error(`the tests on Node.js ${version} ended with ${tests.status ?? tests.signal}`);
  process.stderr.write(`Node.js ${version}: ${tally[0].trim()}\n`);
  return { passed: Number(tally[1]), failed: Number(tally[2]) };
}

/** Tests every version, one after the other. A version that cannot be set up counts as one
 *  failure. */
export function runRuntimes(majors = RUNTIMES) {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    process.stderr.write(
      'Node.js 22 and 24 are tested only on linux-x64, because npm has these builds for the tests\n',
    );
    return { passed: 0, failed: 0 };
  }
  const total = { passed: 0, failed: 0 };
  for (const major of majors) {
    try {
      const tally = runOn(
        major,
        runtimesDir((line) => process.stderr.write(`runtimes: ${line}\n`)),
      );
      total.passed += tally.passed;
      total.failed += tally.failed;
    } catch (thrown) {
      process.stderr.write(`runtimes: ${thrown.message}\n`);
      total.failed++;
    }
  }
  return total;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const asked = process.argv.find((arg) => arg.startsWith('-node='))?.slice('-node='.length);
  if (asked !== undefined && !RUNTIMES.includes(asked)) {
    process.stderr.write(`runtimes: -node=${asked} is none of ${RUNTIMES.join(', ')}\n`);
    process.exit(2);
  }
  const { passed, failed } = runRuntimes(asked === undefined ? RUNTIMES : [asked]);
  process.stdout.write(`${passed} passed, ${failed} failed\n`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
}
