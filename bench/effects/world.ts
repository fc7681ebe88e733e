/** Environment of an effects benchmark: a broker and a database (started or given), a new database
 *  and topic for each part, and real processes started with the launcher that users run. */

import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { chooseNative } from '../../src/addon/load.ts';
import { coreError, EXIT } from '../../src/core/errors.ts';
import { DEFAULT_KAFKA_HEAP_BYTES, START_TIMEOUT_MS, startStack } from '../../src/devstack/stack.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { flockDriver } from '../../src/io/lock/flock.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { Processes } from '../../src/shell/children/processes.ts';
import { ready } from '../../src/shell/children/ready.ts';
import type { StartedCommand } from '../../src/shell/children/started-command.ts';
import { packageRoot } from '../../src/shell/package.ts';
import type { BenchContext } from '../harness.ts';
import { CpuMeter, cpuSeconds, processAt } from './cpu.ts';

/** Time that a process gets after SIGTERM; on a busy machine a last checkpoint takes long. */
const STOP_GRACE_MS = 60_000;
const CONNECTIONS = 4;

/** Holder of CPU time, in a meter under its name. */
export interface Metered {
  readonly name: string;
  /** User and system seconds so far. */
  cpuSeconds(): number;
}

/** A running child with its address. */
export interface Child extends Metered {
  readonly process: StartedCommand;
  /** host:port of its service and metrics. */
  readonly address: string;
  /** Sends SIGTERM and waits for the end. @throws unreachable if it ends with an error */
  stop(): Promise<void>;
}

/** A database that is dropped at the end of the run. */
export interface Database {
  readonly name: string;
  readonly url: string;
  readonly pool: SqlPool;
  drop(): Promise<void>;
}

export interface World {
  readonly context: BenchContext;
  readonly brokers: string;
  /** Properties of the Kafka clients; those of started commands come from a file. */
  readonly properties: Readonly<Record<string, string>>;
  /** Folder of this run on the file system of the package; removed at the end. */
  readonly dir: string;
  database(): Promise<Database>;
  /** A new topic name. */
  topic(): string;
  /** Runs a command to its end and returns its stdout. @param codes exit codes that are no error,
   *  0 by default
   *  @throws unreachable if it ends with an error */
  run(name: string, args: readonly string[], codes?: readonly number[]): Promise<string>;
  /** Starts a command and waits until it is ready. */
  start(name: string, args: readonly string[]): Promise<Child>;
  /** CPU meter of these children, of `postgres` and of `broker`. */
  meter(children: readonly Metered[], more?: ReadonlyMap<string, number>): CpuMeter;
  close(): Promise<void>;
}

const portOf = (hostPort: string): number => Number(hostPort.split(':').at(-1));

function withDatabase(url: string, name: string): string {
  const parsed = new URL(url);
  parsed.pathname = `/${name}`;
  return parsed.href;
}

async function connect(url: string, connectionsMax: number): Promise<SqlPool> {
  return pgDriver.connect({
    url,
    connectionsMax,
    applicationName: 'millrace bench',
    connectTimeoutMs: 10_000,
  });
}

async function addresses(
  context: BenchContext,
): Promise<{ readonly brokers: string; readonly postgres: string }> {
  const { brokers, postgres } = context;
  if (brokers !== undefined && postgres !== undefined) return { brokers, postgres };
  const count = context.brokerCount ?? 1;
  context.say(`starting ${count === 1 ? 'a broker' : `${count} brokers`} and a database`);
  const stack = await startStack({
    folder: undefined,
    owned: true,
    brokerCount: count,
    kafkaPort: undefined,
    postgresPort: undefined,
    kafkaHeapBytes: 2 * DEFAULT_KAFKA_HEAP_BYTES,
    locks: flockDriver(chooseNative(process.env['MILLRACE_NATIVE']).mode),
    environment: process.env,
    startTimeoutMs: START_TIMEOUT_MS,
    onStep: (step) => context.say(step),
    signal: context.drain,
  });
  context.onClose(() => stack.close());
  return { brokers: brokers ?? stack.brokers, postgres: postgres ?? stack.postgres };
}

/** Environment of a command, with a file of the properties of its Kafka clients. */
export function clientEnv(
  dir: string,
  properties: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const entries = Object.entries(properties);
  if (entries.length === 0) return {};
  const path = join(dir, 'client.properties');
  const escaped = (value: string): string => value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
  const lines = entries.map(([name, value]) => `${name}=${escaped(value)}\n`);
  // A property of the Java client alone makes backslashes escapes; a serializer is ignored.
  writeFileSync(path, `key.serializer=none\n${lines.join('')}`, { mode: 0o600 });
  return { MILLRACE_BROKER_CONFIG: path };
}

/** Creates a database beside `postgres`. @param databases the open ones; it stays among them until
 *  it is dropped */
