/** Dictionary of variable-length keys: interns each key to an id of 64 bits, under which tables,
 *  kernels, changelog and sorted runs know it.
 *
 *  The id is the hash of the canonical bytes, or one of the next free numbers if another key has
 *  that id. The changelog has an assignment before the first row that uses it; a store on disk has
 *  every key of the state, and a bounded cache the keys that were used last.
 *  Invariants: (1) two keys never share an id, and a key never has two, as long as a row of the
 *  state has it; (2) before a checkpoint the store has all assignments that the changelog had; (3)
 *  a key is removed only after all windows that it was used in are durable in the sinks, in the
 *  oldest kept checkpoint too. Ids leave the process in the changelog only: outputs have the bytes.
 */
import { type KeyKernel, type KeyKernels, type KeyProbe, REST_CELLS } from '../../addon/key-surface.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { HalfSipHash, type KeyHash } from '../../core/random/half-sip-hash.ts';
import type { KvStore } from '../../io/rocksdb/port.ts';
import { KeyCache } from './cache.ts';
import type { KeyColumn } from './column.ts';
import { type KeyEntries, KeyJournal } from './journal.ts';
import { keysOfPage } from './page-keys.ts';
import type { KeySpans } from './spans.ts';
import { corruptKeys, type FoundKeys, KeyRows, KeyStore, type StoredKey } from './store.ts';
import { KEY_BYTES_MAX } from './type.ts';

/** Least event time between two generations, in ms. */
const GENERATION_MS_MIN = 60_000;
/** A missed key may be looked up in each generation, so there are few. */
const GENERATIONS_MAX = 4;
/** A key is written again in the first use of each generation, so the current one lasts until it is
 *  the only one, but at most so many times the least time: an event far in the future delays the
 *  removal of its own generation only. */
const GENERATION_TIMES_MAX = 8;
/** Bytes of a cached key beside its own, at most. */
const ENTRY_BYTES = 24;
/** Bytes of noted rows that are written together, at most an eighth of the unwritten ones. */
const WRITE_BYTES = 4 * 1024 * 1024;

export interface KeyDictionaryParts {
  /** Opens the store, which has KEY_FAMILIES; called once. */
  readonly open: () => Promise<KvStore>;
  /** Returns 8 random bytes. */
  readonly secret: () => Uint8Array;
  /** Memory of the cache, in bytes. */
  readonly bytesMax: number;
  /** Memory of the store, in bytes. */
  readonly storeBytes: number;
  /** Greatest time from an event to the end of a window that contains it, in ms. */
  readonly spanMs: number;
  readonly kernels: KeyKernels;
  /** Another hash, which the kernel has too; absent: HalfSipHash. */
  readonly hash?: (secret: Uint8Array) => KeyHash;
}

/** Components that `open` creates. */
interface Opened {
  readonly store: KeyStore;
  readonly folder: string;
  readonly hash: KeyHash;
  readonly kernel: KeyKernel;
  readonly cache: KeyCache;
}

/** Returns the stored key whose id has this distance from the hash. */
type StoredAt = (distance: number) => StoredKey | undefined;

const never = Number.NEGATIVE_INFINITY;

export class KeyDictionary {
  private readonly parts: KeyDictionaryParts;
  private readonly generationMs: number;
  private opening: Promise<void> | undefined;
  private opened: Opened | undefined;
  /** Greatest distance of an id from the hash of its key; it never falls. */
  private displaced = 0;
  /** Bounds of the generations by number, oldest first; the last one is the current one. */
  private readonly bounds = new Map<number, number>();
  private generation = 0;
  /** Frontier at which the current generation began. */
  private since = never;
  private epoch = 1;
  /** Rows of the current epoch, of one batch or of several. */
  private rows = new KeyRows();
  /** Upper bound of the bytes of these rows and of the missed keys. */
  private rowBytes = 0;
  private writing: Promise<void> | undefined;
  private unwrittenBytes = 0;
  private failure: unknown;
  private isFlushed = true;
  private readonly journal = new KeyJournal();
  /** Rows of the batch whose keys are not cached. */
  private missed: number[] = [];
  /** Result of the kernel. */
  private found: KeyProbe = { rest: new Int32Array(0), state: new Float64Array(4) };
  /** Words of a key for `hash` and the cache. */
  private readonly scratch = new Int32Array(KEY_BYTES_MAX / 4 + 1);
  private readonly octets = new Uint8Array(this.scratch.buffer);

