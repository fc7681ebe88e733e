/** Simulated environment of engines with -source=group: a broker, folders, a sink and processes,
 *  all under one virtual clock.
 *
 *  A process interacts with the environment only through its timers and the replies to its calls. A
 *  suspended or killed process receives neither, while the broker, the disk and the sink
 *  continue. */
import { rowText } from '../../bench/peers/oracle/difference.ts';
import { referenceKernels } from '../../src/addon/reference/kernels.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import { type Cancel, sleep, type Timers } from '../../src/core/clock.ts';
import { coreError } from '../../src/core/errors.ts';
import { EVENT } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import type { CheckpointStep } from '../../src/engine/durability/checkpoint/steps.ts';
import { type Job, stateOf, watermarksOf } from '../../src/engine/job.ts';
import { engineMetrics } from '../../src/engine/metrics.ts';
import type { WindowSink } from '../../src/engine/output/sink/port.ts';
import { Engine } from '../../src/engine/run.ts';
import { BrokerSource } from '../../src/engine/source/events.ts';
import { GroupLease } from '../../src/engine/source/group.ts';
import { binary256Input } from '../../src/engine/source/input/binary256.ts';
import { LeasedSource } from '../../src/engine/source/leased.ts';
import { Stages } from '../../src/engine/stages.ts';
import type { FiredPage } from '../../src/engine/window/firing.ts';
import type { BatchConsumer, BatchProducer, Rebalance } from '../../src/io/kafka/port.ts';
import { simBrokerDriver } from '../../src/sim/broker.ts';
import { SeededRandom, VirtualClock } from '../../src/sim/clock.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { rowsOfPage } from '../windows/fired-rows.ts';
import type { TestEvent } from './engine-kit.ts';

const KERNELS = loadWindowKernels('reference');
export const PARTITIONS = 3;
const BROKERS = 'simulated:9092';
const TOPIC = 'events';
const GROUP = 'engines';
/** A member that is silent for this long loses its partitions. */
export const SESSION_MS = 10_000;
/** Interval at which a standby tries the lock of its folder. */
const LOCK_POLL_MS = 500;
/** Time limit for a member that ends to commit its last offsets. */
const LAST_COMMIT_MS = 12_000;
const EVENT_BYTES = 256;

const never = new Promise<never>(() => {});

/** Simulated operating-system process, with the clock and timers that its code sees. */
export class Process implements Timers {
  isDead = false;
  private readonly clock: VirtualClock;
  private resumesMs = 0;

  constructor(clock: VirtualClock) {
    this.clock = clock;
  }

  wallNowMs(): number {
    return this.clock.wallNowMs();
  }
  monotonicMs(): number {
    return this.clock.monotonicMs();
  }
  after(ms: number, run: () => void): Cancel {
    let isOver = false;
    const cancel = this.clock.after(ms, () =>
      this.enter(() => {
        if (!isOver) run();
      }),
    );
    return () => {
      isOver = true;
      cancel();
    };
  }
  every(ms: number, run: () => void): Cancel {
    return this.clock.every(ms, () => this.enter(run));
  }

  /** Suspends the process for `ms`, as SIGSTOP or a lack of CPU time does. */
  stall(ms: number): void {
    this.resumesMs = Math.max(this.resumesMs, this.clock.monotonicMs() + ms);
  }

  /** Delivers the result of outside work to the process once it runs. */
  async receive<T>(work: Promise<T>): Promise<T> {
    await work.catch(() => {});
    await new Promise<void>((resolve) => this.enter(resolve));
    return work;
  }

  private enter(run: () => void): void {
    if (this.isDead) return;
    const leftMs = this.resumesMs - this.clock.monotonicMs();
    if (leftMs > 0) this.clock.after(leftMs, () => this.enter(run));
    else run();
  }
}

type Call = <R>(work: () => Promise<R>) => Promise<R>;

/** Wraps an object so that each of its methods runs through `call`; wraps files that it returns,
 *  too. */
