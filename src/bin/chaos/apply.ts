/** Applies the faults of a plan to the processes, servers and links of a run. Each function ends
 *  its fault, whatever happens, waits until the target is healthy, and returns the evidence that
 *  the fault met it. */
import { FAULTS, type FaultKind } from '../../chaos/faults.ts';
import type { ApplyFault } from '../../chaos/run.ts';
import type { PlannedFault } from '../../chaos/schedule.ts';
import { sleep, type Timers, within } from '../../core/clock.ts';
import { coreError, findMillraceError } from '../../core/errors.ts';
import type { ShimControl } from '../../devstack/fault-shim.ts';
import type { ProxyEffects, TcpProxy } from '../../devstack/proxy.ts';
import type { StackServers } from '../../devstack/servers.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { Proxies } from './links.ts';
import type { ManagedService } from './service.ts';

export interface FaultTargets {
  /** Processes by name. */
  readonly services: Readonly<Record<string, ManagedService>>;
  /** Names of the processes of each service; a service without an entry is one process. */
  readonly members: Readonly<Record<string, readonly string[]>>;
  readonly proxies: Proxies;
  /** Servers of this run; undefined: the user's. */
  readonly servers: StackServers | undefined;
  /** Disks of those servers that can be filled, by the name of the server. */
  readonly disks: ReadonlyMap<string, ShimControl>;
  /** Opens a connection to the database beside the proxies. */
  readonly connect: () => Promise<SqlPool>;
  /** Schema with the function and the sequence of a full disk; it exists. */
  readonly schema: string;
  /** Name of a table in a statement. */
  readonly tableOf: (name: string) => string;
  /** Statements that lock rows, for an idle transaction. */
  readonly lockRows: readonly string[];
  /** Replication slot of the relay; empty where there is none. */
  readonly slot: string;
  readonly clock: Timers;
}

type Apply = (targets: FaultTargets, fault: PlannedFault, signal: AbortSignal) => Promise<string>;

const POLL_MS = 100;
/** SQLSTATE of a row that was changed after the snapshot. */
const SERIALIZATION_FAILURE = '40001';
/** Snapshots that an idle transaction tries. */
const SNAPSHOTS_MAX = 50;
/** Rows of a table that an idle transaction locks. */
export const ROWS_LOCKED_MAX = 50;
const POSTGRES = 'postgres';
/** Time between two checks of a server that may end. */
const ALIVE_EVERY_MS = 500;

const serviceOf = ({ services }: FaultTargets, target: string): ManagedService => {
  const service = services[target];
  if (service === undefined) throw coreError('internal', `there is no service ${target}`);
  return service;
};

/** Processes of a service, or the one process of this name; none for a server. */
const membersOf = ({ members, services }: FaultTargets, name: string): readonly ManagedService[] =>
  (members[name] ?? [name]).flatMap((member) => services[member] ?? []);

const serversOf = ({ servers }: FaultTargets): StackServers => {
  if (servers === undefined) throw coreError('internal', 'the servers are not those of this run');
  return servers;
};

const stopped = (): Error => coreError('timeout', 'the fault met nothing');

/** The other processes of the service are halted: with one of them at work, the process may have
 *  nothing in flight. */
const crash: Apply = async (targets, { target, point, amount }, signal) => {
  const service = serviceOf(targets, target);
  const others = membersOf(targets, target).filter((one) => one !== service);
  let unfinished: number;
  try {
    await Promise.all(others.map((one) => one.halt()));
    unfinished = await startAfter(service, () => service.crashAt(point as string, amount ?? 1, signal));
  } finally {
    await Promise.all(others.map((one) => one.restart()));
  }
  await membersReady(targets, target, signal);
  return `${unfinished} in flight`;
};

const kill: Apply = async (targets, { target, durationMs }, signal) => {
  const service = serviceOf(targets, target);
  const pid = await startAfter(service, async () => {
    const killed = await service.kill(signal);
    await sleep(targets.clock, durationMs, signal);
    return killed;
  });
  await service.ready(signal);
  return `pid ${pid}`;
};

