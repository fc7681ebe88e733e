/** Calendar queue of session deadlines: entries in buckets of event time, without a timer for each
 *  key. Entries are hints: the session may have grown, merged or ended since, so verify each entry
 *  against its session. The addon's implementation is native/kernel/session/deadlines.h.
 *
 *  Invariant: every open session has an entry of its key and start whose deadline is not later than
 *  its end. */

/** Number of buckets in a gap: an entry is visited within an eighth of a gap of its deadline,
 *  however often its session grew meanwhile. */
const BUCKETS_A_GAP = 8;
const ENTRIES_FIRST = 16;
/** Bytes of key, start and deadline, as the addon counts them. */
const ENTRY_BYTES = 24;

/** Entries in arrays that double. */
class Entries {
  size = 0;
  /** Least deadline. */
  least = Number.POSITIVE_INFINITY;
  keys = new Int32Array(2 * ENTRIES_FIRST);
  /** Start and deadline of each entry, ms. */
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

/** Handles the session of (key, start) and returns its end, or NaN where there is no such session.
 *  A session that ends at or before the watermark is removed. */
export type Visit = (keyLow: number, keyHigh: number, start: number) => number;

export class Deadlines {
  private readonly grainMs: number;
  private readonly buckets = new Map<number, Entries>();
  /** Number of the first bucket that holds entries. */
  private first = Number.POSITIVE_INFINITY;
  private count = 0;

  constructor(gapMs: number) {
    this.grainMs = Math.max(1, Math.floor(gapMs / BUCKETS_A_GAP));
  }

  /** Least deadline: no session ends at or before a watermark below it. */
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

  /** Visits every entry whose deadline the watermark has reached, and adds an entry again when its
   *  session ends later. */
  advance(watermark: number, visit: Visit): void {
    while (this.buckets.size > 0 && this.least <= watermark) {
      const { size, keys, times } = this.removeFirst();
      for (let at = 0; at < 2 * size; at += 2) {
        const [keyLow, keyHigh] = [keys[at] as number, keys[at + 1] as number];
        const start = times[at] as number;
        const deadline = times[at + 1] as number;
        const end = deadline <= watermark ? visit(keyLow, keyHigh, start) : deadline;
        if (end > watermark) this.add(keyLow, keyHigh, start, end);
      }
    }
  }

  private removeFirst(): Entries {
    const entries = this.buckets.get(this.first) as Entries;
    this.buckets.delete(this.first);
    this.count -= entries.size;
    this.first = Number.POSITIVE_INFINITY;
    for (const other of this.buckets.keys()) if (other < this.first) this.first = other;
    return entries;
  }
}
