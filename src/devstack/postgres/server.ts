/** PostgreSQL: formatting, start script and identity.
 *
 *  PostgreSQL refuses to run as root, and another user cannot reach a clone below a folder of mode
 *  0700. As root, the stack therefore runs it as the user `nobody`, which owns the data folder,
 *  with the single capability that permits traversing the folders above it. */
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
  writeFileSync,
} from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { coreError } from '../../core/errors.ts';
import { pgConnection } from '../../io/postgres/tls.ts';
import { stackError } from '../errors.ts';
import { exportLines, type ServerEnvironment, shellWord, writeWhole } from '../files.ts';
import { deathSignalWords } from '../guard.ts';
import { LOOPBACK } from '../ports.ts';
import { runs } from '../process.ts';
import type { PostgresBinaries } from './binaries.ts';
import { installCertificates, postgresTlsParams, securedRules } from './security.ts';

export const POSTGRES_NAME = 'postgres';
const POSTGRES_USER = 'millrace';
const POSTGRES_DATABASE = 'millrace';
const UNPRIVILEGED_ID = 65_534;
const FORMAT_TIMEOUT_MS = 60_000;
const WAL_GIGABYTES_MIN = 2;
const WAL_GIGABYTES_MAX = 16;
const BUFFER_MEGABYTES_MIN = 128;
const BUFFER_MEGABYTES_MAX = 2048;

export interface PostgresOptions {
  /** Folder of the stack. */
  readonly folder: string;
  readonly binaries: PostgresBinaries;
  readonly password: string;
  /** True: the server accepts TLS connections alone. */
  readonly secured?: boolean;
  /** The folder is removed at the end, so formatting need not be durable. */
  readonly ephemeral: boolean;
  /** Further variables of the server. */
  readonly environmentOf?: ServerEnvironment | undefined;
}

const isRoot = (): boolean => process.getuid?.() === 0;

const dataFolder = (folder: string): string => join(folder, POSTGRES_NAME);

/** Command prefix that makes PostgreSQL die with its parent and never run as root.
 *  @throws missing_tool */
function launchWords(): readonly string[] {
  if (!isRoot()) return deathSignalWords();
  const user = [
    `--reuid=${UNPRIVILEGED_ID}`,
    `--regid=${UNPRIVILEGED_ID}`,
    '--clear-groups',
    '--pdeathsig',
    'KILL',
  ];
  // Capability to reach a clone below a folder that only root can enter. Without the secure bit,
  // access(2), with which initdb finds its programs, would ignore it.
  const pass = [
    '--securebits=+no_setuid_fixup',
    '--inh-caps=+dac_read_search',
    '--ambient-caps=+dac_read_search',
  ];
  if (runs('setpriv', [...user, ...pass, 'true'])) return ['setpriv', ...user, ...pass];
  if (runs('setpriv', [...user, 'true'])) return ['setpriv', ...user];
  throw stackError(
    'missing_tool',
    'PostgreSQL refuses to run as root, and setpriv, which drops the privileges, does not run',
    {
      next: 'install util-linux, or run as an ordinary user',
    },
  );
}

const run = promisify(execFile);

/** Formats the data folder if it does not exist: in a temporary folder that is renamed, so that an
 *  existing data folder is complete.
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
    chownSync(part, UNPRIVILEGED_ID, UNPRIVILEGED_ID);
    chownSync(secret, UNPRIVILEGED_ID, UNPRIVILEGED_ID);
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
        next: `check the free space and the permissions of ${options.folder}`,
        cause: thrown,
      },
    );
  } finally {
    rmSync(secret, { force: true });
  }
  if (options.secured === true) {
    const owner = isRoot() ? UNPRIVILEGED_ID : undefined;
    installCertificates(options.folder, part, owner, POSTGRES_USER);
    const rules = join(part, 'pg_hba.conf');
    // Written in place: the file keeps its owner and mode.
    writeFileSync(rules, securedRules(readFileSync(rules, 'utf8')));
  }
  renameSync(part, data);
}

/** max_wal_size: a quarter of the free space, within bounds. */
function walGigabytes(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  const quarter = Math.floor((bavail * bsize) / 4 / 2 ** 30);
  return Math.min(WAL_GIGABYTES_MAX, Math.max(WAL_GIGABYTES_MIN, quarter));
}

/** shared_buffers: an eighth of the memory, within bounds. Only used pages are allocated. */
const bufferMegabytes = (): number =>
  Math.min(BUFFER_MEGABYTES_MAX, Math.max(BUFFER_MEGABYTES_MIN, Math.floor(totalmem() / 8 / 2 ** 20)));

