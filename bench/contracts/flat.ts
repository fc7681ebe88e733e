/** Flat rates: what the samples of a run show about the lag, and the search of the highest rate at
 *  which the lag does not grow. */

/** Least share of the asked rate that the producers must have written. */
const WRITTEN_SHARE_MIN = 0.99;
/** Largest growth of the lag per second, as a share of the rate. */
export const SLOPE_SHARE_MAX = 0.01;

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
  /** Largest lag of a group, events. */
  readonly lagMax: number;
  readonly isFlat: boolean;
}

/** Slope of the least squares line through the points; 0 for fewer than two different x. */
export function slopeOf(points: ReadonlyArray<readonly [x: number, y: number]>): number {
  const count = points.length;
  if (count < 2) return 0;
  const mean = (at: 0 | 1): number => points.reduce((sum, point) => sum + point[at], 0) / count;
  const [meanX, meanY] = [mean(0), mean(1)];
  let [above, below] = [0, 0];
  for (const [x, y] of points) {
    above += (x - meanX) * (y - meanY);
    below += (x - meanX) ** 2;
  }
  return below === 0 ? 0 : above / below;
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
  const lagSlope = Math.max(...slopes);
  return {
    rate,
    seconds,
    writtenPerSecond,
    readPerSecond,
    lagSlope,
    lagMax: Math.max(...samples.flatMap(lagsOf)),
    isFlat: writtenPerSecond >= WRITTEN_SHARE_MIN * rate && lagSlope <= SLOPE_SHARE_MAX * rate,
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
