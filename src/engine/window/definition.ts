/** Assignment of events to windows. Windows are half-open, [start, end), and aligned to the epoch;
 *  a sliding window starts at every multiple of the slide.
 *
 *  Events are accumulated by slice, an interval that lies wholly inside or outside every window. So
 *  an event costs one update for any size / slide; a firing window merges its slices. A tumbling
 *  window is its own slice. */
import { invariant } from '../../core/errors.ts';
import { sliceMsOf } from '../../core/layout/window-clock.ts';
import { floorTo } from '../../core/time.ts';

export interface WindowAssigner {
  readonly kind: 'tumbling' | 'sliding';
  readonly sizeMs: number;
  /** Distance between two window starts. */
  readonly slideMs: number;
  readonly sliceMs: number;
  /** Start of the slice that contains the timestamp. */
  sliceOf(eventTs: number): number;
  /** End of the first window to fire that contains the slice. */
  firstEndOf(sliceStart: number): number;
  /** End of the last window that contains the slice: once it has fired, the slice is no longer
   *  needed. */
  lastEndOf(sliceStart: number): number;
  /** Least end after `time` of any window, empty or not. */
  nextEndAfter(time: number): number;
}

export class TumblingWindows implements WindowAssigner {
  readonly kind = 'tumbling';
  readonly sizeMs: number;
  readonly slideMs: number;
  readonly sliceMs: number;

  constructor(sizeMs: number) {
    this.sizeMs = sizeMs;
    this.slideMs = sizeMs;
    this.sliceMs = sizeMs;
  }

  sliceOf(eventTs: number): number {
    return floorTo(eventTs, this.sizeMs);
  }
  firstEndOf(sliceStart: number): number {
    return sliceStart + this.sizeMs;
  }
  lastEndOf(sliceStart: number): number {
    return sliceStart + this.sizeMs;
  }
  nextEndAfter(time: number): number {
    return floorTo(time, this.sizeMs) + this.sizeMs;
  }
}

export class SlidingWindows implements WindowAssigner {
  readonly kind = 'sliding';
  readonly sizeMs: number;
  readonly slideMs: number;
  readonly sliceMs: number;

  /** Accepts any slide up to the size: a longer slide would leave events without a window. */
  constructor(sizeMs: number, slideMs: number) {
    invariant(slideMs > 0 && slideMs <= sizeMs, 'a slide lies between 1 ms and the size');
    this.sizeMs = sizeMs;
    this.slideMs = slideMs;
    this.sliceMs = sliceMsOf(sizeMs, slideMs);
  }

  sliceOf(eventTs: number): number {
    return floorTo(eventTs, this.sliceMs);
  }
  firstEndOf(sliceStart: number): number {
    return this.nextEndAfter(sliceStart);
  }
  lastEndOf(sliceStart: number): number {
    return floorTo(sliceStart, this.slideMs) + this.sizeMs;
  }
  nextEndAfter(time: number): number {
    return floorTo(time - this.sizeMs, this.slideMs) + this.slideMs + this.sizeMs;
  }
}

/** Windows that end after `after` and contain at least one of the slices, in order of their ends,
 *  each with its end and its slices from index `from` up to `to`, exclusive. `starts` ascend. */
export function* windowsOver(
  assigner: WindowAssigner,
  starts: ArrayLike<number>,
  after: number,
): Iterable<{ readonly end: number; readonly from: number; readonly to: number }> {
  let from = 0;
  let to = 0;
  let time = after;
  for (;;) {
    while (from < starts.length && assigner.lastEndOf(starts[from] as number) <= time) from++;
    if (from === starts.length) return;
    const first = assigner.firstEndOf(starts[from] as number);
    const end = first > time ? first : assigner.nextEndAfter(time);
    while (to < starts.length && (starts[to] as number) < end) to++;
    yield { end, from, to };
    time = end;
  }
}
