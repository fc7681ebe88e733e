/** Sides of `millrace bench fetch`: each reads the same topic into tables of tumbling windows. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { chooseNative, loadKernels } from '../../src/addon/load.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import { invariant } from '../../src/core/errors.ts';
import { AdmittedBatch } from '../../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { CLOCK_AT, createClock, createProgress } from '../../src/core/layout/window-clock.ts';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { type BrokerDriver, OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';
import { consumerProperties } from '../../src/io/kafka/properties.ts';
import { compilePeer } from '../compile.ts';
import type { World } from '../effects/world.ts';
import { type BenchResult, result, type Series, seriesOf, takeTurns } from '../harness.ts';
import { EngineRuns } from './engine-run.ts';
import { type EventsTopic, EventsTopics, PARTITIONS, SIZE_MS } from './events-topic.ts';
import { type Digest, digestOf } from './state-digest.ts';

const EVENTS = 9_000_000;
const EVENTS_SMOKE = 180_000;
const EVENT_TIME_MS = 120_000;
const ACCOUNTS = 1_000_000;
const ACCOUNTS_SMOKE = 20_000;
const ZIPF = 1.1;
/** Batch of a driver: small enough that the accumulating thread finds the bytes in a cache shared
 *  with the filling thread. */
const BATCH_ROWS = 4096;
const BATCH_BYTES = 1024 ** 2;
const WAIT_MS = 100;
/** Fetch limits of both clients by default. */
const PARTITION_BYTES = 1_048_576;
const RESPONSE_BYTES = 52_428_800;
/** So large a lateness that no window becomes due while the topic is read. */
const LATENESS_MS = 3_600_000;
const TUMBLING = ['-window=tumbling', '-size=1m'] as const;

const RATE_GOAL = 0.7;
/** Allows 1.4 times the CPU time. */
const CPU_GOAL = 0.7143;
const CEILING_GOAL = 1.5;

const RATE = { unit: 'events/s', better: 'more', list: true } as const;
const CPU = { unit: 'us CPU/event', better: 'less', list: true } as const;

interface Read {
  readonly perSecond: number;
  /** CPU time of all threads per event, in µs. */
  readonly cpuUs: number;
}

interface BareRun extends Digest {
  readonly events: number;
  readonly seconds: number;
  readonly cpu_seconds: number;
}

const run = promisify(execFile);
const perSecond = (reads: readonly Read[]): Series => seriesOf(reads.map((one) => one.perSecond));
const cpuUs = (reads: readonly Read[]): Series => seriesOf(reads.map((one) => one.cpuUs));

/** Rows of one comparison: CPU, then rate. */
function compared(
  what: string,
  ours: readonly Read[],
  against: { readonly name: string; readonly reads: readonly Read[] },
  goals: { readonly cpu?: number; readonly rate?: number } = {},
): readonly BenchResult[] {
  const { name, reads } = against;
  const goal = (least: number | undefined) => (least === undefined ? {} : { goal: { ratioAtLeast: least } });
  return [
    result({
      ...CPU,
      metric: `${what}: CPU`,
      ours: cpuUs(ours),
      against: { name, series: cpuUs(reads) },
      ...goal(goals.cpu),
    }),
    result({
      ...RATE,
      metric: `${what}: rate`,
      ours: perSecond(ours),
      against: { name, series: perSecond(reads) },
      ...goal(goals.rate),
    }),
  ];
}

export class Readers {
  private readonly world: World;
  private readonly topics: EventsTopics;
  private readonly runs: EngineRuns;
  private expected: Digest | undefined;

  constructor(world: World) {
    this.world = world;
    this.topics = new EventsTopics(world);
    this.runs = new EngineRuns(world);
  }