  constructor(parts: KeyDictionaryParts) {
    this.parts = parts;
    this.generationMs = Math.max(GENERATION_MS_MIN, parts.spanMs);
  }

  get isOpen(): boolean {
    return this.opened !== undefined;
  }

  /** Memory of the cache and the store, in bytes; 0 before `open`. */
  get bytes(): number {
    const { opened } = this;
    return opened === undefined ? 0 : opened.cache.bytes + this.parts.storeBytes;
  }

  /** Opens the store, and loads as many keys as the cache holds.
   *  @param mustExist true: a store without a dictionary is an error
   *  @throws state_corrupt */
  open(mustExist = false): Promise<void> {
    this.opening ??= this.load(mustExist);
    return this.opening;
  }

  private async load(mustExist: boolean): Promise<void> {
    const kv = await this.parts.open();
    const store = new KeyStore(kv);
    let secret = await store.secret();
    if (secret === undefined) {
      if (mustExist) throw corruptKeys(kv.folder);
      secret = this.parts.secret();
      await store.begin(secret);
    }
    const hash = this.parts.hash?.(secret) ?? new HalfSipHash(secret);
    const kernel = this.parts.kernels.open(secret);
    const cache = new KeyCache(this.parts.bytesMax);
    this.displaced = await store.displaced();
    for (const { number, bound } of await store.generations()) this.bounds.set(number, bound);
    this.generation = Math.max(1, ...this.bounds.keys());
    if (!this.bounds.has(this.generation)) await this.begin(store, this.generation);
    cache.oldestGeneration = Math.min(...this.bounds.keys());
    // The newest generation of an id decides.
    for (const number of [...this.bounds.keys()].reverse())
      await store.scan(number, ({ generation, low, high, words, length }) => {
        if (cache.isNearlyFull) cache.isComplete = false;
        else if (cache.find(low, high) < 0) cache.insert(low, high, generation, 0, words, 0, length);
        return cache.isComplete;
      });
    this.opened = { store, folder: kv.folder, hash, kernel, cache };
  }

  private async begin(store: KeyStore, generation: number): Promise<void> {
    this.bounds.set(generation, never);
    // Before the first row of the generation, which may be durable when it is written.
    await store.putGeneration({ number: generation, bound: never }, 'sync');
  }

  private get active(): Opened {
    if (this.failure !== undefined) throw this.failure;
    if (this.opened === undefined) throw new Error('the dictionary of keys is not open');
    return this.opened;
  }

  /** Sets the id of every row with status OK. Returns a promise only where the store is needed; the
   *  batch must not be touched before it settles. */
  intern(events: EventBatch, spans: KeySpans): void | Promise<void> {
    const { cache } = this.active;
    const noted = this.rows.count;
    const next = this.probe(events, spans, 0);
    const isReady = cache.isComplete && this.unwrittenBytes + this.rowBytes < cache.unwrittenBytesMax;
    if (!isReady && (this.missed.length > 0 || this.rows.count > noted))
      return this.settle(events, spans, next);
    const again = this.assignAll(events, spans, undefined);
    if (next < events.rowCount || again.length > 0) return this.settle(events, spans, next, again);
    this.writeMany();
    return undefined;
  }

  /** Looks up missed keys, and continues with the rows from `from` on.
   *  @param first rows that have no id yet, beside the missed ones */
  private async settle(
    events: EventBatch,
    spans: KeySpans,
    from: number,
    first: readonly number[] = [],
  ): Promise<void> {
    let left = first;
    for (let next = from; ; next = this.probe(events, spans, next)) {
      if (this.unwrittenBytes > 0) await this.writing;
      const { cache } = this.active;
      const isKnown = cache.isComplete || this.missed.length === 0;
      const found = isKnown ? undefined : await this.lookup(spans, this.missed);
      for (const row of [...left, ...this.assignAll(events, spans, found)])
        await this.assignSlowly(events, spans, row);
      left = [];
      this.writeMany();
      if (next >= events.rowCount) return;
    }
  }

  /** Sets the ids of cached keys and notes the other rows, from `from` on. Returns the row at which
   *  it stopped: the unwritten keys are bounded. */
  private probe(events: EventBatch, spans: KeySpans, from: number): number {
    const { cache, kernel } = this.active;
    const bytesMax = cache.unwrittenBytesMax >> 1;
    this.missed = [];
    if (this.found.rest.length < REST_CELLS * events.rowCapacity)
      this.found = { rest: new Int32Array(REST_CELLS * events.rowCapacity), state: this.found.state };
    const { rest, state } = this.found;
    let latest = never;
    let row = from;
    while (row < events.rowCount && this.rowBytes < bytesMax) {
      kernel.probe(events, spans, row, cache, this.generation, bytesMax - this.rowBytes, this.found);
      row = state[0] as number;
      latest = Math.max(latest, state[3] as number);
      this.readRest(events, spans, rest, state[1] as number);
    }
    if (latest > (this.bounds.get(this.generation) as number)) this.raise(latest + this.generationMs);
    return row;
  }

