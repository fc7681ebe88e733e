/** LRU map: its order of use compared with a list, and its cost, which does not grow with the
 *  size. */
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { LruMap } from '../../../src/core/lru-map.ts';
import { stepsOf } from '../../steps.ts';

const KEYS = 6;
const TURNS = 1000;

describe('LRU map', () => {
  it('an LRU map behaves as a list in the order of use under any sequence of calls', () => {
    const step = fc.record({
      what: fc.constantFrom('get', 'set', 'delete', 'shift', 'clear'),
      key: fc.integer({ min: 0, max: KEYS - 1 }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const map = new LruMap<number, number>();
        let model: Array<readonly [number, number]> = [];
        steps.forEach(({ what, key }, turn) => {
          const known = model.find(([one]) => one === key);
          const others = model.filter(([one]) => one !== key);
          if (what === 'get') {
            expect(map.get(key)).toBe(known?.[1]);
            if (known !== undefined) model = [...others, known];
          } else if (what === 'set') {
            expect(map.set(key, turn)).toBe(known?.[1]);
            model = [...others, [key, turn]];
          } else if (what === 'delete') {
            expect(map.delete(key)).toBe(known?.[1]);
            model = others;
          } else if (what === 'shift') expect(map.shift()).toEqual(model.shift());
          else {
            map.clear();
            model = [];
          }
          expect(map.size).toBe(model.length);
        });
        for (const entry of model) expect(map.shift()).toEqual(entry);
        expect(map.shift()).toBeUndefined();
      }),
    );
  });

  it('removal of the oldest of 200,000 keys takes no more steps than of 200, and never walks a Map', () => {
    const stepsAmong = (size: number): number => {
      const map = new LruMap<string, number>();
      for (let i = 0; i < size; i++) map.set(`key ${i}`, 1);
      return stepsOf(() => {
        for (let i = 0; i < TURNS; i++) {
          map.shift();
          map.set(`next ${i}`, 1);
        }
      });
    };
    // The count of steps excludes the gaps of deleted keys that V8 skips in these methods.
    const walks = (['keys', 'values', 'entries', 'forEach'] as const).map((name) =>
      vi.spyOn(Map.prototype, name),
    );
    try {
      for (const size of [200, 200_000]) expect(stepsAmong(size)).toBeLessThan(10 * TURNS);
      for (const walk of walks) expect(walk).not.toHaveBeenCalled();
    } finally {
      vi.restoreAllMocks();
    }
  });
});
