/** Faults of a chaos run, and the processes and links that they meet. */

/** Services of a run, in the order of the data. */
export const SERVICES = ['orders', 'relay', 'payments'] as const;
export type ServiceName = (typeof SERVICES)[number];

/** Processes of each service. Relays and payments have a second one, which takes over the work of a
 *  process that is killed, or paused beyond its lease or its session. */
export const MEMBERS: Readonly<Record<ServiceName, readonly string[]>> = {
  orders: ['orders'],
  relay: ['relay', 'relay-2'],
  payments: ['payments', 'payments-2'],
};

/** Times after which the other process takes over: the lease of a relay, the session of a member of
 *  the group. Short, so that a killed process does not stop the pipeline for long. */
export const TAKEOVER_MS = { lease: 3000, session: 6000 } as const;
/** Duration of a pause after which the other process has taken over. */
export const LONG_PAUSE_MS = { least: TAKEOVER_MS.session + 1000, most: 12_000 } as const;

/** Points at which a process ends itself by SIGKILL, with the service of each. */
export const CRASH_POINTS = {
  respond: 'orders',
  commit: 'relay',
  publish: 'relay',
  mark: 'relay',
  effect: 'payments',
  offset: 'payments',
} as const satisfies Readonly<Record<string, ServiceName>>;
export type CrashPoint = keyof typeof CRASH_POINTS;
export const CRASH_POINT_NAMES = Object.keys(CRASH_POINTS) as readonly CrashPoint[];

/** Connections between two processes that a proxy can break. `load` is the client of orders. */
export const LINKS = [
  'load-orders',
  'orders-postgres',
  'relay-postgres',
  'payments-postgres',
  'relay-kafka',
  'payments-kafka',
] as const;

/** Components whose faults follow one another. Faults of different lanes overlap. */
export const lanesOf = (services: readonly string[]): readonly string[] => [
  ...services,
  ...(['postgres', 'kafka', 'network'] as const),
];

/** Requirement of a fault on the servers. */
export type FaultNeed =
  /** Runs on any servers. */
  | 'any'
  /** Signals a server, or stands between Kafka and its clients: only servers that the run
   *  started. */
  | 'own'
  /** Several brokers that the run started. */
  | 'cluster'
  /** A relay in wal mode. */
  | 'wal';

export interface FaultRow {
  readonly need: FaultNeed;
  /** Time between the beginning and the end of the fault, in ms. Zero for a moment. */
  readonly leastMs: number;
  readonly mostMs: number;
  readonly help: string;
  /** True: a library is preloaded into the process, which needs Linux and a C compiler. */
  readonly isPreloaded?: true;
}

export const FAULTS = {
  crash: {
    need: 'any',
    leastMs: 0,
    mostMs: 0,
    help: 'a service ends itself by SIGKILL at a crash point, with work in flight',
  },
  kill: { need: 'any', leastMs: 100, mostMs: 3000, help: 'SIGKILL of a service at a random moment' },
  pause: {
    need: 'any',
    leastMs: 500,
    mostMs: LONG_PAUSE_MS.most,
    help: 'SIGSTOP of a service, SIGCONT later; after its lease or its session another process has its work, and it returns as a zombie',
  },
  'clock-step': {
    need: 'any',
    leastMs: 500,
    mostMs: 8000,
    help: 'the wall clock of a service jumps by up to four minutes, and jumps back',
    isPreloaded: true,
  },
  'postgres-stop': {
    need: 'own',
    leastMs: 200,
    mostMs: 3000,
    help: 'immediate stop of PostgreSQL, as after a power cut, and a restart',
  },
  'backend-kill': {
    need: 'any',
    leastMs: 200,
    mostMs: 3000,
    help: 'pg_terminate_backend of the connections of a service, again and again',
  },
  'idle-transaction': {
    need: 'any',
    leastMs: 1000,
    mostMs: 8000,
    help: 'an open transaction that pins the xmin horizon and locks the newest outbox rows',
  },
  'disk-full': {
    need: 'any',
    leastMs: 500,
    mostMs: 5000,
    help: 'a table refuses new rows with the error of a full disk',
  },
  'slot-drop': {
    need: 'wal',
    leastMs: 0,
    mostMs: 0,
    help: 'drops the replication slot; the relay must create another one and sweep',
  },
  'broker-kill': { need: 'own', leastMs: 500, mostMs: 5000, help: 'SIGKILL of a broker, and a restart' },
  'net-cut': {
    need: 'any',
    leastMs: 500,
    mostMs: 5000,
    help: 'resets the connections of a link and refuses new ones',
  },
  'net-delay': { need: 'any', leastMs: 1000, mostMs: 8000, help: 'delays both directions of a link' },
  'net-half-open': {
    need: 'any',
    leastMs: 500,
    mostMs: 5000,
    help: 'a link delivers requests and loses the answers, then resets',
  },
  'postgres-disk-full': {
    need: 'own',
    leastMs: 500,
    mostMs: 5000,
    help: 'no file of PostgreSQL can grow',
    isPreloaded: true,
  },
  'broker-disk-full': {
    need: 'own',
    leastMs: 500,
    mostMs: 5000,
    help: 'no file of a broker can grow; the broker is restarted when there is space again',
    isPreloaded: true,
  },
  'broker-cut': {
    need: 'cluster',
    leastMs: 500,
    mostMs: 8000,
    help: 'resets the connections between two brokers and refuses new ones',
  },
  'broker-delay': {
    need: 'cluster',
    leastMs: 1000,
    mostMs: 8000,
    help: 'delays both directions between two brokers',
  },
  'broker-half-open': {
    need: 'cluster',
    leastMs: 500,
    mostMs: 8000,
    help: 'requests between two brokers arrive and the answers are lost, then resets',
  },
} as const satisfies Readonly<Record<string, FaultRow>>;
export type FaultKind = keyof typeof FAULTS;
export const FAULT_KINDS = Object.keys(FAULTS) as readonly FaultKind[];

/** Tables that a full disk refuses rows of. */
export const FULL_TABLES = ['idempotency_keys', 'orders', 'outbox', 'inbox', 'charges'] as const;

/** Faults that need our own services: their crash points, or the slot of the relay. */
export const PIPELINE_FAULTS: readonly FaultKind[] = ['crash', 'slot-drop'];

/** Faults by a preloaded library. */
export const isPreloaded = (kind: FaultKind): boolean => (FAULTS[kind] as FaultRow).isPreloaded === true;

/** Faults that run against servers of the user unless -faults names others. */
export const GENTLE_FAULTS: readonly FaultKind[] = ['crash', 'kill', 'pause'];

/** Link between two brokers; both directions. */
export const brokerLinkOf = (one: string, other: string): string => [one, other].sort().join('-');

/** Links between the brokers of a cluster. */
export function brokerLinksOf(count: number): readonly string[] {
  const names = Array.from({ length: count }, (_, index) => `kafka-${index + 1}`);
  return names.flatMap((one, at) => names.slice(at + 1).map((other) => brokerLinkOf(one, other)));
}
