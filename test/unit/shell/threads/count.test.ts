/** Number of threads of a run, and the instances of each. */
import { availableParallelism } from 'node:os';
import { describe, expect, it } from 'vitest';
import { partsName, shares, threadCount } from '../../../../src/shell/threads/count.ts';

const context = (threads: number | undefined, native: 'on' | 'off') => ({
  settings: { native, threads },
  isFlag: (name: string) => name === 'threads' && threads !== undefined,
});

describe('number of threads', () => {
  it('a run has a thread a core, at most one for each instance', () => {
    expect(threadCount(context(undefined, 'on'), 48)).toBe(availableParallelism());
    expect(threadCount(context(undefined, 'on'), 1)).toBe(1);
    expect(threadCount(context(5, 'on'), 48)).toBe(5);
    expect(threadCount(context(5, 'on'), 3)).toBe(3);
    expect(threadCount(context(undefined, 'on'), 0)).toBe(1);
  });

  it('a run without the addon has one thread, and refuses a flag for several', () => {
    expect(threadCount(context(undefined, 'off'), 48)).toBe(1);
    expect(threadCount(context(1, 'off'), 48)).toBe(1);
    expect(() => threadCount(context(2, 'off'), 48)).toThrow(/-threads=2 needs the addon/);
  });
});

describe('instances of a thread', () => {
  it('every instance is in one share, and shares differ by one instance at most', () => {
    for (const [parts, threads] of [
      [24, 2],
      [48, 2],
      [7, 3],
      [3, 3],
      [5, 1],
    ] as const) {
      const all = shares(parts, threads);
      expect(all.flat()).toEqual(Array.from({ length: parts }, (_, part) => part));
      const sizes = all.map(({ length }) => length);
      expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
    }
  });

  it('a share is named by its instances', () => {
    expect(partsName('instance', [4])).toBe('instance 4');
    expect(partsName('instance', [0, 1, 2])).toBe('instances 0 to 2');
  });
});
