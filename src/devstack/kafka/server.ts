/** Apache Kafka in KRaft mode, each node both broker and controller: formatting, configuration and
 *  start script.
 *
 *  Paths in the configuration are relative to the stack's folder, which is the working folder of
 *  the JVM: Kafka splits log.dirs at commas, and the path of a clone may contain commas. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, renameSync, rmSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { stackError } from '../errors.ts';
import { exportLines, type ServerEnvironment, shellWord, writeWhole } from '../files.ts';
import { deathSignalWords } from '../guard.ts';
import { LOOPBACK } from '../ports.ts';
import { type KafkaSecurity, scramArguments, securityProperties } from './security.ts';

/** A node of the cluster. `name` names its data folder, log and script. */
export interface KafkaNode {
  readonly id: number;
  readonly name: string;
  readonly port: number;
  readonly controllerPort: number;
  /** Port of the listener between brokers; only of a secured cluster, and of a plaintext one whose
   *  brokers reach each other by links. */
  readonly internalPort?: number;
  /** Further listeners for clients; only of a plaintext cluster. */
  readonly doors?: readonly KafkaDoor[];
}

/** Listener whose clients are sent to another port than the one it listens on, so that a proxy may
 *  stand between: a client connects to the address that the listener of its first connection
 *  advertises. */
export interface KafkaDoor {
  /** Name of the listener: upper-case letters. */
  readonly name: string;
  readonly port: number;
  readonly advertisedPort: number;
}

/** Address by which a broker of a cluster with links reaches a listener of another broker. A proxy
 *  must listen there and forward to the same port of 127.0.0.1. */
export interface BrokerLink {
  /** Names of the brokers. */
  readonly client: string;
  readonly server: string;
  readonly host: string;
  readonly port: number;
}

/** True for a cluster whose brokers know each other by name: each broker has a hosts file of its
 *  own, so that each pair has an address of its own on the loopback network. Linux routes all of
 *  it. */
const isLinked = ({ nodes, security }: Pick<KafkaOptions, 'nodes' | 'security'>): boolean =>
  security === undefined && nodes.some(({ internalPort }) => internalPort !== undefined);

const linkHost = (client: KafkaNode, server: KafkaNode): string => `127.1.${client.id}.${server.id}`;

/** Links of a cluster, to the listener for brokers and to the controller of each other broker. */
export function brokerLinks(nodes: readonly KafkaNode[]): readonly BrokerLink[] {
  return nodes.flatMap((client) =>
    nodes
      .filter((server) => server !== client)
      .flatMap((server) =>
        [server.internalPort, server.controllerPort].flatMap((port) =>
          port === undefined
            ? []
            : [{ client: client.name, server: server.name, host: linkHost(client, server), port }],
        ),
      ),
  );
}

/** Writes the hosts file of a broker of a cluster with links. @returns the flag of its JVM */
function hostsFlag(options: KafkaOptions, node: KafkaNode): readonly string[] {
  if (!isLinked(options)) return [];
  writeHosts(options, node);
  return [`-Djdk.net.hosts.file=${hostsFile(node)}`];
}

const hostsFile = (node: KafkaNode): string => join('run', `${node.name}.hosts`);

/** Names of all brokers as one of them sees them. */
function writeHosts({ folder, nodes }: KafkaOptions, node: KafkaNode): void {
  const lines = nodes.map((one) => `${one === node ? LOOPBACK : linkHost(node, one)} ${one.name}`);
  writeWhole(join(folder, hostsFile(node)), `${LOOPBACK} localhost ${hostname()}\n${lines.join('\n')}\n`);
}

export interface KafkaOptions {
  /** Folder of the stack. */
  readonly folder: string;
  readonly jars: string;
  readonly java: string;
  readonly heapBytes: number;
  readonly clusterId: string;
  readonly nodes: readonly KafkaNode[];
  /** Undefined: plaintext. */
  readonly security: KafkaSecurity | undefined;
  /** Session timeout of the broker: how long it may miss heartbeats before it is fenced. */
  readonly sessionMs: number;
  /** Further variables of a node. */
  readonly environmentOf?: ServerEnvironment | undefined;
}

/** Largest batch that a broker accepts; stated so that no version's default changes it. */
const MESSAGE_BYTES_MAX = 1_048_588;
const FORMAT_TIMEOUT_MS = 60_000;
const JAVA_MAJOR_MIN = 17;
const REPLICATION_MAX = 3;

/** New cluster id in Kafka's form: 16 random bytes in unpadded base64url, not starting with a
 *  dash. */
export function newClusterId(): string {
  for (;;) {
    const id = randomBytes(16).toString('base64url');
    if (!id.startsWith('-')) return id;
  }
}

/** Session timeout of a broker. After a crash the controller re-admits a broker when its previous
 *  session has expired: short enough for a quick restart, long enough for a machine busy with
 *  tests. */
