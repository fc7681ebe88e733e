/** Idle partitions: the time at which a partition becomes idle, and the order of several
 *  partitions. */
import { describe, expect, it } from 'vitest';
import { IdleWatch } from '../../../src/engine/source/idle.ts';

const NEVER = Number.NEGATIVE_INFINITY;

/** Partitions with the greatest event time of each; all are read up to offset 5. The broker answers
 *  immediately before each check, as long as `broker.answers`. */
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
  const broker = { highs: seen.map(() => 5), answers: true };
  const watch = (timeoutMs: number) => {
    const lag: ConstructorParameters<typeof IdleWatch>[2] = { answer: undefined };
    const source = { endOf: (partition: number) => ends[partition] as number };
    const own = new IdleWatch(watermarks, source, lag, timeoutMs);
    const due = (now: number): readonly number[] => {
      if (broker.answers) lag.answer = { askedMs: now, answeredMs: now, highs: [...broker.highs] };
      return own.due(now);
    };
    /** Checks as often as the engine does, from `from` up to before `to`. Returns the first time at
     *  which a partition becomes idle. */
    const firstDue = (from: number, to: number): number | undefined => {
      for (let now = from; now < to; now += 100) if (due(now).length > 0) return now;
      return undefined;
    };
    return { due, firstDue, lag, unread: (ms: number) => own.unread(ms), queryMs: () => own.queryMs };
  };
  return { idle, ends, positions, valid, broker, watch };
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
    expect([one.due(7000), one.due(7500), one.due(7900), one.due(8000)]).toEqual([[], [], [], [0]]);
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
    expect([one.due(5000), one.due(5500), one.due(5999)]).toEqual([[], [], []]);
    expect(one.due(6100)).toEqual([0]);
  });

  it('partitions without an event become idle first, and the partition that lags most becomes idle last', () => {
    const one = world([30, NEVER, 10, 20, NEVER]).watch(100);
    one.due(0);
    expect(one.due(100)).toEqual([]);
    expect(one.due(200)).toEqual([1, 4, 0, 3, 2]);
  });

  it('partitions without an event become idle before all others, even if they are read much later', () => {
    const { idle, ends, watch } = world([30, NEVER, 10]);
    const one = watch(100);
    ends[1] = -1;
    expect([one.due(0), one.due(200)]).toEqual([[], []]);
    ends[1] = 5;
    expect([one.due(1000), one.due(1200), one.due(1300)]).toEqual([[], [], [1, 0, 2]]);
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

describe('the end of a partition', () => {
  it('time in which the broker does not answer does not make a partition idle', () => {
    const { broker, watch } = world([10]);
    const one = watch(10_000);
    expect(one.firstDue(0, 3_100)).toBeUndefined();
    broker.answers = false;
    expect(one.firstDue(3_100, 63_000)).toBeUndefined();
    broker.answers = true;
    // 3 s before the outage, 2 s of it, and 5 s after it.
    expect(one.firstDue(63_000, 68_100)).toBe(68_000);
  });

  it('a process that was suspended does not find a partition idle', () => {
    const { broker, watch } = world([10]);
    const one = watch(10_000);
    expect(one.firstDue(0, 3_100)).toBeUndefined();
    // The jump counts as one second.
    expect(one.firstDue(63_000, 69_100)).toBe(69_000);
    const other = watch(10_000);
    expect(other.firstDue(0, 10_000)).toBeUndefined();
    broker.answers = false;
    // The last answer is from before the suspension, in which the partition got records.
    expect(other.firstDue(70_000, 80_000)).toBeUndefined();
    broker.answers = true;
    broker.highs[0] = 9;
    expect(other.firstDue(80_000, 100_000)).toBeUndefined();
  });

  it('a partition with records at the broker is not idle, however long ago its end was read', () => {
    const { ends, positions, broker, watch } = world([10]);
    const one = watch(10_000);
    broker.highs[0] = 7;
    expect(one.firstDue(0, 60_000)).toBeUndefined();
    positions[0] = 7;
    ends[0] = 7;
    // Two seconds of the time before count: an answer proves no more.
    expect(one.firstDue(60_000, 75_000)).toBe(67_900);
  });

  it('answers of each second are enough for idleness about one timeout after the last event', () => {
    const { broker, watch } = world([10]);
    const one = watch(10_000);
    broker.answers = false;
    const found: number[] = [];
    for (let now = 0; now < 15_000 && found.length === 0; now += 100) {
      // Each answer takes 100 ms.
      if (now % 1000 === 100) one.lag.answer = { askedMs: now - 100, answeredMs: now, highs: [5] };
      if (one.due(now).length > 0) found.push(now);
    }
    expect(found).toEqual([10_100]);
  });

  it('a silent partition becomes idle although each answer takes longer than an answer is valid', () => {
    const { broker, watch } = world([10]);
    const one = watch(10_000);
    broker.answers = false;
    let found = 0;
    for (let now = 0; now < 60_000 && found === 0; now += 100) {
      if (now > 0 && now % 6000 === 0) one.lag.answer = { askedMs: now - 6000, answeredMs: now, highs: [5] };
      if (one.due(now).length > 0) found = now;
    }
    // Each answer proves two seconds; the first proves none, because no time passed before it.
    expect(found).toBe(36_000);
  });

  it('an answer to a query from before a suspension proves nothing', () => {
    const { broker, watch } = world([10]);
    const one = watch(10_000);
    expect(one.firstDue(0, 9_900)).toBeUndefined();
    broker.answers = false;
    one.lag.answer = { askedMs: 9_900, answeredMs: 70_000, highs: [5] };
    expect(one.firstDue(70_000, 80_000)).toBeUndefined();
  });

  it('answers are needed more often for a short timeout, and only while a partition waits for them', () => {
    const { idle, ends, watch } = world([10]);
    const [short, long] = [watch(1_000), watch(60_000)];
    expect(short.queryMs()).toBe(Number.POSITIVE_INFINITY);
    for (const one of [short, long]) one.due(0);
    expect([short.queryMs(), long.queryMs()]).toEqual([250, 1000]);
    idle.add(0);
    short.due(100);
    expect(short.queryMs()).toBe(Number.POSITIVE_INFINITY);
    idle.delete(0);
    ends[0] = -1;
    short.due(200);
    expect(short.queryMs()).toBe(Number.POSITIVE_INFINITY);
  });
});
