/** `millrace chaos`: runs orders, relay and payments under load, breaks them by a plan from a seed,
 *  and ends with the verdict of the reconciler. */
import { createReadStream, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ChaosCoverage, coverageText } from '../chaos/coverage.ts';
import { type CrashPoint, FAULTS, LINKS, MEMBERS, SERVICES } from '../chaos/faults.ts';
import { type ChaosReport, REPORT_FORMAT } from '../chaos/report.ts';
import { type FaultOutcome, runFaults } from '../chaos/run.ts';
import { type PlannedFault, planChaos } from '../chaos/schedule.ts';
import { type ChaosVerdict, judge, type UnplannedEnd } from '../chaos/verdict.ts';
import { sleep } from '../core/clock.ts';
import { coreError, EXIT } from '../core/errors.ts';
import type { BrokerDriver } from '../io/kafka/port.ts';
import type { SqlPool } from '../io/postgres/sql/port.ts';
import { requirePlainSchema } from '../outbox/database/schema-name.ts';
import { readLedger } from '../outbox/reconcile/client-ledger.ts';
import { reconciliationText } from '../outbox/reconcile/report.ts';
import { type Reconciliation, reconcile } from '../outbox/reconcile/run.ts';
import { Processes } from '../shell/children/processes.ts';
import type { StartedCommand } from '../shell/children/started-command.ts';
import { defineCommand } from '../shell/command.ts';
import { brokerDriver, sqlDriver } from '../shell/drivers.ts';
import { packageVersion } from '../shell/package.ts';
import { answeredBy } from './chaos/answered.ts';
import { applyTo, ROWS_LOCKED_MAX } from './chaos/apply.ts';
import { beforeFaults, START_MS_MAX } from './chaos/before-faults.ts';
import { readCoverage } from './chaos/coverage.ts';
import { checkReports, printPlan, replayOf, shownSettings, writeReports } from './chaos/documents.ts';
import { Proxies } from './chaos/links.ts';
import { Observer } from './chaos/observer.ts';
import {
  type ChaosPipeline,
  childEnvironment,
  GRPC_SHARE,
  namesOf,
  preparePipeline,
  type RunNames,
} from './chaos/pipeline.ts';
import {
  canProxyPostgres,
  faultsOf,
  KAFKA_CLIENTS,
  openServers,
  type Servers,
  usesGivenServers,
} from './chaos/servers.ts';
import { CHAOS_EXIT, type ChaosContext as Context, SETTINGS } from './chaos/settings.ts';
import { openShim } from './chaos/shim.ts';
import { removeTraces, requireEmptyTables } from './chaos/tables.ts';
import { runTarget } from './chaos/target/run.ts';
import { type Watch, watchChaos } from './chaos/watch.ts';

const CONNECT_TIMEOUT_MS = 5000;
const END_GRACE_MS = 5000;
const IDS_MAX = 20;

/** Everything that a run has opened. */
interface World {
  readonly servers: Servers;
  readonly proxies: Proxies;
  readonly names: RunNames;
  readonly processes: Processes;
  readonly pipeline: ChaosPipeline;
  readonly driver: BrokerDriver;
  readonly connect: () => Promise<SqlPool>;
  readonly observer: Observer;
  readonly ends: readonly UnplannedEnd[];
  readonly record: (end: Omit<UnplannedEnd, 'atMs'>) => void;
  /** Folder with the logs and the ledger. */
  readonly dir: string;
}

/** Results of a run up to its verdict. */
interface Finished extends ChaosVerdict {
  readonly reconciliation: Reconciliation;
  readonly coverage: ChaosCoverage;
  readonly outcomes: readonly FaultOutcome[];
  readonly load: Readonly<Record<string, unknown>>;
  readonly seconds: number;
}

function planOf(context: Context): readonly PlannedFault[] {
  const { settings } = context;
  const isGiven = usesGivenServers(context);
  const { postgres } = settings;
  const hasProxy = (link: string): boolean =>
    link.endsWith('-kafka')
      ? !isGiven
      : !link.endsWith('-postgres') || postgres === undefined || canProxyPostgres(postgres);
  return planChaos({
    seed: settings.seed,
    durationMs: settings.duration,
    everyMs: settings['fault-every'],
    faults: faultsOf(context),
    crashPoints: settings['crash-point'] as readonly CrashPoint[],
    relay: settings.relay as 'poll' | 'wal',
    brokerCount: settings['broker-count'],
    links: LINKS.filter(hasProxy),
  });
}

