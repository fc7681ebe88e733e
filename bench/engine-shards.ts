/** `millrace bench engine-shards`: what `-shards` does with more than one core.
 *
 *  Part `memory` runs the loop of the engine (decode, admit, fold, changelog) over record batches
 *  in memory, with one shard and with two. It measures the rate, the CPU time of all threads, and
 *  the elapsed time of each stage. From the stages of both sides a model says what limits on 4 and
 *  8 cores: the time of a stage with N shards is its serial part plus an Nth of the rest (Amdahl's
 *  law). On a machine with 4 or 8 cores the model is measured, too. Two threads of a fixed loop
 *  beside one show what the second core is worth at that moment. Part `broker` compares whole
 *  engines beside a broker. All sides must have the same results. */
import { cpus } from 'node:os';
import { loadGenKernels } from '../src/addon/gen.ts';
import { chooseNative } from '../src/addon/load.ts';
import { coreError } from '../src/core/errors.ts';
import { EventBatch } from '../src/core/layout/event-batch.ts';
import { EVENT } from '../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../src/core/layout/record-batch.ts';
import type { Stage } from '../src/engine/stages.ts';
import { DEFAULT_EVENTS } from '../src/gen/event-options.ts';
import { EventGenerator } from '../src/gen/events.ts';
import { openParts } from './effects/parts.ts';
import { BATCH_ROWS, PARTITIONS, type Pass, ShardLoop, SIZE_MS } from './engine/shard-loop.ts';
import { shardedEngines } from './engine/sharded-engines.ts';
import { twoThreads } from './engine/two-threads.ts';
import {
  type Bench,
  type BenchContext,
  type BenchResult,
  median,
  result,
  seriesOf,
  takeTurns,
} from './harness.ts';
import { selectParts } from './parts.ts';

const BATCHES = 64;
const BATCHES_SMOKE = 6;
/** Consecutive rows of one partition, as a broker's fetch delivers them. */
const RUN_ROWS = 512;
/** Permutes row numbers into distinct accounts without locality; coprime to every count. */
const STRIDE = 7_368_787;
/** Untimed passes: the first has no memory to reuse, and code is compiled. */
const WARM_PASSES = 2;
/** Passes of a run; a run has the median of each figure. */
const PASSES = 5;
const RATIO_GOAL = 1.7;
const CORES = [4, 8] as const;
/** Stages of the loop in memory. */
const LOOP_STAGES: readonly Stage[] = ['decode', 'route', 'update', 'changelog'];

interface Workload {
  readonly name: string;
  readonly isDistinct: boolean;
}

const WORKLOADS: readonly Workload[] = [
  { name: '1M accounts, Zipf 1.1', isDistinct: false },
  { name: '1M distinct accounts', isDistinct: true },
];

/** Events of less than one window, in true order, as records of 256 bytes. */
export function batchesOf({ isDistinct }: Workload, batchCount: number): readonly RecordBatch[] {
  const count = batchCount * BATCH_ROWS;
  const perMs = count / (SIZE_MS * 0.9);
  const options = { ...DEFAULT_EVENTS, count, accounts: 1_000_000, perMs, baseMs: 0, order: 'true' as const };
  const generator = new EventGenerator(options, loadGenKernels('native'));
  const events = EventBatch.create(BATCH_ROWS);
  return Array.from({ length: batchCount }, (_, batch) => {
    const records = RecordBatch.create(BATCH_ROWS, BATCH_ROWS * EVENT.BYTES);
    const rows = generator.fillEvents(events);
    const column = (cells: BigInt64Array | BigUint64Array): Uint32Array =>
      new Uint32Array(events.buffer, cells.byteOffset, rows * 2);
    const { accountId, value, eventTs, seq } = events.columns;
    const columns = [accountId, value, eventTs, seq].map(column) as [Uint32Array, ...Uint32Array[]];
    const words = new Uint32Array(records.buffer, records.columns.arena.byteOffset);
    for (let row = 0; row < rows; row++) {
      const at = (row * EVENT.BYTES) / 4;
      columns.forEach((cells, i) => {
        words[at + 2 * i] = cells[row * 2] as number;
        words[at + 2 * i + 1] = cells[row * 2 + 1] as number;
      });
      if (isDistinct) {
        words[at] = ((batch * BATCH_ROWS + row) * STRIDE) % count;
        words[at + 1] = 0;
      }
      words[at + EVENT.PAD / 4] = columns[2]?.[row * 2] as number;
      records.columns.partition[row] = Math.floor(row / RUN_ROWS) % PARTITIONS;
      records.columns.valueStart[row] = row * EVENT.BYTES;
      records.columns.valueLength[row] = EVENT.BYTES;
      records.columns.keyLength[row] = -1;
    }
    records.rowCount = rows;
    records.arenaUsed = rows * EVENT.BYTES;
    return records;
  });
}

/** Times of one stage, in ns an event, with one shard and with two. */
interface StageCost {
  readonly stage: Stage;
  readonly one: number;
  readonly two: number;
}

/** Elapsed time of a stage with so many shards on as many cores. A stage that two shards make no
 *  faster is serial. */
export function modelled({ one, two }: Omit<StageCost, 'stage'>, cores: number): number {
  const serial = two >= one ? two : Math.max(0, 2 * two - one);
  const shared = two >= one ? 0 : one - serial;
  return serial + shared / cores;
}

