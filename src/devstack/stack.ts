/** The embedded stack: Apache Kafka and PostgreSQL of a folder, which this module starts,
 *  identifies and stops.
 *
 *  Invariants: (1) nothing is written to a server before it has proven to be the server formatted
 *  in the folder; (2) a stack that is not ready dies with the process that starts it, and an owned
 *  stack always does, even on SIGKILL; (3) a folder is formatted completely or formatted again; (4)
 *  one process at a time starts or stops a folder's stack.
 *
 *  Folder layout: identity.json (identity of the servers), stack.json (ports, processes), lock,
 *  run/ (configurations, scripts, pid files), logs/, kafka-1/ and postgres/ (data). */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError, invariant } from '../core/errors.ts';
import type { LockDriver } from '../io/lock/port.ts';
import { stackError } from './errors.ts';
import { type ServerEnvironment, writableFolder } from './files.ts';
import { Guard } from './guard.ts';
import { fetchKafka } from './kafka/jars.ts';
import {
  type BrokerSecurity,
  type KafkaSecurity,
  makeCertificates,
  newKafkaSecurity,
  writeClientFiles,
} from './kafka/security.ts';
import {
  BROKER_SESSION_MS,
  type BrokerLink,
  brokerLinks,
  checkJava,
  formatKafka,
  javaProgram,
  type KafkaDoor,
  type KafkaNode,
  type KafkaOptions,
  LONE_BROKER_SESSION_MS,
  newClusterId,
  writeKafkaLogging,
  writeKafkaScripts,
} from './kafka/server.ts';
import { lockFolder } from './lock.ts';
import { choosePort, isReleased } from './ports.ts';
import { postgresBinaries } from './postgres/binaries.ts';
import type { PostgresSecurity } from './postgres/security.ts';
import {
  ensureDatabase,
  forgetPostmaster,
  formatPostgres,
  POSTGRES_NAME,
  recordedSystemId,
  writePostgresScript,
} from './postgres/server.ts';
import { isAlive, type ProcessId, signalProcess, waitForEnd } from './process.ts';
import { brokerReady, postgresReady, serverFailed, waitReady } from './ready.ts';
import {
  addressesOf,
  brokersOf,
  forgetProcesses,
  postgresAt,
  readIdentity,
  readState,
  removeParts,
  runningServers,
  type ServerState,
  type StackAddresses,
  type StackIdentity,
  type StackState,
  writeIdentity,
  writeState,
} from './state.ts';

export interface StackOptions {
  /** Absolute path. Undefined creates an ephemeral stack: a temporary folder, removed at the end;
   *  always owned. */
  readonly folder: string | undefined;
  /** The stack dies with this process. */
  readonly owned: boolean;
  /** Undefined: as many as the folder was formatted with, 1 for a new folder. */
  readonly brokerCount: number | undefined;
  /** Protocol of the listener for clients. Undefined: that of the folder, plaintext for a folder
   *  that is new. */
  readonly brokerSecurity?: BrokerSecurity | undefined;
  /** Connections that PostgreSQL accepts. Undefined: as in the folder, plaintext for a folder that
   *  is new. */
  readonly postgresSecurity?: PostgresSecurity | undefined;
  /** Further listeners of each broker, for clients behind a proxy; the advertised ports are in the
   *  order of the brokers. For a new plaintext folder. */
  readonly kafkaDoors?: ReadonlyArray<{ readonly name: string; readonly advertisedPorts: readonly number[] }>;
  /** Called with the addresses by which the brokers reach each other, before they start; it must
   *  listen there. For a new plaintext folder, on Linux. Undefined: they reach each other
   *  directly. */
  readonly openBrokerLinks?: ((links: readonly BrokerLink[]) => Promise<void>) | undefined;
  /** Further variables of each server, for a library that is preloaded into it. */
  readonly environmentOf?: ServerEnvironment | undefined;
  /** True: servers of an ephemeral stack will be killed and started again. */
  readonly restarts?: boolean;
  /** Port of the first broker; the others use the next ports. Undefined: free ports. */
  readonly kafkaPort: number | undefined;
  readonly postgresPort: number | undefined;
  /** Heap of each broker. Undefined: 512 MiB for a single broker, 384 MiB each for several. */
  readonly kafkaHeapBytes: number | undefined;
  readonly locks: LockDriver;
  /** Environment with JAVA_HOME. */
  readonly environment: NodeJS.ProcessEnv;
  readonly startTimeoutMs: number;
  /** Called before each step that takes time. */
  readonly onStep: (step: string) => void;
  readonly signal: AbortSignal | undefined;
}

