/** Parts that drain a filled topic: the engine compared with a bare loop, sliding with tumbling
 *  windows, state on disk with state in memory, and memory with many open keys. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { command as engine } from '../../src/bin/engine.ts';
import { invariant } from '../../src/core/errors.ts';
import { consumerProperties } from '../../src/io/kafka/properties.ts';
import { compilePeer } from '../compile.ts';
import type { World } from '../effects/world.ts';
import { type BenchResult, result, type Series, seriesOf, takeTurns } from '../harness.ts';
import { type Drained, EngineRuns, metricIn, type ResultsDigest } from './engine-run.ts';
import { type EventsSpec, type EventsTopic, EventsTopics, PARTITIONS, SIZE_MS } from './events-topic.ts';

/** Most repeats of the parts with long runs. */
const LONG_REPEATS_MAX = 3;
/** So large a lateness that no window fires while the topic is read. */
const UNFIRED = '-allowed-lateness=1h';
const TUMBLING = ['-window=tumbling', '-size=1m'] as const;
const SLIDING = ['-window=sliding', '-size=5m', '-slide=1m'] as const;
const WINDOWS_A_SLICE = 5;
/** Windows that fire while the topic is read: after the first 45 s of WIDE, windows end about as
 *  fast as they begin. */
const FIRED = {
  sessions: { flags: ['-window=session', '-gap=30s'], title: 'sessions with a gap of 30s, fired' },
  sliding: { flags: ['-window=sliding', '-size=30s', '-slide=15s'], title: 'sliding 30s by 15s, fired' },
} as const;
/** Allows 1.2 times the CPU time. */
const SLIDING_RATIO = 0.8333;
const BUDGET_OF_STATE = 0.25;
/** Budget of a small run, in which most of a budget is not used by the state. */
const BUDGET_BYTES_SMOKE = 160 * 1024 ** 2;
const RSS_BUDGET_BYTES = 1024 ** 3;
const RSS_MAX_BYTES = 4 * 1024 ** 3;
const RESTORE_GOAL_S = 5;
/** Disk is the default as long as it needs less than 1.1 times the CPU time when memory would
 *  suffice. */
const DISK_FITS_RATIO = 0.909;
const DISK_FITS_REPEATS_MIN = 5;

/** Two minutes of event time. */
const ZIPF: EventsSpec = { events: 9_000_000, accounts: 1_000_000, zipf: 1.1, perMs: 75 };
/** Two minutes of event time. Half of the accounts occur, so the engine holds more than OPEN_KEYS.
 */
const WIDE: EventsSpec = { events: 14_000_000, accounts: 20_000_000, zipf: 0, perMs: 117 };
const OPEN_KEYS = 10_000_000;
const SMOKE_PART = 50;

const small = (spec: EventsSpec): EventsSpec => ({
  ...spec,
  events: spec.events / SMOKE_PART,
  accounts: spec.accounts / SMOKE_PART,
  perMs: spec.perMs / SMOKE_PART,
});

/** True if the engine can hold its state on disk. */
export function hasDiskState(): boolean {
  const choices: readonly string[] = engine.settings.state?.choices ?? [];
  return choices.includes('disk') && Object.hasOwn(engine.settings, 'mem-budget');
}
const IN_MEMORY = '-state=mem';
const onDisk = (bytes: number): readonly string[] => [
  ...['-state=disk', '-format=binary256', `-mem-budget=${Math.ceil(bytes)}`],
];

const mebibytes = (bytes: number): string => `${Math.round(bytes / 1024 ** 2)} MiB`;

const demandSameDigest = (ours: ResultsDigest | undefined, theirs: ResultsDigest | undefined): void =>
  invariant(
    ours === undefined || theirs === undefined || JSON.stringify(ours) === JSON.stringify(theirs),
    `both sides must have the same results: ${JSON.stringify(ours)}, not ${JSON.stringify(theirs)}`,
  );

const of = (runs: readonly Drained[], pick: (one: Drained) => number): Series => seriesOf(runs.map(pick));
const perSecond = (one: Drained): number => one.perSecond;
const cpuUs = (one: Drained): number => one.cpuUs;