/** Writes the start script for a port. */
export function writePostgresScript(options: PostgresOptions, port: number): void {
  const settings: Readonly<Record<string, string | number>> = {
    listen_addresses: LOOPBACK,
    port,
    // No socket file: its path is limited to 107 bytes, a clone's path is not.
    unix_socket_directories: '',
    wal_level: 'logical',
    max_connections: 200,
    max_wal_senders: 20,
    max_replication_slots: 20,
    shared_buffers: `${bufferMegabytes()}MB`,
    // The first write of a page after a checkpoint logs the full page, and client-chosen keys touch
    // random pages: keep checkpoints rare. lz4 compression of full pages would help, but this build
    // of PostgreSQL lacks it.
    checkpoint_timeout: '30min',
    max_wal_size: `${walGigabytes(options.folder)}GB`,
    track_commit_timestamp: 'on',
    jit: 'off',
    timezone: 'UTC',
    log_timezone: 'UTC',
    ...(options.secured === true ? { ssl: 'on', ssl_ca_file: 'root.crt' } : {}),
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const words = [...launchWords(), options.binaries.postgres, '-D', dataFolder(options.folder), ...flags];
  const environment = {
    ...{ ...options.binaries.environment, LC_ALL: 'C' },
    ...options.environmentOf?.(POSTGRES_NAME, dataFolder(options.folder)),
  };
  const script = join(options.folder, 'run', `${POSTGRES_NAME}.sh`);
  writeWhole(script, `${exportLines(environment)}exec ${words.map(shellWord).join(' ')}\n`);
  chmodSync(script, 0o755);
}

/** Server of a stack, and how to reach it. */
export interface PostgresAt {
  readonly port: number;
  readonly password: string;
  /** Folder of the stack, for a server that accepts TLS alone. */
  readonly securedBy?: string | undefined;
}

export function postgresUrl(
  { port, password, securedBy }: PostgresAt,
  database: string = POSTGRES_DATABASE,
): string {
  const tls = securedBy === undefined ? '' : `?${postgresTlsParams(securedBy)}`;
  return `postgres://${POSTGRES_USER}:${password}@${LOOPBACK}:${port}/${database}${tls}`;
}

/** System identifier of the formatted folder: the first eight bytes of its control file. */
export function recordedSystemId(folder: string): string {
  const control = readFileSync(join(dataFolder(folder), 'global', 'pg_control'));
  return control.readBigUInt64LE(0).toString();
}

/** Pid in the data folder's pid file, if any. */
export function postmasterPid(folder: string): number | undefined {
  try {
    const pid = Number(readFileSync(join(dataFolder(folder), 'postmaster.pid'), 'utf8').split('\n')[0]);
    return Number.isSafeInteger(pid) && pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
}

/** Removes the pid file of a dead server: its pid may now belong to another process, which would
 *  prevent PostgreSQL from starting. */
export function forgetPostmaster(folder: string): void {
  rmSync(join(dataFolder(folder), 'postmaster.pid'), { force: true });
}

async function ask<T>(url: string, timeoutMs: number, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    ...pgConnection(url, {}),
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  });
  // The client must survive a server that ends during the query.
  client.on('error', () => {});
  try {
    await client.connect();
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}

/** System identifier of the server on the port; 'foreign' if it rejects the password; undefined if
 *  there is no answer yet. */
export async function askSystemId(at: PostgresAt, timeoutMs: number): Promise<string | undefined> {
  try {
    return await ask(postgresUrl(at, 'postgres'), timeoutMs, async (client) => {
      const { rows } = await client.query('select system_identifier::text as id from pg_control_system()');
      return (rows[0] as { readonly id: string }).id;
    });
  } catch (thrown) {
    const code = (thrown as { readonly code?: string }).code ?? '';
    // SQLSTATE class 28: the server runs and rejects the credentials.
    return code.startsWith('28') ? 'foreign' : undefined;
  }
}

/** Creates the database that the URL names if it does not exist. */
export async function ensureDatabase(at: PostgresAt, timeoutMs: number): Promise<void> {
  try {
    await ask(postgresUrl(at, 'postgres'), timeoutMs, async (client) => {
      const { rowCount } = await client.query('select 1 from pg_database where datname = $1', [
        POSTGRES_DATABASE,
      ]);
      if (rowCount === 0) await client.query(`create database ${POSTGRES_DATABASE}`);
    });
  } catch (thrown) {
    throw coreError(
      'unreachable',
      `PostgreSQL on port ${at.port} did not create its database: ${(thrown as Error).message}`,
      {
        next: 'see logs/postgres.log of the stack',
        cause: thrown,
      },
    );
  }
}