  /** Sets the ids of the rows that the kernel has listed, as far as the cache has their keys. */
  private readRest(events: EventBatch, spans: KeySpans, rest: Int32Array, count: number): void {
    const ids = new Int32Array(events.buffer, events.columns.accountId.byteOffset, events.rowCount * 2);
    for (let cell = 0; cell < count * REST_CELLS; cell += REST_CELLS) {
      const row = rest[cell] as number;
      const [low, high] = [rest[cell + 1] as number, rest[cell + 2] as number];
      const [at, length] = [spans.at[row] as number, spans.length[row] as number];
      if (this.cachedAt(low, high, spans.words, at, length, ids, row)) continue;
      this.missed.push(row);
      this.rowBytes += ENTRY_BYTES + length;
    }
  }

  /** Looks for a key in the cache; sets the id of the row. */
  private cached(words: Int32Array, at: number, length: number, ids: Int32Array, row: number): boolean {
    const { hash } = this.opened as Opened;
    hash.hash(words, at, length);
    return this.cachedAt(hash.low, hash.high, words, at, length, ids, row);
  }

  private cachedAt(
    hashLow: number,
    hashHigh: number,
    words: Int32Array,
    at: number,
    length: number,
    ids: Int32Array,
    row: number,
  ): boolean {
    const { cache } = this.opened as Opened;
    let [low, high] = [hashLow, hashHigh];
    for (let distance = 0; distance <= this.displaced; distance++) {
      const found = cache.find(low, high);
      if (found >= 0 && cache.isKey(found, words, at, length)) {
        const generation = cache.generation(found);
        if (generation !== this.generation) {
          if (!this.bounds.has(generation)) return false;
          cache.renew(found, this.generation, this.epoch);
          this.note(low, high, cache.key(found));
        }
        cache.touch(found);
        ids[row * 2] = low;
        ids[row * 2 + 1] = high;
        return true;
      }
      low = (low + 1) | 0;
      if (low === 0) high = (high + 1) | 0;
    }
    return false;
  }

  /** Assigns ids to the missed rows. Returns the rows for which more must be known.
   *  @param found stored keys of the missed rows; undefined: the cache has all keys */
  private assignAll(events: EventBatch, spans: KeySpans, found: FoundKeys | undefined): readonly number[] {
    const { missed } = this;
    if (missed.length === 0) return missed;
    const { cache } = this.active;
    const ids = new Int32Array(events.buffer, events.columns.accountId.byteOffset, events.rowCount * 2);
    const distances = this.displaced + 1;
    const again = missed.filter((row, index) => {
      const at = spans.at[row] as number;
      if (this.cached(spans.words, at, spans.length[row] as number, ids, row)) return false;
      // An insertion may have evicted the key that has the id.
      if (found === undefined && !cache.isComplete) return true;
      return !this.assign(spans, row, ids, (distance) => found?.find(index * distances + distance));
    });
    this.missed = [];
    return again;
  }

  /** Finds the key among the stored ones, or assigns the first free id. False: no id up to the
   *  greatest distance is free. */
  private assign(spans: KeySpans, row: number, ids: Int32Array, stored: StoredAt): boolean {
    const { hash } = this.active;
    const key = spans.key(row);
    hash.hash(spans.words, spans.at[row] as number, spans.length[row] as number);
    let isFree = false;
    let [low, high] = [hash.low, hash.high];
    let [freeLow, freeHigh] = [0, 0];
    for (let distance = 0; distance <= this.displaced; distance++) {
      const cached = this.holder(low, high);
      const found = cached === undefined ? stored(distance) : undefined;
      const holder = cached ?? found?.key;
      if (holder === undefined && !isFree) [isFree, freeLow, freeHigh] = [true, low, high];
      if (holder !== undefined && Buffer.compare(holder, key) === 0) {
        const isCurrent = found?.generation === this.generation;
        this.adopt(spans, row, ids, { low, high, isNew: !isCurrent });
        return true;
      }
      low = (low + 1) | 0;
      if (low === 0) high = (high + 1) | 0;
    }
    if (isFree) this.adopt(spans, row, ids, { low: freeLow, high: freeHigh, isNew: true });
    return isFree;
  }

