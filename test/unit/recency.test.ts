/** The order of use, against a list; and a cost that does not grow with the size. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RecencyMap } from '../../src/core/recency.ts';
import { cpuMs } from '../cpu.ts';

const KEYS = 6;

describe('a map that knows its oldest key', () => {
  it('behaves as a list in the order of use, whatever is done to it', () => {
    const step = fc.record({
      what: fc.constantFrom('get', 'set', 'delete', 'shift', 'clear'),
      key: fc.integer({ min: 0, max: KEYS - 1 }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const map = new RecencyMap<number, number>();
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

  it('takes out the oldest of 200,000 many times as fast as a Map does', () => {
    const size = 200_000;
    const turns = 60_000;
    const timed = (set: (key: string) => void, shift: () => void): number => {
      for (let i = 0; i < size; i++) set(`key ${i}`);
      const started = cpuMs();
      for (let i = 0; i < turns; i++) {
        shift();
        set(`next ${i}`);
      }
      return cpuMs() - started;
    };
    const recency = new RecencyMap<string, number>();
    const plain = new Map<string, number>();
    const ours = timed(
      (key) => recency.set(key, 1),
      () => recency.shift(),
    );
    const theirs = timed(
      (key) => plain.set(key, 1),
      () => {
        for (const key of plain.keys()) {
          plain.delete(key);
          break;
        }
      },
    );
    // A Map steps over thirty thousand gaps a turn, which no cache and no collection makes cheap.
    expect(ours).toBeLessThan(theirs / 3);
  });
});
