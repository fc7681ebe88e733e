/** Clock and progress of the window engine: cells of 64-bit floats that kernels read and update,
 *  and that checkpoints save unchanged. Cell numbers are the byte offsets of layouts.gen.ts divided
 *  by 8. */
import { PARTITION_PROGRESS, WINDOW_CLOCK } from './layouts.gen.ts';

export interface WindowTimes {
  /** `global`: one watermark over all partitions; `partition`: one each. */
  readonly mode: 'global' | 'partition';
  /** 0 for sessions. */
  readonly sizeMs: number;
  /** Equal to the size for tumbling windows; 0 for sessions. */
  readonly slideMs: number;
  readonly skewMs: number;
  readonly latenessMs: number;
  /** Most ms that an event may be ahead of its record and still move the watermark; undefined: no
   *  limit. */
  readonly maxFutureMs?: number | undefined;
}

const CELL = 8;

const cellsOf = <T extends Readonly<Record<string, number>>>(
  offsets: T,
): { readonly [K in keyof T]: number } =>
  Object.fromEntries(Object.entries(offsets).map(([field, offset]) => [field, offset / CELL])) as {
    readonly [K in keyof T]: number;
  };

/** Cell number of each field of a partition's progress, and of the clock. */
export const PROGRESS_AT = cellsOf(PARTITION_PROGRESS);
export const CLOCK_AT = cellsOf(WINDOW_CLOCK);
export const PROGRESS_CELLS = PROGRESS_AT.BYTES;

/** Width of the slices that windows are made of: the greatest common divisor of size and slide. */
export function sliceMsOf(sizeMs: number, slideMs: number): number {
  let a = sizeMs;
  let b = slideMs;
  while (b > 0) [a, b] = [b, a % b];
  return a;
}

/** Watermark of a frontier. The frontier stays where it is when skew or lateness are raised, so the
 *  greatest event time less the skew is the limit.
 *  @param maxSeen greatest event_ts that moved a watermark */
export const watermarkOf = (
  { skewMs, latenessMs }: Pick<WindowTimes, 'skewMs' | 'latenessMs'>,
  frontier: number,
  maxSeen: number,
): number => Math.min(frontier + latenessMs, maxSeen - skewMs);

/** A clock before the first event. */
export function createClock(times: WindowTimes): Float64Array {
  const clock = new Float64Array(CLOCK_AT.BYTES);
  clock[CLOCK_AT.GLOBAL] = times.mode === 'global' ? 1 : 0;
  clock[CLOCK_AT.SLICE_MS] = sliceMsOf(times.sizeMs, times.slideMs);
  clock[CLOCK_AT.SLIDE_MS] = times.slideMs;
  clock[CLOCK_AT.SIZE_MS] = times.sizeMs;
  clock[CLOCK_AT.DELAY_MS] = times.skewMs + times.latenessMs;
  clock[CLOCK_AT.MAX_FUTURE_MS] = times.maxFutureMs ?? -1;
  clock[CLOCK_AT.NEXT_END] = Number.POSITIVE_INFINITY;
  clock[CLOCK_AT.FRONTIER] = Number.NEGATIVE_INFINITY;
  clock[CLOCK_AT.MAX_SEEN] = Number.NEGATIVE_INFINITY;
  return clock;
}

/** Progress of partitions before the first read. */
export function createProgress(partitionCount: number): Float64Array {
  const progress = new Float64Array(partitionCount * PROGRESS_CELLS);
  for (let at = 0; at < progress.length; at += PROGRESS_CELLS) {
    progress[at + PROGRESS_AT.LIMIT] = Number.POSITIVE_INFINITY;
    progress[at + PROGRESS_AT.MAX_SEEN] = Number.NEGATIVE_INFINITY;
  }
  return progress;
}