async function openWorld(context: Context, plan: readonly PlannedFault[], watch: Watch): Promise<World> {
  const { clock, settings } = context;
  const proxies = new Proxies(clock);
  context.onClose(() => proxies.close());
  const shim = openShim(context, plan);
  const servers = await openServers(context, proxies, {
    postgres: settings.postgres,
    brokers: settings.brokers,
    databaseClients: SERVICES,
    brokerClients: KAFKA_CLIENTS,
    hasBrokerLinks: plan.some(({ kind }) => FAULTS[kind].need === 'cluster'),
    shim,
  });
  const { brokers = '' } = servers;
  const names = namesOf(context);
  const sql = await sqlDriver(context);
  const connect = (): Promise<SqlPool> =>
    sql.connect({
      url: servers.postgres,
      connectionsMax: 1,
      applicationName: 'millrace chaos',
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
    });
  const pool = await connect();
  await requireEmptyTables(pool, names.schema).finally(() => pool.close());
  const driver = await brokerDriver(context);
  const group = await driver.consumer({
    ...{ brokers, clientId: 'millrace-chaos', group: names.group },
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
  });
  context.onClose(() => group.close());
  await group.reach(CONNECT_TIMEOUT_MS);
  const dir = mkdtempSync(join(tmpdir(), 'millrace-chaos-'));
  const processes = startProcesses(context, dir);
  const ends: UnplannedEnd[] = [];
  const startMs = clock.monotonicMs();
  const record = (end: Omit<UnplannedEnd, 'atMs'>): void => {
    const at = { ...end, atMs: clock.monotonicMs() - startMs };
    ends.push(at);
    watch.onUnplannedEnd(at);
  };
  const pipeline = await preparePipeline(context, {
    ...{ processes, dir, servers, proxies, names, shim },
    onUnplannedEnd: record,
  });
  const observer = new Observer({
    ...{ clock, connect, onSample: watch.onSample },
    pendingQuery: `SELECT count(*) AS n FROM ${names.schema}.outbox WHERE published_at IS NULL`,
    groups: [
      {
        client: group,
        partitions: Array.from({ length: settings.partitions }, (_, partition) => ({
          topic: names.topic,
          partition,
        })),
      },
    ],
  });
  context.onClose(() => observer.stop());
  return { servers, proxies, names, processes, pipeline, driver, connect, observer, ends, record, dir };
}

/** Children of this run; they end with it, however it ends. */
function startProcesses(context: Context, dir: string): Processes {
  const processes = new Processes({ dir, stay: false, env: childEnvironment(context) });
  const killNow = (): void => processes.killNow();
  process.once('exit', killNow);
  context.onClose(async () => {
    await processes.end(END_GRACE_MS);
    process.removeListener('exit', killNow);
  });
  return processes;
}

/** Without a fault, a service ends by itself only where its server is unreachable. */
const isEarlyError = ({ code }: UnplannedEnd): boolean => code !== EXIT.unavailable;

/** Starts the services one after the other (orders makes the tables that the relay reads), then the
 *  load client, and waits for the first charge. */
async function startAll(context: Context, world: World, watch: Watch): Promise<Load | undefined> {
  const { pipeline, observer } = world;
  const { clock, drain } = context;
  let load: Load | undefined;
  const early = { ends: world.ends, isError: isEarlyError, dir: world.dir };
  await beforeFaults(context, early, async (signal) => {
    for (const service of Object.values(pipeline.services)) {
      service.start();
      await service.ready(signal);
    }
    watch.phase('load');
    load = startLoad(world, clock.monotonicMs());
    observer.start(answeredBy(load.child), load.startMs);
    if (!(await observer.consumed(START_MS_MAX, signal)))
      throw coreError('timeout', `no order was charged within ${START_MS_MAX} ms`, {
        next: `see the logs in ${world.dir}`,
      });
  }).catch((thrown: unknown) => {
    if (!drain.aborted) throw thrown;
  });
  return drain.aborted ? undefined : load;
}