export const BROKER_SESSION_MS = 5000;
/** Session timeout of a single broker that is never restarted. Its controller runs in the same
 *  process and would fence it after every pause of that process. */
export const LONE_BROKER_SESSION_MS = 60_000;

function listenerSettings(
  node: KafkaNode,
  security: KafkaSecurity | undefined,
): Readonly<Record<string, string>> {
  const controller = `CONTROLLER://${LOOPBACK}:${node.controllerPort}`;
  if (security === undefined) {
    const doors = node.doors ?? [];
    const { name, internalPort } = node;
    const between = (host: string): readonly string[] =>
      internalPort === undefined ? [] : [`BROKERS://${host}:${internalPort}`];
    const plain = `PLAINTEXT://${LOOPBACK}:${node.port}`;
    const at = (pick: (door: KafkaDoor) => number): readonly string[] =>
      doors.map((door) => `${door.name}://${LOOPBACK}:${pick(door)}`);
    return {
      listeners: [plain, ...at(({ port }) => port), ...between(LOOPBACK), controller].join(','),
      'advertised.listeners': [
        ...[plain, ...at(({ advertisedPort }) => advertisedPort), ...between(name)],
        ...(internalPort === undefined ? [] : [`CONTROLLER://${name}:${node.controllerPort}`]),
      ].join(','),
      'listener.security.protocol.map': [
        'PLAINTEXT',
        'CONTROLLER',
        ...(internalPort === undefined ? [] : ['BROKERS']),
        ...doors.map((one) => one.name),
      ]
        .map((one) => `${one}:PLAINTEXT`)
        .join(','),
      'inter.broker.listener.name': internalPort === undefined ? 'PLAINTEXT' : 'BROKERS',
    };
  }
  const served = `CLIENT://${LOOPBACK}:${node.port},INTERNAL://${LOOPBACK}:${node.internalPort}`;
  return {
    listeners: `${served},${controller}`,
    'advertised.listeners': served,
    ...securityProperties(security),
  };
}

/** Text of server.properties for a node; `logDir` is relative to the stack's folder. */
export function serverProperties(
  node: KafkaNode,
  nodes: readonly KafkaNode[],
  logDir: string,
  sessionMs = BROKER_SESSION_MS,
  security?: KafkaSecurity,
): string {
  const replication = Math.min(REPLICATION_MAX, nodes.length);
  const inSync = Math.min(2, replication);
  const host = (one: KafkaNode): string => (isLinked({ nodes, security }) ? one.name : LOOPBACK);
  const settings: Readonly<Record<string, string | number | boolean>> = {
    'process.roles': 'broker,controller',
    'node.id': node.id,
    'controller.quorum.voters': nodes.map((one) => `${one.id}@${host(one)}:${one.controllerPort}`).join(','),
    ...listenerSettings(node, security),
    'controller.listener.names': 'CONTROLLER',
    'log.dirs': logDir,
    'auto.create.topics.enable': false,
    'default.replication.factor': replication,
    'min.insync.replicas': inSync,
    'message.max.bytes': MESSAGE_BYTES_MAX,
    'replica.fetch.max.bytes': MESSAGE_BYTES_MAX,
    'group.initial.rebalance.delay.ms': 0,
    'group.min.session.timeout.ms': 1000,
    'offsets.topic.num.partitions': 4,
    'offsets.topic.replication.factor': replication,
    'transaction.state.log.num.partitions': 4,
    'transaction.state.log.replication.factor': replication,
    'transaction.state.log.min.isr': inSync,
    'share.coordinator.state.topic.num.partitions': 4,
    'share.coordinator.state.topic.replication.factor': replication,
    'share.coordinator.state.topic.min.isr': inSync,
    // Deleted segments leave the disk soon: five minutes of load are many gigabytes.
    'log.retention.check.interval.ms': 15_000,
    'broker.heartbeat.interval.ms': 1000,
    'broker.session.timeout.ms': sessionMs,
  };
  return `${Object.entries(settings)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n')}\n`;
}

const LOG_CONFIG = `status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c{1})%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
logger.server.name=kafka.server
logger.server.level=INFO
`;

const run = promisify(execFile);

/** Path of java: from JAVA_HOME, else `java` of the search path. */
export function javaProgram(environment: NodeJS.ProcessEnv): string {
  const home = environment['JAVA_HOME'];
  const own = home === undefined || home === '' ? undefined : join(home, 'bin', 'java');
  return own !== undefined && existsSync(own) ? own : 'java';
}

/** Version of a java program.
 *  @throws missing_tool if it does not start or is too old */
