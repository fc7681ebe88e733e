/** Faults of a run: a pure function of the seed, so that a run can be repeated without its
 *  predecessor. */
import { SeededRandom } from '../../../src/sim/clock.ts';

export const KINDS = [
  'kill orders',
  'kill relay',
  'kill payments',
  'stop orders',
  'stop relay',
  'stop payments',
  'crash database',
  'end sessions',
  'cut relay from broker',
  'cut payments from broker',
  'jump a clock',
  'add payments',
] as const;

export interface PlannedFault {
  readonly kind: (typeof KINDS)[number];
  readonly atMs: number;
  readonly forMs: number;
  /** Draw in [0, 1) that chooses the victim. */
  readonly victim: number;
}

export interface Plan {
  readonly mode: 'poll' | 'wal';
  readonly fence: 'mark' | 'broker';
  readonly dupRate: number;
  readonly requests: number;
  /** Time over which the requests arrive, ms. */
  readonly spreadMs: number;
  readonly faults: readonly PlannedFault[];
  /** Probabilities for each message, while the faults last. */
  readonly lostStatement: number;
  readonly lostRow: number;
  readonly lostReport: number;
  readonly lostCommit: number;
  readonly brokenStream: number;
  /** Longest latency of one way, ms. */
  readonly databaseMs: number;
  readonly brokerMs: number;
  readonly batchRows: number;
}

/** At least 200, so that every run has at least 1,000 steps. */
const REQUESTS = 220;
const FAULTS_MIN = 3;

export function planOf(seed: number): Plan {
  const random = new SeededRandom(seed);
  const below = (count: number): number => Math.floor(random.fraction() * count);
  /** Zero for half of the seeds, so that each fault is also met without the others. */
  const share = (): number => (random.fraction() < 0.5 ? 0 : random.fraction() ** 2);
  const spreadMs = 500 + below(1500);
  return {
    mode: random.fraction() < 0.5 ? 'poll' : 'wal',
    fence: random.fraction() < 0.7 ? 'mark' : 'broker',
    dupRate: [0, 0.05, 0.3][below(3)] as number,
    requests: REQUESTS,
    spreadMs,
    faults: Array.from({ length: FAULTS_MIN + below(4) }, () => ({
      kind: KINDS[below(KINDS.length)] as (typeof KINDS)[number],
      atMs: below(spreadMs + 1000),
      forMs: 100 + below(4000),
      victim: random.fraction(),
    })).sort((a, b) => a.atMs - b.atMs),
    lostStatement: 0.03 * share(),
    lostRow: 0.1 * share(),
    lostReport: 0.1 * share(),
    lostCommit: 0.2 * share(),
    brokenStream: 0.01 * share(),
    databaseMs: 1 + 20 * share(),
    brokerMs: 1 + 50 * share(),
    batchRows: 1 + below(32),
  };
}

/** Plan without a fault, with its own seed for the interleaving. */
export const goldenPlan = (mode: Plan['mode'], fence: Plan['fence']): Plan => ({
  ...planOf(1),
  mode,
  fence,
  dupRate: 0.05,
  faults: [],
  lostStatement: 0,
  lostRow: 0,
  lostReport: 0,
  lostCommit: 0,
  brokenStream: 0,
  databaseMs: 2,
  brokerMs: 4,
  batchRows: 16,
  requests: 40,
  spreadMs: 600,
});
