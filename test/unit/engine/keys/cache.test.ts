/** The cache of keys compared with a map, for any order of insertions and uses. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyCache } from '../../../../src/engine/keys/cache.ts';

const key = (id: number, length: number): Uint8Array =>
  Uint8Array.from({ length }, (_, i) => (id * 31 + i) & 255);

function insert(cache: KeyCache, id: number, bytes: Uint8Array, epoch: number): void {
  const words = new Int32Array(257);
  new Uint8Array(words.buffer).set(bytes);
  // Neighbouring home slots, so that clusters are long.
  cache.insert(id & 7, id, 1, epoch, words, 0, bytes.length);
}

describe('cache of keys', () => {
  it('a cached id has the bytes that it was last inserted with, whatever was evicted meanwhile', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(3000), fc.integer({ min: 0, max: 1024 }), fc.boolean()), {
          minLength: 1500,
          maxLength: 3000,
          size: 'max',
        }),
        (steps) => {
          const cache = new KeyCache(1);
          const known = new Map<number, Uint8Array>();
          for (const [id, length, uses] of steps) {
            const bytes = key(id + length, length);
            insert(cache, id, bytes, 0);
            known.set(id, bytes);
            const used = cache.find(steps[0]?.[0] as number & 7, steps[0]?.[0] as number);
            if (uses && used >= 0) cache.touch(used);
          }
          let found = 0;
          for (const [id, bytes] of known) {
            const at = cache.find(id & 7, id);
            if (at < 0) continue;
            found++;
            expect(Buffer.compare(cache.key(at), bytes)).toBe(0);
          }
          expect(cache.size).toBe(found);
          expect(cache.isComplete).toBe(found === known.size);
        },
      ),
      { numRuns: 6 },
    );
  });

  it('keys that are in no store yet are never evicted, and keys that were used outlive others', () => {
    const cache = new KeyCache(1);
    for (let id = 0; id < 100; id++) insert(cache, id, key(id, 1024), 1);
    for (let id = 30_000; id < 30_100; id++) insert(cache, id, key(id, 1024), 0);
    insert(cache, 100_000, key(1, 1024), 0);
    insert(cache, 100_001, key(2, 1024), 0);
    for (let id = 200; cache.find(100_001 & 7, 100_001) >= 0; id++) {
      insert(cache, id, key(id, 1024), 0);
      cache.touch(cache.find(100_000 & 7, 100_000));
    }
    expect(cache.find(100_000 & 7, 100_000)).toBeGreaterThanOrEqual(0);
    for (let id = 10_000; id < 14_000; id++) insert(cache, id, key(id, 1024), 0);
    for (let id = 0; id < 100; id++) expect(cache.find(id & 7, id), `key ${id}`).toBeGreaterThanOrEqual(0);
    cache.writtenEpoch = 1;
    for (let id = 20_000; id < 24_000; id++) insert(cache, id, key(id, 1024), 0);
    for (let id = 0; id < 100; id++) expect(cache.find(id & 7, id), `key ${id}`).toBe(-1);
  });
});
