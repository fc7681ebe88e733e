// Installs the third-party clients that the tests run (test/clients), once for each lock file,
// under .millrace/clients/DIGEST: clients of the registry and of gRPC (npm packages and a Python
// environment), and clients of Kafka. An existing installation is used without network access.
//
//   node tools/clients.mjs      prints {"dir":…,"kafka":{"kafka":…,"confluent":…},"s3":…}
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
const PYTHON_LOCK = 'test/clients/python/requirements.txt';
const S3_LOCK = 'test/clients/s3/requirements.txt';
const CONFLUENT = '@confluentinc/kafka-javascript';

const NEXT =
  'install what is missing (Debian: python3-venv) or connect to the package registries, then run this again';
const run = (what, command, args, cwd, env = process.env) =>
  runProgram(what, command, args, { cwd, env }, NEXT);

/** Digest of the lock files, the Python and the machine type: an installation is valid only for
 *  these. */
function digestOf(locks, also) {
  const hash = createHash('sha256');
  for (const path of locks)
    hash
      .update(path)
      .update('\0')
      .update(readFileSync(join(root, path)))
      .update('\0');
  hash.update(`${process.platform}-${process.arch}-${process.versions.modules}\0`);
  hash.update(also);
  return hash.digest('hex').slice(0, 16);
}

/** Folder that `install` fills from these locks; `also` is any other input of the installation. */
function installed({ what, locks, also = '' }, install, say) {
  const home = join(root, '.millrace', 'clients');
  const dir = join(home, digestOf(locks, also));
  if (existsSync(join(dir, 'stamp'))) return dir;
  const started = Date.now();
  say(`installing ${what}`);
  // Installed in a temporary folder and renamed, so that concurrent installations do not interfere.
  const aside = join(home, `aside-${process.pid}`);
  rmSync(aside, { recursive: true, force: true });
  mkdirSync(aside, { recursive: true });
  try {
    install(aside);
    writeFileSync(join(aside, 'stamp'), '');
    try {
      renameSync(aside, dir);
    } catch (thrown) {
      if (!existsSync(join(dir, 'stamp'))) throw thrown;
    }
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
  say(`they are ready after ${((Date.now() - started) / 1000).toFixed(0)} s`);
  return dir;
}

const locksOf = (folder) => NODE_FILES.map((name) => `test/clients/${folder}/${name}`);

function installNode(folder, to) {
  mkdirSync(to, { recursive: true });
  for (const name of NODE_FILES) copyFileSync(join(root, 'test/clients', folder, name), join(to, name));
  run('npm ci', 'npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], to);
}

const PYTHON_OF = ['-c', 'import sys; print(sys.version, sys.prefix)'];

/** Makes a Python environment with the packages of a lock file. */
function installPython(venv, lock, aside) {
  run('python3 -m venv', 'python3', ['-m', 'venv', venv], aside);
  const pip = ['-m', 'pip', 'install', '--quiet', '--no-deps', '--only-binary=:all:', '-r'];
  run('pip install', join(venv, 'bin', 'python'), [...pip, join(root, lock)], aside);
}

/** Folder with bin/moto_server, an emulator of the S3 API. */
export function s3Dir(say = () => {}) {
  return installed(
    {
      what: 'the emulator of S3 for the tests (Python packages)',
      locks: [S3_LOCK],
      also: run('looking for Python', 'python3', PYTHON_OF, root),
    },
    (aside) => installPython(join(aside, 'python'), S3_LOCK, aside),
    say,
  );
}

/** Folder with node/node_modules and python/bin/python. */
export function clientsDir(say = () => {}) {
  return installed(
    {
      what: 'the clients of others for the tests (npm and Python packages, about 280 MB)',
      locks: [...locksOf('node'), PYTHON_LOCK],
      also: run('looking for Python', 'python3', PYTHON_OF, root),
    },
    (aside) => {
      installNode('node', join(aside, 'node'));
      installPython(join(aside, 'python'), PYTHON_LOCK, aside);
    },
    say,
  );
}

/** Folder with node_modules of the Kafka clients in JavaScript. */
export function kafkaClientsDir(say = () => {}) {
  return installed(
    { what: 'the Kafka clients of others for the tests (npm packages)', locks: locksOf('kafka') },
    (aside) => installNode('kafka', aside),
    say,
  );
}

/** Folders with node_modules: `kafka` of the Kafka clients in JavaScript, `confluent` of the one of
 *  Confluent, which has librdkafka in it. */
export function kafkaClientsDirs(say = () => {}) {
  const kafka = kafkaClientsDir(say);
  const confluent = installed(
    {
      what: `${CONFLUENT} for the tests; it compiles librdkafka where its binary cannot be downloaded (minutes)`,
      locks: locksOf('kafka-confluent'),
    },
    (aside) => {
      installNode('kafka-confluent', aside);
      run(`npm rebuild ${CONFLUENT}`, 'npm', ['rebuild', CONFLUENT], aside, compilerEnv());
      run('loading librdkafka', process.execPath, ['-e', `require('${CONFLUENT}')`], aside);
    },
    say,
  );
  return { kafka, confluent };
}

/** Environment in which the client of Confluent compiles. CKJS_LINKING=dynamic takes OpenSSL, zlib,
 *  zstd and curl of this machine (bin/bootstrap installs them); otherwise the build downloads
 *  their sources. With JOBS its makefile starts before librdkafka is configured. */
function compilerEnv() {
  const { JOBS: _, ...env } = process.env;
  const prefix = dirname(dirname(process.execPath));
  // The headers beside the running node save a download that may not be possible.
  if (existsSync(join(prefix, 'include/node/node_api.h'))) env.npm_config_nodedir ??= prefix;
  return { ...env, CKJS_LINKING: 'dynamic' };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    const say = (line) => process.stderr.write(`clients: ${line}\n`);
    process.stdout.write(
      `${JSON.stringify({ dir: clientsDir(say), kafka: kafkaClientsDirs(say), s3: s3Dir(say) })}\n`,
    );
  } catch (thrown) {
    process.stderr.write(`clients: ${thrown.message}\n`);
    process.exitCode = 3;
  }
}
