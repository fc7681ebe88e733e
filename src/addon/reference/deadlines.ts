/** Which open sessions may have ended, without a timer a key: entries in buckets of event time, looked at once their bucket
 *  opens. An entry tells no truth: its session may have grown, merged or gone since, which whoever asks finds out. The
 *  addon's twin is native/kernel/session/deadlines.h.
 *
 *  Invariant: every open session has an entry of its key and start whose deadline is not later than its end.
 */

/** A gap spans so many buckets: an entry is looked at within an eighth of a gap of its deadline, however often its session
 *  grew meanwhile. */
const BUCKETS_A_GAP = 8;
const ENTRIES_FIRST = 16;
/** Key, start and deadline; as the addon counts them. */
const ENTRY_BYTES = 24;

/** Entries in arrays that double. */
class Entries {
  size = 0;
  /** The least deadline. */
  least = Number.POSITIVE_INFINITY;
  keys = new Int32Array(2 * ENTRIES_FIRST);
  /** Start and deadline of each, ms. */
  times = new Float64Array(2 * ENTRIES_FIRST);

  push(keyLow: number, keyHigh: number, start: number, deadline: number): void {
    const at = 2 * this.size;
    if (at === this.times.length) {
      const [keys, times] = [this.keys, this.times];
      this.keys = new Int32Array(2 * keys.length);
      this.keys.set(keys);
      this.times = new Float64Array(2 * times.length);
      this.times.set(times);
    }
    this.keys[at] = keyLow;
    this.keys[at + 1] = keyHigh;
    this.times[at] = start;
    this.times[at + 1] = deadline;
    if (deadline < this.least) this.least = deadline;
    this.size++;
  }
}

/** Says what became of the session of (key, start): the end it has, or NaN where there is none. One that ends at or before
 *  the frontier has been taken out by it. */
export type Visit = (keyLow: number, keyHigh: number, start: number) => number;

export class Deadlines {
  private readonly grainMs: number;
  private readonly buckets = new Map<number, Entries>();
  /** The first bucket that holds entries. */
  private first = Number.POSITIVE_INFINITY;
  private count = 0;

  constructor(gapMs: number) {
    this.grainMs = Math.max(1, Math.floor(gapMs / BUCKETS_A_GAP));
  }

  /** Nothing ends at or before a frontier below this: the least deadline. */
  get least(): number {
    return this.buckets.get(this.first)?.least ?? Number.POSITIVE_INFINITY;
  }

  get bytes(): number {
    return this.count * ENTRY_BYTES;
  }

  add(keyLow: number, keyHigh: number, start: number, deadline: number): void {
    const bucket = Math.floor(deadline / this.grainMs);
    let entries = this.buckets.get(bucket);
    if (entries === undefined) {
      entries = new Entries();
      this.buckets.set(bucket, entries);
      if (bucket < this.first) this.first = bucket;
    }
    entries.push(keyLow, keyHigh, start, deadline);
    this.count++;
  }

  /** Visits every entry whose deadline the frontier has reached, and enters again what ends later. */
  advance(frontier: number, visit: Visit): void {
    while (this.buckets.size > 0 && this.least <= frontier) {
      const { size, keys, times } = this.takeFirst();
      for (let at = 0; at < 2 * size; at += 2) {
        const [keyLow, keyHigh] = [keys[at] as number, keys[at + 1] as number];
        const start = times[at] as number;
        const deadline = times[at + 1] as number;
        const end = deadline <= frontier ? visit(keyLow, keyHigh, start) : deadline;
        if (end > frontier) this.add(keyLow, keyHigh, start, end);
      }
    }
  }

  private takeFirst(): Entries {
    const entries = this.buckets.get(this.first) as Entries;
    this.buckets.delete(this.first);
    this.count -= entries.size;
    this.first = Number.POSITIVE_INFINITY;
    for (const other of this.buckets.keys()) if (other < this.first) this.first = other;
    return entries;
  }
}