  /** Caches the key of a row under its id. `isNew`: the current generation does not have it. */
  private adopt(
    spans: KeySpans,
    row: number,
    ids: Int32Array,
    { low, high, isNew }: { readonly low: number; readonly high: number; readonly isNew: boolean },
  ): void {
    const [at, length] = [spans.at[row] as number, spans.length[row] as number];
    const epoch = isNew ? this.epoch : 0;
    this.active.cache.insert(low, high, this.generation, epoch, spans.words, at, length);
    if (isNew) this.note(low, high, spans.key(row));
    ids[row * 2] = low;
    ids[row * 2 + 1] = high;
  }

  /** Key that an id has in the cache; undefined: none that is in use. */
  private holder(low: number, high: number): Uint8Array | undefined {
    const { cache } = this.active;
    const at = cache.find(low, high);
    return at >= 0 && this.bounds.has(cache.generation(at)) ? cache.key(at) : undefined;
  }

  /** Assigns an id to one row, whatever the cache holds and however far from the hash the id is. */
  private async assignSlowly(events: EventBatch, spans: KeySpans, row: number): Promise<void> {
    const ids = new Int32Array(events.buffer, events.columns.accountId.byteOffset, events.rowCount * 2);
    const [at, length] = [spans.at[row] as number, spans.length[row] as number];
    for (;;) {
      const { cache, store } = this.active;
      const found = cache.isComplete ? undefined : await this.lookup(spans, [row]);
      if (this.cached(spans.words, at, length, ids, row)) return;
      if (this.assign(spans, row, ids, (distance) => found?.find(distance))) return;
      this.displaced++;
      this.isFlushed = false;
      await store.putDisplaced(this.displaced, 'on');
    }
  }

  /** Looks up the ids that the keys of the rows may have. */
  private lookup(spans: KeySpans, rows: readonly number[]): Promise<FoundKeys> {
    const { hash, store } = this.active;
    const ids = new Int32Array(rows.length * (this.displaced + 1) * 2);
    let at = 0;
    for (const row of rows) {
      hash.hash(spans.words, spans.at[row] as number, spans.length[row] as number);
      at = putCandidates(ids, at, hash, this.displaced);
    }
    return store.lookup(ids, [...this.bounds.keys()]);
  }

  /** Notes a key of the current generation that the changelog and the store do not have. */
  private note(low: number, high: number, key: Uint8Array): void {
    this.rows.add(this.generation, low, high, key);
    this.rowBytes += ENTRY_BYTES + key.length;
    this.journal.add(low, high, key);
  }

  private raise(bound: number): void {
    this.bounds.set(this.generation, bound);
    this.journal.raise(bound);
    this.isFlushed = false;
  }

  /** Starts to write the noted keys once they are many: until a checkpoint, the changelog and the
   *  cache suffice. */
  private writeMany(): void {
    const { size } = this.rows;
    if (size >= Math.min(WRITE_BYTES, this.active.cache.unwrittenBytesMax >> 3)) this.write();
    else this.rowBytes = 2 * size;
  }

  /** Starts to write the noted keys; `writing` settles when they and all earlier keys are stored.
   */
  private write(): void {
    const { rows, epoch } = this;
    this.rowBytes = 0;
    if (rows.count === 0) return;
    const { store, cache } = this.active;
    const bytes = rows.size;
    this.rows = new KeyRows();
    this.unwrittenBytes += bytes;
    this.epoch++;
    this.isFlushed = false;
    this.writing = (this.writing ?? Promise.resolve())
      .then(() => store.write(rows))
      .then(() => {
        cache.writtenEpoch = epoch;
        this.unwrittenBytes -= bytes;
      })
      .catch((thrown) => {
        // The next call throws it.
        this.failure ??= thrown;
        this.unwrittenBytes = 0;
      });
  }

  /** Returns the bodies of the records that the changelog needs before rows of the ids. */
  takeUnlogged(): readonly Uint8Array[] {
    return this.journal.take();
  }