export async function checkJava(java: string): Promise<string> {
  const next = 'run bin/bootstrap, or install it (Debian: apt-get install openjdk-17-jre-headless)';
  let text: string;
  try {
    text = (await run(java, ['-version'])).stderr;
  } catch (thrown) {
    const why = `${java} does not start; Apache Kafka needs Java ${JAVA_MAJOR_MIN} or newer`;
    throw stackError('missing_tool', why, { next, cause: thrown });
  }
  const version = /version "(\d+)[^"]*"/.exec(text);
  if (version === null || Number(version[1]) < JAVA_MAJOR_MIN) {
    throw stackError(
      'missing_tool',
      `${java} is ${text.split('\n')[0]}; Java ${JAVA_MAJOR_MIN} or newer is needed`,
      { next },
    );
  }
  return version[0].slice('version '.length).replaceAll('"', '');
}

/** Arguments of the storage tool in the form of a file that java reads. They have the passwords of
 *  a secured cluster, and every user of the machine can list the words of a process. */
export function formatArguments(
  { clusterId, security }: Pick<KafkaOptions, 'clusterId' | 'security'>,
  config: string,
): string {
  const words = ['kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', config];
  if (security !== undefined) words.push(...scramArguments(security));
  return `${words.map((word) => `"${word.replaceAll(/[\\"]/g, '\\$&')}"`).join('\n')}\n`;
}

/** Formats the storage of every node that has none: in a temporary folder that is renamed, so that
 *  an existing data folder is complete. */
export async function formatKafka(options: KafkaOptions): Promise<void> {
  const format = async (node: KafkaNode) => {
    const data = join(options.folder, node.name);
    if (existsSync(data)) return;
    const part = `${node.name}.part`;
    rmSync(join(options.folder, part), { recursive: true, force: true });
    const config = join('run', `${node.name}-format.properties`);
    const text = serverProperties(node, options.nodes, part, options.sessionMs, options.security);
    writeWhole(join(options.folder, config), text, 0o600);
    const file = join('run', `${node.name}-format.arguments`);
    writeWhole(join(options.folder, file), formatArguments(options, config), 0o600);
    const words = [
      ...deathSignalWords(),
      options.java,
      ...hostsFlag(options, node),
      '-Xmx128m',
      '-Xshare:auto',
      '-XX:TieredStopAtLevel=1',
      '-XX:+UseSerialGC',
      '-cp',
      join(options.jars, '*'),
      `-Dlog4j2.configurationFile=${logConfigUrl(options.folder)}`,
      `@${file}`,
    ];
    try {
      await run(words[0] as string, words.slice(1), { cwd: options.folder, timeout: FORMAT_TIMEOUT_MS });
    } catch (thrown) {
      const { stderr, message } = thrown as { stderr?: string; message: string };
      throw stackError(
        'server_failed',
        `the storage of Kafka could not be formatted: ${(stderr || message).trim().split('\n')[0]}`,
        {
          next: `check the free space and the permissions of ${options.folder}`,
          cause: thrown,
        },
      );
    } finally {
      rmSync(join(options.folder, file), { force: true });
    }
    renameSync(join(options.folder, part), data);
  };
  await Promise.all(options.nodes.map(format));
}

const logConfigUrl = (folder: string): string => pathToFileURL(join(folder, 'run', 'log4j2.properties')).href;

/** Writes the logging configuration that formatting and servers share. */
export function writeKafkaLogging(folder: string): void {
  writeWhole(join(folder, 'run', 'log4j2.properties'), LOG_CONFIG);
}

/** Writes each node's configuration and start script. */
export function writeKafkaScripts(options: KafkaOptions): void {
  for (const node of options.nodes) {
    const config = join('run', `${node.name}.properties`);
    const text = serverProperties(node, options.nodes, node.name, options.sessionMs, options.security);
    writeWhole(join(options.folder, config), text, 0o600);
    const heapMiB = Math.floor(options.heapBytes / 2 ** 20);
    const words = [
      ...deathSignalWords(),
      options.java,
      ...hostsFlag(options, node),
      `-Xmx${heapMiB}m`,
      '-Xshare:auto',
      '-XX:+UseG1GC',
      '-XX:MaxGCPauseMillis=20',
      '-XX:-UsePerfData',
      '-Djava.awt.headless=true',
      '-Djava.net.preferIPv4Stack=true',
      `-Dlog4j2.configurationFile=${logConfigUrl(options.folder)}`,
      '-cp',
      join(options.jars, '*'),
      'kafka.Kafka',
      config,
    ];
    const script = join(options.folder, 'run', `${node.name}.sh`);
    const variables = options.environmentOf?.(node.name, join(options.folder, node.name)) ?? {};
    writeWhole(
      script,
      `${exportLines(variables)}echo $$ >run/${node.name}.pid\nexec ${words.map(shellWord).join(' ')}\n`,
    );
    chmodSync(script, 0o755);
  }
}
