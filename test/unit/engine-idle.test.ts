/** When a partition is taken for idle, and in which order several are. */
import { describe, expect, it } from 'vitest';
import { IdleWatch } from '../../src/engine/idle.ts';

const NEVER = Number.NEGATIVE_INFINITY;

/** Partitions with the greatest event time of each; all of them are read up to offset 5. */
function world(seen: readonly number[], mode: 'partition' | 'global' = 'partition') {
  const idle = new Set<number>();
  const ends = seen.map(() => 5);
  const watermarks = {
    mode,
    partitionCount: seen.length,
    position: () => 5,
    isIdle: (partition: number) => idle.has(partition),
    progress: () => seen.map((maxSeenTs) => ({ maxSeenTs }) as never),
  };
  const watch = (timeoutMs: number) =>
    new IdleWatch(watermarks, { endOf: (partition) => ends[partition] as number }, timeoutMs);
  return { idle, ends, watch };
}

describe('a partition is idle', () => {
  it('when it had nothing to read for the timeout, and again after it came back', () => {
    const { idle, ends, watch } = world([10]);
    const one = watch(1000);
    expect([one.due(0), one.due(500), one.due(999)]).toEqual([[], [], []]);
    expect(one.due(1100)).toEqual([0]);
    idle.add(0);
    expect(one.due(5000)).toEqual([]);
    idle.delete(0);
    ends[0] = 4;
    expect(one.due(6000)).toEqual([]);
    ends[0] = 5;
    expect([one.due(7000), one.due(7900), one.due(8000)]).toEqual([[], [], [0]]);
  });

  it('never before its end was met, with a timeout of 0, or where one watermark serves all', () => {
    const { ends, watch } = world([10]);
    ends[0] = -1;
    const one = watch(1);
    expect([one.due(0), one.due(1000)]).toEqual([[], []]);
    ends[0] = 5;
    const off = watch(0);
    expect([off.due(0), off.due(1e9)]).toEqual([[], []]);
    const global = world([10], 'global').watch(1);
    expect([global.due(0), global.due(1e9)]).toEqual([[], []]);
  });

  it('only by time in which somebody read', () => {
    const one = world([10]).watch(1000);
    expect(one.due(0)).toEqual([]);
    one.unread(5000);
    expect([one.due(5000), one.due(5999)]).toEqual([[], []]);
    expect(one.due(6100)).toEqual([0]);
  });

  it('those without an event first, and the one that lags most behind last', () => {
    const one = world([30, NEVER, 10, 20, NEVER]).watch(100);
    one.due(0);
    expect(one.due(200)).toEqual([1, 4, 0, 3, 2]);
  });

  it('those without an event before all others, however much later they are read', () => {
    const { idle, ends, watch } = world([30, NEVER, 10]);
    const one = watch(100);
    ends[1] = -1;
    expect([one.due(0), one.due(200)]).toEqual([[], []]);
    ends[1] = 5;
    expect([one.due(1000), one.due(1200)]).toEqual([[], [1, 0, 2]]);
    for (const partition of [0, 1, 2]) idle.add(partition);
    expect(one.due(1400)).toEqual([]);
  });
});