const RATE = { unit: 'events/s', better: 'more', list: true } as const;
const CPU = { unit: 'us CPU/event', better: 'less', list: true } as const;

export interface BareRun extends ResultsDigest {
  readonly events: number;
  readonly seconds: number;
  readonly cpu_seconds: number;
}

/** Compiles the bare C++ loop: librdkafka into tables of fixed windows, without lateness, state or
 *  results. @returns a function that drains the topic once */
export async function openBareLoop(world: World, topic: EventsTopic): Promise<() => Promise<BareRun>> {
  const binary = await compilePeer('raw-engine');
  const { brokers, properties } = world;
  const client = consumerProperties({ brokers, clientId: 'bench', properties });
  const slots = 2 ** Math.ceil(Math.log2(topic.accounts * 2));
  const numbers = [PARTITIONS, topic.events, SIZE_MS, slots].map(String);
  const pairs = Object.entries(client).map(([name, value]) => `${name}=${value}`);
  return async () => {
    const { stdout } = await promisify(execFile)(binary, [topic.name, ...numbers, ...pairs]);
    return JSON.parse(stdout) as BareRun;
  };
}

export const BARE_LOOP = 'bare C++ loop, librdkafka to tables';

export class Drains {
  private readonly world: World;
  private readonly topics: EventsTopics;
  private readonly runs: EngineRuns;

  constructor(world: World) {
    this.world = world;
    this.topics = new EventsTopics(world);
    this.runs = new EngineRuns(world);
  }

  private spec(full: EventsSpec): EventsSpec {
    return this.world.context.smoke ? small(full) : full;
  }
  private get longRepeats(): number {
    return Math.min(this.world.context.repeats, LONG_REPEATS_MAX);
  }

  /** Maximum rate of the engine without a source, in events per second: one drain. */
  async ceiling(): Promise<number> {
    return (await this.runs.drain(await this.topics.of(this.spec(ZIPF)), { flags: TUMBLING })).perSecond;
  }

  async kafka(): Promise<readonly BenchResult[]> {
    const { world, runs } = this;
    const topic = await this.topics.of(this.spec(ZIPF));
    const bareLoop = await openBareLoop(world, topic);
    const bare: BareRun[] = [];
    const ours: Drained[] = [];
    let expected: ResultsDigest | undefined;
    world.context.say('draining with the engine and with a bare loop');
    await takeTurns(
      {
        bare: async () => {
          const one = await bareLoop();
          const { rows, count, sum } = one;
          demandSameDigest(expected, { rows, count, sum });
          expected = { rows, count, sum };
          return bare.push(one);
        },
        ours: async () => {
          const one = await runs.drain(topic, { flags: TUMBLING, digest: ours.length === 0 });
          demandSameDigest(one.digest, expected);
          return ours.push(one);
        },
      },
      world.context.repeats,
    );
    world.context.say(`results of every side: ${JSON.stringify(expected)}`);
    const name = BARE_LOOP;
    const events = `${topic.events} events of 256 B, lz4, from Kafka`;
    return [
      result({
        ...CPU,
        metric: `${events}: CPU`,
        ours: of(ours, cpuUs),
        against: { name, series: seriesOf(bare.map((one) => (one.cpu_seconds / one.events) * 1e6)) },
        goal: { ratioAtLeast: 0.8 },
      }),
      result({
        ...RATE,
        metric: `${events}: rate`,
        ours: of(ours, perSecond),
        against: { name, series: seriesOf(bare.map((one) => one.events / one.seconds)) },
        goal: { ratioAtLeast: 0.8 },
      }),
    ];
  }

