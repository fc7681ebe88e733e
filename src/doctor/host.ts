/** Checks of this machine and this installation. */
import { readFileSync, statfsSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { buildCommand, findAddon, loadAddon } from '../addon/load.ts';
import { presentKafka } from '../devstack/kafka/jars.ts';
import { checkJava, javaProgram } from '../devstack/kafka/server.ts';
import { postgresPackage } from '../devstack/postgres/binaries.ts';
import { runs } from '../devstack/process.ts';
import { loadUws } from '../io/http/uws/load.ts';
import { packageRoot } from '../shell/package.ts';
import { type Answer, type Check, fail, ok, warn } from './check.ts';

const NODE_MIN = [20, 19] as const;
const FEATURES = ['ssl', 'zstd', 'lz4', 'sasl'];
const OPEN_FILES_MIN = 4_096;
const DISK_BYTES_MIN = 2 * 2 ** 30;
const DEFAULT_PORTS = { registry: 8081, orders: 8080, 'orders gRPC': 50_051 } as const;
const REBUILD = 'in a clone run bin/bootstrap; in a project install the package again';

const load = createRequire(import.meta.url);

/** Checks a version text such as `20.19.1`. */
export function judgeNode(version: string, abi: string): Answer {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const enough = major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1]);
  const found = `Node.js ${version}, ABI ${abi}`;
  return enough ? ok(found) : fail(found, `install Node.js ${NODE_MIN.join('.')} or newer`);
}

export function judgeFeatures(version: string, features: readonly string[]): Answer {
  const lacking = FEATURES.filter((feature) => !features.includes(feature));
  const found = `librdkafka ${version}`;
  if (lacking.length === 0) return ok(`${found} with ${FEATURES.join(', ')}`);
  return fail(
    `${found} without ${lacking.join(', ')}`,
    'install the -dev packages that bin/bootstrap names, remove node_modules, run it again',
  );
}

/** Checks the text of /proc/self/limits. */
export function judgeLimits(limits: string): Answer {
  const soft = /^Max open files\s+(\S+)/m.exec(limits)?.[1];
  if (soft === undefined) return warn('the limit of open files is not known', 'see ulimit -n');
  if (soft === 'unlimited' || Number(soft) >= OPEN_FILES_MIN) return ok(`${soft} open files`);
  return warn(`only ${soft} open files`, `raise it: ulimit -n ${OPEN_FILES_MIN}`);
}

function addon(native: string): Answer {
  if (native === 'off') return ok('switched off; the TypeScript kernels run');
  if (findAddon() === null) return warn('not built; the TypeScript kernels run', `run ${buildCommand()}`);
  const start = performance.now();
  loadAddon();
  return ok(`loads in ${(performance.now() - start).toFixed(0)} ms, layouts agree`);
}

/** Folder locks: the addon makes them itself, else each lock is a process of flock(1).
 *  @param run true when a program ends with 0 */
export function judgeLocks(native: string, run: typeof runs = runs): Answer {
  if (native !== 'off' && findAddon() !== null) return ok('the addon locks folders');
  // Locks a file of this installation for a moment, as the flock of util-linux and BusyBox both do.
  if (run('flock', ['-n', process.execPath, 'true'])) return ok('flock(1) locks folders');
  return fail(
    'neither the addon nor flock(1) can lock a folder; registry files and the engine need it',
    `install util-linux, or build the addon: ${buildCommand()}`,
  );
}

function rdkafka(): Answer {
  const { features, librdkafkaVersion } = load('node-rdkafka') as {
    readonly features: readonly string[];
    readonly librdkafkaVersion: string;
  };
  return judgeFeatures(librdkafkaVersion, features);
}

/** Loads the binary by its name, as the driver does: the package's own entry falls back to an
 *  emulation in JavaScript. */
export function judgeUws(load: () => unknown = loadUws): Answer {
  try {
    load();
    return ok('the binary of this Node.js loads');
  } catch (thrown) {
    return warn(
      `${(thrown as Error).message}; HTTP is served by another driver`,
      'nothing to do; uWebSockets.js has no binary for this Node.js',
    );
  }
}

function jars(): Answer {
  const present = presentKafka();
  if (present === undefined)
    return warn(
      'the jars of Apache Kafka are not downloaded',
      'millrace up downloads them; in a clone bin/bootstrap does too',
    );
  return ok(`Apache Kafka ${present.version} in ${present.folder}`);
}

function embeddedPostgres(): Answer {
  const { version, postgres, linksMissing } = postgresPackage();
  if (!statSync(postgres).isFile()) return fail(`${postgres} is not a file`, REBUILD);
  const found = `PostgreSQL ${version}`;
  return ok(linksMissing === 0 ? found : `${found}; ${linksMissing} library links are made at start`);
}

function unprivileged(): Answer {
  if (process.getuid?.() !== 0) return ok('PostgreSQL runs as this user');
  if (runs('setpriv', ['--reuid=65534', '--regid=65534', '--clear-groups', 'true']))
    return ok('root; PostgreSQL runs as nobody');
  return fail(
    'root, and setpriv does not run; PostgreSQL refuses root',
    'install util-linux, or run as an ordinary user',
  );
}

function limits(): Answer {
  return process.platform === 'linux'
    ? judgeLimits(readFileSync('/proc/self/limits', 'utf8'))
    : judgeLimits('');
}

function disk(): Answer {
  const { bavail, bsize } = statfsSync(process.cwd());
  const gib = ((bavail * bsize) / 2 ** 30).toFixed(1);
  const found = `${gib} GiB free in ${process.cwd()}`;
  return bavail * bsize >= DISK_BYTES_MIN
    ? ok(found)
    : warn(found, `keep ${DISK_BYTES_MIN / 2 ** 30} GiB free for broker and database`);
}

/** The clock is wrong if it shows a time before the installation's files were written. */
function clock(): Answer {
  const now = Date.now();
  const installed = statSync(new URL(import.meta.url)).mtimeMs;
  const found = new Date(now).toISOString();
  return now >= installed
    ? ok(found)
    : fail(`${found} lies before the files of this installation`, 'set the clock; run a time service');
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ host: '127.0.0.1', port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}

async function ports(): Promise<Answer> {
  const busy: string[] = [];
  for (const [name, port] of Object.entries(DEFAULT_PORTS))
    if (!(await isFree(port))) busy.push(`${port} (${name})`);
  if (busy.length === 0) return ok(`${Object.values(DEFAULT_PORTS).join(', ')} are free`);
  return warn(`in use: ${busy.join(', ')}`, 'set another -listen or -grpc-listen for these commands');
}

export function hostChecks(native: string): readonly Check[] {
  return [
    { id: 'node', ask: () => judgeNode(process.versions.node, process.versions.modules) },
    { id: 'package', ask: () => ok(packageRoot()) },
    { id: 'addon', ask: () => addon(native) },
    { id: 'librdkafka', ask: rdkafka },
    { id: 'uwebsockets', ask: () => judgeUws() },
    { id: 'java', ask: async () => ok(`Java ${await checkJava(javaProgram(process.env))}`) },
    { id: 'kafka-jars', ask: jars },
    { id: 'embedded-postgres', ask: embeddedPostgres },
    { id: 'unprivileged', ask: unprivileged },
    { id: 'folder-locks', ask: () => judgeLocks(native) },
    { id: 'limits', ask: limits },
    { id: 'disk', ask: disk },
    { id: 'clock', ask: clock },
    { id: 'ports', ask: ports },
  ];
}
