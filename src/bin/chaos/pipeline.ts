/** Processes of a chaos run: orders, relay and payments behind the proxies, and the load client. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { MEMBERS, SERVICES, type ServiceName, TAKEOVER_MS } from '../../chaos/faults.ts';
import { environmentName } from '../../core/settings.ts';
import type { FaultShim } from '../../devstack/fault-shim.ts';
import { freePort, LOOPBACK } from '../../devstack/ports.ts';
import type { TcpProxy } from '../../devstack/proxy.ts';
import { brokerEnvironment } from '../../shell/broker-settings.ts';
import type { Processes } from '../../shell/children/processes.ts';
import type { StartedCommand } from '../../shell/children/started-command.ts';
import { HTTP_SETTINGS, SHARED_SETTINGS } from '../../shell/command.ts';
import type { Proxies } from './links.ts';
import type { Servers } from './servers.ts';
import { ManagedService, type ManagedServiceOptions } from './service.ts';
import { type ChaosContext as Context, SETTINGS } from './settings.ts';

const LOAD_TIMEOUT = '5s';
/** Requests in flight at most, as of clients with pools: without a bound, those that wait after an
 *  outage all reach their time limit, are sent again, and no answer is in time any more. */
const LOAD_IN_FLIGHT_MAX = 512;
/** Share of the requests over gRPC. */
export const GRPC_SHARE = 0.5;
/** Time that the load client gets for its unanswered requests after the last fault. */
const LOAD_DRAIN = '120s';

const SECOND_MS = 1000;
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
/** Partitions of the inbox that a TTL spans. */
const PARTITIONS_PER_TTL = 4;

/** Flags of payments for a TTL. An expired key is dropped with its partition, whose keys have all
 *  expired: with the default width of an hour, a TTL of seconds would expire nothing. */
export function ttlFlags(ttlMs: number, isUnsafe: boolean): readonly string[] {
  // Whole seconds: a partition is named by the second of its begin.
  const seconds = Math.ceil(ttlMs / PARTITIONS_PER_TTL / SECOND_MS);
  const widthMs = Math.min(HOUR_MS, Math.max(1, seconds) * SECOND_MS);
  return [
    `-dedup-ttl=${ttlMs}ms`,
    `-unsafe-ttl=${isUnsafe}`,
    `-inbox-width=${widthMs}ms`,
    `-inbox-every=${Math.min(MINUTE_MS, widthMs)}ms`,
  ];
}

/** Objects that the run creates, by their names. */
export interface RunNames {
  readonly schema: string;
  readonly topic: string;
  readonly group: string;
  readonly slot: string;
  readonly publication: string;
}

export function namesOf({ settings }: Pick<Context, 'settings'>): RunNames {
  const unique = `${settings.seed}_${randomBytes(4).toString('hex')}`;
  const schema = settings.schema ?? `chaos_${unique}`;
  return {
    schema,
    topic: `millrace.chaos.${unique}`,
    group: `millrace-chaos-${unique}`,
    slot: `millrace_chaos_${unique}`,
    publication: `millrace_chaos_${unique}`,
  };
}

/** Environment of the children: the settings of this command are not theirs. */
export function childEnvironment(context: Context): Readonly<Record<string, string | undefined>> {
  const env = { ...process.env };
  for (const name of Object.keys({ ...SETTINGS, ...SHARED_SETTINGS, ...HTTP_SETTINGS }))
    if (name !== 'native') delete env[environmentName(name)];
  return { ...env, ...brokerEnvironment(context.settings['broker-property']) };
}

export interface ChaosPipeline {
  /** Processes by name, in the order of their start. */
  readonly services: Readonly<Record<string, ManagedService>>;
  /** Starts the load client. */
  readonly startLoad: () => StartedCommand;
  readonly ledger: string;
}

export interface PipelineParts {
  readonly processes: Processes;
  /** Folder for logs and the ledger. */
  readonly dir: string;
  readonly servers: Servers;
  readonly proxies: Proxies;
  readonly names: RunNames;
  /** Steps the clocks of the services; undefined: no fault does. */
  readonly shim: FaultShim | undefined;
  readonly onUnplannedEnd: ManagedServiceOptions['onUnplannedEnd'];
}