function through<T extends object>(target: T, call: Call): T {
  return new Proxy(target, {
    get(of, name) {
      const found: unknown = Reflect.get(of, name, of);
      if (typeof found !== 'function') return found;
      return async (...args: readonly unknown[]): Promise<unknown> => {
        const answer: unknown = await call(async () => found.apply(of, args) as unknown);
        const isFile = typeof answer === 'object' && answer !== null && 'sync' in answer;
        return isFile ? through(answer, call) : answer;
      };
    },
  });
}

/** Current delays and faults of the calls of all processes. */
export interface Faults {
  /** Upper limit of the duration of a change of a folder, ms. */
  diskMs: number;
  /** Upper limit of the duration of a write to the sink, in each direction, ms. */
  sinkMs: number;
  /** Probabilities that a write does not reach the sink, and that its reply is lost. */
  lostWrite: number;
  lostReply: number;
}
const CALM: Faults = { diskMs: 0, sinkMs: 0, lostWrite: 0, lostReply: 0 };

/** Environment that outlives the processes. */
export class World {
  readonly clock = new VirtualClock();
  readonly random: SeededRandom;
  readonly job: Job;
  faults = CALM;
  /** Rows of the sink, by window. */
  readonly results = new Map<string, string>();
  /** Windows that were rewritten with other values. */
  readonly changed: string[] = [];
  /** Errors of processes that ended unexpectedly. */
  readonly failures: unknown[] = [];
  readonly rebalances = { assigned: 0, revoked: 0, lost: 0 };
  readonly appended: TestEvent[] = [];
  readonly seen = { lostWrites: 0, lostReplies: 0, lostCommits: 0, deaths: 0 };
  private readonly driver;
  private producer: BatchProducer | undefined;

  constructor(job: Job, seed: number, lostCommit = 0.3) {
    this.job = job;
    this.random = new SeededRandom(seed);
    const faults = { lostCommit, shortRead: 0.02 };
    this.driver = simBrokerDriver({ brokers: BROKERS, seed, clock: this.clock, faults });
  }

  async open(): Promise<void> {
    const admin = await this.driver.admin({ brokers: BROKERS, clientId: 'test' });
    await admin.createTopics([{ topic: TOPIC, partitions: PARTITIONS }]);
    this.producer = await this.driver.producer({ brokers: BROKERS, clientId: 'test' });
  }

  calm(): void {
    this.faults = CALM;
  }

  /** Next offset of each partition of the topic. */
  get ends(): readonly number[] {
    return Array.from(
      { length: PARTITIONS },
      (_, at) => this.appended.filter(({ partition }) => partition === at).length,
    );
  }

  draw(below: number): number {
    return Math.floor(this.random.fraction() * Math.max(1, below));
  }

  async append(events: readonly TestEvent[]): Promise<void> {
    if (events.length === 0) return;
    const batch = RecordBatch.create(events.length, events.length * EVENT_BYTES);
    for (const { partition, accountId, value, eventTs, broken } of events) {
      const bytes = Buffer.alloc(broken === true ? EVENT_BYTES - 1 : EVENT_BYTES);
      bytes.writeBigUInt64LE(accountId, EVENT.ACCOUNT_ID);
      bytes.writeBigInt64LE(value, EVENT.VALUE);
      bytes.writeBigInt64LE(eventTs, EVENT.EVENT_TS);
      batch.append({ partition, value: bytes });
    }
    this.appended.push(...events);
    await (this.producer as BatchProducer).produce(batch, [TOPIC]);
  }

  /** Committed offset of each partition. */
  async committed(): Promise<readonly number[]> {
    const tool = await this.driver.consumer({ brokers: BROKERS, clientId: 'tool', group: GROUP });
    const places = Array.from({ length: PARTITIONS }, (_, partition) => ({ topic: TOPIC, partition }));
    const found = await tool.committed(places);
    await tool.close();
    return found.map(({ offset }) => Math.max(0, Number(offset)));
  }