export interface Stack extends StackAddresses {
  readonly folder: string;
  /** True if this call found the stack running and started nothing. */
  readonly alreadyRunning: boolean;
  /** Time from the call until the stack was ready. */
  readonly readyMs: number;
  /** Resolves with the error if a server of an owned stack ends by itself, with undefined if
   *  `signal` aborts. */
  broken(signal: AbortSignal): Promise<Error | undefined>;
  /** Gives up ownership: the stack then runs until it is stopped. */
  release(): Promise<void>;
  /** Stops an owned stack in order, an ephemeral stack immediately. Does nothing on a stack that is
   *  not owned. */
  close(): Promise<void>;
}

export const DEFAULT_KAFKA_HEAP_BYTES = 512 * 2 ** 20;
const SHARED_KAFKA_HEAP_BYTES = 384 * 2 ** 20;
export const START_TIMEOUT_MS = 90_000;
const WATCH_MS = 500;
/** A killed server must recover at its next start, so even on a slow machine it gets time to
 *  stop. */
const STOP_GRACE_MS = 60_000;
/** Time limit of a running but unresponsive server before the stack is restarted. */
const ANSWER_MS = 30_000;
const KILL_BOUND_MS = 5_000;
const PORT_ATTEMPTS_MAX = 3;

interface Started {
  readonly guard: Guard;
  readonly state: StackState;
}

function kafkaOptions(
  options: StackOptions,
  folder: string,
  jars: string,
  clusterId: string,
  nodes: readonly KafkaNode[],
  security: KafkaSecurity | undefined,
): KafkaOptions {
  return {
    folder,
    jars,
    java: javaProgram(options.environment),
    heapBytes:
      options.kafkaHeapBytes ?? (nodes.length === 1 ? DEFAULT_KAFKA_HEAP_BYTES : SHARED_KAFKA_HEAP_BYTES),
    clusterId,
    nodes,
    security,
    // An ephemeral stack ends with its broker, unless the caller starts it again.
    sessionMs:
      options.folder === undefined && nodes.length === 1 && options.restarts !== true
        ? LONE_BROKER_SESSION_MS
        : BROKER_SESSION_MS,
    environmentOf: options.environmentOf,
  };
}

async function chooseNodes(
  options: StackOptions,
  count: number,
  before: StackState | undefined,
  taken: Set<number>,
  isSecured: boolean,
): Promise<readonly KafkaNode[]> {
  const nodes: KafkaNode[] = [];
  for (let i = 0; i < count; i++) {
    const old = before?.brokers[i];
    const given = options.kafkaPort === undefined ? undefined : options.kafkaPort + i;
    const port = await choosePort('-kafka-port', given, old?.port, taken);
    const controllerPort = await choosePort('-kafka-port', undefined, old?.controllerPort, taken);
    const doors: KafkaDoor[] = [];
    for (const { name, advertisedPorts } of options.kafkaDoors ?? []) {
      const advertisedPort = advertisedPorts[i];
      invariant(advertisedPort !== undefined && !isSecured, 'each broker of a plaintext stack has its door');
      doors.push({
        name,
        port: await choosePort('-kafka-port', undefined, undefined, taken),
        advertisedPort,
      });
    }
    const node = {
      ...{ id: i + 1, name: `kafka-${i + 1}`, port, controllerPort },
      ...(doors.length === 0 ? {} : { doors }),
    };
    if (!isSecured && options.openBrokerLinks === undefined) nodes.push(node);
    else {
      const internalPort = await choosePort('-kafka-port', undefined, old?.internalPort, taken);
      nodes.push({ ...node, internalPort });
    }
  }
  return nodes;
}

/** Entries that an unfinished formatting may have left. */
const OWN_ENTRY =
  /^(run|logs|postgres|security|postgres-security|kafka-\d+|lock.*|.*\.part|(identity|stack)\.json.*)$/;

/** Refuses a folder with foreign files, because formatting removes files in its way.
 *  @throws strange_folder */
