/** Keys by id on disk, in generations: keys that were used while a generation was the current one
 *  are its rows, so a generation whose windows have all fired is removed as one range.
 *
 *      keys   generation u32 | id u64          -> canonical bytes of the key
 *      meta   'secret'                         -> secret of the hash, 8 bytes
 *             'displaced'                      -> greatest distance of an id from its hash, u32
 *             'generation' generation u32      -> upper bound of the event times, f64
 *
 *  Numbers are big-endian. Invariant: an id has one key in all generations. */
import { copySpan, type SpanRows } from '../../core/rows.ts';
import type { KvFamilyUse, KvLog, KvRange, KvStore, KvValues } from '../../io/rocksdb/port.ts';
import { engineError } from '../errors.ts';
import { KEY_BYTES_MAX } from './type.ts';

const KEYS = 'keys';
const META = 'meta';
export const KEY_FAMILIES: Readonly<Record<string, KvFamilyUse>> = { [KEYS]: 'rows', [META]: 'rows' };

export const SECRET_BYTES = 8;
const ROW_KEY_BYTES = 12;
/** Rows from which on they are ingested as a sorted run: sorting them costs less than a memtable
 *  and its flushes. */
const RUN_ROWS_MIN = 8192;
const PAGE_ROWS = 4096;
/** Ids of one read, which takes some 10 ms if none is cached. */
export const LOOKUP_IDS = 2048;
/** Reads of one look-up at a time, so that the store need not wait for the event loop. */
const LOOKUP_READS = 2;
const PAGE_BYTES = 1024 * 1024;

const encoder = new TextEncoder();
const SECRET = encoder.encode('secret');
const DISPLACED = encoder.encode('displaced');
const GENERATION = encoder.encode('generation');

/** Rows that are written together. */
export class KeyRows {
  count = 0;
  private bytes = new Uint8Array(64 * 1024);
  private view = new DataView(this.bytes.buffer);
  private ends = new Uint32Array(1024);
  private used = 0;

  add(generation: number, low: number, high: number, key: Uint8Array): void {
    if (this.used + ROW_KEY_BYTES + key.length > this.bytes.length) {
      const bytes = new Uint8Array(2 * this.bytes.length);
      bytes.set(this.bytes);
      this.bytes = bytes;
      this.view = new DataView(bytes.buffer);
    }
    if (this.count * 2 + 2 > this.ends.length) {
      const ends = new Uint32Array(2 * this.ends.length);
      ends.set(this.ends);
      this.ends = ends;
    }
    putRowKey(this.view, this.used, generation, low, high);
    this.bytes.set(key, this.used + ROW_KEY_BYTES);
    this.ends[this.count * 2] = this.used + ROW_KEY_BYTES;
    this.used += ROW_KEY_BYTES + key.length;
    this.ends[this.count * 2 + 1] = this.used;
    this.count++;
  }

  /** Bytes of the rows. */
  get size(): number {
    return this.used;
  }

  rows(): SpanRows {
    return { shape: 'spans', count: this.count, bytes: this.bytes, ends: this.ends };
  }
}

function putRowKey(view: DataView, at: number, generation: number, low: number, high: number): void {
  view.setUint32(at, generation);
  view.setInt32(at + 4, high);
  view.setInt32(at + 8, low);
}

/** Generation and the upper bound of the times of its events. */
export interface Generation {
  readonly number: number;
  readonly bound: number;
}

export interface StoredKey {
  readonly key: Uint8Array;
  /** Newest generation that has the key. */
  readonly generation: number;
}

/** Keys that a lookup found, by the index of the id. */
export class FoundKeys {
  /** Answers of the reads. */
  private readonly answers: Array<{ readonly generation: number; readonly values: KvValues }> = [];
  /** Answer that has the key of an id, and its place there; -1: none. */
  private readonly answer: Int32Array;
  private readonly place: Int32Array;

  /** @param count number of ids */
  constructor(count: number) {
    this.answer = new Int32Array(count).fill(-1);
    this.place = new Int32Array(count);
  }

  /** Adds the answer of a generation. Returns the ids that it does not have.
   *  @param asked indexes of the ids that it was asked for */
  add(generation: number, asked: Int32Array, values: KvValues): Int32Array {
    const left = new Int32Array(asked.length);
    let count = 0;
    asked.forEach((index, place) => {
      if ((values.length[place] as number) < 0) left[count++] = index;
      else {
        this.answer[index] = this.answers.length;
        this.place[index] = place;
      }
    });
    this.answers.push({ generation, values });
    return left.subarray(0, count);
  }

