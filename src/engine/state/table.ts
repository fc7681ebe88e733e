/** Open-addressing table of accumulators: 64 bytes a slot in one typed array, no object a key, linear probing.
 *
 *  Invariants: (1) a slot is empty iff its count is 0; (2) at most LOAD of the slots are used, so a probe ends; (3)
 *  nothing is ever removed: the whole table goes when its window fires.
 *  All 64-bit numbers are word pairs; carries and comparisons are spelled out, so no BigInt is made an event.
 */
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import { ROW_WORDS } from '../accumulator.ts';
import { engineError } from '../errors.ts';

const LOAD = 0.7;
const SLOTS_MIN = 256;
/** 4 GiB of slots a (window, shard). */
const SLOTS_MAX = 2 ** 26;

const KEY = ACCUMULATOR.ACCOUNT_ID / 4;
const COUNT = ACCUMULATOR.COUNT / 4;
const SUM = ACCUMULATOR.SUM_LOW / 4;
const SUM_HIGH = ACCUMULATOR.SUM_HIGH / 4;
const MIN = ACCUMULATOR.MIN / 4;
const MAX = ACCUMULATOR.MAX / 4;
const LAST = ACCUMULATOR.LAST_UPDATE_TS / 4;

/** Spreads a key over the slots; differs from the shard hash, so that the keys of one shard do not cluster. */
function hashOf(low: number, high: number): number {
  let h = Math.imul(low, 0x9e3779b1) ^ Math.imul(high ^ (low >>> 15), 0x85ebca77);
  h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
  h = Math.imul(h ^ (h >>> 13), 0x297a2d39);
  return h ^ (h >>> 16);
}

/** Slots for a number of keys: a power of two. */
function slotsFor(keys: number): number {
  let slots = SLOTS_MIN;
  while (slots * LOAD < keys) slots *= 2;
  return slots;
}

export class AccumulatorTable {
  private words: Int32Array<ArrayBuffer>;
  private mask: number;
  private growAt: number;
  private used = 0;

  /** @throws state_full */
  constructor(keysExpected: number) {
    const slots = Math.min(slotsFor(keysExpected), SLOTS_MAX);
    this.words = new Int32Array(slots * ROW_WORDS);
    this.mask = slots - 1;
    this.growAt = Math.floor(slots * LOAD);
  }

  get keyCount(): number {
    return this.used;
  }
  get bytes(): number {
    return this.words.byteLength;
  }

  /** Folds one event in. @throws state_full */
  add(
    keyLow: number,
    keyHigh: number,
    valueLow: number,
    valueHigh: number,
    tsLow: number,
    tsHigh: number,
  ): void {
    let w = this.words;
    let at = this.find(keyLow, keyHigh);
    const count = w[at + COUNT] as number;
    if (count === 0 && w[at + COUNT + 1] === 0) {
      if (this.used >= this.growAt) {
        this.grow();
        w = this.words;
        at = this.find(keyLow, keyHigh);
      }
      this.used++;
      w[at + KEY] = keyLow;
      w[at + KEY + 1] = keyHigh;
      w[at + COUNT] = 1;
      w[at + SUM] = valueLow;
      w[at + SUM + 1] = valueHigh;
      w[at + SUM_HIGH] = valueHigh >> 31;
      w[at + SUM_HIGH + 1] = valueHigh >> 31;
      w[at + MIN] = valueLow;
      w[at + MIN + 1] = valueHigh;
      w[at + MAX] = valueLow;
      w[at + MAX + 1] = valueHigh;
      w[at + LAST] = tsLow;
      w[at + LAST + 1] = tsHigh;
      return;
    }
    w[at + COUNT] = count + 1;
    if (count === -1) w[at + COUNT + 1] = (w[at + COUNT + 1] as number) + 1;

    // 128-bit sum: the value is sign-extended, the carry of each word is read off the wrapped result.
    const s0 = ((w[at + SUM] as number) + valueLow) | 0;
    w[at + SUM] = s0;
    const carry0 = s0 >>> 0 < valueLow >>> 0 ? 1 : 0;
    const s1 = (w[at + SUM + 1] as number) + valueHigh + carry0;
    const carry1 = ((w[at + SUM + 1] as number) >>> 0) + (valueHigh >>> 0) + carry0 > 0xffff_ffff ? 1 : 0;
    w[at + SUM + 1] = s1;
    const high = carry1 + (valueHigh >> 31);
    if (high !== 0) {
      const s2 = w[at + SUM_HIGH] as number;
      w[at + SUM_HIGH] = s2 + high;
      if (high > 0 ? s2 === -1 : s2 === 0) w[at + SUM_HIGH + 1] = (w[at + SUM_HIGH + 1] as number) + high;
    }

    const minHigh = w[at + MIN + 1] as number;
    if (valueHigh < minHigh || (valueHigh === minHigh && valueLow >>> 0 < (w[at + MIN] as number) >>> 0)) {
      w[at + MIN] = valueLow;
      w[at + MIN + 1] = valueHigh;
    }
    const maxHigh = w[at + MAX + 1] as number;
    if (valueHigh > maxHigh || (valueHigh === maxHigh && valueLow >>> 0 > (w[at + MAX] as number) >>> 0)) {
      w[at + MAX] = valueLow;
      w[at + MAX + 1] = valueHigh;
    }
    const lastHigh = w[at + LAST + 1] as number;
    if (tsHigh > lastHigh || (tsHigh === lastHigh && tsLow >>> 0 > (w[at + LAST] as number) >>> 0)) {
      w[at + LAST] = tsLow;
      w[at + LAST + 1] = tsHigh;
    }
  }

