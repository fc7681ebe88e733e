/** Fleet of Millrace's producer and consumer commands.
 *  Invariant: an instance that did not become ready is ended before `start` rejects. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Timers, within } from '../../core/clock.ts';
import type { FleetInstance, FleetSlot, InstanceCounts, Side } from '../../registry/rollout/model.ts';
import type { Processes } from '../../shell/children/processes.ts';
import { ready } from '../../shell/children/ready.ts';
import type { StartedCommand } from '../../shell/children/started-command.ts';
import { type FleetMetrics, MetricsPage } from './page.ts';
import type { RegisteredPair } from './schemas.ts';

export interface FleetOptions {
  readonly processes: Processes;
  /** Folder for the schema files of the producers. */
  readonly dir: string;
  readonly clock: Timers;
  readonly brokers: string;
  readonly registry: string;
  readonly format: 'avro' | 'protobuf';
  readonly topic: string;
  readonly partitions: number;
  /** Producers or group members in each process. */
  readonly instances: number;
  readonly schemas: RegisteredPair;
  /** Records a second of one producer. */
  readonly rate: number;
  readonly metrics: FleetMetrics;
  /** Time that an instance gets to finish its work before it is killed. */
  readonly stopMs: number;
}

/** Starts an instance of a fleet. */
export type StartInstance = (slot: FleetSlot, side: Side, signal: AbortSignal) => Promise<FleetInstance>;

/** Number at the end of a slot's name. */
const indexOf = (slot: FleetSlot): number => Number(/(\d+)$/.exec(slot.name)?.[1] ?? 0);

/** Writes the schema of each version to a file of the folder. */
export function writeSchemas(dir: string, schemas: RegisteredPair): Readonly<Record<Side, string>> {
  mkdirSync(dir, { recursive: true });
  const files = { old: join(dir, 'old.schema'), new: join(dir, 'new.schema') };
  for (const side of ['old', 'new'] as const) writeFileSync(files[side], schemas[side].text);
  return files;
}

export function processFleet(options: FleetOptions): StartInstance {
  const files = writeSchemas(options.dir, options.schemas);
  return (slot, side, signal) =>
    startInstance(options, argsOf(options, files, slot, side), slot, side, signal);
}

function argsOf(
  options: FleetOptions,
  files: Readonly<Record<Side, string>>,
  slot: FleetSlot,
  side: Side,
): readonly string[] {
  const { subject, version } = options.schemas[side];
  const shared = [
    slot.role,
    `-brokers=${options.brokers}`,
    `-registry=${options.registry}`,
    `-format=${options.format}`,
    `-subject=${subject}`,
    `-topic=${options.topic}`,
    `-partitions=${options.partitions}`,
    `-instances=${options.instances}`,
    // The environment of this process may name an address of its own.
    '-listen=127.0.0.1:0',
    '-json',
    '-log-level=warn',
  ];
  if (slot.role === 'consumer') return [...shared, `-reader-version=${version}`, `-group=${slot.group}`];
  return [...shared, `-schema=${files[side]}`, `-rate=${options.rate}`, `-seed=${indexOf(slot)}`];
}

async function startInstance(
  options: FleetOptions,
  args: readonly string[],
  slot: FleetSlot,
  side: Side,
  signal: AbortSignal,
): Promise<FleetInstance> {
  const name = `${slot.name}-${side}`;
  const child = options.processes.spawn(name, args);
  const kill = (): void => child.kill('SIGKILL');
  signal.addEventListener('abort', kill, { once: true });
  if (signal.aborted) kill();
  try {
    const address = await ready(name, child);
    const page = new MetricsPage(`http://${address}/metrics`, slot.role, options.metrics, options.clock);
    return instanceOf(options, name, child, page);
  } catch (thrown) {
    kill();
    await child.ended;
    throw thrown;
  } finally {
    signal.removeEventListener('abort', kill);
  }
}

function instanceOf(
  { clock, stopMs }: FleetOptions,
  name: string,
  child: StartedCommand,
  page: MetricsPage,
): FleetInstance {
  let over: string | undefined;
  let isStopping = false;
  void child.ended.then(({ code, signal }) => {
    over = `${name} ended with ${code ?? signal}; see ${child.logPath}`;
  });
  return {
    scrape: () => page.read(),
    failure: () => (isStopping ? undefined : (over ?? page.failure)),
    stop: async () => {
      isStopping = true;
      child.kill('SIGTERM');
      if (!(await within(clock, stopMs, child.ended))) child.kill('SIGKILL');
      await child.ended;
      return finalCounts(child.stdout());
    },
  };
}

/** Counts of the document that a producer or consumer prints at its end. */
function finalCounts(stdout: string): Partial<InstanceCounts> | undefined {
  try {
    const { records, quarantined, schemaId } = JSON.parse(stdout) as Readonly<Record<string, number>>;
    if (records === undefined) return undefined;
    return schemaId === undefined ? { consumed: records, errors: quarantined ?? 0 } : { produced: records };
  } catch {
    return undefined;
  }
}
