/** Helpers of the tests of variable-length keys: a hash of few bits, a store that loses rows that
 *  were not synced, and a source and a sink of events with texts as keys. */
import { referenceKeyKernels, referenceKeysOf } from '../../src/addon/reference/keys.ts';
import { ACCUMULATOR, EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { HalfSipHash, type KeyHash } from '../../src/core/random/half-sip-hash.ts';
import type { Rows } from '../../src/core/rows.ts';
import { KeyDictionary, type KeyDictionaryParts } from '../../src/engine/keys/dictionary.ts';
import { KEY_FAMILIES } from '../../src/engine/keys/store.ts';
import type { EngineParts } from '../../src/engine/parts.ts';
import type { EventRows } from '../../src/engine/source/events.ts';
import type { InputDefinition } from '../../src/engine/source/input/definition.ts';
import { EventWords } from '../../src/engine/source/input/words.ts';
import type { FiredPage } from '../../src/engine/window/firing.ts';
import { KV_BUDGET_MIN_BYTES, type KvLog, type KvRange, type KvStore } from '../../src/io/rocksdb/port.ts';
import type { SimKv } from '../../src/sim/kv.ts';
import { MemorySink, MemorySource } from './engine-kit.ts';

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
  const { hash } = over;
  return new KeyDictionary({
    kernels:
      hash === undefined
        ? referenceKeyKernels
        : { name: 'reference', open: (secret) => referenceKeysOf(hash(secret)) },
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

/** Definition of an input with a text as key. */
export const TEXT_KEYS: InputDefinition = { format: 'json', key: 'k:string', time: 't:ms' };

export const textInput = (definition: InputDefinition): NonNullable<EngineParts['input']> => ({
  ...{ definition, isReady: true, resume() {}, takeWaitedMs: () => 0, describe: () => undefined },
});

/** Key of an account: its decimal digits, for some behind many zeros. */
export const textKey = (id: bigint): Buffer =>
  Buffer.from(String(id).padStart(id % 3n === 0n ? 700 : 1, '0'));

/** Source whose events have the text of their account as key; integers without a dictionary. */
export class TextSource extends MemorySource {
  keys: KeyDictionary | undefined;

  override async next(): Promise<EventRows | undefined> {
    const rows = await super.next();
    if (rows === undefined || this.keys === undefined) return rows;
    const { accountId, status } = rows.events.columns;
    const spans = EventWords.of(rows.events).keys;
    for (let row = 0; row < rows.events.rowCount; row++) {
      if (status[row] !== EVENT_STATUS.OK) continue;
      const key = textKey(accountId[row] as bigint);
      spans.begin();
      spans.put(key, 0, key.length);
      spans.end(row);
    }
    await this.keys.open();
    await this.keys.intern(rows.events, spans);
    return rows;
  }
}

/** Sink that writes the number of the text as the account. */
export class TextSink extends MemorySink {
  readonly ids = new Set<bigint>();

  override async write(pages: readonly FiredPage[]): Promise<void> {
    const numbered = pages.map((page): FiredPage => {
      const rows = page.rows.slice(0, page.rowCount * ACCUMULATOR.BYTES);
      const view = new DataView(rows.buffer);
      for (let row = 0; row < page.rowCount; row++) {
        const at = row * ACCUMULATOR.BYTES + ACCUMULATOR.ACCOUNT_ID;
        this.ids.add(view.getBigUint64(at, true));
        view.setBigUint64(at, BigInt(Buffer.from(page.keys?.key(row) ?? []).toString()), true);
      }
      return { bounds: page.bounds, rows, rowCount: page.rowCount };
    });
    await super.write(numbered);
  }
}