  /** Puts a whole accumulator in; its key must not be there yet. */
  put(row: Int32Array, from: number): void {
    if (this.used >= this.growAt) this.grow();
    this.words.set(
      row.subarray(from, from + ROW_WORDS),
      this.find(row[from + KEY] as number, row[from + KEY + 1] as number),
    );
    this.used++;
  }

  /** Copies every used slot to `into` from word `at` on; returns the word behind the last. */
  copyTo(into: Int32Array, at: number): number {
    const w = this.words;
    let to = at;
    for (let slot = 0; slot < w.length; slot += ROW_WORDS) {
      if (w[slot + COUNT] === 0 && w[slot + COUNT + 1] === 0) continue;
      for (let i = 0; i < ROW_WORDS; i++) into[to + i] = w[slot + i] as number;
      to += ROW_WORDS;
    }
    return to;
  }

  /** Writes the keys of every used slot to `into` from cell `at` on. */
  keysTo(into: BigUint64Array, at: number): void {
    const keys = new Int32Array(into.buffer, into.byteOffset, into.length * 2);
    const w = this.words;
    let to = at * 2;
    for (let slot = 0; slot < w.length; slot += ROW_WORDS) {
      if (w[slot + COUNT] === 0 && w[slot + COUNT + 1] === 0) continue;
      keys[to] = w[slot + KEY] as number;
      keys[to + 1] = w[slot + KEY + 1] as number;
      to += 2;
    }
  }

  /** Copies the accumulator of a key to word `to` of `into`; false when the key is not here. */
  copyKey(keyLow: number, keyHigh: number, into: Int32Array, to: number): boolean {
    const w = this.words;
    const at = this.find(keyLow, keyHigh);
    if (w[at + COUNT] === 0 && w[at + COUNT + 1] === 0) return false;
    for (let i = 0; i < ROW_WORDS; i++) into[to + i] = w[at + i] as number;
    return true;
  }

  /** Word of the key's slot, or of the empty slot where it belongs. */
  private find(keyLow: number, keyHigh: number): number {
    const w = this.words;
    let slot = hashOf(keyLow, keyHigh) & this.mask;
    for (;;) {
      const at = slot * ROW_WORDS;
      if (w[at + KEY] === keyLow && w[at + KEY + 1] === keyHigh) return at;
      if (w[at + COUNT] === 0 && w[at + COUNT + 1] === 0) return at;
      slot = (slot + 1) & this.mask;
    }
  }

  private grow(): void {
    const old = this.words;
    const slots = (this.mask + 1) * 2;
    if (slots > SLOTS_MAX) {
      throw engineError(
        'state_full',
        `one window of one shard holds ${this.used} keys, the most a table takes`,
        {
          next: 'raise -shards or shorten -size',
        },
      );
    }
    this.words = new Int32Array(slots * ROW_WORDS);
    this.mask = slots - 1;
    this.growAt = Math.floor(slots * LOAD);
    const w = this.words;
    for (let from = 0; from < old.length; from += ROW_WORDS) {
      if (old[from + COUNT] === 0 && old[from + COUNT + 1] === 0) continue;
      const to = this.find(old[from + KEY] as number, old[from + KEY + 1] as number);
      for (let i = 0; i < ROW_WORDS; i++) w[to + i] = old[from + i] as number;
    }
  }
}