  /** Both drivers beside the bare loops. */
  async client(): Promise<readonly BenchResult[]> {
    const { context } = this.world;
    const topic = await this.topic();
    const slots = await this.slots(topic);
    const fetchLoop = await this.fetchLoop(topic, slots);
    const rdkafkaLoop = await this.rdkafkaLoop(topic, slots);
    const reads = { fetch: [] as Read[], rdkafka: [] as Read[], direct: [] as Read[], driver: [] as Read[] };
    const driven = (driver: BrokerDriver) => (): Promise<Read> => this.drain(driver, topic);
    context.say('reading by the bare loops and by the drivers');
    await takeTurns(
      {
        fetch: async () => reads.fetch.push(await fetchLoop()),
        direct: async () => reads.direct.push(await driven(directDriver)()),
        rdkafka: async () => reads.rdkafka.push(await rdkafkaLoop()),
        driver: async () => reads.driver.push(await driven(librdkafkaDriver)()),
      },
      context.repeats,
    );
    context.say(`results of every side: ${JSON.stringify(this.expected)}`);
    const events = `${topic.events} events of 256 B, lz4`;
    const bareFetch = { name: 'bare C++ fetch loop', reads: reads.fetch };
    return [
      ...compared(`direct client, ${events}`, reads.direct, bareFetch, { cpu: CPU_GOAL, rate: RATE_GOAL }),
      ...compared(`librdkafka driver, ${events}`, reads.driver, {
        name: 'bare C++ librdkafka loop',
        reads: reads.rdkafka,
      }),
      ...compared(`direct client beside librdkafka, ${events}`, reads.direct, {
        name: 'librdkafka driver',
        reads: reads.driver,
      }),
    ];
  }

  /** The engine over both drivers, and beside the bare fetch loop. */
  async engine(): Promise<readonly BenchResult[]> {
    const { context } = this.world;
    const topic = await this.topic();
    const fetchLoop = await this.fetchLoop(topic, await this.slots(topic));
    const reads = { fetch: [] as Read[], direct: [] as Read[], librdkafka: [] as Read[] };
    const drain = (client: 'direct' | 'librdkafka') => async (): Promise<number> => {
      const flags = [...TUMBLING, `-broker-client=${client}`];
      const one = await this.runs.drain(topic, { flags, digest: reads[client].length === 0 });
      if (one.digest !== undefined) this.demandSame(one.digest);
      return reads[client].push(one);
    };
    context.say('draining with the engine over both clients');
    await takeTurns(
      {
        fetch: async () => reads.fetch.push(await fetchLoop()),
        direct: drain('direct'),
        librdkafka: drain('librdkafka'),
      },
      context.repeats,
    );
    const what = `engine with -broker-client=direct, ${topic.events} events of 256 B, lz4`;
    const other = { name: 'engine with -broker-client=librdkafka', reads: reads.librdkafka };
    const bare = { name: 'bare C++ fetch loop', reads: reads.fetch };
    return [
      ...compared(what, reads.direct, other, { rate: CEILING_GOAL }),
      ...compared(`${what}, beside the bare loop`, reads.direct, bare),
    ];
  }

  /** Two minutes of event time. */
  private topic(): Promise<EventsTopic> {
    const { smoke, rows } = this.world.context;
    const events = rows ?? (smoke ? EVENTS_SMOKE : EVENTS);
    const perMs = Math.max(1, Math.round(events / EVENT_TIME_MS));
    return this.topics.of({ events, accounts: smoke ? ACCOUNTS_SMOKE : ACCOUNTS, zipf: ZIPF, perMs });
  }

  private demandSame(digest: Digest): void {
    const { rows, count, sum } = digest;
    this.expected ??= { rows, count, sum };
    const [found, wanted] = [JSON.stringify({ rows, count, sum }), JSON.stringify(this.expected)];
    invariant(found === wanted, `all sides must have the same results: ${found}, not ${wanted}`);
  }

  /** Slots of the tables of the bare loops: the least that keep a table half empty, because a
   *  larger table would miss the caches more often. The rows are those of at least two windows. */
  private async slots(topic: EventsTopic): Promise<number> {
    if (this.expected === undefined) {
      const most = 2 ** Math.ceil(Math.log2(Math.min(topic.accounts, topic.events) * 2));
      await (await this.fetchLoop(topic, most))();
    }
    return 2 ** Math.ceil(Math.log2(Number(this.expected?.rows)));
  }

