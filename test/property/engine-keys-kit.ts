/** Helpers of the tests of variable-length keys: a hash of few bits, and a store that loses rows
 *  that were not synced. */
import type { Rows } from '../../src/core/rows.ts';
import { KeyDictionary, type KeyDictionaryParts } from '../../src/engine/keys/dictionary.ts';
import { HalfSipHash, type KeyHash } from '../../src/engine/keys/hash.ts';
import { KEY_FAMILIES } from '../../src/engine/keys/store.ts';
import { KV_BUDGET_MIN_BYTES, type KvLog, type KvRange, type KvStore } from '../../src/io/rocksdb/port.ts';
import type { SimKv } from '../../src/sim/kv.ts';

const SECRET = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
export const SPAN_MS = 100_000;

/** Hash of few bits, so that keys collide. */
export class ShortHash implements KeyHash {
  low = 0;
  high = 0;
  private readonly whole = new HalfSipHash(SECRET);
  private readonly mask: number;
  constructor(bits: number) {
    this.mask = 2 ** bits - 1;
  }
  hash(words: Int32Array, at: number, length: number): void {
    this.whole.hash(words, at, length);
    this.low = this.whole.low & this.mask;
    // Ids cross the edge of their low word and that of 64 bits.
    this.low = (this.low - 3) | 0;
    this.high = -1;
  }
}

export interface Opened {
  readonly dictionary: KeyDictionary;
  readonly kv: SimKv;
}

/** A store that loses everything that no synced write has followed, as a failing machine may. */
function unsynced(store: KvStore): KvStore {
  const synced = async (log: KvLog, work: Promise<void>): Promise<void> => {
    await work;
    if (log === 'sync') await store.flush();
  };
  return new Proxy(store, {
    get(target, name) {
      if (name === 'put')
        return (family: string, rows: Rows, log: KvLog) => synced(log, target.put(family, rows, 'off'));
      if (name === 'deleteRange')
        return (family: string, range: KvRange, log: KvLog) =>
          synced(log, target.deleteRange(family, range, 'off'));
      const found: unknown = Reflect.get(target, name);
      return typeof found === 'function' ? found.bind(target) : found;
    },
  });
}

/** Creates a dictionary in the folder `keys`. */
export function dictionaryIn(kv: SimKv, over: Partial<KeyDictionaryParts> = {}): KeyDictionary {
  return new KeyDictionary({
    open: async () =>
      unsynced(await kv.open('keys', { budgetBytes: KV_BUDGET_MIN_BYTES, families: KEY_FAMILIES })),
    secret: () => SECRET,
    bytesMax: 1,
    storeBytes: 0,
    spanMs: SPAN_MS,
    ...over,
  });
}

export async function opened(
  kv: SimKv,
  over: Partial<KeyDictionaryParts> = {},
  mustExist = false,
): Promise<Opened> {
  const dictionary = dictionaryIn(kv, over);
  await dictionary.open(mustExist);
  return { dictionary, kv };
}
