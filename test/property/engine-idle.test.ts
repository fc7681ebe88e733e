/** Idle partitions on a simulated broker: neither an outage, a suspended process, a window that
 *  waits for another nor the limit of a catch-up makes a partition idle, so no event is late after
 *  it. */
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { referenceKernels } from '../../src/addon/reference/kernels.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import { sleep } from '../../src/core/clock.ts';
import { EVENT } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../src/core/log.ts';
import { type Job, stateOf, watermarksOf } from '../../src/engine/job.ts';
import type { EngineParts } from '../../src/engine/parts.ts';
import type { Engine } from '../../src/engine/run.ts';
import { BrokerSource, type BrokerSourceParts, type EventRows } from '../../src/engine/source/events.ts';
import { binary256Input } from '../../src/engine/source/input/binary256.ts';
import { SharedReader } from '../../src/engine/source/shared/reader.ts';
import { simDriverOf } from '../../src/sim/broker.ts';
import { SimCluster } from '../../src/sim/broker-cluster.ts';
import { SimLink } from '../../src/sim/broker-link.ts';
import { VirtualClock } from '../../src/sim/clock.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import {
  engineIn,
  feedOracle,
  MemorySink,
  MemorySource,
  oracleRows,
  rulesOf,
  type TestEvent,
} from './engine-kit.ts';
import { Process } from './members-kit.ts';

const KERNELS = loadWindowKernels('reference');
const BROKERS = 'simulated:9092';
const TOPIC = 'events';
const PARTITIONS = 2;
const BATCH_ROWS = 32;
const EVENT_BYTES = 256;
const IDLE_MS = 10_000;

const JOB: Job = {
  ...{ topic: TOPIC, skewMs: 4, latenessMs: 6, watermark: 'partition' },
  ...{ window: 'tumbling', sizeMs: 20 },
};

/** Events of one partition in event-time order, each `stepMs` after the one before. */
const eventsOf = (partition: number, count: number, fromMs: number, stepMs = 2): TestEvent[] =>
  Array.from({ length: count }, (_, at) => ({
    ...{ partition, accountId: BigInt(at % 7), value: BigInt(at) },
    eventTs: BigInt(fromMs + at * stepMs),
  }));

/** Source whose reads take time. */
class SlowSource extends BrokerSource {
  readMs = 0;
  private readonly process: Process;

  constructor(parts: BrokerSourceParts, process: Process) {
    super(parts);
    this.process = process;
  }

  override async next(waitMs: number): Promise<EventRows | undefined> {
    if (this.readMs > 0) await sleep(this.process, this.readMs);
    return super.next(waitMs);
  }
}

/** Broker, its producer and the network link of the engines, all under one virtual clock. */
class World {
  readonly clock = new VirtualClock();
  readonly appended: TestEvent[] = [];
  private readonly cluster = new SimCluster({ brokers: BROKERS, seed: 1, clock: this.clock });
  private readonly driver = simDriverOf(this.cluster);
  private readonly producer = this.driver.producer({ brokers: BROKERS, clientId: 'test' });

  async open(): Promise<void> {
    const admin = await this.driver.admin({ brokers: BROKERS, clientId: 'test' });
    await admin.createTopics([{ topic: TOPIC, partitions: PARTITIONS }]);
  }

  async append(events: readonly TestEvent[]): Promise<void> {
    const batch = RecordBatch.create(events.length, events.length * EVENT_BYTES);
    for (const { partition, accountId, value, eventTs } of events) {
      const bytes = Buffer.alloc(EVENT_BYTES);
      bytes.writeBigUInt64LE(accountId, EVENT.ACCOUNT_ID);
      bytes.writeBigInt64LE(value, EVENT.VALUE);
      bytes.writeBigInt64LE(eventTs, EVENT.EVENT_TS);
      batch.append({ partition, value: bytes });
    }
    this.appended.push(...events);
    await (await this.producer).produce(batch, [TOPIC]);
  }

