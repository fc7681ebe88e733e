/** Table of the cases of the windows slice: window kind, delays, state and expected result. */

/** Skew and lateness of all cases. */
export const SKEW_MS = 5_000;
export const LATENESS_MS = 10_000;

export interface WindowCase {
  readonly name: string;
  readonly window: 'tumbling' | 'sliding' | 'session';
  /** Window flags with their values in ms. */
  readonly times: Readonly<Record<string, number>>;
  /** True if an event may be in several windows. */
  readonly overlaps: boolean;
  /** Flags of the engine's state. */
  readonly state: readonly string[];
  /** Generator flags for the set of accounts. */
  readonly keys: readonly string[];
  /** Generator flags for the lateness of events. */
  readonly delays: readonly string[];
  /** Expected content of the sink: the batch result of the true order if no event may be late, or
   *  the result of an independent program on the arrival log. */
  readonly expects: 'truth' | 'arrival';
  /** True if the error against the true order is reported as well. */
  readonly hasTruth: boolean;
  /** Number of events at scale 1, and the minimum at any scale. */
  readonly events: number;
  readonly eventsMin: number;
  /** Events required between the checkpoint and the kill, at scale 1. */
  readonly pastCheckpoint: number;
}

/** Window flags in the engine's form; the oracle's times are ms without a unit. */
export const windowFlags = (
  { window, times }: Pick<WindowCase, 'window' | 'times'>,
  unit: 'ms' | '',
): readonly string[] => [
  `-window=${window}`,
  ...Object.entries(times).map(([flag, ms]) => `-${flag}=${ms}${unit}`),
];

const HOT = ['-accounts=50000', '-zipf=1.1'];
/** Few events share an account. */
const COLD = ['-accounts=1000000', '-zipf=0.5'];
/** Every delay is within skew + lateness. */
const ON_TIME = ['-typical-max=3s', '-tail=0.05', '-tail-max=15s', '-stragglers=0'];
const STRAGGLERS = [
  '-typical-max=3s',
  '-tail=0.02',
  '-tail-max=1m',
  '-stragglers=0.001',
  '-straggler-max=2h',
];
const TUMBLING = { window: 'tumbling', times: { size: 20_000 }, overlaps: false } as const;
const MEMORY = ['-state=mem'];
/** About the smallest valid budget: the open state of long windows exceeds it. */
const DISK = ['-state=disk', '-mem-budget=110MiB'];

/** The cases of an inner list run concurrently. */
export const CASES: readonly (readonly WindowCase[])[] = [
  [
    {
      ...TUMBLING,
      name: 'run 1, tumbling',
      state: MEMORY,
      keys: HOT,
      delays: ON_TIME,
      expects: 'truth',
      hasTruth: true,
      events: 2_000_000,
      eventsMin: 10_000,
      pastCheckpoint: 100_000,
    },
  ],
  [
    {
      ...TUMBLING,
      name: 'run 2, tumbling',
      state: MEMORY,
      keys: HOT,
      delays: STRAGGLERS,
      expects: 'arrival',
      hasTruth: true,
      events: 1_000_000,
      eventsMin: 10_000,
      pastCheckpoint: 100_000,
    },
  ],
  [
    {
      name: 'run 3, sliding',
      window: 'sliding',
      times: { size: 300_000, slide: 200_000 },
      overlaps: true,
      state: DISK,
      keys: COLD,
      delays: STRAGGLERS,
      expects: 'arrival',
      hasTruth: false,
      events: 200_000,
      eventsMin: 160_000,
      pastCheckpoint: 10_000,
    },
    {
      name: 'run 4, sessions',
      window: 'session',
      times: { gap: 120_000 },
      overlaps: false,
      state: DISK,
      keys: COLD,
      delays: STRAGGLERS,
      expects: 'arrival',
      hasTruth: false,
      events: 200_000,
      eventsMin: 160_000,
      pastCheckpoint: 10_000,
    },
  ],
];
