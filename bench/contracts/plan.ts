/** Sizes and times of the load. */
import type { OrderFormat } from '../../src/gen/order-versions.ts';
import type { BenchContext } from '../harness.ts';

const MINUTE_MS = 60_000;
const TOPIC_BYTES_MAX = 20e9;

/** Size of the fleet and of its topic. */
export interface LoadPlan {
  readonly format: OrderFormat;
  /** Producer instances, in one process. */
  readonly producers: number;
  /** Members of all groups; each group is one process. */
  readonly consumers: number;
  readonly groups: number;
  readonly partitions: number;
  /** Size of the topic at which its oldest records are deleted. */
  readonly topicBytesMax: number;
  /** Time between two samples of the offsets. */
  readonly sampleMs: number;
}

export interface ContractsPlan extends LoadPlan {
  /** Rate of all producers; undefined: the highest flat rate is searched. */
  readonly rate: number | undefined;
  /** Low rate, events a second, whose CPU gives the first guess of the search. */
  readonly probeRate: number;
  readonly trialMs: number;
  readonly trialsMax: number;
  /** Load before a measurement: code is compiled, and the groups have settled. */
  readonly warmMs: number;
  readonly durationMs: number;
  /** Runs of `durationMs`, each at a lower rate than the one before, until one is flat. */
  readonly runsMax: number;
  /** Load during a live rollout; undefined: none. */
  readonly liveRolloutMs: number | undefined;
  /** Processes of a rollout: producers, and consumers of each group. */
  readonly rolloutProcesses: number;
  /** Goals hold for a run with the whole profile of the requirements. */
  readonly isProfile: boolean;
}

const FULL = {
  producers: 24,
  consumers: 48,
  groups: 2,
  partitions: 24,
  topicBytesMax: TOPIC_BYTES_MAX,
  sampleMs: 2000,
  probeRate: 5000,
  trialMs: 60_000,
  trialsMax: 16,
  warmMs: 15_000,
  durationMs: 20 * MINUTE_MS,
  runsMax: 4,
  rolloutProcesses: 2,
} as const;
const SMOKE = {
  producers: 4,
  consumers: 8,
  groups: 2,
  partitions: 4,
  topicBytesMax: 64e6,
  sampleMs: 200,
  probeRate: 300,
  trialMs: 1000,
  trialsMax: 2,
  warmMs: 0,
  durationMs: 2000,
  runsMax: 1,
  rolloutProcesses: 1,
} as const;

export function planOf(context: BenchContext, format: OrderFormat): ContractsPlan {
  const { smoke, rate, durationMs, liveRolloutMs } = context;
  const defaults = smoke ? SMOKE : FULL;
  return {
    ...defaults,
    format,
    rate,
    durationMs: durationMs ?? defaults.durationMs,
    liveRolloutMs,
    isProfile: !smoke,
  };
}