function requireOwnFolder(folder: string): void {
  const own = (name: string): boolean =>
    OWN_ENTRY.test(name) && (existsSync(join(folder, 'run')) || name.startsWith('lock'));
  if (
    existsSync(folder) &&
    readIdentity(folder) === undefined &&
    readdirSync(folder).some((name) => !own(name))
  ) {
    throw stackError('strange_folder', `${folder} holds other files than a stack`, {
      next: 'give an empty or a new folder with -dir',
    });
  }
}

/** @throws strange_folder */
export function prepareFolder(folder: string): void {
  requireOwnFolder(folder);
  for (const name of ['run', 'logs']) mkdirSync(join(folder, name), { recursive: true, mode: 0o755 });
}

/** Number of brokers of the cluster, which is fixed by formatting. @throws strange_folder */
function brokerCount(options: StackOptions, folder: string): number {
  const formatted = readIdentity(folder)?.kafkaNodes;
  const wanted = options.brokerCount ?? formatted ?? 1;
  if (formatted === undefined || formatted === wanted) return wanted;
  throw stackError(
    'strange_folder',
    `the stack in ${folder} was made with -broker-count=${formatted}, not ${wanted}`,
    {
      next: 'omit -broker-count, or create another stack with -dir',
    },
  );
}

/** Protocol of the listener for clients; a formatted folder keeps its own. @throws strange_folder
 */
function brokerSecurity(options: StackOptions, folder: string): BrokerSecurity {
  const identity = readIdentity(folder);
  const formatted = identity === undefined ? undefined : (identity.security?.protocol ?? 'plaintext');
  const wanted = options.brokerSecurity ?? formatted ?? 'plaintext';
  if (formatted === undefined || formatted === wanted) return wanted;
  throw stackError(
    'strange_folder',
    `the stack in ${folder} was made with -broker-security=${formatted}, not ${wanted}`,
    { next: 'leave -broker-security out, or make another stack with -dir' },
  );
}

/** Connections that PostgreSQL accepts; a formatted folder keeps its own. @throws strange_folder */
function postgresSecurity(options: StackOptions, folder: string): PostgresSecurity {
  const identity = readIdentity(folder);
  const formatted = identity === undefined ? undefined : (identity.postgresSecurity ?? 'plaintext');
  const wanted = options.postgresSecurity ?? formatted ?? 'plaintext';
  if (formatted === undefined || formatted === wanted) return wanted;
  throw stackError(
    'strange_folder',
    `the stack in ${folder} was made with -postgres-security=${formatted}, not ${wanted}`,
    { next: 'leave -postgres-security out, or make another stack with -dir' },
  );
}

/** Formats the storage if it is not formatted. The identity is written last: without it everything
 *  is formatted again. */
async function ensureFormatted(
  options: StackOptions,
  folder: string,
  jars: string,
  nodes: readonly KafkaNode[],
): Promise<StackIdentity> {
  const known = readIdentity(folder);
  if (known !== undefined) return known;
  options.onStep('formatting the storage of Kafka and PostgreSQL');
  removeParts(folder);
  for (const name of [POSTGRES_NAME, ...nodes.map((node) => node.name)])
    rmSync(join(folder, name), { recursive: true, force: true });
  const kafkaClusterId = newClusterId();
  const protocol = brokerSecurity(options, folder);
  const security = protocol === 'plaintext' ? undefined : newKafkaSecurity(protocol);
  if (security !== undefined) {
    options.onStep('making the certificates of Kafka');
    await makeCertificates(folder, javaProgram(options.environment), security);
  }
  const postgresPassword = randomBytes(12).toString('hex');
  const binaries = postgresBinaries(join(folder, 'run'));
  await Promise.all([
    formatKafka(kafkaOptions(options, folder, jars, kafkaClusterId, nodes, security)),
    formatPostgres({
      ...{ folder, binaries, password: postgresPassword, ephemeral: options.folder === undefined },
      secured: postgresSecurity(options, folder) === 'ssl',
    }),
  ]);
  const identity: StackIdentity = {
    format: 1,
    kafkaClusterId,
    postgresSystemId: recordedSystemId(folder),
    postgresPassword,
    kafkaNodes: nodes.length,
    ...(security === undefined ? {} : { security }),
    ...(postgresSecurity(options, folder) === 'ssl' ? { postgresSecurity: 'ssl' } : {}),
  };
  writeIdentity(folder, identity);
  return identity;
}

