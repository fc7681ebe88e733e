/** Flat rates: the growth of the lag that the samples of a run show, and the search of the highest
 *  rate at which the lag does not grow. */

/** Least share of the asked rate that the producers must have written. */
const WRITTEN_SHARE_MIN = 0.99;
/** Largest growth of the lag per second, as a share of the rate. */
export const SLOPE_SHARE_MAX = 0.01;
/** Standard errors by which a slope must exceed that limit to count as growth: members commit once
 *  in a while, so the lag of a short run goes up and down by more than the limit. */
const ERRORS = 2;

/** Offsets of the topic and of its groups at one time. */
export interface LagSample {
  /** Milliseconds since the start of the measurement. */
  readonly atMs: number;
  /** Sum of the end offsets. */
  readonly written: number;
  /** Sum of the committed offsets of each group. */
  readonly read: readonly number[];
}

export interface Flatness {
  /** Asked rate, events a second. */
  readonly rate: number;
  readonly seconds: number;
  readonly writtenPerSecond: number;
  /** Rate of the slowest group. */
  readonly readPerSecond: number;
  /** Growth of the lag of the group where it grows most, events a second; the slope of the least
   *  squares line. */
  readonly lagSlope: number;
  /** Standard error of that slope. */
  readonly lagSlopeError: number;
  /** Largest lag of a group, events. */
  readonly lagMax: number;
  readonly isFlat: boolean;
}

/** Slope of the least squares line through the points, and its standard error; both 0 for fewer
 *  than two different x. */
export function slopeOf(points: ReadonlyArray<readonly [x: number, y: number]>): {
  readonly slope: number;
  readonly error: number;
} {
  const count = points.length;
  const mean = (at: 0 | 1): number => points.reduce((sum, point) => sum + point[at], 0) / count;
  const [meanX, meanY] = [mean(0), mean(1)];
  const sum = (of: (dx: number, dy: number) => number): number =>
    points.reduce((total, [x, y]) => total + of(x - meanX, y - meanY), 0);
  const spread = sum((dx) => dx ** 2);
  if (!(spread > 0)) return { slope: 0, error: 0 };
  const slope = sum((dx, dy) => dx * dy) / spread;
  const rest = sum((dx, dy) => (dy - slope * dx) ** 2);
  return { slope, error: count > 2 ? Math.sqrt(rest / (count - 2) / spread) : 0 };
}

/** Lag of each group. */
export const lagsOf = ({ written, read }: LagSample): readonly number[] => read.map((done) => written - done);

/** @param samples at least two, in order of time, all with the same groups */
export function flatnessOf(rate: number, samples: readonly LagSample[]): Flatness {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined || last.atMs <= first.atMs)
    return {
      rate,
      seconds: 0,
      writtenPerSecond: 0,
      readPerSecond: 0,
      lagSlope: 0,
      lagSlopeError: 0,
      lagMax: 0,
      isFlat: false,
    };
  const seconds = (last.atMs - first.atMs) / 1000;
  const writtenPerSecond = (last.written - first.written) / seconds;
  const readPerSecond = Math.min(
    ...last.read.map((done, group) => (done - (first.read[group] as number)) / seconds),
  );
  const slopes = last.read.map((_, group) =>
    slopeOf(samples.map((one) => [one.atMs / 1000, lagsOf(one)[group] as number])),
  );
  const { slope: lagSlope, error: lagSlopeError } = slopes.reduce((most, one) =>
    one.slope - ERRORS * one.error > most.slope - ERRORS * most.error ? one : most,
  );
  return {
    rate,
    seconds,
    writtenPerSecond,
    readPerSecond,
    lagSlope,
    lagSlopeError,
    lagMax: Math.max(...samples.flatMap(lagsOf)),
    isFlat:
      writtenPerSecond >= WRITTEN_SHARE_MIN * rate &&
      lagSlope - ERRORS * lagSlopeError <= SLOPE_SHARE_MAX * rate,
  };
}

/** Factor between two rates while only one side of the limit is known. */
const STRIDE = 2;
/** The search ends when the rates on both sides of the limit are this close. */
const CLOSE = 1.05;

/** Search of the highest flat rate. It assumes that a rate below a flat rate is flat. */
export class RateSearch {
  private readonly trialsMax: number;
  private asked: number;
  private flat: number | undefined;
  private steep: number | undefined;
  private trials = 0;

  /** @param guess first rate, events a second */
  constructor(guess: number, trialsMax: number) {
    this.asked = Math.max(1, Math.round(guess));
    this.trialsMax = trialsMax;
  }

  /** Rate to try next; undefined: the search is over. */
  next(): number | undefined {
    const { flat, steep } = this;
    const isFound = flat !== undefined && steep !== undefined && steep / flat <= CLOSE;
    return isFound || this.trials >= this.trialsMax ? undefined : this.asked;
  }

  /** Takes the result of the trial of `next()`. */
  report(isFlat: boolean): void {
    this.trials++;
    if (isFlat) this.flat = this.asked;
    else this.steep = this.asked;
    const { flat, steep } = this;
    const next =
      flat === undefined
        ? (steep as number) / STRIDE
        : steep === undefined
          ? flat * STRIDE
          : Math.sqrt(flat * steep);
    this.asked = Math.max(1, Math.round(next));
  }

  /** Highest flat rate; the next lower rate if none was flat. */
  get best(): number {
    return this.flat ?? this.asked;
  }
}