/** Leaves the service with a process, also after a failure. */
async function startAfter<T>(service: ManagedService, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } finally {
    await service.restart();
  }
}

const pause: Apply = async (targets, { target, durationMs }, signal) => {
  const service = serviceOf(targets, target);
  const { pid, resume } = await service.pause(signal);
  try {
    await sleep(targets.clock, durationMs, signal);
  } finally {
    resume();
  }
  await service.ready(signal);
  return `pid ${pid}`;
};

const clockStep: Apply = async (targets, { target, durationMs, amount }, signal) => {
  const service = serviceOf(targets, target);
  const { pid, back } = await service.stepClock(amount ?? 0, signal);
  try {
    await sleep(targets.clock, durationMs, signal);
  } finally {
    back();
  }
  await service.ready(signal);
  return `pid ${pid}`;
};

const postgresStop: Apply = async (targets, fault, signal) =>
  restartServer(targets, POSTGRES, 'SIGQUIT', fault.durationMs, signal);

const brokerKill: Apply = async (targets, fault, signal) =>
  restartServer(targets, fault.target, 'SIGKILL', fault.durationMs, signal);

async function restartServer(
  targets: FaultTargets,
  name: string,
  how: 'SIGKILL' | 'SIGQUIT',
  downMs: number,
  signal: AbortSignal,
): Promise<string> {
  const servers = serversOf(targets);
  await servers.kill(name, how);
  try {
    await sleep(targets.clock, downMs, signal);
  } finally {
    await servers.start(name);
  }
  await allReady(targets, signal);
  return `${how}, and restarted`;
}

/** Fills the disk of a server for the planned time, and longer until a write was refused.
 *  @returns the refused writes */
async function fillDisk(
  { disks, clock }: FaultTargets,
  { target, durationMs }: PlannedFault,
  signal: AbortSignal,
): Promise<number> {
  const disk = disks.get(target);
  if (disk === undefined) throw coreError('internal', `no shim is preloaded into ${target}`);
  const before = disk.refused;
  disk.setFull(true);
  try {
    await sleep(clock, durationMs, signal);
    while (disk.refused === before) {
      if (signal.aborted) throw stopped();
      await sleep(clock, POLL_MS, signal);
    }
    return disk.refused - before;
  } finally {
    disk.setFull(false);
  }
}

/** PostgreSQL refuses statements, or restarts itself; a recovery that meets the full disk ends
 *  it. */
const postgresDiskFull: Apply = async (targets, fault, signal) => {
  const servers = serversOf(targets);
  const refused = await fillDisk(targets, fault, signal);
  let detail = `${refused} writes refused`;
  const ready = allReady(targets, signal);
  ready.catch(() => {});
  do {
    if (servers.isAlive(POSTGRES)) continue;
    detail = `${refused} writes refused, and the server ended`;
    await servers.start(POSTGRES);
  } while (!(await within(targets.clock, ALIVE_EVERY_MS, ready)));
  return detail;
};

/** A broker whose log folder failed ends itself. It is restarted when there is space again, as its
 *  operator would. */
const brokerDiskFull: Apply = async (targets, fault, signal) => {
  const refused = await fillDisk(targets, fault, signal);
  const ended = serversOf(targets).isAlive(fault.target) ? '' : ', and the broker ended';
  await restartServer(targets, fault.target, 'SIGKILL', 0, signal);
  return `${refused} writes refused${ended}, restarted`;
};

/** Waits until each service is ready again after a fault of a server. */
async function allReady({ services }: FaultTargets, signal: AbortSignal): Promise<void> {
  await Promise.all(Object.values(services).map((service) => service.ready(signal)));
}

async function membersReady(targets: FaultTargets, name: string, signal: AbortSignal): Promise<void> {
  await Promise.all(membersOf(targets, name).map((service) => service.ready(signal)));
}

