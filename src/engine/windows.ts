/** Which windows an event belongs to. Windows are half-open, [start, end), and aligned to the epoch.
 *
 *  Events are accumulated by slice, the widest interval that lies wholly inside or outside of every window; a tumbling
 *  window is its own slice.
 */
import { floorTo } from '../core/time.ts';

export interface WindowAssigner {
  readonly kind: 'tumbling';
  readonly sliceMs: number;
  /** Start of the slice that holds the timestamp. */
  sliceOf(eventTs: number): number;
  /** End of the first window to fire that holds the slice. */
  firstEndOf(sliceStart: number): number;
}

export class TumblingWindows implements WindowAssigner {
  readonly kind = 'tumbling';
  readonly sliceMs: number;

  constructor(sizeMs: number) {
    this.sliceMs = sizeMs;
  }

  sliceOf(eventTs: number): number {
    return floorTo(eventTs, this.sliceMs);
  }

  firstEndOf(sliceStart: number): number {
    return sliceStart + this.sliceMs;
  }
}
