/** Compares the compatibility checker with live decoding on random pairs of schemas, pair by pair.
 *  Every disagreement is reported with its seed; a single one misses the goal. */
import { invariant } from '../src/core/errors.ts';
import { AVRO_CHANGE_NAMES } from './compatibility/avro-changes.ts';
import { avroPair } from './compatibility/avro-pairs.ts';
import { type Judged, judgeAvroPair } from './compatibility/avro-verdicts.ts';
import { PROTO_CHANGE_NAMES } from './compatibility/proto-changes.ts';
import { protoPair } from './compatibility/proto-pairs.ts';
import { judgeProtoPair } from './compatibility/proto-verdicts.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';

/** Pairs of both formats together. */
const PAIRS = 120_000;
const PAIRS_SMOKE = 400;
const SEED = 1;
/** Minimum share of each class of changes among a format's pairs: a thousand in a full run. */
const CLASS_SHARE_MIN = 1_000 / 60_000;
const OUTCOME_SHARE_MIN = 0.3;
const NESTING_MIN = 3;
/** Number of disagreements that are reported individually. */
const REPORTED_MAX = 20;
const PROGRESS_PAIRS = 5_000;

interface Pair {
  readonly changes: readonly string[];
  /** Types around the innermost change. */
  readonly depth: number;
  judge(): Judged;
}

interface Format {
  readonly name: string;
  readonly classes: readonly string[];
  pair(seed: number): Pair;
}

const FORMATS: readonly Format[] = [
  {
    name: 'Avro',
    classes: AVRO_CHANGE_NAMES,
    pair: (seed) => {
      const pair = avroPair(seed);
      return { changes: pair.changes, depth: pair.depth, judge: () => judgeAvroPair(pair) };
    },
  },
  {
    name: 'Protobuf',
    classes: PROTO_CHANGE_NAMES,
    pair: (seed) => {
      const pair = protoPair(seed);
      return { changes: pair.changes, depth: pair.depth, judge: () => judgeProtoPair(pair) };
    },
  },
];

function count(metric: string, unit: string, value: number, goal?: 'none' | number): BenchResult {
  const better = goal === 'none' ? 'less' : 'more';
  return result({
    metric,
    unit,
    ours: seriesOf([value]),
    better,
    ...(goal === undefined ? {} : { goal: goal === 'none' ? { valueAtMost: 0 } : { valueAtLeast: goal } }),
  });
}

function measure(format: Format, pairs: number, seed: number, context: BenchContext): BenchResult[] {
  const classes = new Map(format.classes.map((name) => [name, 0]));
  const outcomes = { OK: 0, LOSSY: 0, FAIL: 0 };
  let events = 0;
  let nested = 0;
  let disagreements = 0;
  const started = performance.now();
  for (let n = 0; n < pairs; n++) {
    if (context.drain.aborted) break;
    const pair = format.pair(seed + n);
    for (const change of pair.changes) classes.set(change, (classes.get(change) ?? 0) + 1);
    if (pair.depth >= NESTING_MIN) nested++;
    const { live, trials, disagreement } = pair.judge();
    outcomes[live]++;
    events += trials;
    if (disagreement !== undefined && disagreements++ < REPORTED_MAX)
      context.say(`${format.name} pair ${seed + n} (${pair.changes.join(', ')}): ${disagreement}`);
    if ((n + 1) % PROGRESS_PAIRS === 0)
      context.say(`${format.name}: ${n + 1} pairs, ${disagreements} disagree`);
  }
  const seconds = (performance.now() - started) / 1000;
  invariant(events > 0, 'events were tried');
  const rarest = [...classes].reduce((least, one) => (one[1] < least[1] ? one : least));
  const of = (what: string): string => `${format.name}: ${what}`;
  return [
    count(of('pairs, verdict and live decode disagree'), 'pairs', disagreements, 'none'),
    count(of(`pairs, seeds from ${seed}`), 'pairs', pairs),
    count(of('events encoded, decoded and compared'), 'events', events),
    count(
      of(`pairs of the rarest class of changes (${rarest[0]})`),
      'pairs',
      rarest[1],
      Math.floor(pairs * CLASS_SHARE_MIN),
    ),
    count(of('share of pairs whose live decode is OK'), 'of 1', outcomes.OK / pairs, OUTCOME_SHARE_MIN),
    count(of('share of pairs whose live decode is LOSSY'), 'of 1', outcomes.LOSSY / pairs),
    count(of('share of pairs whose live decode is FAIL'), 'of 1', outcomes.FAIL / pairs, OUTCOME_SHARE_MIN),
    count(of(`share of pairs changed inside ${NESTING_MIN} records or more`), 'of 1', nested / pairs),
    count(of('pairs judged and tried'), 'pairs/s', pairs / seconds),
  ];
}

export const bench: Bench = {
  name: 'compatibility',
  summary: 'verdicts against live decoding on random pairs of schemas; they must agree (-cases, -seed)',
  run(context) {
    // Most events of a failing pair are refused; their stack traces are not needed.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    const pairs = context.cases ?? (context.smoke ? PAIRS_SMOKE : PAIRS);
    const seed = context.seed ?? SEED;
    const each = Math.ceil(pairs / FORMATS.length);
    try {
      return Promise.resolve(FORMATS.flatMap((format) => measure(format, each, seed, context)));
    } finally {
      Error.stackTraceLimit = stackTraceLimit;
    }
  },
};