  /** Key of an id with the newest generation that has it. */
  find(index: number): StoredKey | undefined {
    const answer = this.answers[this.answer[index] as number];
    if (answer === undefined) return undefined;
    const key = valueAt(answer.values, this.place[index] as number) as Uint8Array;
    return { key, generation: answer.generation };
  }

  has(index: number): boolean {
    return (this.answer[index] as number) >= 0;
  }

  /** Bytes of the key of an id that was found. */
  length(index: number): number {
    return this.valuesOf(index).length[this.place[index] as number] as number;
  }

  /** Copies the key of an id that was found. Returns the end of the copy. */
  copy(index: number, into: Uint8Array, to: number): number {
    const { bytes, start, length } = this.valuesOf(index);
    const place = this.place[index] as number;
    const from = start[place] as number;
    return copySpan(bytes, from, from + (length[place] as number), into, to);
  }

  private valuesOf(index: number): KvValues {
    return (this.answers[this.answer[index] as number] as { readonly values: KvValues }).values;
  }
}

/** A key that a scan visits; `words` has its bytes from word 0 on, padded with zeros. */
export interface ScannedKey {
  readonly generation: number;
  readonly low: number;
  readonly high: number;
  readonly words: Int32Array;
  readonly length: number;
}

export class KeyStore {
  private readonly store: KvStore;

  /** The store has KEY_FAMILIES; the caller closes it. */
  constructor(store: KvStore) {
    this.store = store;
  }

  /** Undefined in a new store. */
  async secret(): Promise<Uint8Array | undefined> {
    return this.meta(SECRET);
  }

  async begin(secret: Uint8Array): Promise<void> {
    await this.putMeta(SECRET, secret, 'sync');
  }

  async displaced(): Promise<number> {
    const found = await this.meta(DISPLACED);
    return found === undefined ? 0 : new DataView(found.buffer, found.byteOffset).getUint32(0);
  }

  /** Also makes all earlier rows durable with `sync`. */
  async putDisplaced(displaced: number, log: KvLog): Promise<void> {
    const value = new Uint8Array(4);
    new DataView(value.buffer).setUint32(0, displaced);
    await this.putMeta(DISPLACED, value, log);
  }

  /** Generations, oldest first. */
  async generations(): Promise<readonly Generation[]> {
    const range = { from: generationKey(0), to: generationKey(0xffff_ffff) };
    const shape = { shape: 'fixed', keyBytes: GENERATION.length + 4, valueBytes: 8 } as const;
    const scan = await this.store.scan(META, range, shape);
    try {
      const stride = shape.keyBytes + 8;
      const bytes = new Uint8Array(64 * stride);
      const view = new DataView(bytes.buffer);
      const found: Generation[] = [];
      for (let count = await scan.next({ bytes }); count > 0; count = await scan.next({ bytes }))
        for (let row = 0; row < count; row++) {
          const at = row * stride + GENERATION.length;
          found.push({ number: view.getUint32(at), bound: view.getFloat64(at + 4) });
        }
      return found;
    } finally {
      scan.close();
    }
  }

  async putGeneration({ number, bound }: Generation, log: KvLog): Promise<void> {
    const value = new Uint8Array(8);
    new DataView(value.buffer).setFloat64(0, bound);
    await this.putMeta(generationKey(number), value, log);
  }

  /** Removes a generation. Its rows are gone for good before its bound is. */
  async drop(generation: number): Promise<void> {
    await this.store.deleteRange(KEYS, rangeOf(generation), 'sync');
    const from = generationKey(generation);
    await this.store.deleteRange(META, { from, to: generationKey(generation + 1) }, 'sync');
  }

  /** Writes rows; they are durable no later than the next synced write. */
  async write(rows: KeyRows): Promise<void> {
    if (rows.count < RUN_ROWS_MIN) {
      if (rows.count > 0) await this.store.put(KEYS, rows.rows(), 'on');
      return;
    }
    const run = this.store.openRun(KEYS);
    try {
      await run.appendUnsorted(rows.rows());
      await run.finish();
    } finally {
      run.close();
    }
  }

  /** Looks ids up, in older generations only what newer ones do not have: most keys are in the
   *  newest. One read for each generation. `ids`: low and high word of each. `generations`: oldest
   *  first. */
  async lookup(ids: Int32Array, generations: readonly number[]): Promise<FoundKeys> {
    const count = ids.length / 2;
    const found = new FoundKeys(count);
    await this.lookupPart(ids, indexesOf(0, count), generations, found);
    return found;
  }

