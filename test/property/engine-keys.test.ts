/** The dictionary of keys compared with an oracle that uses the bytes: any keys, batches, bits of
 *  the hash, crashes, checkpoints and expiry. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { ACCUMULATOR, EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import type { KeyDictionary } from '../../src/engine/keys/dictionary.ts';
import { decodeKeys, type KeyEntries } from '../../src/engine/keys/journal.ts';
import { KeySpans } from '../../src/engine/keys/spans.ts';
import { KEY_FAMILIES } from '../../src/engine/keys/store.ts';
import { KV_BUDGET_MIN_BYTES, type KvStore } from '../../src/io/rocksdb/port.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import { opened, ShortHash, SPAN_MS } from './engine-keys-kit.ts';

const spans = new KeySpans();

/** Interns keys at a time; returns their ids. */
async function intern(dictionary: KeyDictionary, keys: readonly Buffer[], timeMs = 0): Promise<bigint[]> {
  const events = EventBatch.create(Math.max(1, keys.length));
  spans.reset(keys.length);
  keys.forEach((key, row) => {
    spans.begin();
    expect(spans.put(key, 0, key.length)).toBe(true);
    spans.end(row);
    events.columns.status[row] = EVENT_STATUS.OK;
    events.columns.eventTs[row] = BigInt(timeMs);
  });
  events.rowCount = keys.length;
  await dictionary.intern(events, spans);
  return keys.map((_, row) => events.columns.accountId[row] as bigint);
}

async function keysOf(dictionary: KeyDictionary, ids: readonly bigint[]): Promise<Buffer[]> {
  const rows = new BigUint64Array((ids.length * ACCUMULATOR.BYTES) / 8);
  for (const [row, id] of ids.entries()) rows[(row * ACCUMULATOR.BYTES) / 8] = id;
  const column = await dictionary.column(new Uint8Array(rows.buffer), ids.length, ACCUMULATOR.BYTES);
  return ids.map((_, row) => Buffer.from(column.key(row)));
}

const key = fc.oneof(
  fc.nat(40).map((n) => Buffer.from(`key-${n}`)),
  fc.uint8Array({ maxLength: 9 }).map((bytes) => Buffer.from(bytes)),
  fc.nat(200).map((n) => Buffer.alloc(1024, n)),
);