/** Starts the servers of a formatted folder and waits until each is ready and has proven its
 *  identity. */
async function launch(options: StackOptions, folder: string, jars: string): Promise<Started> {
  const before = readState(folder);
  const taken = new Set<number>();
  // Requested ports are chosen first, so that no free choice takes them.
  const postgresPort = await choosePort('-postgres-port', options.postgresPort, before?.postgresPort, taken);
  const isSecured = brokerSecurity(options, folder) !== 'plaintext';
  const nodes = await chooseNodes(options, brokerCount(options, folder), before, taken, isSecured);
  writeKafkaLogging(folder);
  const identity = await ensureFormatted(options, folder, jars, nodes);
  if (options.signal?.aborted === true)
    throw coreError('interrupted', 'interrupted while the stack was starting');
  const binaries = postgresBinaries(join(folder, 'run'));
  const { security } = identity;
  writeKafkaScripts(kafkaOptions(options, folder, jars, identity.kafkaClusterId, nodes, security));
  if (security !== undefined) writeClientFiles(folder, security, brokersOf(nodes));
  await options.openBrokerLinks?.(brokerLinks(nodes));
  const { postgresPassword: password } = identity;
  const secured = identity.postgresSecurity === 'ssl';
  const ephemeral = options.folder === undefined;
  const { environmentOf } = options;
  writePostgresScript({ folder, binaries, password, ephemeral, secured, environmentOf }, postgresPort);
  forgetPostmaster(folder);
  options.onStep('starting Kafka and PostgreSQL');
  const guard = new Guard({ folder, removeAtEnd: options.folder === undefined ? folder : undefined });
  try {
    const servers: ServerState[] = [];
    for (const node of nodes)
      servers.push({ name: node.name, process: await guard.start(node.name, 'KILL') });
    const postgres = { name: POSTGRES_NAME, process: await guard.start(POSTGRES_NAME, 'QUIT') };
    servers.push(postgres);
    await Promise.all([
      ...nodes.map((node, i) =>
        waitReady(options, folder, servers[i] as ServerState, () => brokerReady(folder, node, identity)),
      ),
      waitReady(options, folder, postgres, () => postgresReady(folder, postgresPort, identity)),
    ]);
    await ensureDatabase(postgresAt(folder, postgresPort, identity), options.startTimeoutMs);
    return { guard, state: { brokers: nodes, postgresPort, servers } };
  } catch (thrown) {
    await guard.end();
    throw thrown;
  }
}

const lostPort = (thrown: unknown): boolean =>
  (thrown as { readonly details?: { readonly portTaken?: boolean } }).details?.portTaken === true;

/** Retries with new ports, because a free port can be taken between check and use. Requested ports
 *  are not replaced. */
async function launchOnFreePorts(options: StackOptions, folder: string, jars: string): Promise<Started> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await launch(options, folder, jars);
    } catch (thrown) {
      if (options.folder === undefined || attempt === PORT_ATTEMPTS_MAX || !lostPort(thrown)) throw thrown;
      if (options.kafkaPort !== undefined || options.postgresPort !== undefined) throw thrown;
    }
  }
}

/** Restarts ended servers of a partly running stack on their ports, so that clients reconnect: some
 *  of three brokers, or the database or broker alone. On any failure the full start that follows
 *  takes over. Returns the names of the restarted servers. */
