/** The Kafka store: write rates with acks=all and one transaction for each write, concurrent
 *  lookups, and a start from its topic. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chooseNative } from '../src/addon/load.ts';
import { DEFAULT_KAFKA_HEAP_BYTES, START_TIMEOUT_MS, startStack } from '../src/devstack/stack.ts';
import { flockDriver } from '../src/io/lock/flock.ts';
import { clientEnv } from './effects/world.ts';
import { type BenchContext, type BenchResult, result, type Series, seriesOf, takeTurns } from './harness.ts';
import { NUMBER } from './http-load.ts';
import { LARGE_BYTES, largeSchema } from './registry-large.ts';
import { RegistryLoads } from './registry-loads.ts';
import { lessMs, more, type Run } from './registry-run.ts';
import { residentBytes, startOurs } from './registry-server.ts';

/** One cluster for all parts of a run. */
const clusters = new WeakMap<BenchContext, Promise<string>>();

function brokersOf(context: BenchContext): Promise<string> {
  const known = clusters.get(context) ?? startedOrGiven(context);
  clusters.set(context, known);
  return known;
}

async function startedOrGiven(context: BenchContext): Promise<string> {
  if (context.brokers !== undefined) return context.brokers;
  context.say('starting a broker');
  const stack = await startStack({
    folder: undefined,
    owned: true,
    brokerCount: 1,
    kafkaPort: undefined,
    postgresPort: undefined,
    kafkaHeapBytes: DEFAULT_KAFKA_HEAP_BYTES,
    locks: flockDriver(chooseNative(process.env['MILLRACE_NATIVE']).mode),
    environment: process.env,
    startTimeoutMs: START_TIMEOUT_MS,
    onStep: (step) => context.say(step),
    signal: context.drain,
  });
  context.onClose(() => stack.close());
  return stack.brokers;
}

/** Environment of the registry with the properties of its Kafka clients. */
function envOf(context: BenchContext): Readonly<Record<string, string>> {
  const dir = mkdtempSync(join(tmpdir(), 'millrace-bench-'));
  context.onClose(async () => rmSync(dir, { recursive: true, force: true }));
  return clientEnv(dir, context.brokerProperties ?? {});
}

const topic = (run: Run, name: string): string => `-schemas-topic=bench-${run.name}-${name}`;

/** Rates with acks=all. */
export async function kafkaRates(run: Run): Promise<BenchResult[]> {
  const { context, sizes } = run;
  const server = await startOurs(
    `kafka:${await brokersOf(context)}`,
    [topic(run, 'small')],
    'first',
    envOf(context),
  );
  try {
    const loads = new RegistryLoads(server, `${run.name}k`, sizes, context.drain);
    await loads.fill(sizes.schemas);
    context.say('the Kafka store, acks=all');
    const series = await takeTurns(
      {
        one: () => loads.registrationRate(1),
        many: () => loads.registrationRate(16),
        lookups: () => loads.lookupRate(64),
      },
      context.repeats,
    );
    const row = (metric: string, ours: Series): BenchResult => result({ ...more, metric, ours });
    return [
      row('registrations, Kafka store with acks=all, one after the other', series.one),
      row('registrations, Kafka store with acks=all, 16 at once', series.many),
      row('lookups by id, Kafka store, 64 connections', series.lookups),
    ];
  } finally {
    await server.stop();
  }
}

/** Starts from a topic with many large schemas. */
export async function kafkaStarts(run: Run): Promise<BenchResult[]> {
  const { context, sizes } = run;
  const store = `kafka:${await brokersOf(context)}`;
  const large = `${sizes.largeSchemas} schemas of ${LARGE_BYTES} B`;
  context.say(`a topic of ${large}`);
  const env = envOf(context);
  const filling = await startOurs(store, [topic(run, 'large')], 'first', env);
  try {
    const loads = new RegistryLoads(filling, `${run.name}t`, sizes, context.drain);
    await loads.register(sizes.largeSchemas, largeSchema(`T${run.name}_${NUMBER}`));
  } finally {
    await filling.stop();
  }
  const writable: number[] = [];
  const resident: number[] = [];
  for (let turn = 0; turn < Math.min(3, context.repeats); turn++) {
    const again = await startOurs(store, [topic(run, 'large')], `topic${turn}`, env);
    writable.push(again.writableMs);
    resident.push(residentBytes(again.pid) / 1e6);
    await again.stop();
  }
  return [
    result({ ...lessMs, metric: `start until writable, Kafka topic of ${large}`, ours: seriesOf(writable) }),
    result({
      metric: `memory after a start from a Kafka topic of ${large}`,
      unit: 'MB',
      better: 'less',
      ours: seriesOf(resident),
    }),
  ];
}
