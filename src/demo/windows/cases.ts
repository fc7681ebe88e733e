/** Table of the cases of the windows slice: window kind, delays, state and expected result. */

/** Versions of Order that are mixed in each partition, and the fields that the engine reads. */
export const ORDER_VERSIONS = 5;
export const ORDER_FIELDS = { key: 'account_id', time: 'ts', value: 'amount_cents' } as const;

/** Skew and lateness of all cases. */
export const SKEW_MS = 5_000;
export const LATENESS_MS = 10_000;

export interface WindowCase {
  readonly name: string;
  /** events: of the fixed layout. orders: Order of a registered topic, whose revenue is summed. */
  readonly input: 'events' | 'orders';
  readonly window: 'tumbling' | 'sliding' | 'session';
  /** Window flags with their values in ms. */
  readonly times: Readonly<Record<string, number>>;
  /** True if an event may be in several windows. */
  readonly overlaps: boolean;
  /** Flags of the engine's state. */
  readonly state: readonly string[];
  /** Generator flags for the set of accounts. */
  readonly keys: readonly string[];
  /** Generator flags for the lateness of events; orders are in order. */
  readonly delays: readonly string[];
  /** Expected content of the sink: the batch result of the true order, or the result of an
   *  independent program on the arrival log. */
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
const ON_TIME = ['-order=delayed', '-typical-max=3s', '-tail=0.05', '-tail-max=15s', '-stragglers=0'];
const STRAGGLERS = [
  '-order=delayed',
  '-typical-max=3s',
  '-tail=0.02',
  '-tail-max=1m',
  '-stragglers=0.001',
  '-straggler-max=2h',
];
const TUMBLING = { input: 'events', window: 'tumbling', times: { size: 20_000 }, overlaps: false } as const;
const MEMORY = ['-state=mem'];
/** About the smallest valid budget: the open state of long windows exceeds it. */
const DISK = ['-state=disk', '-mem-budget=116MiB'];

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
      events: 1_000_000,
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
      input: 'events',
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
      input: 'events',
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
  [
    {
      name: 'run 5, revenue by account and minute',
      input: 'orders',
      window: 'tumbling',
      times: { size: 60_000 },
      overlaps: false,
      state: MEMORY,
      keys: HOT,
      delays: [],
      expects: 'arrival',
      hasTruth: false,
      // Orders are one millisecond apart: three minutes, or a little more than one.
      events: 180_000,
      eventsMin: 70_000,
      pastCheckpoint: 20_000,
    },
  ],
];
