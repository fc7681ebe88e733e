/** Persistent state of a stack's folder: the identity of its servers (from formatting on) and the
 *  processes that run them. */
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { stackError } from './errors.ts';
import { writeWhole } from './files.ts';
import { type ClientFiles, clientFiles, type KafkaSecurity } from './kafka/security.ts';
import type { KafkaNode } from './kafka/server.ts';
import { LOOPBACK } from './ports.ts';
import { POSTGRES_NAME, type PostgresAt, postgresUrl, postmasterPid } from './postgres/server.ts';
import { folderOf, identify, isAlive, type ProcessId } from './process.ts';

/** Written once, when the folder is formatted. A server belongs to the folder if it reports the
 *  same identity. */
export interface StackIdentity {
  readonly format: 1;
  readonly kafkaClusterId: string;
  readonly postgresSystemId: string;
  readonly postgresPassword: string;
  readonly kafkaNodes: number;
  /** Undefined: the listeners are plaintext. */
  readonly security?: KafkaSecurity;
  /** Undefined: PostgreSQL speaks plaintext. */
  readonly postgresSecurity?: 'ssl';
}

export interface ServerState {
  readonly name: string;
  readonly process: ProcessId;
}

/** Written when the stack is ready. */
export interface StackState {
  readonly brokers: readonly KafkaNode[];
  readonly postgresPort: number;
  readonly servers: readonly ServerState[];
}

const IDENTITY = 'identity.json';
const STATE = 'stack.json';

function readJson<T>(path: string): T | undefined {
  if (!existsSync(path)) return undefined;
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as T;
  } catch (thrown) {
    throw stackError('strange_folder', `${path} cannot be read: ${(thrown as Error).message}`, {
      next: 'remove the folder to start with an empty stack',
      cause: thrown,
    });
  }
}

const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

export function readIdentity(folder: string): StackIdentity | undefined {
  const identity = readJson<StackIdentity | null>(join(folder, IDENTITY));
  if (identity === undefined) return undefined;
  const whole =
    identity !== null &&
    identity.format === 1 &&
    isText(identity.kafkaClusterId) &&
    isText(identity.postgresSystemId) &&
    isText(identity.postgresPassword) &&
    Number.isInteger(identity.kafkaNodes) &&
    (identity.security === undefined || isText(identity.security?.storePassword));
  if (whole) return identity;
  throw stackError(
    'strange_folder',
    `${join(folder, IDENTITY)} is not the identity of a stack of this version`,
    {
      next: 'remove the folder to start with an empty stack',
    },
  );
}

export function writeIdentity(folder: string, identity: StackIdentity): void {
  writeWhole(join(folder, IDENTITY), `${JSON.stringify(identity, undefined, 2)}\n`, 0o600);
}

/** Ports and processes of the last start, alive or not. */
export function readState(folder: string): StackState | undefined {
  const state = readJson<StackState>(join(folder, STATE));
  const whole =
    Array.isArray(state?.brokers) && Array.isArray(state.servers) && Number.isInteger(state.postgresPort);
  return whole ? state : undefined;
}

export function writeState(folder: string, state: StackState): void {
  writeWhole(join(folder, STATE), `${JSON.stringify(state, undefined, 2)}\n`, 0o600);
}

/** Keeps the ports for the next start and removes the processes. */
export function forgetProcesses(folder: string): void {
  const state = readState(folder);
  if (state !== undefined && state.servers.length > 0) writeState(folder, { ...state, servers: [] });
}

export const brokersOf = (nodes: readonly KafkaNode[]): string =>
  nodes.map((node) => `${LOOPBACK}:${node.port}`).join(',');

export interface StackAddresses {
  readonly brokers: string;
  readonly postgres: string;
  /** Files with client settings; only of a secured cluster. */
  readonly clients?: ClientFiles;
}

export const postgresAt = (folder: string, port: number, identity: StackIdentity): PostgresAt => ({
  port,
  password: identity.postgresPassword,
  securedBy: identity.postgresSecurity === undefined ? undefined : folder,
});

export function addressesOf(folder: string, state: StackState, identity: StackIdentity): StackAddresses {
  return {
    brokers: brokersOf(state.brokers),
    postgres: postgresUrl(postgresAt(folder, state.postgresPort, identity)),
    ...(identity.security === undefined ? {} : { clients: clientFiles(folder) }),
  };
}

/** Every server that runs in the folder: the recorded servers, and those of a start that died
 *  before it recorded them. The latter are found by pid file and working folder. */
export function runningServers(folder: string): readonly ServerState[] {
  const found = (readState(folder)?.servers ?? []).filter((server) => isAlive(server.process));
  const known = new Set(found.map((server) => server.process.pid));
  const add = (name: string, pid: number | undefined, workingFolder: string) => {
    if (pid === undefined || known.has(pid) || folderOf(pid) !== workingFolder) return;
    const id = identify(pid);
    if (id !== undefined) found.push({ name, process: id });
  };
  add(POSTGRES_NAME, postmasterPid(folder), join(folder, POSTGRES_NAME));
  for (const file of existsSync(join(folder, 'run')) ? readdirSync(join(folder, 'run')) : []) {
    if (/^kafka-\d+\.pid$/.test(file)) {
      add(file.slice(0, -'.pid'.length), Number(readFileSync(join(folder, 'run', file), 'utf8')), folder);
    }
  }
  return found;
}

/** Removes the remains of an unfinished formatting. */
export function removeParts(folder: string): void {
  for (const entry of readdirSync(folder)) {
    if (entry.endsWith('.part')) rmSync(join(folder, entry), { recursive: true, force: true });
  }
}