describe('dictionary of keys', () => {
  it('many keys are written together as a sorted run by a checkpoint, and a crash keeps their ids', async () => {
    const kv = new SimKv();
    const store = await kv.open('keys', { budgetBytes: KV_BUDGET_MIN_BYTES, families: KEY_FAMILIES });
    let [runsOpened, puts] = [0, 0];
    const counted = new Proxy(store, {
      get(target, name) {
        if (name === 'openRun') runsOpened++;
        if (name === 'put') puts++;
        const found: unknown = Reflect.get(target, name);
        return typeof found === 'function' ? found.bind(target) : found;
      },
    });
    const bytesMax = 64 * 1024 * 1024;
    const { dictionary } = await opened(kv, { open: async () => counted, bytesMax });
    const keys = Array.from({ length: 12_000 }, (_, n) => Buffer.from(`customer-${n}`));
    const putsBefore = puts;
    const ids = [
      ...(await intern(dictionary, keys.slice(0, 5_000))),
      ...(await intern(dictionary, keys.slice(5_000))),
    ];
    expect([runsOpened, puts]).toEqual([0, putsBefore]);
    await dictionary.flush();
    expect(runsOpened).toBe(1);
    kv.crash('keys');
    const { dictionary: again } = await opened(kv, { bytesMax }, true);
    expect(await keysOf(again, ids)).toEqual(keys);
    expect(await intern(again, keys)).toEqual(ids);
  });

  it('ids are equal exactly when the bytes are, through crashes, evictions, collisions and expiry', async () => {
    const step = fc.oneof(
      { weight: 8, arbitrary: fc.record({ keys: fc.array(key, { maxLength: 300, size: 'max' }) }) },
      { weight: 2, arbitrary: fc.constant('checkpoint' as const) },
      { weight: 1, arbitrary: fc.constant('crash' as const) },
    );
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(1, 3, 6, 30),
        fc.array(step, { minLength: 4, maxLength: 24, size: 'max' }),
        async (bits, steps) => {
          const hash = () => new ShortHash(bits);
          const kv = new SimKv();
          let { dictionary } = await opened(kv, { hash });
          /** Id of each key with an open window, and the last time of it. */
          const open = new Map<string, { id: bigint; timeMs: number }>();
          let log: Uint8Array[] = [];
          let [nowMs, firedMs] = [0, 0];
          for (const one of steps) {
            if (one === 'checkpoint') {
              await dictionary.flush();
              log = [];
              firedMs = nowMs - 250_000;
              await dictionary.expire(firedMs);
              for (const [text, { timeMs }] of open) if (timeMs + SPAN_MS <= firedMs) open.delete(text);
            } else if (one === 'crash') {
              kv.crash('keys');
              ({ dictionary } = await opened(kv, { hash }, true));
              for (const body of log) await dictionary.replay(decodeKeys(body) as KeyEntries);
            } else {
              nowMs += 70_000;
              const ids = await intern(dictionary, one.keys, nowMs);
              log.push(...dictionary.takeUnlogged().map((body) => body.slice()));
              for (const [row, bytes] of one.keys.entries()) {
                const text = bytes.toString('hex');
                const known = open.get(text);
                if (known !== undefined) expect(ids[row], text).toBe(known.id);
                open.set(text, { id: ids[row] as bigint, timeMs: nowMs });
              }
            }
            const ids = [...open.values()].map(({ id }) => id);
            expect(new Set(ids).size).toBe(ids.length);
            const found = await keysOf(dictionary, ids);
            expect(found.map((bytes) => bytes.toString('hex'))).toEqual([...open.keys()]);
          }
          for (const [text, { id }] of open) expect(await dictionary.find(Buffer.from(text, 'hex'))).toBe(id);
        },
      ),
      { numRuns: runs(45) },
    );
  });

  it('more keys than the cache holds keep their ids, and the memory stays the same', async () => {
    const { dictionary, kv } = await opened(new SimKv());
    const bytes = dictionary.bytes;
    const keys = Array.from({ length: 6000 }, (_, n) => Buffer.from(`${n}`.padEnd(396 + (n % 7), '.')));
    const ids: bigint[] = [];
    for (let at = 0; at < keys.length; at += 500)
      ids.push(...(await intern(dictionary, keys.slice(at, at + 500))));
    expect(new Set(ids).size).toBe(keys.length);
    expect(await intern(dictionary, keys)).toEqual(ids);
    // Rows of a page in this order alternate between keys that are cached and keys that are not.
    const order = keys.map((_, n) => (n * 2579) % keys.length);
    const found = await keysOf(
      dictionary,
      order.map((n) => ids[n] as bigint),
    );
    expect(found).toEqual(order.map((n) => keys[n]));
    expect(dictionary.bytes).toBe(bytes);
    expect(bytes).toBeLessThan(2 ** 20 + 64);
    await dictionary.flush();
    kv.crash('keys');
    const again = await opened(kv, {}, true);
    expect(await intern(again.dictionary, keys)).toEqual(ids);
    // The store has them, so the changelog need not.
    expect(again.dictionary.takeUnlogged()).toEqual([]);
  });

  it('keys whose windows have fired leave the store, and the others stay', async () => {
    const { dictionary, kv } = await opened(new SimKv());
    const stored = async (): Promise<number> => {
      const store = kv.folders.get('keys')?.holder as KvStore;
      const scan = await store.scan('keys', { from: null, to: null }, { shape: 'spans' });
      const page = { bytes: new Uint8Array(1 << 20), ends: new Uint32Array(8192) };
      const count = await scan.next(page);
      scan.close();
      return count;
    };
    const keys = Array.from({ length: 10 }, (_, n) => Buffer.from(`key-${n}`));
    let nowMs = 0;
    for (let round = 0; round < 20; round++, nowMs += SPAN_MS) {
      await intern(dictionary, [...keys, Buffer.from(`once-${round}`)], nowMs);
      dictionary.takeUnlogged();
      await dictionary.flush();
      await dictionary.expire(nowMs - SPAN_MS);
    }
    // Four generations hold the keys of at most six rounds.
    expect(await stored()).toBeLessThan(4 * 11 + 10);
    expect(await dictionary.find(Buffer.from('once-0'))).toBeUndefined();
    expect(await dictionary.find(Buffer.from('once-19'))).toBeDefined();
  });

  it('a key that is used all the time is written again only when all earlier windows have fired', async () => {
    const { dictionary } = await opened(new SimKv());
    let written = 0;
    for (let round = 0; round < 30; round++) {
      await intern(dictionary, [Buffer.from('always')], round * SPAN_MS);
      for (const body of dictionary.takeUnlogged()) (decodeKeys(body) as KeyEntries).each(() => written++);
      await dictionary.flush();
      // Windows fire three spans late.
      await dictionary.expire((round - 3) * SPAN_MS);
    }
    // A generation lasts until the windows of the one before have fired: four rounds or more.
    expect(written).toBeGreaterThan(1);
    expect(written).toBeLessThanOrEqual(8);
  });

  it('an event far in the future keeps the keys of its own generation, and others leave', async () => {
    const { dictionary } = await opened(new SimKv());
    await intern(dictionary, [Buffer.from('future')], 1000 * SPAN_MS);
    for (let round = 0; round < 60; round++) {
      await intern(dictionary, [Buffer.from(`once-${round}`)], round * SPAN_MS);
      dictionary.takeUnlogged();
      await dictionary.flush();
      await dictionary.expire((round - 1) * SPAN_MS);
    }
    expect(await dictionary.find(Buffer.from('future'))).toBeDefined();
    expect(await dictionary.find(Buffer.from('once-20'))).toBeUndefined();
    expect(await dictionary.find(Buffer.from('once-59'))).toBeDefined();
  });

  it('a state whose dictionary is gone is refused', async () => {
    await expect(opened(new SimKv(), {}, true)).rejects.toMatchObject({ code: 'state_corrupt' });
  });

  it('a damaged record of keys is refused with its fault', async () => {
    const { dictionary } = await opened(new SimKv());
    await intern(dictionary, [Buffer.from('a'), Buffer.from('bc')]);
    const body = dictionary.takeUnlogged()[0] as Uint8Array;
    for (let length = 0; length < body.length; length++)
      expect(decodeKeys(body.subarray(0, length)), `${length}`).toHaveProperty('fault');
    const found: string[] = [];
    (decodeKeys(body) as KeyEntries).each((_low, _high, bytes) => found.push(Buffer.from(bytes).toString()));
    expect(found).toEqual(['a', 'bc']);
  });
});