  /** Adds a foreign member to the group: it owns its share for `ms` and leaves. */
  async joinForeignMember(ms: number): Promise<void> {
    const consumer = await this.driver.consumer({ brokers: BROKERS, clientId: 'intruder', group: GROUP });
    await consumer.subscribe([TOPIC]);
    const batch = RecordBatch.create(16, 65_536);
    const endMs = this.clock.monotonicMs() + ms;
    while (this.clock.monotonicMs() < endMs) await consumer.consume(batch, 100);
    await consumer.close();
  }

  /** Creates the clients of one process. */
  reader(process: Process): Promise<BatchConsumer> {
    return this.client(process, { clientId: 'engine', partitionEof: true });
  }
  member(process: Process, onRebalance: (rebalance: Rebalance) => void): Promise<BatchConsumer> {
    return this.client(process, {
      clientId: 'lease',
      group: GROUP,
      autoOffsetReset: 'latest' as const,
      properties: { 'session.timeout.ms': SESSION_MS },
      onRebalance: async (rebalance: Rebalance) => {
        await process.receive(Promise.resolve());
        this.rebalances[rebalance.kind]++;
        onRebalance(rebalance);
      },
    });
  }

  disk(process: Process, disk: SimDisk) {
    return through(disk.view(), async (work) => {
      await this.passing(this.faults.diskMs);
      return process.receive(work());
    });
  }

  sink(process: Process): WindowSink {
    const write = async (pages: readonly FiredPage[]): Promise<void> => {
      // A write in transit to the sink has its own copy of the rows.
      const rows = pages.flatMap(rowsOfPage);
      await this.passing(this.faults.sinkMs);
      const away = coreError('unreachable', 'the sink did not answer');
      if (this.strikes('lostWrite', 'lostWrites')) throw away;
      for (const row of rows) {
        const key = `${row.accountId},${row.windowStart},${row.windowEnd}`;
        const [before, now] = [this.results.get(key), rowText(row)];
        if (before !== undefined && before !== now) this.changed.push(`${before} became ${now}`);
        this.results.set(key, now);
      }
      await this.passing(this.faults.sinkMs);
      if (this.strikes('lostReply', 'lostReplies')) throw away;
    };
    return {
      name: 'simulated',
      writeRowsMax: 50,
      migrate: async () => {},
      check: async () => {},
      write: (pages) => process.receive(write(pages)),
      async *read() {},
    };
  }

  private async client(
    process: Process,
    options: Omit<Parameters<typeof this.driver.consumer>[0], 'brokers'>,
  ) {
    const consumer = await this.driver.consumer({ brokers: BROKERS, ...options });
    return through(consumer, (work) =>
      process.receive(
        work().catch((thrown: { code?: string }) => {
          if (thrown.code === 'broker_unavailable') this.seen.lostCommits++;
          throw thrown;
        }),
      ),
    );
  }

  private strikes(chance: 'lostWrite' | 'lostReply', count: 'lostWrites' | 'lostReplies'): boolean {
    if (this.faults[chance] === 0 || this.random.fraction() >= this.faults[chance]) return false;
    this.seen[count]++;
    return true;
  }

  private async passing(mostMs: number): Promise<void> {
    if (mostMs > 0) await sleep(this.clock, this.draw(mostMs));
  }
}

/** State folder, and the process that holds its lock. */
export interface Folder {
  readonly disk: SimDisk;
  holder: Process | undefined;
}
export const newFolder = (): Folder => ({ disk: new SimDisk(), holder: undefined });

export interface MemberOptions {
  readonly idleTimeoutMs?: number;
  readonly checkpointIntervalMs?: number;
  /** Called at each checkpoint step of this process. */
  readonly onStep?: (step: CheckpointStep) => void;
  /** Called with the info messages of the engine. */
  readonly onInfo?: (message: string, fields: object) => void;
}

/** `millrace engine -source=group` as one process, from its start to its end or death. */
export class Member {
  readonly process: Process;
  engine: Engine | undefined;
  lease: GroupLease | undefined;
  private readonly world: World;
  private readonly folder: Folder;
  private readonly options: MemberOptions;
  private readonly drain = new AbortController();
  private readonly ended: Promise<void>;

