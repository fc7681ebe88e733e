/** The event generator: the addon's kernels against the TypeScript reference, on one core, into
 *  preallocated batches. */

import { loadGenKernels } from '../src/addon/gen.ts';
import type { GenKernels } from '../src/addon/gen-surface.ts';
import { xxh32Create, xxh32Digest } from '../src/addon/reference/xxh32.ts';
import { invariant } from '../src/core/errors.ts';
import { EventBatch } from '../src/core/layout/event-batch.ts';
import { EVENT } from '../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../src/core/layout/record-batch.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../src/gen/event-options.ts';
import { EventGenerator } from '../src/gen/events.ts';
import { type Bench, type BenchContext, type BenchResult, result, takeTurns } from './harness.ts';

const ROWS = 4096;
const EVENTS_PER_SECOND_GOAL = 2e6;
const KERNEL_GAIN_GOAL = 1.5;
const WARM_BATCHES = 400;
const WARM_BATCHES_SMOKE = 10;

/** Load profile of the requirements: ten million accounts, Zipf 1.1, delays of hours. */
const OPTIONS: EventOptions = {
  ...DEFAULT_EVENTS,
  count: Number.POSITIVE_INFINITY,
  accounts: 10_000_000,
  perMs: 200,
};

type Work = (generator: EventGenerator, kernels: GenKernels) => number;

const WORKS: Readonly<Record<string, () => { readonly order: EventOptions['order']; readonly work: Work }>> =
  {
    'events, true order': () => {
      const batch = RecordBatch.create(ROWS, ROWS * EVENT.BYTES);
      return { order: 'true', work: (generator) => generator.fillRecords(batch) };
    },
    'events, true order, digest': () => {
      const batch = RecordBatch.create(ROWS, ROWS * EVENT.BYTES);
      const state = xxh32Create();
      return {
        order: 'true',
        work: (generator, kernels) => {
          const rows = generator.fillRecords(batch);
          kernels.genDigest(state, batch);
          return rows;
        },
      };
    },
    'events, delayed order': () => {
      const batch = RecordBatch.create(ROWS, ROWS * EVENT.BYTES);
      return { order: 'delayed', work: (generator) => generator.fillRecords(batch) };
    },
    'events as columns, true order': () => {
      const batch = EventBatch.create(ROWS);
      return { order: 'true', work: (generator) => generator.fillEvents(batch) };
    },
  };

/** Events per second of one run; generators and batches are created outside the timed part. */
function rateOf(kernels: GenKernels, name: string, seconds: number, warmBatches: number): number {
  const { order, work } = (WORKS[name] as (typeof WORKS)[string])();
  const generator = new EventGenerator({ ...OPTIONS, order }, kernels);
  // The delayed order first fills its queue: the timed part then has typical delays and a tail in
  // flight.
  for (let i = 0; i < warmBatches; i++) work(generator, kernels);
  let rows = 0;
  const startMs = performance.now();
  const endMs = startMs + seconds * 1000;
  let nowMs = startMs;
  while (nowMs < endMs) {
    rows += work(generator, kernels);
    nowMs = performance.now();
  }
  return rows / ((nowMs - startMs) / 1000);
}

/** Both sides must generate the same events. */
function digestOf(kernels: GenKernels, order: EventOptions['order']): number {
  const generator = new EventGenerator({ ...OPTIONS, count: 50_000, order }, kernels);
  const batch = RecordBatch.create(ROWS, ROWS * EVENT.BYTES);
  const state = xxh32Create();
  while (generator.fillRecords(batch) > 0) kernels.genDigest(state, batch);
  return xxh32Digest(state);
}

async function run(context: BenchContext): Promise<readonly BenchResult[]> {
  const native = loadGenKernels('native');
  const reference = loadGenKernels('reference');
  for (const order of ['true', 'delayed'] as const) {
    const digests = [digestOf(native, order), digestOf(reference, order)];
    invariant(digests[0] === digests[1], `both sides generate the same events in ${order} order`);
    context.say(
      `${order} order, 50,000 events: xxh32 ${(digests[0] as number).toString(16).padStart(8, '0')} on both sides`,
    );
  }
  const seconds = context.smoke ? 0.05 : 1;
  const warmBatches = context.smoke ? WARM_BATCHES_SMOKE : WARM_BATCHES;
  const results: BenchResult[] = [];
  for (const name of Object.keys(WORKS)) {
    context.say(`measuring ${name}`);
    const sides = await takeTurns(
      {
        addon: () => rateOf(native, name, seconds, warmBatches),
        reference: () => rateOf(reference, name, seconds, warmBatches),
      },
      context.repeats,
    );
    const shared = { unit: 'events/s', better: 'more' } as const;
    results.push(
      result({ ...shared, metric: name, ours: sides.addon, goal: { valueAtLeast: EVENTS_PER_SECOND_GOAL } }),
      result({
        ...shared,
        metric: `${name}: addon beside twin`,
        ours: sides.addon,
        against: { name: 'TypeScript twin', series: sides.reference },
        goal: { ratioAtLeast: KERNEL_GAIN_GOAL },
      }),
    );
  }
  return results;
}

export const bench: Bench = {
  name: 'gen',
  summary: 'Generate 256 B events on one core: the addon against the TypeScript reference.',
  run,
};
