/** Slices compared with their windows: the windows of an event are exactly those that contain its
 *  slice. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sliceMsOf } from '../../../src/core/layout/window-clock.ts';
import { SlidingWindows, TumblingWindows } from '../../../src/engine/window/definition.ts';

const LIMIT = 2 ** 52;
const times = fc.oneof(
  fc.integer({ min: -500, max: 500 }),
  fc.maxSafeInteger().map((n) => n % LIMIT),
  fc.constantFrom(-LIMIT, LIMIT - 1),
);
const sizes = fc
  .tuple(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 1, max: 60 }))
  .map(([a, b]) => ({ size: Math.max(a, b), slide: Math.min(a, b) }));

/** Ends of the windows that contain the time, by the definition: start is a multiple of the slide,
 *  and start <= time < start + size. */
function endsOf(time: number, size: number, slide: number): number[] {
  const ends: number[] = [];
  for (let start = BigInt(time) - BigInt(size) + 1n; start <= BigInt(time); start++) {
    if (start % BigInt(slide) === 0n) ends.push(Number(start + BigInt(size)));
  }
  return ends;
}

describe('sliding windows', () => {
  it('the slice of an event determines exactly the windows that contain the event', () => {
    fc.assert(
      fc.property(sizes, times, ({ size, slide }, time) => {
        const windows = new SlidingWindows(size, slide);
        const slice = windows.sliceOf(time);
        expect(time >= slice && time < slice + windows.sliceMs).toBe(true);
        const ends: number[] = [];
        for (let end = windows.firstEndOf(slice); end <= windows.lastEndOf(slice); ) {
          ends.push(end);
          end = windows.nextEndAfter(end);
        }
        expect(ends).toEqual(endsOf(time, size, slide));
      }),
    );
  });

  it('sliding windows with a slide equal to the size are tumbling windows', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1e6 }), times, (size, time) => {
        const [sliding, tumbling] = [new SlidingWindows(size, size), new TumblingWindows(size)];
        const slice = tumbling.sliceOf(time);
        expect(sliding.sliceOf(time)).toBe(slice);
        expect([sliding.firstEndOf(slice), sliding.lastEndOf(slice), sliding.nextEndAfter(time)]).toEqual([
          tumbling.firstEndOf(slice),
          tumbling.lastEndOf(slice),
          tumbling.nextEndAfter(time),
        ]);
      }),
    );
  });

  it('a slide longer than the size is refused', () => {
    expect(() => new SlidingWindows(10, 11)).toThrow(/slide/);
  });
});

it('the slice width is the greatest common divisor of size and slide', () => {
  expect([sliceMsOf(300_000, 60_000), sliceMsOf(60_000, 60_000), sliceMsOf(10, 4), sliceMsOf(7, 3)]).toEqual([
    60_000, 60_000, 2, 1,
  ]);
});
