/** A waiting line: first those who were let back in front, then those who came. */

/** Served places are cut off in blocks, so that serving one costs no copy of the rest. */
const CUT_AFTER = 4096;

export class Line<T> {
  private front: T[] = [];
  private frontAt = 0;
  private back: T[] = [];
  private backAt = 0;

  /** The next, or undefined. */
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

  /** Whether those who wait are at least so many, or weigh so much together. */
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

  /** Behind those who were let back earlier, before everybody else. */
  letBack(some: readonly T[]): void {
    for (const one of some) this.front.push(one);
  }

  /** Takes out whoever is chosen; the others keep their order. */
  takeOut(chosen: (one: T) => boolean): T[] {
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