/** Rows of the model, each with the stage that has the largest share. */
export function modelResults(name: string, costs: readonly StageCost[]): BenchResult[] {
  return CORES.map((cores) => {
    const times = costs.map((cost) => ({ stage: cost.stage, ns: modelled(cost, cores) }));
    const ns = times.reduce((sum, one) => sum + one.ns, 0);
    const most = times.reduce((a, b) => (b.ns > a.ns ? b : a));
    const share = Math.round((most.ns / ns) * 100);
    return result({
      metric: `model, ${name}: ${cores} shards on ${cores} cores, limited by ${most.stage} (${share}%)`,
      unit: 'events/s',
      ours: seriesOf([1e9 / ns]),
      better: 'more',
    });
  });
}

const medianOf = (passes: readonly Pass[], figure: (pass: Pass) => number): number =>
  median(passes.map(figure));

/** Sides of one workload. */
class Comparison {
  private readonly name: string;
  private readonly context: BenchContext;
  private readonly loops = new Map<number, ShardLoop>();
  private readonly passes = new Map<number, Pass[]>();
  private expected: string | undefined;

  constructor(context: BenchContext, name: string) {
    this.context = context;
    this.name = name;
  }

  async run(batches: readonly RecordBatch[]): Promise<BenchResult[]> {
    const { context } = this;
    const more = CORES.filter((cores) => cores <= cpus().length);
    const counts = [1, 2, ...more];
    const { mode } = chooseNative(context.settings.native);
    try {
      for (const shards of counts) {
        this.loops.set(shards, await ShardLoop.open(mode, batches, shards));
        this.passes.set(shards, []);
        for (let warm = 0; warm < WARM_PASSES; warm++) await this.pass(shards);
      }
      context.say(`${this.name}: ${this.expected}`);
      const sides = await takeTurns(
        Object.fromEntries(counts.map((shards) => [`${shards}`, () => this.timed(shards)])),
        context.repeats,
      );
      const of = (shards: number) => sides[`${shards}`] as (typeof sides)[string];
      const name = `loop from memory, ${this.name}`;
      const against = { name: 'one shard', series: of(1) };
      const shared = { unit: 'events/s', better: 'more', against } as const;
      return [
        result({
          ...{ ...shared, list: true, metric: `${name}: two shards`, ours: of(2) },
          goal: { ratioAtLeast: RATIO_GOAL },
        }),
        ...more.map((shards) => result({ ...shared, metric: `${name}: ${shards} shards`, ours: of(shards) })),
        this.compared(`${name}: CPU, two shards`, 'ns CPU/event', ({ cpuNs }) => cpuNs),
        ...LOOP_STAGES.map((stage) =>
          this.compared(`${name}: ${stage}, two shards`, 'ns/event', ({ stageNs }) => stageNs[stage]),
        ),
        ...modelResults(this.name, this.costs()),
      ];
    } finally {
      for (const loop of this.loops.values()) await loop.close();
    }
  }

  private costs(): readonly StageCost[] {
    return LOOP_STAGES.map((stage) => ({
      stage,
      one: medianOf(this.passesOf(1), ({ stageNs }) => stageNs[stage]),
      two: medianOf(this.passesOf(2), ({ stageNs }) => stageNs[stage]),
    }));
  }

  private compared(metric: string, unit: string, figure: (pass: Pass) => number): BenchResult {
    const [one, two] = [1, 2].map((shards) => seriesOf(this.passesOf(shards).map(figure)));
    if (one === undefined || two === undefined) throw coreError('internal', 'there are two sides');
    return result({ metric, unit, ours: two, against: { name: 'one shard', series: one }, better: 'less' });
  }

  private passesOf(shards: number): Pass[] {
    return this.passes.get(shards) as Pass[];
  }

  /** @returns the median rate of some passes */
  private async timed(shards: number): Promise<number> {
    const passes: Pass[] = [];
    for (let i = 0; i < (this.context.smoke ? 1 : PASSES); i++) passes.push(await this.pass(shards));
    this.passesOf(shards).push(...passes);
    return medianOf(passes, ({ perSecond }) => perSecond);
  }

  private pass(shards: number): Promise<Pass> {
    this.context.drain.throwIfAborted();
    return (this.loops.get(shards) as ShardLoop).pass((digest) => {
      this.expected ??= digest;
      if (digest !== this.expected)
        throw coreError('internal', `the results differ: ${digest} instead of ${this.expected}`);
    });
  }
}

async function memory(context: BenchContext): Promise<BenchResult[]> {
  const results: BenchResult[] = [await twoThreads(context)];
  for (const load of WORKLOADS) {
    const batches = batchesOf(load, context.smoke ? BATCHES_SMOKE : BATCHES);
    results.push(...(await new Comparison(context, load.name).run(batches)));
  }
  return results;
}

export const bench: Bench = {
  name: 'engine-shards',
  summary:
    'The window engine with two shards beside one: its loop from memory, stage by stage, and with a broker.',
  async run(context) {
    const parts = selectParts(context.only, ['memory', 'broker']);
    const results: BenchResult[] = [];
    if (parts.includes('memory')) results.push(...(await memory(context)));
    if (parts.includes('broker'))
      results.push(...(await openParts({ ...context, only: undefined }, { broker: shardedEngines })));
    return results;
  },
};