async function withDatabase<T>(
  { connect, clock }: FaultTargets,
  signal: AbortSignal,
  work: (pool: SqlPool) => Promise<T>,
): Promise<T> {
  let pool: SqlPool | undefined;
  while (pool === undefined) {
    pool = await connect().catch(() => undefined);
    if (pool !== undefined) break;
    if (signal.aborted) throw coreError('unreachable', 'the database does not answer');
    await sleep(clock, POLL_MS, signal);
  }
  try {
    return await work(pool);
  } finally {
    await pool.close();
  }
}

const backendKill: Apply = async (targets, { target, durationMs, amount }, signal) => {
  const { clock, proxies } = targets;
  const proxy = proxies.of(`${target}-postgres`)[0];
  if (proxy === undefined) throw coreError('internal', `no proxy between ${target} and the database`);
  const killed = await withDatabase(targets, signal, async (pool) => {
    const endMs = clock.monotonicMs() + durationMs;
    let count = 0;
    for (let turn = amount ?? 0; count === 0 || clock.monotonicMs() < endMs; turn++) {
      if (signal.aborted) break;
      const ports = [...proxy.targetSidePorts()].sort((a, b) => a - b);
      const port = ports[turn % Math.max(1, ports.length)];
      if (port !== undefined) {
        const { rows } = await pool.query(
          'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_port = $1 AND pid <> pg_backend_pid()',
          [port],
        );
        count += rows.length;
      }
      await sleep(clock, POLL_MS, signal);
    }
    return count;
  });
  if (killed === 0) throw stopped();
  await membersReady(targets, target, signal);
  return `${killed} backends`;
};

/** Holds rows and a snapshot. */
const holdIdle = (pool: SqlPool, targets: FaultTargets, ms: number, signal: AbortSignal): Promise<string> =>
  pool.transaction(async (session) => {
    await session.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
    const { rows } = await session.query<{ xid: string }>('SELECT pg_current_xact_id()::text AS xid');
    let locked = 0;
    for (const statement of targets.lockRows) locked += (await session.query(statement)).rowCount;
    await sleep(targets.clock, ms, signal);
    return `transaction ${rows[0]?.xid} held ${locked} rows`;
  });

/** A row that was changed after the snapshot cannot be locked: then a later snapshot is tried. */
const idleTransaction: Apply = async (targets, { durationMs }, signal) =>
  withDatabase(targets, signal, async (pool) => {
    for (let attempt = 1; ; attempt++) {
      try {
        return await holdIdle(pool, targets, durationMs, signal);
      } catch (thrown) {
        const state = findMillraceError(thrown)?.details['sqlstate'];
        if (state !== SERIALIZATION_FAILURE || attempt === SNAPSHOTS_MAX) throw thrown;
      }
    }
  });

/** Makes a table refuse rows by a trigger with the SQLSTATE of a full disk. A sequence counts the
 *  refusals, because it does not roll back. */
const diskFull: Apply = async (targets, { target, durationMs }, signal) =>
  withDatabase(targets, signal, async (pool) => {
    const { schema, clock, tableOf } = targets;
    await pool.query(`CREATE SEQUENCE IF NOT EXISTS ${schema}.chaos_refused MINVALUE 0`);
    await pool.query(`SELECT setval('${schema}.chaos_refused', 0)`);
    await pool.query(
      `CREATE OR REPLACE FUNCTION ${schema}.chaos_full_disk() RETURNS trigger
       LANGUAGE plpgsql SECURITY DEFINER AS
       $$ BEGIN
         PERFORM nextval('${schema}.chaos_refused');
         RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
       END $$`,
    );
    const refused = async (): Promise<number> => {
      const { rows } = await pool.query<{ n: bigint }>(`SELECT last_value AS n FROM ${schema}.chaos_refused`);
      return Number(rows[0]?.n);
    };
    let count = 0;
    try {
      await pool.query(
        `CREATE TRIGGER chaos_full_disk BEFORE INSERT OR UPDATE ON ${tableOf(target)}
         FOR EACH ROW EXECUTE FUNCTION ${schema}.chaos_full_disk()`,
      );
      await sleep(clock, durationMs, signal);
      for (count = await refused(); count === 0; count = await refused()) {
        if (signal.aborted) throw stopped();
        await sleep(clock, POLL_MS, signal);
      }
    } finally {
      await pool.query(`DROP TRIGGER IF EXISTS chaos_full_disk ON ${tableOf(target)}`);
    }
    await allReady(targets, signal);
    return `${count} rows refused`;
  });

