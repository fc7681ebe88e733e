/** Blocked keys: keys with rows that were left unpublished, each with the range of ids of those
 *  rows. A later row of a blocked key is not sent, because that would break the order of the
 *  key. */
import type { Covered } from './contract.ts';

export interface Hold {
  from: bigint;
  to: bigint;
  /** Value of the counter of left rows when the newest row of this key was left. */
  at: number;
}

export class BlockedKeys {
  private readonly byKey = new Map<string, Hold>();
  /** Number of rows left so far; a row counts again each time it is left. */
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

  /** Records that a call delivered every pending row of its keys within a range. A hold inside the
   *  range ends; a hold that reaches beyond the range now begins behind it. */
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

/** True when the first row of the hold is among the rows of the call. */
export function begins(key: string, hold: Hold, { from, asOf, keys, except }: Covered): boolean {
  return (
    from <= hold.from &&
    (asOf === undefined || hold.at <= asOf) &&
    (keys === undefined || keys.has(key)) &&
    except?.has(key) !== true
  );
}
