// Static checks that run inside `npm test`, each as a test of its own.
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const tool = (name) => join(root, 'node_modules', '.bin', name);

const nativeSources = () =>
  readdirSync(join(root, 'native'), { recursive: true })
    .map((path) => join('native', String(path)))
    .filter((path) => /\.(cc|c|h)$/.test(path) && !path.endsWith('.gen.h'))
    .sort();

const CHECKS = [
  {
    name: 'format and lint (biome)',
    run: () => [tool('biome'), ['ci', '--colors=off', '--error-on-warnings', '.']],
  },
  {
    name: 'types (tsc)',
    run: () => [
      process.execPath,
      [join(root, 'node_modules/typescript-native/bin/tsc'), '-p', 'tsconfig.check.json'],
    ],
  },
  {
    name: 'imports only point down (dependency-cruiser)',
    run: () => [
      tool('depcruise'),
      ['src', 'bench', '--config', '.dependency-cruiser.cjs', '--output-type', 'err'],
    ],
  },
  { name: 'dead code (knip)', run: () => [tool('knip'), ['--no-progress']] },
  {
    name: 'C++ format (clang-format)',
    run: () => [tool('clang-format'), ['--dry-run', '--Werror', ...nativeSources()]],
  },
  { name: 'plain words (words)', run: () => [process.execPath, ['tools/lint/words.mjs']] },
  { name: 'names and public comments (exports)', run: () => [process.execPath, ['tools/lint/exports.mjs']] },
  {
    name: 'layouts are regenerated (layout-gen)',
    run: () => [process.execPath, ['dist/tools/layout-gen.js', '-check']],
  },
];

function outcomeOf([command, args]) {
  return new Promise((resolve) => {
    execFile(command, args, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26 }, (error, stdout, stderr) =>
      resolve({ ok: error === null, output: error === null ? '' : `${error.message}\n${stdout}${stderr}` }),
    );
  });
}

/** Runs all checks concurrently. Writes the output of a failed check to stderr.
 *  @returns numbers of passed and failed checks */
export async function runChecks() {
  const outcomes = CHECKS.map(async ({ name, run }) => {
    const started = Date.now();
    const { ok, output } = await outcomeOf(run());
    const seconds = ((Date.now() - started) / 1000).toFixed(1);
    process.stderr.write(`${ok ? 'ok  ' : 'FAIL'} ${name} (${seconds} s)\n${ok ? '' : `${output}\n`}`);
    return ok;
  });
  const passed = (await Promise.all(outcomes)).filter((ok) => ok).length;
  return { passed, failed: CHECKS.length - passed };
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  process.exitCode = (await runChecks()).failed === 0 ? 0 : 1;