  /** Opens the source of a new process. */
  async source() {
    const process = new Process(this.clock);
    const link = new SimLink(this.cluster, { clock: process, latencyMs: 2 });
    const client = simDriverOf(this.cluster, link);
    const consumer = await client.consumer({ brokers: BROKERS, clientId: 'engine', partitionEof: true });
    const parts = {
      ...{ consumer, clock: process, topic: TOPIC, partitionCount: PARTITIONS, onEvent: () => {} },
      ...{ input: binary256Input(referenceKernels), stages: { recordsReady: () => {}, enter: () => {} } },
      ...{ rowCapacity: BATCH_ROWS, arenaBytes: BATCH_ROWS * EVENT_BYTES },
      findTopic: async () => ({ partitions: PARTITIONS, id: undefined }),
    };
    return { process, link, source: new SlowSource(parts, process) };
  }
}

/** One window: its job, and what its engines keep. */
class Window {
  readonly job: Job;
  readonly disk = new SimDisk();
  readonly sink = new MemorySink();
  /** Number of times that a partition became idle. */
  idleCount = 0;
  engine: Engine | undefined;

  constructor(job: Job = JOB) {
    this.job = job;
  }

  get consumed(): number {
    return this.engine?.progress().reduce((sum, { consumed }) => sum + consumed, 0) ?? 0;
  }
  get droppedAfterIdle(): readonly number[] | undefined {
    return this.engine?.progress().map(({ droppedAfterIdle }) => droppedAfterIdle);
  }

  engineOver(process: Process, over: Partial<EngineParts>): Engine {
    const { job, disk, sink } = this;
    const setup = { job, disk, sink, partitions: PARTITIONS, shards: 1, checkpointIntervalMs: 1_000 };
    this.engine = engineIn(
      { ...setup, source: new MemorySource([], PARTITIONS, 1) },
      {
        openState: (own) => stateOf(own, KERNELS, 1),
        ...{ clock: process, sleep: (ms) => sleep(process, ms), idleTimeoutMs: IDLE_MS, stop: 'never' },
        log: {
          ...silentLogger,
          info: (_fields, message) => {
            if (message.startsWith('partition is idle')) this.idleCount++;
          },
        },
        ...over,
      },
    );
    return this.engine;
  }

  /** Compares the results and the drops with those of the oracle. */
  expectOracle(appended: readonly TestEvent[]): void {
    const oracle = new Oracle(rulesOf(this.job), PARTITIONS);
    feedOracle(oracle, appended);
    expect(this.sink.sorted()).toEqual(oracleRows(oracle, true).sort());
    expect(this.sink.changed).toBe(0);
    expect(this.engine?.progress().map(({ droppedLate }) => BigInt(droppedLate))).toEqual(oracle.droppedLate);
  }
}

/** Starts one process with several windows over one reader. */
async function start(
  world: World,
  windows: readonly Window[],
  over: (window: Window) => Partial<EngineParts> = () => ({}),
) {
  const { clock } = world;
  const { process, link, source } = await clock.run(world.source());
  const drain = new AbortController();
  const reader = new SharedReader({ source, drain: drain.signal, clock: process });
  const engines = windows.map((window, at) => {
    const watermarks = watermarksOf(window.job, KERNELS, PARTITIONS);
    const shared = reader.add({ name: `w${at}`, watermarks });
    const engine = window.engineOver(process, { source: shared, watermarks, ...over(window) });
    return { engine, stop: () => shared.stop() };
  });
  for (const { engine } of engines) await clock.run(engine.restore());
  const ended = engines.map(({ engine, stop }) => engine.run(drain.signal).finally(stop));
  const stop = async (): Promise<void> => {
    drain.abort();
    await clock.run(Promise.all(ended));
    await clock.run(source.stop());
  };
  return { process, link, source, stop };
}

async function newWorld(events: readonly TestEvent[]): Promise<World> {
  const world = new World();
  await world.clock.run(world.open());
  await world.clock.run(world.append(events));
  return world;
}

/** Backlogs of both partitions with the same event times. Each is longer than a batch, so one of
 *  them begins when events of the other have moved its watermark. */
const backlogs = (fromMs: number): readonly TestEvent[] => [
  ...eventsOf(0, 4 * BATCH_ROWS, fromMs),
  ...eventsOf(1, 4 * BATCH_ROWS, fromMs),
];