  /** The same in reads of LOOKUP_IDS: the store does one read after the other, and a batch of
   *  events does not wait for all keys of a firing. */
  async lookupInParts(ids: Int32Array, generations: readonly number[]): Promise<FoundKeys> {
    const count = ids.length / 2;
    const found = new FoundKeys(count);
    let from = 0;
    const readParts = async (): Promise<void> => {
      while (from < count) {
        const first = from;
        from = Math.min(count, first + LOOKUP_IDS);
        await this.lookupPart(ids, indexesOf(first, from), generations, found);
      }
    };
    const stop = (thrown: unknown): never => {
      from = count;
      throw thrown;
    };
    await Promise.all(Array.from({ length: LOOKUP_READS }, () => readParts().catch(stop)));
    return found;
  }

  private async lookupPart(
    ids: Int32Array,
    indexes: Int32Array,
    generations: readonly number[],
    found: FoundKeys,
  ): Promise<void> {
    let asked = indexes;
    for (const generation of [...generations].reverse()) {
      if (asked.length === 0) break;
      const bytes = new Uint8Array(asked.length * ROW_KEY_BYTES);
      const view = new DataView(bytes.buffer);
      asked.forEach((index, place) => {
        putRowKey(
          view,
          place * ROW_KEY_BYTES,
          generation,
          ids[index * 2] as number,
          ids[index * 2 + 1] as number,
        );
      });
      const keys = { count: asked.length, bytes, keyBytes: ROW_KEY_BYTES };
      asked = found.add(generation, asked, await this.store.get(KEYS, keys));
    }
  }

  /** Visits the keys of a generation until `visit` returns false. */
  async scan(generation: number, visit: (key: ScannedKey) => boolean): Promise<void> {
    const scan = await this.store.scan(KEYS, rangeOf(generation), { shape: 'spans' });
    const page = { bytes: new Uint8Array(PAGE_BYTES), ends: new Uint32Array(2 * PAGE_ROWS) };
    const words = new Int32Array(KEY_BYTES_MAX / 4 + 1);
    const octets = new Uint8Array(words.buffer);
    const view = new DataView(page.bytes.buffer);
    try {
      for (let count = await scan.next(page); count > 0; count = await scan.next(page)) {
        let at = 0;
        for (let row = 0; row < count; row++) {
          const [keyEnd, end] = [page.ends[row * 2] as number, page.ends[row * 2 + 1] as number];
          const length = end - keyEnd;
          if (keyEnd - at !== ROW_KEY_BYTES || length > KEY_BYTES_MAX) throw corruptKeys(this.store.folder);
          octets.fill(0, 0, length + 4);
          octets.set(page.bytes.subarray(keyEnd, end));
          const [high, low] = [view.getInt32(at + 4), view.getInt32(at + 8)];
          if (!visit({ generation, low, high, words, length })) return;
          at = end;
        }
      }
    } finally {
      scan.close();
    }
  }

  private async meta(key: Uint8Array): Promise<Uint8Array | undefined> {
    return valueAt(await this.store.get(META, { count: 1, bytes: key, keyBytes: key.length }), 0);
  }

  private async putMeta(key: Uint8Array, value: Uint8Array, log: KvLog): Promise<void> {
    const bytes = new Uint8Array(Buffer.concat([key, value]));
    const row = { shape: 'fixed', count: 1, bytes, keyBytes: key.length, valueBytes: value.length } as const;
    await this.store.put(META, row, log);
  }
}

/** Numbers from `from` up to `to`, without `to`. */
const indexesOf = (from: number, to: number): Int32Array =>
  Int32Array.from({ length: to - from }, (_, at) => from + at);

/** Rows of a generation. */
function rangeOf(generation: number): KvRange {
  const edge = (number: number): Uint8Array => {
    const key = new Uint8Array(4);
    new DataView(key.buffer).setUint32(0, number);
    return key;
  };
  return { from: edge(generation), to: edge(generation + 1) };
}

function valueAt(found: KvValues, index: number): Uint8Array | undefined {
  const length = found.length[index] as number;
  if (length < 0) return undefined;
  const start = found.start[index] as number;
  return found.bytes.subarray(start, start + length);
}

function generationKey(generation: number): Uint8Array {
  const key = new Uint8Array(GENERATION.length + 4);
  key.set(GENERATION);
  new DataView(key.buffer).setUint32(GENERATION.length, generation);
  return key;
}

export const corruptKeys = (folder: string): Error =>
  engineError('state_corrupt', `the dictionary of keys in ${folder} does not have a key of the state`, {
    next: 'put the folder back from a copy, or give an empty -state-dir to compute everything again',
  });
