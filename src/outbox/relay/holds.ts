/** Keys of which something was left, each with the range of ids in which that lies. */
import type { Covered } from './pipeline.ts';

export interface Hold {
  from: bigint;
  to: bigint;
}

export class Holds {
  private readonly byKey = new Map<string, Hold>();

  get size(): number {
    return this.byKey.size;
  }

  of(key: string): Hold | undefined {
    return this.byKey.size === 0 ? undefined : this.byKey.get(key);
  }

  add(key: string, id: bigint): void {
    const hold = this.byKey.get(key);
    if (hold === undefined) this.byKey.set(key, { from: id, to: id });
    else {
      if (id < hold.from) hold.from = id;
      if (id > hold.to) hold.to = id;
    }
  }

  /** A call has brought everything in this range: holds that lie in it end, one that reaches beyond begins behind it. */
  covered({ from, to }: Covered): void {
    for (const [key, hold] of this.byKey) {
      if (hold.from < from || hold.from > to) continue;
      if (hold.to <= to) this.byKey.delete(key);
      else hold.from = to + 1n;
    }
  }
}
