/** Bounded cache of keys by id: a ring of entries in order of insertion, and a hash table of their
 *  positions with linear probing.
 *
 *  An entry has the layout KEY_ENTRY and the bytes of the key, padded with zeros to whole words.
 *  The oldest entry is evicted first; an entry that was referenced since its insertion moves to
 *  the head once instead (second chance). Memory is allocated once, and pages that are never
 *  written cost none.
 *  Invariants: (1) an id is cached at most once; (2) an entry of an epoch above `writtenEpoch`,
 *  which is in no store yet, is never evicted. */
import { KEY_ENTRY } from '../../core/layout/layouts.gen.ts';

const HEADER = KEY_ENTRY.TEXT / 4;
const GENERATION = KEY_ENTRY.GENERATION / 4;
const EPOCH = KEY_ENTRY.EPOCH / 4;
const LENGTH = KEY_ENTRY.LENGTH / 4;
/** Greatest share of the slots in use. */
const LOAD_MAX = 0.75;
/** Entries that one search for room keeps for their reference bit. */
const SECOND_CHANCES_MAX = 64;

const sizeOf = (length: number): number => HEADER + ((length + 3) >> 2);

export class KeyCache {
  /** Epochs up to this one are in the store. */
  writtenEpoch = 0;
  /** Entries of earlier generations have no meaning any more. */
  oldestGeneration = 0;
  /** False once an entry that has a meaning was evicted. */
  isComplete = true;
  readonly bytes: number;
  /** Entries; a kernel searches them. */
  readonly ring: Int32Array;
  private readonly octets: Uint8Array;
  /** Position of an entry plus 1; 0: empty. */
  readonly slots: Int32Array;
  private readonly mask: number;
  private count = 0;
  private head = 0;
  private tail = 0;
  /** End of the entries before the head returned to 0. */
  private wrapAt = 0;
  /** True if the head has returned to 0 and the tail has not. */
  private isWrapped = false;

  /** @param bytesMax memory of ring and table; at least 1 MiB is used */
  constructor(bytesMax: number) {
    const bytes = Math.max(1024 * 1024, bytesMax);
    const slots = 2 ** Math.floor(Math.log2(bytes / 16));
    this.slots = new Int32Array(slots);
    this.mask = slots - 1;
    this.ring = new Int32Array(Math.floor((bytes - slots * 4) / 4));
    this.octets = new Uint8Array(this.ring.buffer);
    this.bytes = this.ring.byteLength + this.slots.byteLength;
  }

  /** Bytes of entries that may be in no store yet: a part of the ring, so that there is room. */
  get unwrittenBytesMax(): number {
    return this.ring.byteLength >> 2;
  }

  /** Number of cached keys. */
  get size(): number {
    return this.count;
  }

  /** True if more than 7/8 of the memory is in use. */
  get isNearlyFull(): boolean {
    const room = this.isWrapped ? this.tail - this.head : this.ring.length - this.head;
    return room < this.ring.length >> 3 || this.count > this.mask * LOAD_MAX * 0.875;
  }

  /** Position of an id; -1: not cached. */
  find(low: number, high: number): number {
    const { slots, ring, mask } = this;
    for (let slot = low & mask; ; slot = (slot + 1) & mask) {
      const at = (slots[slot] as number) - 1;
      if (at < 0) return -1;
      if (ring[at] === low && ring[at + 1] === high) return at;
    }
  }

  /** True if the entry has these bytes, which begin at word `from` and are padded with zeros. */
  isKey(at: number, words: Int32Array, from: number, length: number): boolean {
    const { ring } = this;
    if (this.length(at) !== length) return false;
    const count = (length + 3) >> 2;
    for (let i = 0; i < count; i++) if (ring[at + HEADER + i] !== words[from + i]) return false;
    return true;
  }

  generation(at: number): number {
    return this.ring[at + GENERATION] as number;
  }

  /** Marks the entry as used. */
  touch(at: number): void {
    const length = this.ring[at + LENGTH] as number;
    if ((length & 1) === 0) this.ring[at + LENGTH] = length | 1;
  }

  renew(at: number, generation: number, epoch: number): void {
    this.ring[at + GENERATION] = generation;
    this.ring[at + EPOCH] = epoch;
  }

  /** Bytes of the key of the entry. */
  length(at: number): number {
    return (this.ring[at + LENGTH] as number) >> 1;
  }

