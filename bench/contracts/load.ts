/** Fleet under load: a registry, a topic that keeps a limited size, one consumer process for each
 *  group and one producer process, each with many instances on worker threads. */
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import type { OrderVersion } from '../../src/gen/order.ts';
import { type OrderFormat, orderSchema } from '../../src/gen/order-versions.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { ready } from '../../src/shell/children/ready.ts';
import type { StartedCommand } from '../../src/shell/children/started-command.ts';
import { sizeRetention } from '../../src/shell/topic-settings.ts';
import type { Children } from '../children.ts';
import { CpuMeter, cpuSeconds, processAt } from '../effects/cpu.ts';
import type { BenchContext } from '../harness.ts';
import { type Flatness, flatnessOf, type LagSample, lagsOf } from './flat.ts';
import { TopicOffsets } from './offsets.ts';
import { type Counts, countsOf, registryCalls } from './pages.ts';
import type { LoadPlan } from './plan.ts';

/** Versions of Order that the producers write and the consumers read with. They differ, so each
 *  consumer process needs two schemas. */
export const WRITER_VERSION: OrderVersion = 1;
export const READER_VERSION: OrderVersion = 2;
export const SCHEMAS = 2;

const START_MS_MAX = 300_000;
const CATCH_UP_MS_MAX = 900_000;
/** Lag, in seconds of the rate, at which a run ends early: it is not flat. */
const LAG_SECONDS_MAX = 30;
/** Time that a process gets to finish its work after SIGTERM, ms. */
const END_MS_MAX = 180_000;

/** Parts of the load that are processes. */
export const STAGES = ['producer', 'broker', 'consumer', 'registry'] as const;
export type Stage = (typeof STAGES)[number];

export interface Measured {
  readonly flatness: Flatness;
  readonly samples: readonly LagSample[];
  /** CPU seconds by stage; NaN for a broker that is no process of this machine. */
  readonly cpu: Readonly<Record<Stage, number>>;
  /** Growth of the counters of producer and consumers. */
  readonly counts: Counts;
}

/** Counts of a fleet at its end. */
export interface Ended {
  /** Records that the producers report as acknowledged. */
  readonly produced: number;
  /** Sum of the end offsets of the topic. */
  readonly written: number;
  /** Records that each group read, repeated ones included. */
  readonly consumed: readonly number[];
  readonly unreadable: number;
  /** Requests that the registry answered to the fleet. */
  readonly registryCalls: number;
}

interface Member {
  readonly name: string;
  readonly process: StartedCommand;
  readonly address: string;
}

/** Sends SIGTERM and returns the document that the process prints. @throws unreachable */
async function endOf({ name, process }: Member): Promise<Readonly<Record<string, number>>> {
  process.kill('SIGTERM');
  const late = setTimeout(() => process.kill('SIGKILL'), END_MS_MAX);
  const { code, signal } = await process.ended.finally(() => clearTimeout(late));
  if (code !== 0)
    throw coreError('unreachable', `${name} ended with ${signal ?? code}`, {
      next: `see ${process.logPath}`,
    });
  return JSON.parse(process.stdout()) as Readonly<Record<string, number>>;
}

