/** Speed of the machine in one number, so that a goal in microseconds means the same everywhere.
 *
 *  A fixed loop (integer arithmetic, and loads and stores in a table that fits the second-level
 *  cache) is timed in the run that uses the number. `machineFactor()` is its time divided by the
 *  time on the reference machine: 1.5 means that this machine, at this moment, is 1.5 times slower.
 *  Goals of CPU or time for one event are multiplied by it, goals of a rate divided by it. Ratios
 *  to a peer in the same run need no scaling, and limits of the requirements are never scaled. */
import { invariant } from '../src/core/errors.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';

/** Nanoseconds a step on the reference machine. Decision 0056 derives it; a new value needs new
 *  goals. */
const REFERENCE_NS = 9.7;

const TABLE_WORDS = 1 << 16;
const STEPS = 1 << 21;
const ROUNDS = 15;
/** Word that the loop ends with; another one means that the loop was changed or miscompiled. */
const EXPECTED = 1_881_467_512;

/** Runs the loop once on a new table. @returns the last word */
function runLoop(table: Int32Array): number {
  let word = 0x9e37_79b9 | 0;
  for (let step = 0; step < STEPS; step++) {
    word = Math.imul(word ^ (word >>> 15), 0x85eb_ca6b);
    word = ((word ^ (word >>> 13)) + step) | 0;
    const at = word & (TABLE_WORDS - 1);
    const met = table[at] as number;
    table[at] = (met + word) | 0;
    word ^= met << 1;
  }
  return word;
}

/** Nanoseconds a step, the smallest of several rounds: interruptions only add time. */
export function unitNs(): number {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    const table = new Int32Array(TABLE_WORDS);
    const startNs = process.hrtime.bigint();
    const word = runLoop(table);
    const tookNs = Number(process.hrtime.bigint() - startNs);
    invariant(word === EXPECTED, `the unit loop ends with ${EXPECTED}, not with ${word}`);
    least = Math.min(least, tookNs / STEPS);
  }
  return least;
}

let known: number | undefined;

/** Slowness of this machine: 2 means half the speed of the reference machine. Measured once in a
 *  process, at the first call, which therefore belongs before the timed part. */
export function machineFactor(): number {
  known ??= unitNs() / REFERENCE_NS;
  return known;
}

function run(context: BenchContext): Promise<readonly BenchResult[]> {
  const nanoseconds = seriesOf(Array.from({ length: context.repeats }, unitNs));
  const factors = seriesOf(nanoseconds.values.map((value) => value / REFERENCE_NS));
  const shared = { better: 'less', list: true } as const;
  return Promise.resolve([
    result({ ...shared, metric: 'fixed loop', unit: 'ns/step', ours: nanoseconds }),
    result({ ...shared, metric: 'time of this machine / reference machine', unit: 'factor', ours: factors }),
  ]);
}

export const bench: Bench = {
  name: 'unit',
  summary: 'Speed of this machine against the one on which absolute goals were set: a fixed loop.',
  run,
};
