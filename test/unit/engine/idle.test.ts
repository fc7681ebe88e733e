/** Idle partitions: the time at which a partition becomes idle, and the order of several
 *  partitions. */
import { describe, expect, it } from 'vitest';
import { IdleWatch } from '../../../src/engine/source/idle.ts';

const NEVER = Number.NEGATIVE_INFINITY;

/** Partitions with the greatest event time of each; all are read up to offset 5. */
function world(seen: readonly number[], mode: 'partition' | 'global' = 'partition') {
  const idle = new Set<number>();
  const ends = seen.map(() => 5);
  const positions = seen.map(() => 5);
  const valid = seen.map(() => 3);
  const watermarks = {
    mode,
    partitionCount: seen.length,
    position: (partition: number) => positions[partition] as number,
    validCount: (partition: number) => valid[partition] as number,
    isIdle: (partition: number) => idle.has(partition),
    progress: () => seen.map((maxSeenTs) => ({ maxSeenTs }) as never),
  };
  const watch = (timeoutMs: number) =>
    new IdleWatch(watermarks, { endOf: (partition) => ends[partition] as number }, timeoutMs);
  return { idle, ends, positions, valid, watch };
}

describe('idle partition', () => {
  it('a partition is idle when it had nothing to read for the timeout, and again after it returned', () => {
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

  it('a partition is never idle before its end was read, with a timeout of 0, or under a global watermark', () => {
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

  it('only time in which the engine read makes a partition idle', () => {
    const one = world([10]).watch(1000);
    expect(one.due(0)).toEqual([]);
    one.unread(5000);
    expect([one.due(5000), one.due(5999)]).toEqual([[], []]);
    expect(one.due(6100)).toEqual([0]);
  });

  it('partitions without an event become idle first, and the partition that lags most becomes idle last', () => {
    const one = world([30, NEVER, 10, 20, NEVER]).watch(100);
    one.due(0);
    expect(one.due(200)).toEqual([1, 4, 0, 3, 2]);
  });

  it('partitions without an event become idle before all others, even if they are read much later', () => {
    const { idle, ends, watch } = world([30, NEVER, 10]);
    const one = watch(100);
    ends[1] = -1;
    expect([one.due(0), one.due(200)]).toEqual([[], []]);
    ends[1] = 5;
    expect([one.due(1000), one.due(1200)]).toEqual([[], [1, 0, 2]]);
    for (const partition of [0, 1, 2]) idle.add(partition);
    expect(one.due(1400)).toEqual([]);
  });

  it('a partition with only invalid records becomes idle one timeout after its last valid event', () => {
    const { ends, positions, valid, watch } = world([10]);
    const one = watch(10_000);
    ends[0] = -1;
    const due: number[] = [];
    // A record every 300 ms, so that the end of the partition is never reported. The event at 4 s
    // is valid.
    for (let now = 0; now <= 30_000 && due.length === 0; now += 100) {
      if (now % 300 === 0) positions[0] = (positions[0] as number) + 1;
      if (now === 4_200) valid[0] = 4;
      if (one.due(now).length > 0) due.push(now);
    }
    // The quiet time begins with the first record after the valid event.
    expect(due).toEqual([14_500]);
  });

  it('an invalid record does not make a partition idle while the partition is not read further', () => {
    const { ends, positions, watch } = world([10]);
    const one = watch(10_000);
    ends[0] = -1;
    one.due(0);
    positions[0] = 6;
    for (let now = 100; now <= 100_000; now += 100) expect(one.due(now)).toEqual([]);
    // One second of the timeout counted right after the record; the other nine count from here.
    ends[0] = 6;
    for (let now = 100_100; now < 109_100; now += 100) expect(one.due(now)).toEqual([]);
    expect(one.due(109_100)).toEqual([0]);
  });
});