  async sliding(): Promise<readonly BenchResult[]> {
    const { world, runs } = this;
    const topic = await this.topics.of(this.spec(ZIPF));
    const sides = { tumbling: TUMBLING, sliding: SLIDING } as const;
    const found = new Map<string, Drained[]>();
    const drain = (kind: keyof typeof sides, more: readonly string[]) => async (): Promise<number> => {
      const name = [kind, ...more].join(' ');
      const before = found.get(name) ?? [];
      const digest = before.length === 0 && more.length === 0;
      const one = await runs.drain(topic, { flags: [...sides[kind], ...more], digest });
      found.set(name, [...before, one]);
      const times = kind === 'sliding' ? WINDOWS_A_SLICE : 1;
      invariant(
        one.digest === undefined || one.digest.count === `${topic.events * times}`,
        `every event must be in ${times} windows`,
      );
      return one.cpuUs;
    };
    world.context.say('draining into sliding and into tumbling windows');
    await takeTurns(
      {
        tumbling: drain('tumbling', [UNFIRED]),
        sliding: drain('sliding', [UNFIRED]),
        tumblingFired: drain('tumbling', []),
        slidingFired: drain('sliding', []),
      },
      this.longRepeats,
    );
    const series = (kind: string, more: readonly string[]): Series =>
      of(found.get([kind, ...more].join(' ')) ?? [], cpuUs);
    const against = (more: readonly string[]) => ({
      name: 'tumbling 1m',
      series: series('tumbling', more),
    });
    return [
      result({
        ...CPU,
        metric: 'sliding 5m by 1m, firing apart: CPU',
        ours: series('sliding', [UNFIRED]),
        against: against([UNFIRED]),
        goal: { ratioAtLeast: SLIDING_RATIO },
      }),
      result({
        ...CPU,
        metric: 'sliding 5m by 1m, firing included: CPU',
        ours: series('sliding', []),
        against: against([]),
      }),
    ];
  }

  /** No results if the engine supports only state in memory. */
  disk(): Promise<readonly BenchResult[]> {
    return this.diskAgainstMemory([...TUMBLING, UNFIRED], undefined);
  }

  /** Compares state on disk, with a budget that holds all of it, with state in memory, while
   *  results fire: the cost of disk state where it is not needed. */
  async diskFits(): Promise<readonly BenchResult[]> {
    const { world, runs } = this;
    const topic = await this.topics.of(this.spec(ZIPF));
    const results: BenchResult[] = [];
    for (const [title, windows] of [
      ['tumbling 1m', TUMBLING],
      ['sessions with a gap of 30s', FIRED.sessions.flags],
    ] as const) {
      const found = { memory: [] as Drained[], disk: [] as Drained[] };
      const drain = (side: keyof typeof found, state: string) => async (): Promise<number> =>
        found[side].push(await runs.drain(topic, { flags: [...windows, `-state=${state}`] }));
      world.context.say(`draining into memory and into a budget that holds it: ${title}`);
      await takeTurns(
        { memory: drain('memory', 'mem'), disk: drain('disk', 'disk') },
        world.context.smoke ? 1 : Math.max(DISK_FITS_REPEATS_MIN, world.context.repeats),
      );
      const what = `${title}, disk state within its budget, ${topic.events} events`;
      results.push(...againstMemory(what, found));
    }
    return results;
  }

  /** The same while results fire. Measured until the last result is durable; otherwise a state that
   *  delays results would win. */
  diskFired(kind: keyof typeof FIRED): Promise<readonly BenchResult[]> {
    const { flags, title } = FIRED[kind];
    return this.diskAgainstMemory(flags, title);
  }

  private async diskAgainstMemory(
    flags: readonly string[],
    fired: string | undefined,
  ): Promise<readonly BenchResult[]> {
    const { world, runs } = this;
    const { smoke } = world.context;
    if (!hasDiskState()) return [];
    const topic = await this.topics.of(this.spec(WIDE));
    const memory: Drained[] = [];
    const disk: Drained[] = [];
    let bytes = 0;
    let left = 0;
    const budgetFor = (state: number): number => (smoke ? BUDGET_BYTES_SMOKE : state * BUDGET_OF_STATE);
    let expected: ResultsDigest | undefined;
    world.context.say(`draining into memory and onto disk${fired === undefined ? '' : `: ${fired}`}`);
    await takeTurns(
      {
        memory: async () => {
          const results = fired === undefined ? {} : ({ results: 'all' } as const);
          const digest = memory.length === 0;
          const inMemory = [...flags, IN_MEMORY];
          const one = await runs.drain(topic, { flags: inMemory, digest, gauges: digest, ...results });
          if (digest) {
            bytes = metricIn(one.end, 'engine_state_bytes');
            left = metricIn(one.end, 'engine_sink_rows_total');
          }
          expected ??= one.digest;
          return memory.push(one);
        },
        disk: async () => {
          const results = fired === undefined ? {} : { results: left };
          const digest = disk.length === 0;
          const more = onDisk(budgetFor(bytes));
          const one = await runs.drain(topic, { flags: [...flags, ...more], digest, ...results });
          demandSameDigest(one.digest, expected);
          return disk.push(one);
        },
      },
      this.longRepeats,
    );
    const budget = `disk state, a budget of ${mebibytes(budgetFor(bytes))} for ${mebibytes(bytes)}`;
    const what = fired === undefined ? budget : `${fired}, ${budget}`;
    const compared = (pick: (one: Drained) => number) => ({
      ours: of(disk, pick),
      against: { name: 'memory state', series: of(memory, pick) },
    });
    return [
      result({ ...RATE, metric: `${what}: rate`, ...compared(perSecond), goal: { ratioAtLeast: 0.5 } }),
      result({ ...CPU, metric: `${what}: CPU`, ...compared(cpuUs) }),
      result({
        metric: `${what}: spilled`,
        unit: 'bytes',
        better: 'less',
        ours: of(disk, ({ end }) => metricIn(end, 'engine_spill_bytes_total')),
      }),
    ];
  }