async function register(url: string, subject: string, format: OrderFormat): Promise<void> {
  for (const version of [WRITER_VERSION, READER_VERSION]) {
    const answer = await fetch(`${url}/subjects/${subject}/versions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        schema: orderSchema(version, format),
        schemaType: format === 'avro' ? 'AVRO' : 'PROTOBUF',
      }),
    });
    if (!answer.ok)
      throw coreError('unreachable', `the registry refuses version ${version}: ${await answer.text()}`);
  }
}

interface FleetParts {
  readonly context: BenchContext;
  readonly children: Children;
  readonly plan: LoadPlan;
  readonly topic: string;
  readonly registry: Member;
  readonly consumers: readonly Member[];
  readonly offsets: TopicOffsets;
  /** Requests that the registry had answered before the fleet started. */
  readonly callsBefore: number;
  /** Deletes the topic, once. */
  readonly removeTopic: () => Promise<void>;
}

async function startMember({ processes }: Children, name: string, args: readonly string[]): Promise<Member> {
  const process = processes.spawn(name, [...args, '-listen=127.0.0.1:0', '-log-level=warn']);
  return { name, process, address: await ready(name, process) };
}

const sharedFlags = (
  { brokers }: Children,
  plan: LoadPlan,
  topic: string,
  registry: Member,
): readonly string[] => [
  `-brokers=${brokers}`,
  `-registry=http://${registry.address}`,
  `-format=${plan.format}`,
  `-subject=${topic}-value`,
  `-topic=${topic}`,
  '-connect-timeout=60s',
  '-json',
];

export class Fleet {
  private readonly parts: FleetParts;
  private produced = 0;

  private constructor(parts: FleetParts) {
    this.parts = parts;
  }

  /** Starts the registry, and the consumers of a new topic. */
  static async open(context: BenchContext, children: Children, plan: LoadPlan): Promise<Fleet> {
    const { brokers } = children;
    const { partitions } = plan;
    const properties = context.brokerProperties ?? {};
    const topic = `bench-contracts-${randomBytes(4).toString('hex')}`;
    const groups = Array.from({ length: plan.groups }, (_, group) => `${topic}-g${group + 1}`);
    const admin = await nodeRdkafkaDriver.admin({ brokers, properties, clientId: 'bench' });
    let isRemoved = false;
    const removeTopic = async (): Promise<void> => {
      if (isRemoved) return;
      isRemoved = true;
      await admin.deleteTopics([topic, `${topic}.quarantine`]).catch(() => {});
      await admin.close();
    };
    context.onClose(removeTopic);
    const config = sizeRetention(plan.topicBytesMax, partitions);
    await admin.createTopics([{ topic, partitions, config }]);
    const registry = await startMember(children, 'registry', ['registry', '-store=memory']);
    await register(`http://${registry.address}`, `${topic}-value`, plan.format);
    const callsBefore = await registryCalls(registry.address);
    const offsets = await TopicOffsets.open({ brokers, properties, topic, partitions, groups });
    context.onClose(() => offsets.close());
    const consumers = await Promise.all(
      groups.map((group, index) =>
        startMember(children, `consumer-${index + 1}`, [
          'consumer',
          ...sharedFlags(children, plan, topic, registry),
          `-reader-version=${READER_VERSION}`,
          `-group=${group}`,
          `-instances=${plan.consumers / plan.groups}`,
        ]),
      ),
    );
    const parts = { context, children, plan, topic, registry, consumers, offsets, callsBefore, removeTopic };
    return new Fleet(parts);
  }

  /** Writes at a rate, and measures after the warm-up until the time is over or the lag shows that
   *  the rate is not flat. When it resolves, the producers have ended and the groups have read all.
   */
  async run(rate: number, durationMs: number, warmMs: number): Promise<Measured> {
    const { context, offsets } = this.parts;
    const producer = await this.startProducer(rate);
    await offsets.untilAllRead(START_MS_MAX, context.drain);
    const warm = await this.observe(rate, warmMs);
    const before = await this.counts(producer);
    const meter = this.meter(producer);
    const { samples, isOver } = warm.isOver ? await this.observe(rate, durationMs) : warm;
    const cpu = Object.fromEntries(STAGES.map((stage) => [stage, meter.seconds(stage)]));
    const counts = (await this.counts(producer)).since(before);
    this.produced += (await endOf(producer))['records'] as number;
    await offsets.untilCaughtUp(CATCH_UP_MS_MAX, context.drain);
    const flatness = flatnessOf(rate, samples);
    return {
      flatness: { ...flatness, isFlat: flatness.isFlat && isOver },
      samples,
      cpu: cpu as Measured['cpu'],
      counts,
    };
  }

  /** Ends all processes and deletes the topic, so that the next fleet has the disk. */
  async end(): Promise<Ended> {
    const { consumers, registry, offsets, callsBefore, removeTopic } = this.parts;
    const { written } = await offsets.sample(performance.now());
    const documents = await Promise.all(consumers.map(endOf));
    const calls = (await registryCalls(registry.address)) - callsBefore;
    registry.process.kill('SIGTERM');
    await registry.process.ended;
    await removeTopic();
    const numbers = (name: string): readonly number[] => documents.map((one) => one[name] as number);
    return {
      produced: this.produced,
      written,
      consumed: numbers('records'),
      unreadable: numbers('unreadable').reduce((sum, one) => sum + one, 0),
      registryCalls: calls,
    };
  }

  private startProducer(rate: number): Promise<Member> {
    const { children, plan, topic, registry } = this.parts;
    const schema = join(children.dir, `${topic}.schema`);
    writeFileSync(schema, orderSchema(WRITER_VERSION, plan.format));
    return startMember(children, 'producer', [
      'producer',
      ...sharedFlags(children, plan, topic, registry),
      `-schema=${schema}`,
      `-rate=${rate}`,
      `-instances=${plan.producers}`,
    ]);
  }

  private counts(producer: Member): Promise<Counts> {
    return countsOf([producer, ...this.parts.consumers].map(({ address }) => address));
  }

  private meter(producer: Member): CpuMeter {
    const { children, consumers, registry } = this.parts;
    const brokers = children.brokers.split(',').map((one) => processAt(Number(one.split(':').at(-1))));
    const sum = (pids: readonly (number | undefined)[]): (() => number) =>
      pids.includes(undefined)
        ? () => Number.NaN
        : () => pids.reduce<number>((seconds, pid) => seconds + cpuSeconds(pid as number), 0);
    return new CpuMeter(
      new Map<Stage, () => number>([
        ['producer', sum([producer.process.pid])],
        ['broker', sum(brokers)],
        ['consumer', sum(consumers.map(({ process }) => process.pid))],
        ['registry', sum([registry.process.pid])],
      ]),
    );
  }

  /** Samples the offsets for some time. `isOver` is false if the lag ended it early. */
  private async observe(
    rate: number,
    durationMs: number,
  ): Promise<{ readonly samples: readonly LagSample[]; readonly isOver: boolean }> {
    const { context, plan, offsets } = this.parts;
    const samples: LagSample[] = [];
    const startMs = performance.now();
    for (let due = 0; ; due += plan.sampleMs) {
      const restMs = Math.min(due, durationMs) - (performance.now() - startMs);
      if (restMs > 0) await sleep(restMs);
      context.drain.throwIfAborted();
      const sample = await offsets.sample(startMs);
      samples.push(sample);
      if (Math.max(...lagsOf(sample)) > LAG_SECONDS_MAX * rate) return { samples, isOver: false };
      if (sample.atMs >= durationMs) return { samples, isOver: true };
    }
  }
}
