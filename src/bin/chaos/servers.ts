/** Kafka and PostgreSQL of a chaos run: servers of its own behind proxies, or those of the user. */
import {
  brokerLinkOf,
  FAULT_KINDS,
  FAULTS,
  type FaultKind,
  GENTLE_FAULTS,
  isPreloaded,
} from '../../chaos/faults.ts';
import { coreError } from '../../core/errors.ts';
import { type FaultShim, type ShimControl, shimCompiler } from '../../devstack/fault-shim.ts';
import type { BrokerLink } from '../../devstack/kafka/server.ts';
import { LOOPBACK } from '../../devstack/ports.ts';
import type { TcpProxy } from '../../devstack/proxy.ts';
import { StackServers } from '../../devstack/servers.ts';
import { START_TIMEOUT_MS, startStack } from '../../devstack/stack.ts';
import { readState } from '../../devstack/state.ts';
import { pgConnection } from '../../io/postgres/tls.ts';
import { lockDriver } from '../../shell/drivers.ts';
import type { Proxies } from './links.ts';
import type { ChaosContext as Context } from './settings.ts';

/** Our services with connections to Kafka. */
export const KAFKA_CLIENTS = ['relay', 'payments'] as const;

/** Servers of a run, and the services that reach them through proxies. */
export interface ServersWanted {
  /** Addresses of the user; without one of PostgreSQL the run starts both servers. */
  readonly postgres: string | undefined;
  readonly brokers: string | undefined;
  readonly databaseClients: readonly string[];
  readonly brokerClients: readonly string[];
  /** True: brokers reach each other through proxies. */
  readonly hasBrokerLinks: boolean;
  /** Fills the disks of servers of this run; undefined: no fault does. */
  readonly shim: FaultShim | undefined;
}

export interface Servers {
  /** Addresses of the brokers for this process; undefined: the user named none. */
  readonly brokers: string | undefined;
  /** Addresses for a service, through the proxies where there are any. */
  readonly brokersOf: (service: string) => string;
  /** Database for this process. */
  readonly postgres: string;
  readonly postgresOf: (service: string) => string;
  /** Undefined: the servers are the user's. */
  readonly own: StackServers | undefined;
  /** Pages of the servers that the shim is preloaded into, by name. */
  readonly disks: ReadonlyMap<string, ShimControl>;
}

/** True if the run uses servers of the user. @throws usage where one address is missing */
export function usesGivenServers({ settings }: Pick<Context, 'settings'>): boolean {
  const { brokers, postgres } = settings;
  if ((brokers === undefined) === (postgres === undefined)) return brokers !== undefined;
  const [given, missing] = brokers === undefined ? ['-postgres', '-brokers'] : ['-brokers', '-postgres'];
  throw coreError('usage', `${given} needs ${missing}`, {
    next: 'give both, or neither for servers that this run starts',
  });
}

/** True if services may reach this database through a proxy: a proxy has another name than the
 *  certificate of the server. */
export const canProxyPostgres = (url: string): boolean => pgConnection(url).ssl === false;

const needsDatabaseProxy = (kind: FaultKind): boolean => kind === 'backend-kill';

export const isOfServers = (kind: FaultKind): boolean => ['own', 'cluster'].includes(FAULTS[kind].need);

/** Reason why there is no link between two brokers. */
export function clusterObstacle(brokerCount: number): string | undefined {
  if (brokerCount < 2) return 'needs -broker-count=2 or more';
  // Only Linux routes the whole loopback network.
  return process.platform === 'linux' ? undefined : 'needs Linux';
}

let preloads: boolean | undefined;
/** True if this machine can compile and preload the shim. */
export function canPreload(): boolean {
  preloads ??= shimCompiler(process.env) !== undefined;
  return preloads;
}
export const PRELOAD_NEEDS = 'needs Linux and a C compiler (Debian: apt-get install gcc libc6-dev)';

/** Reason why the settings exclude a kind of fault; undefined: they do not. */
function obstacleOf(
  { settings }: Pick<Context, 'settings'>,
  isGiven: boolean,
  kind: FaultKind,
): string | undefined {
  const { need } = FAULTS[kind];
  if (isGiven && isOfServers(kind)) return 'needs servers that this run starts';
  if (need === 'cluster') return clusterObstacle(settings['broker-count']);
  if (need === 'wal' && settings.relay !== 'wal') return 'needs -relay=wal';
  if (isPreloaded(kind) && !canPreload()) return PRELOAD_NEEDS;
  const { postgres } = settings;
  if (needsDatabaseProxy(kind) && postgres !== undefined && !canProxyPostgres(postgres))
    return 'needs a database without TLS, because it finds the connections by a proxy';
  return undefined;
}

/** Kinds of faults of a run. @throws usage for a kind that cannot be had with these settings */
export function faultsOf(context: Pick<Context, 'settings'>): readonly FaultKind[] {
  const isGiven = usesGivenServers(context);
  const given = context.settings.faults as readonly FaultKind[] | undefined;
  if (given !== undefined) {
    for (const kind of given) {
      const obstacle = obstacleOf(context, isGiven, kind);
      if (obstacle !== undefined)
        throw coreError('usage', `the fault ${kind} ${obstacle}`, { next: `leave ${kind} out of -faults` });
    }
    return [...new Set(given)];
  }
  const candidates = isGiven ? GENTLE_FAULTS : FAULT_KINDS;
  return candidates.filter((kind) => obstacleOf(context, isGiven, kind) === undefined);
}