const slotDrop: Apply = async (targets, _fault, signal) =>
  withDatabase(targets, signal, async (pool) => {
    const { slot, clock } = targets;
    const find = async (): Promise<boolean | undefined> => {
      const { rows } = await pool.query<{ active: boolean }>(
        'SELECT active FROM pg_replication_slots WHERE slot_name = $1',
        [slot],
      );
      return rows[0]?.active;
    };
    const dropped = async (): Promise<boolean> => {
      await pool.query(
        'SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active',
        [slot],
      );
      // The relay reconnects soon and holds the slot again, then this fails and is repeated.
      const { rowCount } = await pool
        .query(
          'SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active',
          [slot],
        )
        .catch(() => ({ rowCount: 0 }));
      return rowCount === 1;
    };
    while (!(await dropped())) {
      if (signal.aborted) throw coreError('timeout', `the slot ${slot} could not be dropped`);
      await sleep(clock, POLL_MS / 10, signal);
    }
    while ((await find()) !== true) {
      if (signal.aborted) throw coreError('timeout', `the relay did not create the slot ${slot} again`);
      await sleep(clock, POLL_MS, signal);
    }
    return `${slot} dropped, and created again by the relay`;
  });

/** Breaks a link for the planned time, and longer until the failure has met a connection. */
const breakLink =
  (
    begin: (proxy: TcpProxy, fault: PlannedFault) => void,
    effectOf: (effects: ProxyEffects) => string,
  ): Apply =>
  async (targets, fault, signal) => {
    const proxies = targets.proxies.of(fault.target);
    const sum = (): ProxyEffects =>
      proxies
        .map(({ effects }) => effects)
        .reduce((all, one) => ({
          cut: all.cut + one.cut,
          delayed: all.delayed + one.delayed,
          droppedBytes: all.droppedBytes + one.droppedBytes,
        }));
    let effect = '';
    try {
      for (const proxy of proxies) begin(proxy, fault);
      await sleep(targets.clock, fault.durationMs, signal);
      for (effect = effectOf(sum()); effect === ''; effect = effectOf(sum())) {
        if (signal.aborted) throw stopped();
        await sleep(targets.clock, POLL_MS, signal);
      }
    } finally {
      for (const proxy of proxies) proxy.heal();
    }
    if (FAULTS[fault.kind].need === 'cluster') await allReady(targets, signal);
    else for (const end of fault.target.split('-')) await membersReady(targets, end, signal);
    return effect;
  };

const some = (count: number, unit: string): string => (count === 0 ? '' : `${count} ${unit}`);

const cut = breakLink(
  (proxy) => proxy.cut(),
  (effects) => some(effects.cut, 'connections reset'),
);
const delay = breakLink(
  (proxy, { amount }) => proxy.delay(amount ?? 0),
  ({ delayed }) => some(delayed, 'parts of streams delayed'),
);
const halfOpen = breakLink(
  (proxy) => proxy.halfOpen(),
  ({ droppedBytes }) => some(droppedBytes, 'bytes of answers lost'),
);

const APPLY: Readonly<Record<FaultKind, Apply>> = {
  crash,
  kill,
  pause,
  'clock-step': clockStep,
  'postgres-stop': postgresStop,
  'backend-kill': backendKill,
  'idle-transaction': idleTransaction,
  'disk-full': diskFull,
  'slot-drop': slotDrop,
  'broker-kill': brokerKill,
  'postgres-disk-full': postgresDiskFull,
  'broker-disk-full': brokerDiskFull,
  'net-cut': cut,
  'net-delay': delay,
  'net-half-open': halfOpen,
  'broker-cut': cut,
  'broker-delay': delay,
  'broker-half-open': halfOpen,
};

export const applyTo =
  (targets: FaultTargets): ApplyFault =>
  (fault, signal) =>
    APPLY[fault.kind](targets, fault, signal);
