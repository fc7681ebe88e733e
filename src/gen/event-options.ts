/** Options of a stream of generated events, their limits and defaults. */
import { coreError } from '../core/errors.ts';
import { ARRIVAL_DELAY_MAX_MS } from '../core/layout/arrival-queue.ts';
import { GEN_PARAMS } from '../core/layout/layouts.gen.ts';
import { seedOf } from '../core/random/threefry.ts';
import type { ZipfTable } from '../core/random/zipf.ts';

export interface DelayOptions {
  /** Share of events with a tail delay, 0 to 1. */
  readonly tail: number;
  /** Share of events that are stragglers, 0 to 1. All other events have a typical delay. */
  readonly stragglers: number;
  /** Typical delays are in 0..typicalMaxMs, more often near 0. */
  readonly typicalMaxMs: number;
  /** Tail delays are in typicalMaxMs..tailMaxMs, more often near the start. */
  readonly tailMaxMs: number;
  /** Straggler delays are in tailMaxMs..stragglerMaxMs, uniform. */
  readonly stragglerMaxMs: number;
}

export interface EventOptions {
  readonly seed: bigint;
  /** Number of events; Infinity for an endless stream. */
  readonly count: number;
  /** Number of distinct accounts; rank 1 is the most frequent. */
  readonly accounts: number;
  /** Zipf exponent; 0 is uniform. */
  readonly zipf: number;
  /** account_id of rank 1; rank r is accountBase + r - 1, modulo 2^64. */
  readonly accountBase: bigint;
  /** Values are integers, uniform in valueMin..valueMax. */
  readonly valueMin: number;
  readonly valueMax: number;
  /** event_ts of event 0, ms since the epoch. */
  readonly baseMs: number;
  /** Events per millisecond of event time: event_ts = baseMs + floor(seq / perMs). */
  readonly perMs: number;
  readonly order: 'true' | 'delayed';
  readonly delays: DelayOptions;
}

/** Below this, event numbers and times are exact in a double. */
const EXACT_MAX = 9_007_199_254_740_991;
const PER_MS_MIN = 1e-4;
const PER_MS_MAX = 1e6;
const TWO_32 = 4_294_967_296;

/** 95% of delays within three seconds, a tail of minutes, one event in a thousand hours late. */
const DEFAULT_DELAYS: DelayOptions = {
  tail: 0.049,
  stragglers: 0.001,
  typicalMaxMs: 3_000,
  tailMaxMs: 240_000,
  stragglerMaxMs: 7_200_000,
};

export const DEFAULT_EVENTS: EventOptions = {
  seed: 1n,
  count: 1_000_000,
  accounts: 1_000_000,
  zipf: 1.1,
  accountBase: 1n,
  valueMin: -10_000,
  valueMax: 1_000_000,
  baseMs: 1_750_000_000_000,
  perMs: 20,
  order: 'true',
  delays: DEFAULT_DELAYS,
};

/** Returns the largest delay that these options can produce, in ms. */
export function delayMaxMs(delays: DelayOptions): number {
  if (delays.stragglers > 0) return delays.stragglerMaxMs;
  return delays.tail > 0 ? delays.tailMaxMs : delays.typicalMaxMs;
}

function demand(holds: boolean, message: string, next: string): void {
  if (!holds) throw coreError('out_of_range', message, { next });
}

