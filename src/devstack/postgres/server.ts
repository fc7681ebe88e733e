/** PostgreSQL: format, start script, identity.
 *
 *  PostgreSQL refuses to run as root, and another user cannot reach a clone below a folder of mode
 *  0700. As root it runs as `nobody`, which owns the data folder, with the one capability that lets
 *  it pass folders on the way to it.
 */
import { execFile } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
} from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { coreError } from '../../core/errors.ts';
import { stackError } from '../errors.ts';
import { shellWord, writeWhole } from '../files.ts';
import { deathSignalWords } from '../guard.ts';
import { LOOPBACK } from '../ports.ts';
import { runs } from '../process.ts';
import type { PostgresBinaries } from './binaries.ts';

export const POSTGRES_NAME = 'postgres';
const POSTGRES_USER = 'millrace';
const POSTGRES_DATABASE = 'millrace';
const NOBODY = 65_534;
const FORMAT_TIMEOUT_MS = 60_000;
const WAL_GIGABYTES_MIN = 2;
const WAL_GIGABYTES_MAX = 16;
const BUFFER_MEGABYTES_MIN = 128;
const BUFFER_MEGABYTES_MAX = 2048;

export interface PostgresOptions {
  /** The stack's folder. */
  readonly folder: string;
  readonly binaries: PostgresBinaries;
  readonly password: string;
  /** The folder is thrown away at the end: formatting need not reach the disk. */
  readonly ephemeral: boolean;
}

const isRoot = (): boolean => process.getuid?.() === 0;

const dataFolder = (folder: string): string => join(folder, POSTGRES_NAME);

/** Words before a PostgreSQL command, so that it dies with its parent and never runs as root.
 *  @throws missing_tool */
