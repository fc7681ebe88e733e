/** Pending timers of a virtual clock: a binary min-heap by due time, ties in order of creation.
 *  A timer knows its place, so a cancelled timer leaves immediately. Most timers are timeouts that
 *  are cancelled long before they fall due. */

export interface Timer {
  dueMs: number;
  readonly order: number;
  readonly everyMs: number | undefined;
  readonly run: () => void;
  /** Index in the heap; -1 outside. */
  place: number;
}

const isBefore = (a: Timer, b: Timer): boolean =>
  a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.order < b.order);

export class TimerHeap {
  private readonly timers: Timer[] = [];

  get size(): number {
    return this.timers.length;
  }

  /** Returns the timer that falls due first. */
  first(): Timer | undefined {
    return this.timers[0];
  }

  add(timer: Timer): void {
    this.rise(timer, this.timers.length);
  }

  /** Removes a timer; without effect if it is not in the heap. */
  remove(timer: Timer): void {
    const { timers } = this;
    const { place } = timer;
    if (place < 0) return;
    timer.place = -1;
    const last = timers.pop() as Timer;
    if (last === timer) return;
    if (place > 0 && isBefore(last, timers[(place - 1) >> 1] as Timer)) this.rise(last, place);
    else this.sink(last, place);
  }

  /** Stores a timer at the free place, or above it. */
  private rise(timer: Timer, free: number): void {
    const { timers } = this;
    let place = free;
    while (place > 0) {
      const above = (place - 1) >> 1;
      const parent = timers[above] as Timer;
      if (!isBefore(timer, parent)) break;
      timers[place] = parent;
      parent.place = place;
      place = above;
    }
    timers[place] = timer;
    timer.place = place;
  }

  /** Stores a timer at the free place, or below it. */
  private sink(timer: Timer, free: number): void {
    const { timers } = this;
    let place = free;
    for (;;) {
      let below = 2 * place + 1;
      if (below >= timers.length) break;
      if (below + 1 < timers.length && isBefore(timers[below + 1] as Timer, timers[below] as Timer)) below++;
      const child = timers[below] as Timer;
      if (!isBefore(child, timer)) break;
      timers[place] = child;
      child.place = place;
      place = below;
    }
    timers[place] = timer;
    timer.place = place;
  }
}