  private bare(binary: string, args: readonly string[]): () => Promise<Read> {
    return async () => {
      const one = JSON.parse((await run(binary, args)).stdout) as BareRun;
      this.demandSame(one);
      return { perSecond: one.events / one.seconds, cpuUs: (one.cpu_seconds / one.events) * 1e6 };
    };
  }

  private async fetchLoop(topic: EventsTopic, slots: number): Promise<() => Promise<Read>> {
    const bootstrap = this.world.brokers.split(',')[0] as string;
    const limits = [PARTITION_BYTES, RESPONSE_BYTES].map(String);
    const numbers = [topic.events, SIZE_MS, slots].map(String);
    return this.bare(await compilePeer('raw-fetch'), [topic.name, ...numbers, bootstrap, ...limits]);
  }

  private async rdkafkaLoop(topic: EventsTopic, slots: number): Promise<() => Promise<Read>> {
    const properties = consumerProperties({ brokers: this.world.brokers, clientId: 'bench' });
    const pairs = Object.entries(properties).map(([name, value]) => `${name}=${value}`);
    const numbers = [PARTITIONS, topic.events, SIZE_MS, slots].map(String);
    return this.bare(await compilePeer('raw-engine'), [topic.name, ...numbers, ...pairs]);
  }

  /** Reads the topic by a driver; the next batch is read while this one is accumulated. Measures
   *  from a third of the events on, as the bare loops do. */
  private async drain(driver: BrokerDriver, topic: EventsTopic): Promise<Read> {
    const { mode } = chooseNative(this.world.context.settings.native);
    const [kernels, windows] = [loadKernels(mode), loadWindowKernels(mode)];
    const consumer = await driver.consumer({ brokers: this.world.brokers, clientId: 'bench' });
    const batches = [0, 1].map(() => RecordBatch.create(BATCH_ROWS, BATCH_BYTES));
    const [events, admitted] = [EventBatch.create(BATCH_ROWS), AdmittedBatch.create(BATCH_ROWS)];
    const times = { sizeMs: SIZE_MS, slideMs: SIZE_MS, skewMs: 0, latenessMs: LATENESS_MS };
    const clock = createClock({ mode: 'partition', ...times });
    const progress = createProgress(PARTITIONS);
    const state = windows.open(SIZE_MS, 1);
    const accumulate = (records: RecordBatch): void => {
      kernels.decodeEvents(records, events);
      for (let from = 0; from < events.rowCount; ) {
        from += windows.admit(clock, progress, records, events, from, admitted);
        state.accumulate(events, admitted);
        clock[CLOCK_AT.NEXT_END] = Number.POSITIVE_INFINITY;
      }
    };
    try {
      const all = Array.from({ length: PARTITIONS }, (_, partition) => partition);
      await consumer.assign(
        all.map((partition) => ({ topic: topic.name, partition, offset: OFFSET_BEGINNING })),
      );
      let got = 0;
      let first: { readonly at: number; readonly cpu: NodeJS.CpuUsage; readonly got: number } | undefined;
      const fill = (turn: number) => consumer.consume(batches[turn % 2] as RecordBatch, WAIT_MS);
      let filling = fill(0);
      for (let turn = 0; got < topic.events; turn++) {
        const { rowCount, events: problems } = await filling;
        invariant(problems.length === 0, `records without errors: ${JSON.stringify(problems)}`);
        this.world.context.drain.throwIfAborted();
        got += rowCount;
        if (got < topic.events) filling = fill(turn + 1);
        accumulate(batches[turn % 2] as RecordBatch);
        if (first === undefined && got >= topic.events / 3)
          first = { at: performance.now(), cpu: process.cpuUsage(), got };
      }
      invariant(first !== undefined, 'a read has a first third');
      const [ms, cpu] = [performance.now() - first.at, process.cpuUsage(first.cpu)];
      this.demandSame(await digestOf(state, 0));
      const measured = got - first.got;
      return { perSecond: (measured / ms) * 1000, cpuUs: (cpu.user + cpu.system) / measured };
    } finally {
      state.close();
      await consumer.close();
    }
  }
}