/** Starts the servers, or uses the given ones, and opens the proxies before them. */
export async function openServers(
  context: Context,
  proxies: Proxies,
  wanted: ServersWanted,
): Promise<Servers> {
  const { brokers, postgres, databaseClients } = wanted;
  if (postgres === undefined) return startServers(context, proxies, wanted);
  return {
    brokers,
    brokersOf: () => brokers ?? '',
    postgres,
    postgresOf: canProxyPostgres(postgres)
      ? await proxiesBefore(postgres, proxies, databaseClients)
      : () => postgres,
    own: undefined,
    disks: new Map(),
  };
}

/** Opens a proxy before the database for each service. @returns the address for a service */
async function proxiesBefore(
  postgres: string,
  proxies: Proxies,
  services: readonly string[],
): Promise<(service: string) => string> {
  const { hostname, port } = new URL(postgres);
  const target = {
    host: hostname === '' ? 'localhost' : hostname.replace(/^\[|\]$/g, ''),
    port: port === '' ? 5432 : Number(port),
  };
  const urls = new Map<string, string>();
  for (const service of services) {
    const [proxy] = await proxies.open(`${service}-postgres`, 1);
    proxy?.setTarget(target);
    const url = new URL(postgres);
    url.hostname = LOOPBACK;
    url.port = String(proxy?.port);
    urls.set(service, url.toString());
  }
  return (service) => urls.get(service) ?? postgres;
}

/** Opens the proxies between each two brokers: for both directions, and for replication and for
 *  the quorum of controllers. */
async function openBrokerLinks(links: readonly BrokerLink[], proxies: Proxies): Promise<void> {
  const byLink = new Map<string, BrokerLink[]>();
  for (const link of links) {
    const name = brokerLinkOf(link.client, link.server);
    byLink.set(name, [...(byLink.get(name) ?? []), link]);
  }
  for (const [name, places] of byLink)
    await proxies.openAt(
      name,
      places.map(({ host, port }) => ({ at: { host, port }, target: { host: LOOPBACK, port } })),
    );
}

const LETTERS = 26;
const letter = (index: number): string => String.fromCharCode(65 + (index % LETTERS));

/** Name of a listener: letters alone. */
const doorName = (index: number): string => `DOOR${letter(Math.floor(index / LETTERS))}${letter(index)}`;

async function startServers(
  context: Context,
  proxies: Proxies,
  { databaseClients, brokerClients, hasBrokerLinks, shim }: ServersWanted,
): Promise<Servers> {
  const count = context.settings['broker-count'];
  // A server that starts slowly makes a fault long, and a fault has a limit of its own.
  const startTimeoutMs = Math.max(START_TIMEOUT_MS, context.settings['fault-timeout']);
  const doors: Array<{ client: string; name: string; opened: readonly TcpProxy[] }> = [];
  for (const [index, client] of brokerClients.entries()) {
    const opened = await proxies.open(`${client}-kafka`, count);
    doors.push({ client, name: doorName(index), opened });
  }
  const disks = new Map<string, ShimControl>();
  const stack = await startStack({
    environmentOf: (name, dataFolder) => {
      const control = shim?.control(name, dataFolder);
      if (control !== undefined) disks.set(name, control);
      return control?.environment ?? {};
    },
    folder: undefined,
    openBrokerLinks: hasBrokerLinks ? (links) => openBrokerLinks(links, proxies) : undefined,
    owned: true,
    restarts: true,
    brokerCount: count,
    kafkaDoors: doors.map(({ name, opened }) => ({ name, advertisedPorts: opened.map(({ port }) => port) })),
    kafkaPort: undefined,
    postgresPort: undefined,
    kafkaHeapBytes: undefined,
    locks: await lockDriver(context),
    environment: process.env,
    startTimeoutMs,
    onStep: (step) => context.say(step),
    signal: context.drain,
  });
  context.onClose(() => stack.close());
  const own = new StackServers(stack.folder, { startTimeoutMs, removeAtEnd: stack.folder });
  context.onClose(() => own.end());
  const nodes = readState(stack.folder)?.brokers ?? [];
  for (const { name, opened } of doors)
    for (const [i, proxy] of opened.entries()) {
      const door = nodes[i]?.doors?.find((one) => one.name === name);
      if (door === undefined) throw coreError('internal', `broker ${i + 1} has no listener ${name}`);
      proxy.setTarget({ host: LOOPBACK, port: door.port });
    }
  const addressesOf = (client: string): string =>
    (doors.find((one) => one.client === client)?.opened ?? [])
      .map(({ port }) => `${LOOPBACK}:${port}`)
      .join(',');
  return {
    brokers: stack.brokers,
    brokersOf: addressesOf,
    postgres: stack.postgres,
    postgresOf: await proxiesBefore(stack.postgres, proxies, databaseClients),
    own,
    disks,
  };
}
