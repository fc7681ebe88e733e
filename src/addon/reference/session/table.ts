/** Open sessions of one shard: a hash table with linear probing, of accumulator rows. The spare
 *  cell of a row is the session's start and last_update_ts its last event, so a session is [start,
 *  last + gap). The addon's implementation is native/kernel/session/table.h.
 *
 *  Nearly every key has one open session; a key with several has several slots, all in the probe of
 *  the key. Invariants: (1) sessions of a key lie at least a gap apart, from the last event of one
 *  to the first event of the next; (2) a slot is empty iff its count is 0; (3) at most LOAD_TENTHS
 *  / 10 of the slots are used, so a probe ends; (4) a removed slot is filled from behind, so a
 *  probe never meets an empty slot before its target. */
import { fromWords } from '../../../core/time.ts';
import { Deadlines } from '../deadlines.ts';
import { isEmpty, KEY, LAST, SlotTable, SPARE, type TableRows } from '../window/table.ts';

export const START = SPARE;

export class SessionTable extends SlotTable {
  private readonly gapMs: number;
  private deadlines: Deadlines;
  private merged = 0;
  /** Last event of all sessions that were folded in since the table was empty. */
  private mostLast = Number.NEGATIVE_INFINITY;

  constructor(form: TableRows, gapMs: number) {
    super(form, 0, 'sessions in one shard');
    this.gapMs = gapMs;
    this.deadlines = new Deadlines(gapMs);
  }

  /** Number of open sessions. */
  get sessionCount(): number {
    return this.used;
  }
  /** Number of sessions that were merged into another. */
  get mergedCount(): number {
    return this.merged;
  }
  override get bytes(): number {
    return super.bytes + this.deadlines.bytes;
  }
  /** No session ends at or before a watermark below this. */
  get leastEnd(): number {
    return this.deadlines.least;
  }

  /** Folds a partial session into the table: it joins the sessions less than a gap away, or becomes
   *  a session of its own.
   *  @throws internal when the table is full */
  fold(rows: Int32Array, from: number): void {
    if (this.isFull) this.grow();
    const { words: w, mask, gapMs } = this;
    const { words: size } = this.form;
    const [low, high] = [rows[from + KEY] as number, rows[from + KEY + 1] as number];
    const start = timeAt(rows, from + START);
    const last = timeAt(rows, from + LAST);
    if (last > this.mostLast) this.mostLast = last;
    // Sessions near the merged session are near the part too: sessions of a key lie a gap apart, so
    // a merge does not reach another session.
    let near = -1;
    let least = Number.POSITIVE_INFINITY;
    let slot = this.homeOf(low, high);
    for (let at = slot * size; !isEmpty(w, at); at = slot * size) {
      const otherStart = timeAt(w, at + START);
      const isMine = w[at + KEY] === low && w[at + KEY + 1] === high;
      if (isMine && start - timeAt(w, at + LAST) < gapMs && otherStart - last < gapMs) {
        if (otherStart < least) least = otherStart;
        if (near < 0) near = at;
        else {
          this.form.fold(w, at, w, near);
          this.merged++;
          // `remove` shifted the next row of the cluster into this slot.
          this.remove(slot);
          continue;
        }
      }
      slot = (slot + 1) & mask;
    }
    if (near < 0) {
      near = slot * size;
      this.form.copy(w, near, rows, from);
      this.used++;
    } else {
      this.form.fold(rows, from, w, near);
      putTime(w, near + START, Math.min(start, least));
    }
    // A session whose start does not change has an entry already, with a deadline that is not
    // later.
    if (start < least) this.enter(near);
  }

  /** Removes every session whose end the watermark has reached; `collect` must copy the row before
   *  it returns. No event before the watermark may be folded in later. */
  fire(watermark: number, collect: (rows: Int32Array, at: number) => void): void {
    this.deadlines.advance(watermark, (keyLow, keyHigh, start) => {
      const slot = this.find(keyLow, keyHigh, start);
      if (slot < 0) return Number.NaN;
      const at = slot * this.form.words;
      const end = timeAt(this.words, at + LAST) + this.gapMs;
      if (end <= watermark) {
        collect(this.words, at);
        this.remove(slot);
      }
      return end;
    });
  }

  /** True when there are sessions and the watermark has reached the ends of all. Then `detach`
   *  removes them without a scan. */
  haveAllEnded(watermark: number): boolean {
    return this.used > 0 && watermark >= this.mostLast + this.gapMs;
  }

  /** Removes all sessions and returns their slots. */
  detach(): Int32Array {
    const { words } = this;
    this.used = 0;
    this.reserve(0);
    this.deadlines = new Deadlines(this.gapMs);
    this.mostLast = Number.NEGATIVE_INFINITY;
    return words;
  }

  /** Open sessions of a key, each as a row, ascending by start. */
  ofKey(keyLow: number, keyHigh: number): Int32Array[] {
    const { words: w, mask } = this;
    const { words: size } = this.form;
    const found: Int32Array[] = [];
    let slot = this.homeOf(keyLow, keyHigh);
    for (; !isEmpty(w, slot * size); slot = (slot + 1) & mask) {
      const at = slot * size;
      if (w[at + KEY] === keyLow && w[at + KEY + 1] === keyHigh) found.push(w.slice(at, at + size));
    }
    return found.sort((a, b) => timeAt(a, START) - timeAt(b, START));
  }

  private enter(at: number): void {
    const w = this.words;
    const deadline = timeAt(w, at + LAST) + this.gapMs;
    this.deadlines.add(w[at + KEY] as number, w[at + KEY + 1] as number, timeAt(w, at + START), deadline);
  }

  /** Slot of the session, -1 where there is none. */
  private find(keyLow: number, keyHigh: number, start: number): number {
    const w = this.words;
    const { words: size } = this.form;
    let slot = this.homeOf(keyLow, keyHigh);
    for (; !isEmpty(w, slot * size); slot = (slot + 1) & this.mask) {
      const at = slot * size;
      if (w[at + KEY] === keyLow && w[at + KEY + 1] === keyHigh && timeAt(w, at + START) === start)
        return slot;
    }
    return -1;
  }

  /** Empties the slot and closes the gap by backward-shift deletion: later rows of the cluster move
   *  towards their home slots. */
  private remove(slot: number): void {
    const { words: w, mask } = this;
    const { words: size } = this.form;
    let hole = slot;
    for (let next = (hole + 1) & mask; !isEmpty(w, next * size); next = (next + 1) & mask) {
      const at = next * size;
      const home = this.homeOf(w[at + KEY] as number, w[at + KEY + 1] as number);
      if (((next - home) & mask) < ((next - hole) & mask)) continue;
      this.form.copy(w, hole * size, w, at);
      hole = next;
    }
    w.fill(0, hole * size, (hole + 1) * size);
    this.used--;
  }
}

/** Time at a word, ms. */
export const timeAt = (w: Int32Array, at: number): number => fromWords(w[at] as number, w[at + 1] as number);

/** Writes a time within the limits of event times. */
export function putTime(w: Int32Array, at: number, time: number): void {
  w[at] = time;
  w[at + 1] = Math.floor(time / 2 ** 32);
}