async function startEnded(options: StackOptions, folder: string): Promise<readonly string[]> {
  const state = readState(folder);
  const identity = readIdentity(folder);
  if (state === undefined || identity === undefined) return [];
  const ended = state.servers.filter((server) => !isAlive(server.process)).map((server) => server.name);
  if (ended.length === 0 || ended.length === state.servers.length) return [];
  const nodes = state.brokers.filter((node) => ended.includes(node.name));
  const { postgresPort } = state;
  const endedPostgres = ended.includes(POSTGRES_NAME);
  const ports = nodes.flatMap(({ port, controllerPort, internalPort }) =>
    internalPort === undefined ? [port, controllerPort] : [port, controllerPort, internalPort],
  );
  for (const port of endedPostgres ? [...ports, postgresPort] : ports)
    if (!(await isReleased(port))) return [];
  options.onStep(`restarting ${ended.join(' and ')}`);
  const guard = new Guard({ folder, removeAtEnd: undefined });
  try {
    const servers = new Map(state.servers.map((server) => [server.name, server]));
    const start = async (name: string, endSignal: 'KILL' | 'QUIT', ready: () => Promise<boolean>) => {
      const server = { name, process: await guard.start(name, endSignal) };
      servers.set(name, server);
      return () => waitReady(options, folder, server, ready);
    };
    const waits: Array<() => Promise<void>> = [];
    for (const node of nodes)
      waits.push(await start(node.name, 'KILL', () => brokerReady(folder, node, identity)));
    if (endedPostgres) {
      forgetPostmaster(folder);
      waits.push(await start(POSTGRES_NAME, 'QUIT', () => postgresReady(folder, postgresPort, identity)));
    }
    await Promise.all(waits.map((wait) => wait()));
    writeState(folder, { ...state, servers: [...servers.values()] });
    await guard.release();
    return ended;
  } catch (thrown) {
    options.onStep(`the restart failed: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    await guard.end();
    return [];
  }
}

/** Addresses of the running stack of a folder, once its servers have proven their identity. Polls
 *  until all answer or `waitMs` have passed.
 *  @throws wrong_server */
async function findRunning(folder: string, waitMs = 0): Promise<StackAddresses | undefined> {
  const state = readState(folder);
  const identity = readIdentity(folder);
  if (state === undefined || identity === undefined || state.servers.length === 0) return undefined;
  const deadline = performance.now() + waitMs;
  for (;;) {
    if (!state.servers.every((server) => isAlive(server.process))) return undefined;
    const answers = await Promise.all([
      postgresReady(folder, state.postgresPort, identity),
      ...state.brokers.map((node) => brokerReady(folder, node, identity)),
    ]);
    if (answers.every((ready) => ready)) return addressesOf(folder, state, identity);
    if (performance.now() >= deadline) return undefined;
    await sleep(WATCH_MS);
  }
}

/** Stops processes: sends each its shutdown signal, then SIGKILL after the bound. Returns the names
 *  of killed servers. */
async function stopServers(servers: readonly ServerState[]): Promise<readonly string[]> {
  for (const { name, process } of servers)
    signalProcess(process, name === POSTGRES_NAME ? 'SIGINT' : 'SIGTERM');
  const ids: ProcessId[] = servers.map((server) => server.process);
  if (await waitForEnd(ids, STOP_GRACE_MS)) return [];
  const stubborn = servers.filter((server) => isAlive(server.process));
  for (const { process } of stubborn) signalProcess(process, 'SIGKILL');
  await waitForEnd(ids, KILL_BOUND_MS);
  return stubborn.map((server) => server.name);
}

const nothing = async (): Promise<undefined> => undefined;

function ownedStack(
  folder: string,
  addresses: StackAddresses,
  started: Started,
  ephemeral: boolean,
  readyMs: number,
): Stack {
  let released = false;
  return {
    ...addresses,
    folder,
    readyMs,
    alreadyRunning: false,
    async broken(signal) {
      while (!signal.aborted) {
        const dead = started.state.servers.find((server) => !isAlive(server.process));
        if (dead !== undefined) return serverFailed(folder, dead.name, 'ended');
        await sleep(WATCH_MS, undefined, { signal }).catch(() => {});
      }
      return undefined;
    },
    async release() {
      if (released) return;
      released = true;
      await started.guard.release();
    },
    async close() {
      if (released) return;
      if (!ephemeral) {
        await stopServers(started.state.servers);
        forgetProcesses(folder);
      }
      await started.guard.end();
    },
  };
}

/** A running stack cannot move to another port. @throws usage */
function requireSamePorts(options: StackOptions, folder: string, found: StackAddresses): void {
  const requirePort = (flag: string, wanted: number | undefined, server: string, present: number): void => {
    if (wanted === undefined || wanted === present) return;
    throw coreError('usage', `${flag}=${wanted}: ${server} of ${folder} runs already, on port ${present}`, {
      next: `leave the flag out, or run \`millrace down -dir=${folder}\` first`,
    });
  };
  const broker = found.brokers.split(',')[0] as string;
  requirePort(
    '-kafka-port',
    options.kafkaPort,
    'the broker',
    Number(broker.slice(broker.lastIndexOf(':') + 1)),
  );
  requirePort('-postgres-port', options.postgresPort, 'PostgreSQL', Number(new URL(found.postgres).port));
}

