/** FIFO queue with a second entry at the front: requeued items leave before new ones. */

/** Removed items are cut off in blocks, so that a removal does not copy the rest. */
const CUT_AFTER = 4096;

export class RequeueQueue<T> {
  private front: T[] = [];
  private frontAt = 0;
  private back: T[] = [];
  private backAt = 0;

  /** Next item, or undefined; it stays in the queue. */
  peek(): T | undefined {
    return this.frontAt < this.front.length ? this.front[this.frontAt] : this.back[this.backAt];
  }

  shift(): void {
    if (this.frontAt < this.front.length) {
      this.frontAt++;
      if (this.frontAt === this.front.length) {
        this.front = [];
        this.frontAt = 0;
      }
      return;
    }
    this.backAt++;
    if (this.backAt === this.back.length) {
      this.back = [];
      this.backAt = 0;
    } else if (this.backAt >= CUT_AFTER) {
      this.back = this.back.slice(this.backAt);
      this.backAt = 0;
    }
  }

  /** True when the queue holds at least this many items, or this much weight. */
  reaches(count: number, weight: number, weigh: (one: T) => number): boolean {
    let fewer = count;
    let lighter = weight;
    const adds = (one: T): boolean => {
      fewer--;
      lighter -= weigh(one);
      return fewer <= 0 || lighter <= 0;
    };
    for (let i = this.frontAt; i < this.front.length; i++) if (adds(this.front[i] as T)) return true;
    for (let i = this.backAt; i < this.back.length; i++) if (adds(this.back[i] as T)) return true;
    return false;
  }

  push(one: T): void {
    this.back.push(one);
  }

  /** Inserts items behind earlier requeued items and before all others. */
  requeue(some: readonly T[]): void {
    for (const one of some) this.front.push(one);
  }

  /** Removes and returns the items that match; the others keep their order. */
  removeIf(chosen: (one: T) => boolean): T[] {
    const taken: T[] = [];
    const stay = (one: T): boolean => {
      if (!chosen(one)) return true;
      taken.push(one);
      return false;
    };
    this.front = this.front.slice(this.frontAt).filter(stay);
    this.back = this.back.slice(this.backAt).filter(stay);
    this.frontAt = 0;
    this.backAt = 0;
    return taken;
  }
}