function launchWords(): readonly string[] {
  if (!isRoot()) return deathSignalWords();
  const user = [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', '--pdeathsig', 'KILL'];
  // The right to reach a clone below a folder of root's own. Without the secure bit access(2), with
  // which initdb looks for its programs, would not count it.
  const pass = [
    '--securebits=+no_setuid_fixup',
    '--inh-caps=+dac_read_search',
    '--ambient-caps=+dac_read_search',
  ];
  if (runs('setpriv', [...user, ...pass, 'true'])) return ['setpriv', ...user, ...pass];
  if (runs('setpriv', [...user, 'true'])) return ['setpriv', ...user];
  throw stackError(
    'missing_tool',
    'PostgreSQL refuses to run as root, and setpriv, which gives that up, does not run',
    {
      next: 'install util-linux, or run as an ordinary user',
    },
  );
}

const run = promisify(execFile);

/** Formats the data folder if there is none, beside and then renamed: what stands is whole.
 *  @throws server_failed, missing_tool */
export async function formatPostgres(options: PostgresOptions): Promise<void> {
  const data = dataFolder(options.folder);
  if (existsSync(data)) return;
  const part = `${data}.part`;
  const secret = join(options.folder, 'run', 'initdb.secret');
  rmSync(part, { recursive: true, force: true });
  mkdirSync(part, { mode: 0o700 });
  writeWhole(secret, `${options.password}\n`, 0o600);
  if (isRoot()) {
    chownSync(part, NOBODY, NOBODY);
    chownSync(secret, NOBODY, NOBODY);
  }
  const words = [
    ...launchWords(),
    options.binaries.initdb,
    '-D',
    part,
    '-U',
    POSTGRES_USER,
    `--pwfile=${secret}`,
    '--encoding=UTF8',
    '--locale=C',
    '--auth=scram-sha-256',
    '--no-instructions',
    ...(options.ephemeral ? ['--no-sync'] : []),
  ];
  try {
    await run(words[0] as string, words.slice(1), {
      cwd: '/',
      timeout: FORMAT_TIMEOUT_MS,
      env: { ...process.env, ...options.binaries.environment, LC_ALL: 'C' },
    });
  } catch (thrown) {
    const { stderr, message } = thrown as { stderr?: string; message: string };
    throw stackError(
      'server_failed',
      `PostgreSQL could not be formatted: ${(stderr || message).trim().split('\n')[0]}`,
      {
        next: `check the space and the rights of ${options.folder}`,
        cause: thrown,
      },
    );
  } finally {
    rmSync(secret, { force: true });
  }
  renameSync(part, data);
}

/** How much log may wait for a checkpoint: a quarter of the free space, within bounds. */
function walGigabytes(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  const quarter = Math.floor((bavail * bsize) / 4 / 2 ** 30);
  return Math.min(WAL_GIGABYTES_MAX, Math.max(WAL_GIGABYTES_MIN, quarter));
}

/** Pages the server keeps itself: an eighth of the memory, within bounds. Only what is used is
 *  taken. */
const bufferMegabytes = (): number =>
  Math.min(BUFFER_MEGABYTES_MAX, Math.max(BUFFER_MEGABYTES_MIN, Math.floor(totalmem() / 8 / 2 ** 20)));

/** Writes the start script for a port. */
export function writePostgresScript(options: PostgresOptions, port: number): void {
  const settings: Readonly<Record<string, string | number>> = {
    listen_addresses: LOOPBACK,
    port,
    // No socket file: its path may not exceed 107 bytes, a clone's may.
    unix_socket_directories: '',
    wal_level: 'logical',
    max_connections: 200,
    max_wal_senders: 20,
    max_replication_slots: 20,
    shared_buffers: `${bufferMegabytes()}MB`,
    // The first write of a page behind a checkpoint puts all of it into the log, and keys chosen by
    // clients hit pages anywhere: few checkpoints. Compressing those pages by lz4 helps as well,
    // but this build of PostgreSQL has none.
    checkpoint_timeout: '30min',
    max_wal_size: `${walGigabytes(options.folder)}GB`,
    track_commit_timestamp: 'on',
    jit: 'off',
    timezone: 'UTC',
    log_timezone: 'UTC',
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const words = [...launchWords(), options.binaries.postgres, '-D', dataFolder(options.folder), ...flags];
  const environment = { ...options.binaries.environment, LC_ALL: 'C' };
  const exports = Object.entries(environment).map(([name, value]) => `export ${name}=${shellWord(value)}\n`);
  const script = join(options.folder, 'run', `${POSTGRES_NAME}.sh`);
  writeWhole(script, `${exports.join('')}exec ${words.map(shellWord).join(' ')}\n`);
  chmodSync(script, 0o755);
}

export function postgresUrl(port: number, password: string, database = POSTGRES_DATABASE): string {
  return `postgres://${POSTGRES_USER}:${password}@${LOOPBACK}:${port}/${database}`;
}

/** The identity that formatting gave the folder: the first eight bytes of its control file. */
export function recordedSystemId(folder: string): string {
  const control = readFileSync(join(dataFolder(folder), 'global', 'pg_control'));
  return control.readBigUInt64LE(0).toString();
}

/** The pid in a data folder's pid file, if any. */
export function postmasterPid(folder: string): number | undefined {
  try {
    const pid = Number(readFileSync(join(dataFolder(folder), 'postmaster.pid'), 'utf8').split('\n')[0]);
    return Number.isSafeInteger(pid) && pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
}

/** Removes the pid file of a server that is known to be dead: its pid may be a stranger's by now,
 *  which would keep PostgreSQL from starting. */
export function forgetPostmaster(folder: string): void {
  rmSync(join(dataFolder(folder), 'postmaster.pid'), { force: true });
}

async function ask<T>(url: string, timeoutMs: number, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  });
  // A server that ends while it is asked must not end us.
  client.on('error', () => {});
  try {
    await client.connect();
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}

/** Who answers on the port: its system identifier, 'stranger' for a server that does not take our
 *  password, or undefined when nobody answers (yet). */
export async function askSystemId(
  port: number,
  password: string,
  timeoutMs: number,
): Promise<string | undefined> {
  try {
    return await ask(postgresUrl(port, password, 'postgres'), timeoutMs, async (client) => {
      const { rows } = await client.query('select system_identifier::text as id from pg_control_system()');
      return (rows[0] as { readonly id: string }).id;
    });
  } catch (thrown) {
    const code = (thrown as { readonly code?: string }).code ?? '';
    // Class 28: the server is up and refuses our credentials.
    return code.startsWith('28') ? 'stranger' : undefined;
  }
}

/** Creates the database that the URL names, if it is not there. */
export async function ensureDatabase(port: number, password: string, timeoutMs: number): Promise<void> {
  try {
    await ask(postgresUrl(port, password, 'postgres'), timeoutMs, async (client) => {
      const { rowCount } = await client.query('select 1 from pg_database where datname = $1', [
        POSTGRES_DATABASE,
      ]);
      if (rowCount === 0) await client.query(`create database ${POSTGRES_DATABASE}`);
    });
  } catch (thrown) {
    throw coreError(
      'unreachable',
      `PostgreSQL on port ${port} did not create its database: ${(thrown as Error).message}`,
      {
        next: 'see logs/postgres.log of the stack',
        cause: thrown,
      },
    );
  }
}