async function createDatabase(admin: SqlPool, postgres: string, databases: Set<Database>): Promise<Database> {
  const name = `bench_${randomBytes(5).toString('hex')}`;
  await admin.query(`CREATE DATABASE ${name}`);
  const url = withDatabase(postgres, name);
  const pool = await connect(url, CONNECTIONS);
  const made: Database = {
    name,
    url,
    pool,
    async drop() {
      databases.delete(made);
      await pool.close();
      const { rows } = await admin.query<{ slot: string }>(
        'SELECT slot_name::text AS slot FROM pg_replication_slots WHERE database = $1 AND NOT active',
        [name],
      );
      for (const { slot } of rows) await admin.query('SELECT pg_drop_replication_slot($1)', [slot]);
      await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    },
  };
  databases.add(made);
  return made;
}

/** @throws unreachable if the child ends with an error */
async function requireSuccess(
  name: string,
  child: StartedCommand,
  codes: readonly number[] = [EXIT.done],
): Promise<void> {
  const { code, signal } = await child.ended;
  if (code === null || !codes.includes(code))
    throw coreError('unreachable', `${name} ended with ${signal ?? code}`, {
      next: `see ${child.logPath}`,
    });
}

/** Children choose the drivers that the bench itself uses. */
export function nativeEnv({ settings }: BenchContext): Readonly<Record<string, string>> {
  return settings.native === 'auto' ? {} : { MILLRACE_NATIVE: settings.native };
}

/** Opens the environment. Everything that it started ends with `close`, or with the process. */
export async function openWorld(context: BenchContext): Promise<World> {
  const { brokers, postgres } = await addresses(context);
  const root = join(packageRoot(), '.millrace', 'bench');
  mkdirSync(root, { recursive: true });
  const dir = mkdtempSync(join(root, 'effects-'));
  const properties = context.brokerProperties ?? {};
  const processes = new Processes({
    dir,
    stay: false,
    env: { ...process.env, ...nativeEnv(context), ...clientEnv(dir, properties) },
  });
  const admin = await connect(postgres, 1);
  const databases = new Set<Database>();
  const topics = new Set<string>();
  const brokerPids = brokers.split(',').map((one) => processAt(portOf(one)));
  const postmaster = processAt(Number(new URL(postgres).port) || 5432);

  const run = async (name: string, args: readonly string[], codes?: readonly number[]): Promise<string> => {
    const child = processes.spawn(name, [...args, '-log-level=warn']);
    await requireSuccess(name, child, codes);
    return child.stdout();
  };

  const start = async (name: string, args: readonly string[]): Promise<Child> => {
    const child = processes.spawn(name, [...args, '-log-level=warn']);
    const address = await ready(name, child);
    return {
      name,
      process: child,
      address,
      cpuSeconds: () => cpuSeconds(child.pid),
      async stop() {
        child.kill('SIGTERM');
        const late = setTimeout(() => child.kill('SIGKILL'), STOP_GRACE_MS);
        await requireSuccess(name, child).finally(() => clearTimeout(late));
      },
    };
  };

  const meter = (children: readonly Metered[], more: ReadonlyMap<string, number> = new Map()): CpuMeter => {
    const watched = new Map<string, () => number>();
    for (const child of children) watched.set(child.name, () => child.cpuSeconds());
    for (const [name, pid] of more) watched.set(name, () => cpuSeconds(pid, true));
    if (postmaster !== undefined) watched.set('postgres', () => cpuSeconds(postmaster, true));
    const known = brokerPids.filter((pid) => pid !== undefined);
    if (known.length === brokerPids.length)
      watched.set('broker', () => known.reduce((sum, pid) => sum + cpuSeconds(pid), 0));
    return new CpuMeter(watched);
  };

  return {
    context,
    brokers,
    properties,
    dir,
    database: () => createDatabase(admin, postgres, databases),
    topic() {
      const topic = `bench-${randomBytes(5).toString('hex')}`;
      topics.add(topic);
      return topic;
    },
    run,
    start,
    meter,
    async close() {
      await processes.end(STOP_GRACE_MS);
      for (const one of [...databases]) await one.drop().catch(() => {});
      await admin.close();
      if (topics.size > 0 && context.brokers !== undefined) {
        const broker = await nodeRdkafkaDriver.admin({ brokers, clientId: 'bench', properties });
        await broker.deleteTopics([...topics]).catch(() => {});
        await broker.close();
      }
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Polls until `holds` is true. @throws timeout */
export async function until(
  what: string,
  timeoutMs: number,
  holds: () => Promise<boolean>,
  everyMs = 100,
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await holds())) {
    if (performance.now() > deadline)
      throw coreError('timeout', `timed out after ${Math.round(timeoutMs / 1000)} s waiting for ${what}`);
    await sleep(everyMs);
  }
}

/** Value of a metric, summed over its labels. */
export async function metric(child: Child, name: string): Promise<number | undefined> {
  const text = await (await fetch(`http://${child.address}/metrics`)).text();
  let sum: number | undefined;
  for (const line of text.split('\n')) {
    if (!line.startsWith(name)) continue;
    const rest = line.slice(name.length);
    if (rest[0] !== ' ' && rest[0] !== '{') continue;
    sum = (sum ?? 0) + Number(rest.slice(rest.lastIndexOf(' ')));
  }
  return sum;
}