  /** Sliding windows over at least `OPEN_KEYS` accounts, in memory and, if supported, on disk: the
   *  peak size of the process, and the restore time after a kill. */
  async rss(): Promise<readonly BenchResult[]> {
    const { world, runs } = this;
    const topic = await this.topics.of(this.spec(WIDE));
    const keys = world.context.smoke ? OPEN_KEYS / SMOKE_PART : OPEN_KEYS;
    const drain = async (
      more: readonly string[],
    ): Promise<{ readonly peak: Series; readonly restore: Series }> => {
      const flags = [...SLIDING, UNFIRED, ...more];
      const one = await runs.drain(topic, { flags, gauges: true, restart: keys });
      const held = metricIn(one.end, 'engine_open_keys');
      world.context.say(`${held} accumulators of at least ${keys} accounts`);
      invariant(held >= keys, `at least ${keys} keys must be open, not ${held}`);
      return { peak: seriesOf([one.peakBytes]), restore: seriesOf([one.restoreSeconds as number]) };
    };
    world.context.say(`holding ${keys} keys`);
    const memory = await drain([IN_MEMORY]);
    const size = { unit: 'bytes', better: 'less' } as const;
    const time = { unit: 's', better: 'less', goal: { valueAtMost: RESTORE_GOAL_S } } as const;
    const load = `${keys / 1e6}M open keys, sliding 5m by 1m`;
    const resident = `largest resident size, ${load}`;
    const restart = `restore after a kill, ${load}`;
    if (!hasDiskState()) {
      return [
        result({ ...size, metric: `${resident}, memory state`, ours: memory.peak }),
        result({ ...time, metric: `${restart}, memory state`, ours: memory.restore }),
      ];
    }
    const budget = world.context.smoke ? BUDGET_BYTES_SMOKE : RSS_BUDGET_BYTES;
    const disk = await drain(onDisk(budget));
    const name = 'memory state';
    return [
      result({
        ...size,
        metric: `${resident}, disk state with ${mebibytes(budget)}`,
        ours: disk.peak,
        against: { name, series: memory.peak },
        goal: { valueAtMost: RSS_MAX_BYTES },
      }),
      result({
        ...time,
        metric: `${restart}, disk state with ${mebibytes(budget)}`,
        ours: disk.restore,
        against: { name, series: memory.restore },
      }),
    ];
  }
}

/** Disk state within its budget, compared with memory state. */
function againstMemory(
  what: string,
  { memory, disk }: { readonly memory: readonly Drained[]; readonly disk: readonly Drained[] },
): readonly BenchResult[] {
  const compared = (pick: (one: Drained) => number) => ({
    ours: of(disk, pick),
    against: { name: 'memory state', series: of(memory, pick) },
  });
  return [
    result({ ...CPU, metric: `${what}: CPU`, ...compared(cpuUs), goal: { ratioAtLeast: DISK_FITS_RATIO } }),
    result({ ...RATE, metric: `${what}: rate`, ...compared(perSecond) }),
  ];
}
