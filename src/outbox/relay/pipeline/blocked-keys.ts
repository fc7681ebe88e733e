/** Keys of which something was left, each with the range of ids in which that lies. */
import type { Covered } from './contract.ts';

export interface Hold {
  from: bigint;
  to: bigint;
  /** The count of rows left when the last of its rows was. */
  at: number;
}

export class Holds {
  private readonly byKey = new Map<string, Hold>();
  /** Rows left so far. */
  count = 0;

  get size(): number {
    return this.byKey.size;
  }

  of(key: string): Hold | undefined {
    return this.byKey.size === 0 ? undefined : this.byKey.get(key);
  }

  add(key: string, id: bigint): void {
    const hold = this.byKey.get(key);
    this.count++;
    if (hold === undefined) this.byKey.set(key, { from: id, to: id, at: this.count });
    else {
      hold.at = this.count;
      if (id < hold.from) hold.from = id;
      if (id > hold.to) hold.to = id;
    }
  }

  /** A call has brought everything in this range, of the keys it names: holds that lie in it end, one that reaches beyond begins behind it. */
  covered(covered: Covered): void {
    const { to, keys } = covered;
    const named = keys !== undefined && keys.size < this.byKey.size ? keys : this.byKey.keys();
    for (const key of named) {
      const hold = this.byKey.get(key);
      if (hold === undefined || hold.from > to || !begins(key, hold, covered)) continue;
      if (hold.to <= to) this.byKey.delete(key);
      else hold.from = to + 1n;
    }
  }
}

/** Whether what the hold begins with is among what a call brings. */
export function begins(key: string, hold: Hold, { from, asOf, keys, except }: Covered): boolean {
  return (
    from <= hold.from &&
    (asOf === undefined || hold.at <= asOf) &&
    (keys === undefined || keys.has(key)) &&
    except?.has(key) !== true
  );
}