/** @throws out_of_range */
export function checkEventOptions(options: EventOptions): void {
  const { delays, valueMin, valueMax, perMs, baseMs, count } = options;
  const whole = (value: number): boolean => Number.isInteger(value) && Math.abs(value) <= EXACT_MAX;
  demand(
    count === Infinity || (whole(count) && count >= 0),
    `count=${count} is not a whole number of events`,
    'give 0 or more',
  );
  demand(
    perMs >= PER_MS_MIN && perMs <= PER_MS_MAX,
    `per-ms=${perMs} is out of range`,
    `give ${PER_MS_MIN} to ${PER_MS_MAX}`,
  );
  demand(
    whole(baseMs) && baseMs >= 0,
    `base=${baseMs} is not a time in ms since the epoch`,
    'give a whole number of 0 or more',
  );
  const last = count === Infinity ? 0 : count / perMs;
  demand(
    baseMs + last + ARRIVAL_DELAY_MAX_MS <= EXACT_MAX,
    'the last event lies after the largest time',
    'give fewer events or more of them a millisecond',
  );
  demand(
    whole(valueMin) && whole(valueMax) && valueMin <= valueMax,
    `values ${valueMin} to ${valueMax} are not a range of whole numbers`,
    'give value-min <= value-max',
  );
  demand(
    valueMax - valueMin < EXACT_MAX,
    `values ${valueMin} to ${valueMax} span too much`,
    'keep the span below 2^53',
  );
  const share = (value: number): boolean => value >= 0 && value <= 1;
  demand(
    share(delays.tail) && share(delays.stragglers) && delays.tail + delays.stragglers <= 1,
    `tail=${delays.tail} and stragglers=${delays.stragglers} are not shares that add up to at most 1`,
    'give shares whose sum is at most 1',
  );
  const times = [delays.typicalMaxMs, delays.tailMaxMs, delays.stragglerMaxMs];
  demand(
    times.every((time) => whole(time) && time >= 0 && time <= ARRIVAL_DELAY_MAX_MS),
    `a largest delay of ${times.join(', ')} ms is out of range`,
    `give at most ${ARRIVAL_DELAY_MAX_MS} ms`,
  );
  demand(
    delays.tail === 0 || delays.tailMaxMs >= delays.typicalMaxMs,
    'tail-max is below typical-max',
    'give a larger tail-max, or tail=0',
  );
  demand(
    delays.stragglers === 0 || delays.stragglerMaxMs >= delays.tailMaxMs,
    'straggler-max is below tail-max',
    'give a larger straggler-max, or stragglers=0',
  );
}

/** Packs the options for the kernels. @shape f64[GEN_PARAMS.BYTES / 8] */
export function eventParams(options: EventOptions, zipf: ZipfTable): Float64Array {
  const params = new Float64Array(GEN_PARAMS.BYTES / 8);
  const set = (at: number, value: number): void => {
    params[at / 8] = value;
  };
  const seed = seedOf(options.seed);
  const account = seedOf(options.accountBase);
  const { delays } = options;
  set(GEN_PARAMS.SEED_LOW, seed.low);
  set(GEN_PARAMS.SEED_HIGH, seed.high);
  set(GEN_PARAMS.ACCOUNT_BASE_LOW, account.low);
  set(GEN_PARAMS.ACCOUNT_BASE_HIGH, account.high);
  set(GEN_PARAMS.POWER_WHOLE, zipf.powerWhole);
  set(GEN_PARAMS.POWER_FRACTION, zipf.powerFraction);
  set(GEN_PARAMS.VALUE_MIN, options.valueMin);
  set(GEN_PARAMS.VALUE_SPAN, options.valueMax - options.valueMin + 1);
  set(GEN_PARAMS.BASE_TS, options.baseMs);
  set(GEN_PARAMS.PER_MS, options.perMs);
  set(GEN_PARAMS.TYPICAL_BELOW, Math.floor((1 - delays.tail - delays.stragglers) * TWO_32));
  set(GEN_PARAMS.TAIL_BELOW, delays.stragglers === 0 ? TWO_32 : Math.floor((1 - delays.stragglers) * TWO_32));
  set(GEN_PARAMS.TYPICAL_MAX_MS, delays.typicalMaxMs);
  set(GEN_PARAMS.TAIL_MAX_MS, delays.tailMaxMs);
  set(GEN_PARAMS.STRAGGLER_MAX_MS, delays.stragglerMaxMs);
  set(GEN_PARAMS.COUNT, Math.min(options.count, EXACT_MAX));
  return params;
}