describe('a partition that is not read', () => {
  it.each(['an outage of the broker', 'a suspension of the process'] as const)(
    'the backlogs after %s are in time, however long it lasted',
    async (what) => {
      const world = await newWorld([...eventsOf(0, 10, 0), ...eventsOf(1, 10, 0)]);
      const { clock } = world;
      const window = new Window();
      const { process, link, stop } = await start(world, [window]);
      await clock.until('the first events', () => window.consumed === world.appended.length);
      await clock.advance(IDLE_MS / 2);
      if (what === 'an outage of the broker') link.cut();
      else process.stall(3 * IDLE_MS);
      await clock.run(world.append(backlogs(1_000)));
      await clock.advance(3 * IDLE_MS);
      link.mend();
      await clock.until('the backlogs', () => window.consumed === world.appended.length);
      expect([window.idleCount, window.droppedAfterIdle]).toEqual([0, [0, 0]]);
      await stop();
      window.expectOracle(world.appended);
    },
  );

  it('silent partitions become idle about one timeout after their last event', async () => {
    const world = await newWorld([...eventsOf(0, 10, 0), ...eventsOf(1, 10, 0)]);
    const { clock } = world;
    const window = new Window();
    const { stop } = await start(world, [window]);
    await clock.until('the first events', () => window.consumed === world.appended.length);
    await clock.advance(IDLE_MS - 1_000);
    expect(window.idleCount).toBe(0);
    await clock.advance(2_500);
    expect(window.idleCount).toBe(PARTITIONS);
    await stop();
  });
});

describe('several windows over one reader', () => {
  it.each([0, 1])(
    'a window that waits for another one, which partition %i blocks, does not find a partition idle',
    async (partition) => {
      const world = await newWorld([...eventsOf(0, 10, 0), ...eventsOf(1, 10, 0)]);
      const { clock } = world;
      const waiting = new Window({ ...JOB, latenessMs: 1_000 });
      const blocked = new Window({ ...JOB, skewMs: 0, latenessMs: 0 });
      let isBlocked = true;
      const sent: number[] = [];
      const { stop, process } = await start(world, [waiting, blocked], (window) =>
        window === waiting
          ? {}
          : {
              sideBytesMax: 0,
              late: {
                send: async (copies) => {
                  while (isBlocked) await sleep(process, 100);
                  sent.push(copies.length);
                },
              },
            },
      );
      await clock.until('the first events', () => blocked.consumed === world.appended.length);
      await clock.advance(IDLE_MS / 2);
      // Late for one window, which reads no further until the copy is sent. The backlog of either
      // partition may be read first, so each of them has the late event once.
      await clock.run(world.append(eventsOf(partition, 1, 0)));
      await clock.until('the late event', () => blocked.consumed === world.appended.length);
      await clock.run(world.append(backlogs(1_000)));
      await clock.advance(3 * IDLE_MS);
      expect(waiting.consumed).toBeLessThan(world.appended.length);
      isBlocked = false;
      await clock.until('the backlogs', () => blocked.consumed === world.appended.length);
      expect(sent).toEqual([1]);
      expect([waiting.idleCount, waiting.droppedAfterIdle]).toEqual([0, [0, 0]]);
      await stop();
      for (const window of [waiting, blocked]) window.expectOracle(world.appended);
    },
  );

  it('a partition that is longer than a catch-up reads it is not idle meanwhile', async () => {
    // The events of partition 0 are older than those of partition 1, and few.
    const world = await newWorld([...eventsOf(0, 40, 0), ...eventsOf(1, 28 * BATCH_ROWS, 0)]);
    const { clock } = world;
    const [ahead, behind] = [new Window(), new Window()];
    const first = await start(world, [ahead]);
    await clock.until('all events', () => ahead.consumed === world.appended.length);
    await first.stop();
    await clock.run(world.append(eventsOf(0, 10, 80)));
    const second = await start(world, [behind, ahead]);
    second.source.readMs = 1_000;
    await clock.until('all events', () => behind.consumed === world.appended.length);
    expect(clock.monotonicMs()).toBeGreaterThan(2 * IDLE_MS);
    expect([behind.idleCount, behind.droppedAfterIdle]).toEqual([0, [0, 0]]);
    await second.stop();
    for (const window of [ahead, behind]) window.expectOracle(world.appended);
  });
});