  constructor(world: World, folder: Folder, options: MemberOptions = {}) {
    this.world = world;
    this.folder = folder;
    this.options = options;
    this.process = new Process(world.clock);
    this.ended = this.run().catch((thrown: unknown) => {
      // A drain while the sink is unavailable ends with this error.
      if (!this.drain.signal.aborted || (thrown as { code?: string }).code !== 'sink_failed')
        world.failures.push(thrown);
    });
  }

  /** True if the process reads: its state is restored and it owns all partitions. */
  get isReading(): boolean {
    return !this.process.isDead && this.engine?.restored === true && this.lease?.isWhole === true;
  }
  get consumed(): number {
    if (this.engine?.restored !== true) return 0;
    return this.engine.progress().reduce((sum, { consumed }) => sum + consumed, 0);
  }

  /** SIGKILL, and the loss of data that the folder has not synced. */
  kill(): void {
    if (this.process.isDead) return;
    this.world.seen.deaths++;
    this.process.isDead = true;
    if (this.folder.holder !== this.process) return;
    this.folder.disk.crash((below) => this.world.draw(below));
    this.folder.holder = undefined;
  }

  /** SIGTERM. */
  async stop(): Promise<void> {
    this.drain.abort();
    await this.ended;
  }

  private async run(): Promise<void> {
    const { folder, process, world } = this;
    while (folder.holder !== undefined) {
      if (this.drain.signal.aborted) return;
      await sleep(process, LOCK_POLL_MS);
    }
    folder.holder = process;
    const stages = new Stages(process);
    const consumer = await world.reader(process);
    const source = new BrokerSource({
      ...{ consumer, stages, clock: process, input: binary256Input(referenceKernels), topic: TOPIC },
      ...{ partitionCount: PARTITIONS, rowCapacity: 32, arenaBytes: 32 * EVENT_BYTES, onEvent: () => {} },
      findTopic: async () => ({ partitions: PARTITIONS, id: undefined }),
    });
    const pause = (ms: number): Promise<void> => sleep(process, ms);
    const lease = new GroupLease({
      ...{ topic: TOPIC, partitionCount: () => source.partitionCount, clock: process, log: silentLogger },
      ...{ sleep: pause, random: () => world.random.fraction() },
      join: (onRebalance) => world.member(process, onRebalance),
    });
    this.lease = lease;
    this.engine = this.engineOver(new LeasedSource(source, lease, pause), stages);
    try {
      await this.engine.restore();
      lease.start();
      await this.engine.run(this.drain.signal);
    } finally {
      await lease.close(LAST_COMMIT_MS);
      await source.stop();
      await consumer.close();
      folder.holder = undefined;
    }
  }

  private engineOver(source: LeasedSource, stages: Stages): Engine {
    const { folder, options, process, world } = this;
    const { job } = world;
    return new Engine({
      ...{ job, source, stages, clusterId: 'simulated', clock: process, sinks: [world.sink(process)] },
      fired: {
        find: async () => ({ rows: [], next: undefined }),
        range: async () => ({ rows: [], next: undefined }),
        top: async () => [],
      },
      watermarks: watermarksOf(job, KERNELS, PARTITIONS),
      openState: () => stateOf(job, KERNELS, 2),
      disk: world.disk(process, folder.disk),
      checkpointSizes: { segmentBytes: 4000, stepBytes: 50_000, baseFactor: 0.5, baseBytesMin: 0 },
      idleTimeoutMs: options.idleTimeoutMs ?? 0,
      checkpointIntervalMs: options.checkpointIntervalMs ?? 1_000,
      ...{ partitionIntervalMs: 0, rowCapacity: 32, stop: 'never' },
      sleep: (ms) => sleep(process, ms),
      onStep: (step) => {
        options.onStep?.(step);
        return process.isDead ? never : undefined;
      },
      log: {
        ...silentLogger,
        info: (fields, message) => options.onInfo?.(message, fields),
        child: () => silentLogger,
      },
      metrics: engineMetrics(new Metrics()),
    });
  }
}