async function breakIt(
  context: Context,
  world: World,
  plan: readonly PlannedFault[],
  watch: Watch,
): Promise<Finished | undefined> {
  const { clock, drain, settings } = context;
  const { observer, pipeline, proxies, ends } = world;
  const load = await startAll(context, world, watch);
  if (load === undefined) return undefined;
  watch.phase('faults');
  const beganMs = clock.monotonicMs();
  const outcomes = await runFaults({
    ...{ plan, clock, signal: drain, faultMsMax: settings['fault-timeout'] },
    apply: applyTo({
      ...{ services: pipeline.services, members: MEMBERS, proxies, connect: world.connect },
      servers: world.servers.own,
      disks: world.servers.disks,
      ...{ schema: world.names.schema, slot: world.names.slot, clock },
      tableOf: (name) => `${world.names.schema}.${name}`,
      lockRows: [
        `SELECT FROM ${world.names.schema}.outbox ORDER BY id DESC LIMIT ${ROWS_LOCKED_MAX} FOR UPDATE SKIP LOCKED`,
      ],
    }),
    onStart: watch.onStart,
    onEnd: watch.onOutcome,
  });
  await sleep(clock, Math.max(0, beganMs + settings.duration - clock.monotonicMs()), drain);
  if (drain.aborted) return undefined;
  watch.phase('draining');
  const loaded = await load.end();
  const undrained = await observer.drained(settings['settle-timeout'], drain);
  await observer.stop();
  await endServices(world);
  if (drain.aborted) return undefined;
  watch.phase('judging');
  const { reconciliation, coverage } = await reconcileRun(world, loaded);
  watch.onDeltas(reconciliation.deltas.reduce((sum, { count }) => sum + count, 0));
  const verdict = judge({
    ...{ reconciliation, outcomes, ends, undrained, coverage },
    shares: {
      ...{ dupRate: settings['dup-rate'], retryRate: settings['retry-rate'], grpcShare: GRPC_SHARE },
    },
  });
  const seconds = (clock.monotonicMs() - load.startMs) / 1000;
  return { ...verdict, reconciliation, coverage, outcomes, load: loaded, seconds };
}

/** Running load client. */
interface Load {
  readonly child: StartedCommand;
  /** Monotonic time of its start. */
  readonly startMs: number;
  /** Stops the client, which first completes its open requests. @returns its report */
  readonly end: () => Promise<Readonly<Record<string, unknown>>>;
}

function startLoad(world: World, startMs: number): Load {
  const child = world.pipeline.startLoad();
  let isEnding = false;
  const record = (how: Awaited<StartedCommand['ended']>): void => {
    world.record({ service: 'load', ...how, logPath: child.logPath });
  };
  void child.ended.then((how) => {
    if (!isEnding) record(how);
  });
  return {
    child,
    startMs,
    end: async () => {
      isEnding = true;
      child.kill('SIGTERM');
      const how = await child.ended;
      if (how.code === EXIT.done) return JSON.parse(child.stdout()) as Readonly<Record<string, unknown>>;
      if (!world.ends.some(({ service }) => service === 'load')) record(how);
      return {};
    },
  };
}

/** Stops the services, whose drain is part of what is judged. */
async function endServices({ pipeline, record }: World): Promise<void> {
  for (const service of Object.values(pipeline.services)) {
    const how = await service.stop();
    if (how !== undefined && how.code !== EXIT.done)
      record({ service: service.name, ...how, logPath: service.logPath });
  }
}

async function reconcileRun(
  { connect, names, pipeline }: World,
  load: Readonly<Record<string, unknown>>,
): Promise<Pick<Finished, 'reconciliation' | 'coverage'>> {
  const pool = await connect();
  try {
    const reconciliation = await reconcile({
      pool,
      ordersSchema: names.schema,
      paymentsSchema: names.schema,
      ledgers: [() => readLedger(createReadStream(pipeline.ledger))],
      idsMax: IDS_MAX,
    });
    return { reconciliation, coverage: await readCoverage(pool, names.schema, load) };
  } finally {
    await pool.close();
  }
}

function titleOf({ settings }: Context, { holds }: ChaosVerdict): string {
  return `chaos, seed ${settings.seed}, relay ${settings.relay}: ${holds ? 'zero deltas, every fault applied' : 'BROKEN'}`;
}