/** Ports of orders. */
interface OrdersPorts {
  readonly http: number;
  readonly grpc: number;
}

/** Flags of each service beside those of every service. */
function serviceFlags(
  { settings }: Context,
  { servers, names }: PipelineParts,
  ports: OrdersPorts,
): Readonly<Record<ServiceName, readonly string[]>> {
  const topic = [`-topic=${names.topic}`, `-partitions=${settings.partitions}`, '-listen=127.0.0.1:0'];
  const ttl = settings['dedup-ttl'];
  return {
    orders: [`-listen=${LOOPBACK}:${ports.http}`, `-grpc-listen=${LOOPBACK}:${ports.grpc}`],
    relay: [
      ...topic,
      `-brokers=${servers.brokersOf('relay')}`,
      `-relay=${settings.relay}`,
      `-lease=${TAKEOVER_MS.lease}ms`,
      ...(settings.relay === 'wal' ? [`-slot=${names.slot}`, `-publication=${names.publication}`] : []),
    ],
    payments: [
      ...topic,
      `-brokers=${servers.brokersOf('payments')}`,
      `-group=${names.group}`,
      `-session-timeout=${TAKEOVER_MS.session}ms`,
      `-dup-rate=${settings['dup-rate']}`,
      `-seed=${settings.seed}`,
      ...(ttl === undefined ? [] : ttlFlags(ttl, settings['unsafe-ttl'])),
    ],
  };
}

/** Prepares the processes; starts none. */
export async function preparePipeline(context: Context, parts: PipelineParts): Promise<ChaosPipeline> {
  const { processes, dir, servers, proxies, names, shim, onUnplannedEnd } = parts;
  const [http, grpc] = (await proxies.open('load-orders', 2)) as readonly [TcpProxy, TcpProxy];
  const [httpPort, grpcPort] = await twoPorts();
  http.setTarget({ host: LOOPBACK, port: httpPort });
  grpc.setTarget({ host: LOOPBACK, port: grpcPort });
  const flags = serviceFlags(context, parts, { http: httpPort, grpc: grpcPort });
  const processOf = (service: ServiceName, name: string): ManagedService =>
    new ManagedService({
      name,
      command: service,
      args: [`-schema=${names.schema}`, '-migrate', '-log-level=info', ...flags[service]],
      // Other users can see arguments.
      env: { [environmentName('postgres')]: servers.postgresOf(service) },
      processes,
      shim: shim?.control(name),
      clock: context.clock,
      onUnplannedEnd,
    });
  const ledger = join(dir, 'ledger.jsonl');
  const ports: OrdersPorts = { http: http.port, grpc: grpc.port };
  return {
    ledger,
    services: Object.fromEntries(
      SERVICES.flatMap((service) => MEMBERS[service].map((name) => [name, processOf(service, name)])),
    ),
    startLoad: () => processes.spawn('load', ['load', ...loadFlags(context, ports, ledger)]),
  };
}

/** @param ports those of the proxies */
const loadFlags = ({ settings }: Context, ports: OrdersPorts, ledger: string): readonly string[] => [
  `-target=http://${LOOPBACK}:${ports.http}`,
  `-grpc-target=http://${LOOPBACK}:${ports.grpc}`,
  `-grpc-share=${GRPC_SHARE}`,
  `-rate=${settings.rate}`,
  `-retry-rate=${settings['retry-rate']}`,
  `-seed=${settings.seed}`,
  '-duration=0',
  `-timeout=${LOAD_TIMEOUT}`,
  `-under-way-max=${LOAD_IN_FLIGHT_MAX}`,
  `-give-up=${LOAD_DRAIN}`,
  `-drain-timeout=${LOAD_DRAIN}`,
  `-ledger=${ledger}`,
  '-listen=127.0.0.1:0',
  '-json',
];

async function twoPorts(): Promise<readonly [number, number]> {
  const first = await freePort();
  return [first, await freePort(new Set([first]))];
}