  /** Bytes of the entry, borrowed until the next insertion. */
  key(at: number): Uint8Array {
    const from = (at + HEADER) * 4;
    return this.octets.subarray(from, from + this.length(at));
  }

  /** Inserts a key, or replaces the key of the id. Its bytes begin at word `from` and are padded
   *  with zeros. */
  insert(
    low: number,
    high: number,
    generation: number,
    epoch: number,
    words: Int32Array,
    from: number,
    length: number,
  ): void {
    this.remove(low, high);
    const size = sizeOf(length);
    this.makeRoom(size);
    const { ring } = this;
    const at = this.head;
    ring[at] = low;
    ring[at + 1] = high;
    ring[at + GENERATION] = generation;
    ring[at + EPOCH] = epoch;
    ring[at + LENGTH] = length << 1;
    const count = size - HEADER;
    for (let i = 0; i < count; i++) ring[at + HEADER + i] = words[from + i] as number;
    this.head += size;
    this.link(at);
  }

  private link(at: number): void {
    const { slots, ring, mask } = this;
    let slot = (ring[at] as number) & mask;
    while (slots[slot] !== 0) slot = (slot + 1) & mask;
    slots[slot] = at + 1;
    this.count++;
  }

  /** Removes an id from the table; its bytes stay in the ring until they are evicted. */
  private remove(low: number, high: number): void {
    const { slots, ring, mask } = this;
    let slot = low & mask;
    for (; ; slot = (slot + 1) & mask) {
      const at = (slots[slot] as number) - 1;
      if (at < 0) return;
      if (ring[at] === low && ring[at + 1] === high) break;
    }
    this.count--;
    // Moves later entries of the cluster back, so that no search ends at the gap.
    for (let next = (slot + 1) & mask; slots[next] !== 0; next = (next + 1) & mask) {
      const home = (ring[(slots[next] as number) - 1] as number) & mask;
      if (((next - home) & mask) < ((next - slot) & mask)) continue;
      slots[slot] = slots[next] as number;
      slot = next;
    }
    slots[slot] = 0;
  }

  /** Makes room for an entry at the head. */
  private makeRoom(size: number): void {
    const kept: Int32Array[] = [];
    this.roomFor(size, kept);
    for (const entry of kept) {
      this.roomFor(entry.length, undefined);
      this.ring.set(entry, this.head);
      this.link(this.head);
      this.head += entry.length;
    }
    if (kept.length > 0) this.roomFor(size, undefined);
  }

  private roomFor(size: number, kept: Int32Array[] | undefined): void {
    while (!this.hasRoom(size) || this.count >= this.mask * LOAD_MAX) this.evict(kept);
  }

  private hasRoom(size: number): boolean {
    if (this.isWrapped) return this.head + size < this.tail;
    if (this.head + size <= this.ring.length) return true;
    if (size >= this.tail) return false;
    this.wrapAt = this.head;
    this.head = 0;
    this.isWrapped = true;
    return true;
  }

  /** Evicts the oldest entry, or keeps it: for its reference bit, or because it is in no store. */
  private evict(kept: Int32Array[] | undefined): void {
    if (this.isWrapped && this.tail === this.wrapAt) {
      this.tail = 0;
      this.isWrapped = false;
      return;
    }
    const { ring, tail: at } = this;
    if (!this.isWrapped && at === this.head) throw new RangeError('the cache of keys is too small');
    const size = sizeOf((ring[at + LENGTH] as number) >> 1);
    const [low, high] = [ring[at] as number, ring[at + 1] as number];
    const isLive = this.find(low, high) === at;
    this.tail += size;
    if (!isLive) return;
    this.remove(low, high);
    if ((ring[at + GENERATION] as number) < this.oldestGeneration) return;
    const isUnwritten = (ring[at + EPOCH] as number) > this.writtenEpoch;
    const isUsed = ((ring[at + LENGTH] as number) & 1) !== 0;
    if (isUnwritten || (isUsed && kept !== undefined && kept.length < SECOND_CHANCES_MAX)) {
      const entry = ring.slice(at, at + size);
      entry[LENGTH] = (entry[LENGTH] as number) & ~1;
      if (kept !== undefined) kept.push(entry);
      else this.reinsert(entry);
    } else this.isComplete = false;
  }

  /** Moves an unwritten entry to the head while room is made for another. */
  private reinsert(entry: Int32Array): void {
    while (!this.hasRoom(entry.length)) this.evict(undefined);
    this.ring.set(entry, this.head);
    this.link(this.head);
    this.head += entry.length;
  }
}
