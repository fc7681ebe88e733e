/** Everything that a run against a target opens, in the order in which it is needed. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FAULTS } from '../../../chaos/faults.ts';
import type { PlannedFault } from '../../../chaos/schedule.ts';
import type { ChaosTarget } from '../../../chaos/target/document.ts';
import type { UnplannedEnd } from '../../../chaos/verdict.ts';
import { coreError } from '../../../core/errors.ts';
import type { BrokerDriver } from '../../../io/kafka/port.ts';
import type { SqlPool } from '../../../io/postgres/sql/port.ts';
import { brokerDriver, sqlDriver } from '../../../shell/drivers.ts';
import { makeTopics } from '../../../shell/topics.ts';
import { ProcessGroups } from '../../user-processes/groups.ts';
import { Proxies } from '../links.ts';
import { type ObservedGroup, Observer } from '../observer.ts';
import { childEnvironment } from '../pipeline.ts';
import { openServers, type Servers } from '../servers.ts';
import type { ManagedService } from '../service.ts';
import type { ChaosContext as Context } from '../settings.ts';
import { openShim } from '../shim.ts';
import type { Watch } from '../watch.ts';
import { addressesOf } from './plan.ts';
import { runSetup, targetServices } from './processes.ts';

const CONNECT_TIMEOUT_MS = 5000;
const END_GRACE_MS = 5000;
const CLIENT = 'millrace-chaos';

export interface TargetWorld {
  readonly servers: Servers;
  readonly proxies: Proxies;
  readonly services: Readonly<Record<string, ManagedService>>;
  readonly loadUrl: string;
  readonly connect: () => Promise<SqlPool>;
  readonly observer: Observer;
  /** Schema of this run, for the objects of its faults. */
  readonly schema: string;
  readonly ends: readonly UnplannedEnd[];
  /** Folder with the logs. */
  readonly dir: string;
}

export async function openTargetWorld(
  context: Context,
  target: ChaosTarget,
  folder: string,
  plan: readonly PlannedFault[],
  watch: Watch,
): Promise<TargetWorld> {
  const { clock, settings, drain } = context;
  const proxies = new Proxies(clock);
  context.onClose(() => proxies.close());
  const shim = openShim(context, plan);
  const servers = await openServers(context, proxies, {
    ...addressesOf(context, target),
    databaseClients: namesWhere(target, 'usesPostgres'),
    brokerClients: namesWhere(target, 'usesBrokers'),
    hasBrokerLinks: plan.some(({ kind }) => FAULTS[kind].need === 'cluster'),
    shim,
  });
  const sql = await sqlDriver(context);
  const connect = (): Promise<SqlPool> =>
    sql.connect({
      ...{ url: servers.postgres, connectionsMax: 1, applicationName: 'millrace chaos' },
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
    });
  const schema = `millrace_chaos_${settings.seed}_${randomBytes(4).toString('hex')}`;
  const pool = await connect();
  await pool.query(`CREATE SCHEMA ${schema}`).finally(() => pool.close());
  context.onClose(() => dropSchema(context, connect, schema));
  const dir = mkdtempSync(join(tmpdir(), 'millrace-chaos-'));
  const groups = openGroups(context, dir);
  const ends: UnplannedEnd[] = [];
  const startMs = clock.monotonicMs();
  const env = childEnvironment(context);
  const parts = {
    ...{ target, folder, groups, servers, proxies, env, shim, clock },
    onUnplannedEnd: (end: Omit<UnplannedEnd, 'atMs'>): void => {
      const at = { ...end, atMs: clock.monotonicMs() - startMs };
      ends.push(at);
      watch.onUnplannedEnd(at);
    },
  };
  const driver = await brokerDriver(context);
  await createTopics(context, driver, servers, target);
  await runSetup(parts, drain);
  const { services, loadUrl } = await targetServices(parts);
  const observer = new Observer({
    ...{ clock, connect, onSample: watch.onSample, pendingQuery: target.pending },
    groups: await observedGroups(context, driver, servers, target),
  });
  context.onClose(() => observer.stop());
  return { servers, proxies, services, loadUrl, connect, observer, schema, ends, dir };
}

const namesWhere = (
  { processes }: ChaosTarget,
  property: 'usesPostgres' | 'usesBrokers',
): readonly string[] => processes.flatMap((one) => (one[property] ? [one.name] : []));

/** Process groups that end with this process, however it ends. */
function openGroups(context: Context, dir: string): ProcessGroups {
  const groups = new ProcessGroups(dir, context.clock);
  const killNow = (): void => groups.killNow();
  process.once('exit', killNow);
  context.onClose(async () => {
    await groups.end(END_GRACE_MS);
    process.removeListener('exit', killNow);
  });
  return groups;
}

async function dropSchema({ log }: Context, connect: TargetWorld['connect'], schema: string): Promise<void> {
  try {
    const pool = await connect();
    await pool.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`).finally(() => pool.close());
  } catch (thrown) {
    log.warn({ err: (thrown as Error).message, schema }, 'the run left a schema behind');
  }
}

async function createTopics(
  { log }: Context,
  driver: BrokerDriver,
  { brokers }: Servers,
  { topics }: ChaosTarget,
): Promise<void> {
  if (topics.length === 0 || brokers === undefined) return;
  const admin = await driver.admin({ brokers, clientId: CLIENT });
  try {
    await makeTopics(log, admin, topics);
  } finally {
    await admin.close();
  }
}

/** @throws bad_value for a topic that does not exist */
async function observedGroups(
  context: Context,
  driver: BrokerDriver,
  { brokers }: Servers,
  { consumers }: ChaosTarget,
): Promise<readonly ObservedGroup[]> {
  if (consumers.length === 0 || brokers === undefined) return [];
  const groups: ObservedGroup[] = [];
  const admin = await driver.admin({ brokers, clientId: CLIENT });
  try {
    for (const { group, topic } of consumers) {
      const description = await admin.describeTopic(topic);
      if (description === undefined)
        throw coreError('bad_value', `consumers has the topic ${topic}, which does not exist`, {
          next: 'list it under topics, or create it under setup',
        });
      const client = await driver.consumer({
        ...{ brokers, clientId: CLIENT, group, connectTimeoutMs: CONNECT_TIMEOUT_MS },
      });
      context.onClose(() => client.close());
      await client.reach(CONNECT_TIMEOUT_MS);
      const partitions = Array.from({ length: description.partitions }, (_, partition) => ({
        topic,
        partition,
      }));
      groups.push({ client, partitions });
    }
  } finally {
    await admin.close();
  }
  return groups;
}