function describe(context: Context, world: World, plan: readonly PlannedFault[], end: Finished): number {
  const { settings } = context;
  const replay = replayOf(context, plan);
  const report: ChaosReport = {
    format: REPORT_FORMAT,
    version: packageVersion(),
    seed: settings.seed,
    settings: shownSettings(context),
    replay,
    seconds: end.seconds,
    load: end.load,
    plan,
    outcomes: end.outcomes,
    unplanned_ends: world.ends,
    reconciliation: end.reconciliation,
    coverage: end.coverage,
    samples: world.observer.samples,
    holds: end.holds,
    reasons: end.reasons,
  };
  writeReports(context, titleOf(context, end), report);
  const applied = end.outcomes.filter((one) => one.applied).length;
  const lines = [
    reconciliationText(end.reconciliation),
    coverageText(end.coverage),
    `${applied} of ${plan.length} planned faults applied, ${world.ends.length} unplanned ends, ${end.seconds.toFixed(0)} s`,
    ...end.reasons.map((reason) => `  ${reason}`),
    ...(end.holds ? [] : [`the logs and the ledger are in ${world.dir}`]),
    ...(end.holds ? [`replay: ${replay}`] : [`replay with: ${replay}`]),
    titleOf(context, end),
  ];
  context.print(lines.join('\n'), report);
  return end.holds ? EXIT.done : EXIT.no;
}

/** Removes the folder of the run, and what it created on servers of the user.
 *  @param isClean false: data and logs stay for an inspection */
async function cleanUp(context: Context, world: World, isClean: boolean): Promise<void> {
  const { servers, names, driver, connect } = world;
  if (isClean) rmSync(world.dir, { recursive: true, force: true });
  if (servers.own !== undefined) return;
  const removesData = context.settings.schema === undefined && isClean;
  const pool = await connect();
  try {
    await removeTraces({
      names,
      pool,
      driver,
      brokers: servers.brokers ?? '',
      clock: context.clock,
      removesData,
    });
  } finally {
    await pool.close();
  }
  if (!removesData) context.say(`schema ${names.schema} and topic ${names.topic} are kept`);
}

async function run(context: Context): Promise<number> {
  const { schema, target } = context.settings;
  if (target !== undefined) return runTarget(context, target);
  if (schema !== undefined) requirePlainSchema(schema);
  const plan = planOf(context);
  if (context.settings.plan) {
    printPlan(context, plan);
    return EXIT.done;
  }
  checkReports(context);
  const watch = watchChaos(context, plan);
  watch.phase('starting');
  const world = await openWorld(context, plan, watch);
  context.setReady();
  // A run that was stopped leaves nothing to inspect.
  let isClean = false;
  try {
    const end = await breakIt(context, world, plan, watch);
    watch.phase('done');
    watch.done();
    if (end === undefined) {
      isClean = true;
      context.say(`the run was stopped; replay: ${replayOf(context, plan)}`);
      return CHAOS_EXIT.stopped;
    }
    isClean = end.holds;
    return describe(context, world, plan, end);
  } finally {
    for (const service of Object.values(world.pipeline.services)) service.abandon();
    await world.processes.end(END_GRACE_MS);
    await cleanUp(context, world, isClean).catch((thrown: Error) =>
      context.log.warn({ err: thrown.message, schema: world.names.schema }, 'the run left something behind'),
    );
  }
}

export const command = defineCommand({
  name: 'chaos',
  summary: 'Break orders, relay and payments under load by a plan from a seed, and reconcile',
  description: `
Starts the real processes on servers of its own (or yours: -brokers and -postgres), sends orders over HTTP and gRPC,
and kills, stops and disconnects processes, servers and links by a plan that the seed determines. Then it heals
everything, waits until nothing is pending, and reconciles. Exit code 0 only if there is no delta, every planned fault
met its target, and duplicates, repeats and gRPC requests occurred as the flags ask; otherwise the last lines have the
command that repeats the plan.

With -target=FILE the same faults meet processes of your own: the file names their command lines, a request, and a
query whose rows are violations (docs/how-to/chaos-your-service.md).

  millrace chaos -seed=7 -duration=2m -report=chaos.html
  millrace chaos -seed=7 -relay=wal -broker-count=3 -dup-rate=0.3 -report=chaos.json,chaos.svg
  millrace chaos -faults=crash -crash-point=publish,effect
  millrace chaos -seed=7 -plan
  millrace chaos -target=chaos.yaml -duration=2m -report=chaos.html`,
  settings: SETTINGS,
  exits: { [CHAOS_EXIT.stopped]: 'the run was stopped before its verdict' },
  run,
});
