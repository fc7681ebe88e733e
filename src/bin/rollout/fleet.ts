/** Fleet of producer and consumer commands: the world of a rollout in real processes.
 *  Invariant: an instance that did not become ready is ended before `start` rejects. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sleep, type Timers } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import type { SliceProcess } from '../../demo/fact.ts';
import type { Processes } from '../../demo/processes.ts';
import { ready } from '../../demo/ready.ts';
import type { BatchConsumer } from '../../io/kafka/port.ts';
import type { FleetInstance, FleetWorld, InstanceCounts, Side, Slot } from '../../registry/rollout/model.ts';
import { textOf } from '../../shell/fetch-text.ts';
import { EXPOSITION_BYTES_MAX, parseExposition } from '../../slo/exposition.ts';
import type { RegisteredPair } from './schemas.ts';

const SCRAPE_MS_MAX = 2000;
const DRAINED_POLL_MS = 200;
const OFFSETS_MS_MAX = 10_000;

/** Metrics of the producer and consumer commands. */
const METRICS = {
  errors: 'deserialize_errors_total',
  produced: 'produced_records_total',
  consumed: 'consumed_records_total',
  lag: 'consumer_lag_records',
} as const satisfies Readonly<Record<keyof InstanceCounts, string>>;
const KEPT = new Set<string>(Object.values(METRICS));

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
  readonly schemas: RegisteredPair;
  /** Records a second of one producer. */
  readonly rate: number;
  /** Clients of the groups, which read committed offsets and never join. */
  readonly groups: ReadonlyMap<string, BatchConsumer>;
}

/** Number at the end of a slot's name. */
const indexOf = (slot: Slot): number => Number(/(\d+)$/.exec(slot.name)?.[1] ?? 0);

export function processFleet(options: FleetOptions): FleetWorld {
  mkdirSync(options.dir, { recursive: true });
  for (const side of ['old', 'new'] as const)
    writeFileSync(join(options.dir, `${side}.schema`), options.schemas[side].text);
  return {
    start: (slot, side) => startInstance(options, slot, side),
    drained: (timeoutMs, signal) => isDrained(options, timeoutMs, signal),
  };
}

function argsOf(options: FleetOptions, slot: Slot, side: Side): readonly string[] {
  const { subject, version } = options.schemas[side];
  const shared = [
    slot.role,
    `-brokers=${options.brokers}`,
    `-registry=${options.registry}`,
    `-format=${options.format}`,
    `-subject=${subject}`,
    `-topic=${options.topic}`,
    `-partitions=${options.partitions}`,
    '-json',
    '-log-level=warn',
  ];
  if (slot.role === 'consumer') return [...shared, `-reader-version=${version}`, `-group=${slot.group}`];
  return [
    ...shared,
    `-schema=${join(options.dir, `${side}.schema`)}`,
    `-rate=${options.rate}`,
    `-seed=${indexOf(slot)}`,
  ];
}

async function startInstance(options: FleetOptions, slot: Slot, side: Side): Promise<FleetInstance> {
  const name = `${slot.name}-${side}`;
  const child = options.processes.spawn(name, argsOf(options, slot, side));
  try {
    return instanceOf(name, child, await ready(name, child));
  } catch (thrown) {
    child.kill('SIGKILL');
    await child.ended;
    throw thrown;
  }
}

function instanceOf(name: string, child: SliceProcess, address: string): FleetInstance {
  let over: string | undefined;
  let isStopping = false;
  void child.ended.then(({ code, signal }) => {
    over = `${name} ended with ${code ?? signal}; see ${child.logPath}`;
  });
  return {
    scrape: () => scrape(address),
    failure: () => (isStopping ? undefined : over),
    stop: async () => {
      isStopping = true;
      child.kill('SIGTERM');
      await child.ended;
      return finalCounts(child.stdout());
    },
  };
}

async function scrape(address: string): Promise<InstanceCounts | undefined> {
  const url = `http://${address}/metrics`;
  let text: string;
  try {
    text = await textOf(url, {
      timeoutMs: SCRAPE_MS_MAX,
      bytesMax: EXPOSITION_BYTES_MAX,
      accept: 'text/plain',
    });
  } catch {
    // The instance may be busy or ending; `failure` tells which.
    return undefined;
  }
  const { samples } = parseExposition(text, url, KEPT);
  const sum = (name: string): number =>
    (samples.get(name) ?? []).reduce((total, { value }) => total + value, 0);
  return {
    errors: sum(METRICS.errors),
    produced: sum(METRICS.produced),
    consumed: sum(METRICS.consumed),
    lag: sum(METRICS.lag),
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

/** Waits until each group has committed up to the end offsets of now. */
async function isDrained(options: FleetOptions, timeoutMs: number, signal: AbortSignal): Promise<boolean> {
  const { clock, groups, topic } = options;
  const partitions = Array.from({ length: options.partitions }, (_, partition) => ({ topic, partition }));
  const [first] = groups.values();
  if (first === undefined) throw coreError('internal', 'a rollout has no consumer group');
  const ends = await Promise.all(partitions.map((at) => first.watermarkOffsets(at, OFFSETS_MS_MAX)));
  const endMs = clock.monotonicMs() + timeoutMs;
  for (;;) {
    const all = await Promise.all([...groups.values()].map((one) => one.committed(partitions)));
    const isRead = all.every((group) =>
      group.every(({ partition, offset }) => {
        const { low, high } = ends[partition] ?? { low: 0n, high: 0n };
        return offset >= high || low === high;
      }),
    );
    if (isRead) return true;
    if (signal.aborted || clock.monotonicMs() >= endMs) return false;
    await sleep(clock, DRAINED_POLL_MS, signal);
  }
}