/** Starts the stack of a folder, or finds it running.
 *  @throws busy_port, wrong_server, not_writable, missing_tool, fetch_failed, server_failed,
 *  stack_locked, strange_folder */
export async function startStack(options: StackOptions): Promise<Stack> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await startOnce(options);
    } catch (thrown) {
      // The folder of an ephemeral stack was removed with the servers that lost their port.
      const again = options.folder === undefined && attempt < PORT_ATTEMPTS_MAX && lostPort(thrown);
      if (!again || options.kafkaPort !== undefined || options.postgresPort !== undefined) throw thrown;
    }
  }
}

async function startOnce(options: StackOptions): Promise<Stack> {
  const startedMs = performance.now();
  await checkJava(javaProgram(options.environment));
  const jars = (await fetchKafka()).folder;
  const ephemeral = options.folder === undefined;
  const wanted = options.folder ?? mkdtempSync(join(realpathSync(tmpdir()), 'millrace-'));
  writableFolder(wanted, '-dir');
  const folder = realpathSync(wanted);
  // Check before the lock, which creates a file in the folder, and again while holding it.
  requireOwnFolder(folder);
  const lock = await lockFolder(options.locks, folder, options.startTimeoutMs);
  try {
    prepareFolder(folder);
    brokerCount(options, folder);
    brokerSecurity(options, folder);
    postgresSecurity(options, folder);
    const again = options.owned ? [] : await startEnded(options, folder);
    // A single late answer does not justify stopping servers that other processes use.
    const found = await findRunning(folder, Math.min(options.startTimeoutMs, ANSWER_MS));
    if (found !== undefined) {
      requireSamePorts(options, folder, found);
      const readyMs = performance.now() - startedMs;
      return {
        ...found,
        folder,
        alreadyRunning: again.length === 0,
        readyMs,
        broken: nothing,
        release: nothing,
        close: nothing,
      };
    }
    // A partial or unresponsive stack is stopped and started as a whole.
    await stopServers(runningServers(folder));
    const started = await launchOnFreePorts(options, folder, jars);
    const identity = readIdentity(folder) as StackIdentity;
    writeState(folder, started.state);
    const stack = ownedStack(
      folder,
      addressesOf(folder, started.state, identity),
      started,
      ephemeral,
      performance.now() - startedMs,
    );
    if (!options.owned && !ephemeral) await stack.release();
    return stack;
  } catch (thrown) {
    if (ephemeral) rmSync(folder, { recursive: true, force: true });
    throw thrown;
  } finally {
    lock.release();
  }
}

export interface StopReport {
  /** Names of the servers that were running. */
  readonly stopped: readonly string[];
  /** Names of the servers that had to be killed. */
  readonly killed: readonly string[];
}

/** Stops the stack of a folder; data is kept.
 *  @throws stack_locked */
export async function stopStack(folder: string, lockBoundMs: number, locks: LockDriver): Promise<StopReport> {
  if (!existsSync(folder)) return { stopped: [], killed: [] };
  const at = realpathSync(folder);
  if (!existsSync(join(at, 'run'))) return { stopped: [], killed: [] };
  const lock = await lockFolder(locks, at, lockBoundMs);
  try {
    const servers = runningServers(at);
    const killed = await stopServers(servers);
    forgetProcesses(at);
    return { stopped: servers.map((server) => server.name), killed };
  } finally {
    lock.release();
  }
}

/** Addresses of the stack of a folder if it runs and belongs to the folder.
 *  @throws wrong_server */
export async function runningStack(folder: string): Promise<StackAddresses | undefined> {
  return existsSync(join(folder, 'run')) ? findRunning(realpathSync(folder)) : undefined;
}

/** Names of the servers that ended in a partly running stack. */
export function endedServers(folder: string): readonly string[] {
  const servers = existsSync(join(folder, 'run')) ? (readState(realpathSync(folder))?.servers ?? []) : [];
  const ended = servers.filter((server) => !isAlive(server.process));
  return ended.length === servers.length ? [] : ended.map((server) => server.name);
}
