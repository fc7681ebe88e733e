/** The replay cache: bounded in bytes, least recently used out first, no answer after its
 *  expiry. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ReplayCache, type StoredAnswer } from '../../../../src/outbox/orders/write/replay-cache.ts';

const answer = (id: number, expiresMs = 1e9): StoredAnswer => ({
  requestHash: 'h'.repeat(64),
  orderId: String(id).padStart(36, '0'),
  responseCode: 201,
  responseBody: 'b'.repeat(70),
  expiresMs,
});
const key = (id: number): string => `k${id}`.padStart(36, '0');
const ENTRY = 248 + 36 + 64 + 36 + 70;

describe('replay cache', () => {
  it('the replay cache evicts the least recently used answer and never exceeds its bytes', () => {
    const cache = new ReplayCache(3 * ENTRY);
    for (const id of [1, 2, 3]) cache.put(key(id), answer(id));
    expect(cache.get(key(1), 0)?.orderId).toBe(answer(1).orderId);
    cache.put(key(4), answer(4));
    expect([1, 2, 3, 4].map((id) => cache.get(key(id), 0) !== undefined)).toEqual([true, false, true, true]);
    expect([cache.size(), cache.bytes()]).toEqual([3, 3 * ENTRY]);
  });

  it('the replay cache stores nothing at size 0, and nothing larger than its size', () => {
    for (const bytes of [0, ENTRY - 1]) {
      const cache = new ReplayCache(bytes);
      cache.put(key(1), answer(1));
      expect([cache.get(key(1), 0), cache.bytes(), cache.size()]).toEqual([undefined, 0, 0]);
    }
  });

  it('the replay cache can be cleared and used again', () => {
    const cache = new ReplayCache(10 * ENTRY);
    for (const id of [1, 2]) cache.put(key(id), answer(id));
    cache.clear();
    expect([cache.get(key(1), 0), cache.size(), cache.bytes()]).toEqual([undefined, 0, 0]);
    cache.put(key(1), answer(1));
    expect([cache.size(), cache.bytes()]).toEqual([1, ENTRY]);
  });

  it('the replay cache removes an answer when its key expires', () => {
    const cache = new ReplayCache(10 * ENTRY);
    cache.put(key(1), answer(1, 100));
    expect(cache.get(key(1), 99)).toBeDefined();
    expect(cache.get(key(1), 100)).toBeUndefined();
    expect([cache.size(), cache.bytes()]).toEqual([0, 0]);
  });

  it('the replay cache behaves as a list in the order of use under any sequence of calls', () => {
    const step = fc.record({
      id: fc.integer({ min: 0, max: 9 }),
      put: fc.boolean(),
      long: fc.nat({ max: 400 }),
    });
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 80 }),
        fc.integer({ min: 0, max: 6 * ENTRY }),
        (steps, bytesMax) => {
          const cache = new ReplayCache(bytesMax);
          let model: Array<{ id: number; answer: StoredAnswer; bytes: number }> = [];
          for (const { id, put, long } of steps) {
            const known = model.find((one) => one.id === id);
            if (put) {
              const stored = { ...answer(id), responseBody: 'x'.repeat(long) };
              const bytes = ENTRY - 70 + long;
              cache.put(key(id), stored);
              model = model.filter((one) => one.id !== id);
              if (bytes <= bytesMax) model.push({ id, answer: stored, bytes });
              while (model.reduce((sum, one) => sum + one.bytes, 0) > bytesMax) model.shift();
            } else {
              expect(cache.get(key(id), 0)).toBe(known?.answer);
              if (known !== undefined) model = [...model.filter((one) => one.id !== id), known];
            }
            expect(cache.bytes()).toBe(model.reduce((sum, one) => sum + one.bytes, 0));
          }
          expect(cache.size()).toBe(model.length);
        },
      ),
    );
  });
});