  /** Applies the keys of a record of the changelog. One at a time. */
  async replay(entries: KeyEntries): Promise<void> {
    const { cache, hash } = this.active;
    const { bound } = entries;
    if (bound > (this.bounds.get(this.generation) as number)) this.raise(bound);
    let { displaced } = this;
    entries.each((low, high, key) => {
      this.octets.fill(0, 0, key.length + 4);
      this.octets.set(key);
      hash.hash(this.scratch, 0, key.length);
      displaced = Math.max(displaced, distanceOf(hash, low, high));
      // The next record waits until the store has the key.
      cache.insert(low, high, this.generation, 0, this.scratch, 0, key.length);
      this.rows.add(this.generation, low, high, key);
    });
    if (displaced > this.displaced) {
      this.displaced = displaced;
      await this.active.store.putDisplaced(displaced, 'on');
    }
    this.write();
    await this.writing;
    // The changelog has these keys.
    this.journal.take();
  }

  /** Makes all assignments durable in the store. @throws the error of an earlier write */
  async flush(): Promise<void> {
    if (this.opened === undefined) return;
    this.write();
    await this.writing;
    const { store } = this.active;
    if (this.isFlushed) return;
    this.isFlushed = true;
    const bound = this.bounds.get(this.generation) as number;
    await store.putGeneration({ number: this.generation, bound }, 'on');
    // A synced row makes all earlier ones durable.
    await store.putDisplaced(this.displaced, 'sync');
  }

  /** Removes keys whose windows have all fired, and begins a generation when it is time. Call it
   *  after `flush`. @param fired every window that ends by then is durable in the sinks, in every
   *  kept checkpoint */
  async expire(fired: number): Promise<void> {
    if (this.opened === undefined || !Number.isFinite(fired)) return;
    const { store, cache } = this.active;
    for (const [generation, bound] of [...this.bounds]) {
      if (generation === this.generation || bound + this.parts.spanMs > fired) continue;
      await store.drop(generation);
      this.bounds.delete(generation);
      cache.oldestGeneration = Math.min(...this.bounds.keys());
    }
    if (this.since === never) this.since = fired;
    const isUsed = (this.bounds.get(this.generation) as number) > never;
    if (!isUsed || this.bounds.size >= GENERATIONS_MAX) return;
    const times = this.bounds.size === 1 ? 1 : GENERATION_TIMES_MAX;
    if (fired - this.since < times * this.generationMs) return;
    await this.begin(store, this.generation + 1);
    this.generation++;
    this.since = fired;
  }

  /** Returns the id of a key; undefined: no row of the state has it. */
  async find(key: Uint8Array): Promise<bigint | undefined> {
    const { hash, store, cache } = this.active;
    if (key.length > KEY_BYTES_MAX) return undefined;
    this.octets.fill(0, 0, key.length + 4);
    this.octets.set(key);
    hash.hash(this.scratch, 0, key.length);
    const ids = new Int32Array((this.displaced + 1) * 2);
    putCandidates(ids, 0, hash, this.displaced);
    const idAt = (at: number): bigint =>
      (BigInt((ids[at + 1] as number) >>> 0) << 32n) | BigInt((ids[at] as number) >>> 0);
    for (let at = 0; at < ids.length; at += 2) {
      const holder = this.holder(ids[at] as number, ids[at + 1] as number);
      if (holder !== undefined && Buffer.compare(holder, key) === 0) return idAt(at);
    }
    if (cache.isComplete) return undefined;
    const found = await store.lookup(ids, [...this.bounds.keys()]);
    for (let at = 0; at < ids.length; at += 2) {
      const holder = found.find(at / 2)?.key;
      if (holder !== undefined && Buffer.compare(holder, key) === 0) return idAt(at);
    }
    return undefined;
  }

  /** Returns the keys of rows; see keysOfPage. */
  column(rows: Uint8Array, rowCount: number, rowBytes: number): Promise<KeyColumn> {
    const sources = { ...this.active, generations: this.bounds };
    return keysOfPage(sources, rows, rowCount, rowBytes);
  }
}

/** Writes the ids that a key of the hash may have. Returns the cell behind them. */
function putCandidates(ids: Int32Array, from: number, { low, high }: KeyHash, displaced: number): number {
  let at = from;
  let [nextLow, nextHigh] = [low, high];
  for (let distance = 0; distance <= displaced; distance++) {
    ids[at++] = nextLow;
    ids[at++] = nextHigh;
    nextLow = (nextLow + 1) | 0;
    if (nextLow === 0) nextHigh = (nextHigh + 1) | 0;
  }
  return at;
}

/** Distance of an id from the hash, modulo 2^64. */
function distanceOf(hash: KeyHash, low: number, high: number): number {
  const from = (BigInt(hash.high >>> 0) << 32n) | BigInt(hash.low >>> 0);
  const to = (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
  return Number(BigInt.asUintN(64, to - from));
}
