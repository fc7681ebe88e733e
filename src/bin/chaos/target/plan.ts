/** Faults that a target can have, and their plan. */
import {
  FAULT_KINDS,
  FAULTS,
  type FaultKind,
  GENTLE_FAULTS,
  isPreloaded,
  PIPELINE_FAULTS,
} from '../../../chaos/faults.ts';
import { type PlannedFault, planChaos } from '../../../chaos/schedule.ts';
import type { ChaosTarget } from '../../../chaos/target/document.ts';
import { coreError } from '../../../core/errors.ts';
import { canPreload, canProxyPostgres, clusterObstacle, isOfServers, PRELOAD_NEEDS } from '../servers.ts';
import type { ChaosContext as Context } from '../settings.ts';

/** Addresses of a run: flags override the file. Without an address of PostgreSQL, the run starts
 *  its own servers. */
export interface TargetAddresses {
  readonly postgres: string | undefined;
  readonly brokers: string | undefined;
}

/** @throws usage where an address is missing */
export function addressesOf({ settings }: Context, target: ChaosTarget): TargetAddresses {
  const { postgres = target.postgres, brokers = target.brokers } = settings;
  if (brokers !== undefined && postgres === undefined)
    throw coreError('usage', '-brokers needs -postgres', {
      next: 'give both, or neither for servers that this run starts',
    });
  const needsBrokers = target.processes.some(({ usesBrokers }) => usesBrokers) || target.topics.length > 0;
  if (postgres !== undefined && brokers === undefined && (needsBrokers || target.consumers.length > 0))
    throw coreError('usage', 'the target uses brokers, and only the address of PostgreSQL is given', {
      next: 'give -brokers too, or neither address for servers that this run starts',
    });
  return { postgres, brokers };
}

/** Connections that a proxy can break. */
function linksOf(target: ChaosTarget, { postgres }: TargetAddresses): readonly string[] {
  const { processes, load } = target;
  const hasDatabaseProxy = postgres === undefined || canProxyPostgres(postgres);
  return [
    ...(load.process === undefined ? [] : [`load-${load.process}`]),
    ...processes.flatMap(({ name, usesPostgres, usesBrokers, peers }) => [
      ...(usesPostgres && hasDatabaseProxy ? [`${name}-postgres`] : []),
      // A client of the user's brokers would leave the proxy for the addresses that they advertise.
      ...(usesBrokers && postgres === undefined ? [`${name}-kafka`] : []),
      ...peers.map((peer) => `${name}-${peer}`),
    ]),
  ];
}

const databaseClients = (links: readonly string[]): readonly string[] =>
  links.flatMap((link) => (link.endsWith('-postgres') ? link.slice(0, -'-postgres'.length) : []));

/** Reason why a target cannot have a kind of fault; undefined: it can. */
function obstacleOf(
  target: ChaosTarget,
  links: readonly string[],
  isGiven: boolean,
  brokerCount: number,
  kind: FaultKind,
): string | undefined {
  if (PIPELINE_FAULTS.includes(kind)) return 'is a fault of orders, relay and payments';
  if (isGiven && isOfServers(kind)) return 'needs servers that this run starts';
  if (isPreloaded(kind) && !canPreload()) return PRELOAD_NEEDS;
  if (kind.startsWith('broker-') && !target.processes.some(({ usesBrokers }) => usesBrokers))
    return 'needs a process that uses {brokers}';
  if (FAULTS[kind].need === 'cluster') return clusterObstacle(brokerCount);
  if (kind === 'backend-kill' && databaseClients(links).length === 0)
    return 'needs a process that uses {postgres}, and a database without TLS';
  if (kind === 'disk-full' && target.tables.length === 0) return 'needs tables in the file of the target';
  if (kind.startsWith('net-') && links.length === 0)
    return 'needs a link: {PROCESS} in the url of the load, {postgres}, {brokers} or {PROCESS} in a process';
  return undefined;
}

/** @throws usage for a kind that the target cannot have */
export function planTarget(context: Context, target: ChaosTarget): readonly PlannedFault[] {
  const { settings } = context;
  const addresses = addressesOf(context, target);
  const isGiven = addresses.postgres !== undefined;
  const links = linksOf(target, addresses);
  const obstacle = (kind: FaultKind): string | undefined =>
    obstacleOf(target, links, isGiven, settings['broker-count'], kind);
  const given = settings.faults as readonly FaultKind[] | undefined;
  for (const kind of given ?? []) {
    const why = obstacle(kind);
    if (why !== undefined)
      throw coreError('usage', `the fault ${kind} ${why}`, { next: `leave ${kind} out of -faults` });
  }
  const candidates = isGiven ? GENTLE_FAULTS : FAULT_KINDS;
  return planChaos({
    seed: settings.seed,
    durationMs: settings.duration,
    everyMs: settings['fault-every'],
    faults: given ?? candidates.filter((kind) => obstacle(kind) === undefined),
    crashPoints: [],
    relay: 'poll',
    brokerCount: settings['broker-count'],
    links,
    services: target.processes.map(({ name }) => name),
    databaseClients: databaseClients(links),
    tables: target.tables,
  });
}
