// Installs third-party clients that the tests run (test/clients: registry, gRPC): npm packages and
// a Python environment in .millrace/clients/DIGEST, one for each set of lock files. An existing
// installation is used without network access.
//
//   node tools/clients.mjs      prints {"dir":…}
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run as runProgram } from './run.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const NODE_FILES = ['package.json', 'package-lock.json', '.npmrc'];
const LOCKS = [
  ...NODE_FILES.map((name) => `test/clients/node/${name}`),
  'test/clients/python/requirements.txt',
];

const NEXT =
  'install python3-venv (Debian) if it is missing, or connect to the package registries, then run this again';
const run = (what, command, args, cwd) => runProgram(what, command, args, { cwd }, NEXT);

/** Digest of the lock files, the Python and the machine type: an installation is valid only for
 *  these. */
function digestOf() {
  const hash = createHash('sha256');
  for (const path of LOCKS)
    hash
      .update(path)
      .update('\0')
      .update(readFileSync(join(root, path)))
      .update('\0');
  hash.update(`${process.platform}-${process.arch}-${process.versions.modules}\0`);
  hash.update(
    run('looking for Python', 'python3', ['-c', 'import sys; print(sys.version, sys.prefix)'], root),
  );
  return hash.digest('hex').slice(0, 16);
}

/** Folder with node/node_modules and python/bin/python. */
export function clientsDir(say = () => {}) {
  const home = join(root, '.millrace', 'clients');
  const dir = join(home, digestOf());
  if (existsSync(join(dir, 'stamp'))) return dir;
  const started = Date.now();
  say('installing third-party clients for the tests (npm and Python packages, about 280 MB)');
  // Installed in a temporary folder and renamed, so that concurrent installations do not interfere.
  const part = join(home, `aside-${process.pid}`);
  rmSync(part, { recursive: true, force: true });
  mkdirSync(join(part, 'node'), { recursive: true });
  try {
    for (const name of NODE_FILES)
      copyFileSync(join(root, 'test/clients/node', name), join(part, 'node', name));
    run('npm ci', 'npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], join(part, 'node'));
    const python = join(part, 'python');
    run('python3 -m venv', 'python3', ['-m', 'venv', python], part);
    const requirements = join(root, 'test/clients/python/requirements.txt');
    const pip = ['-m', 'pip', 'install', '--quiet', '--no-deps', '--only-binary=:all:', '-r', requirements];
    run('pip install', join(python, 'bin', 'python'), pip, part);
    writeFileSync(join(part, 'stamp'), '');
    try {
      renameSync(part, dir);
    } catch (thrown) {
      if (!existsSync(join(dir, 'stamp'))) throw thrown;
    }
  } finally {
    rmSync(part, { recursive: true, force: true });
  }
  say(`third-party clients are ready after ${((Date.now() - started) / 1000).toFixed(0)} s`);
  return dir;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    const dir = clientsDir((line) => process.stderr.write(`clients: ${line}\n`));
    process.stdout.write(`${JSON.stringify({ dir })}\n`);
  } catch (thrown) {
    process.stderr.write(`clients: ${thrown.message}\n`);
    process.exitCode = 3;
  }
}
