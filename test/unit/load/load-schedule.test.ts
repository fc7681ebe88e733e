import { describe, expect, test } from 'vitest';
import { Intents } from '../../../src/load/intents.ts';
import { LatencyHistogram } from '../../../src/load/latency.ts';
import { Schedule, type Send } from '../../../src/load/schedule.ts';

const OPTIONS = { seed: 5n, accounts: 1000, zipf: 1.1, keys: 500, retryRate: 0.15, retryWithinMs: 2000 };
const scheduleOf = (count: number, rate = 1000, retryRate = 0.15): Schedule =>
  new Schedule(new Intents({ ...OPTIONS, retryRate }), {
    rate,
    retryRate,
    count,
    durationMs: Number.POSITIVE_INFINITY,
  });

function drain(schedule: Schedule, stepMs: number): Send[] {
  const sends: Send[] = [];
  for (let nowMs = 0; !schedule.isDone; nowMs += stepMs)
    sends.push(...schedule.due(nowMs, Number.POSITIVE_INFINITY));
  return sends;
}

describe('intents', () => {
  test('an intent is a function of seed and number', () => {
    const one = new Intents(OPTIONS);
    const other = new Intents(OPTIONS);
    for (const index of [7, 0, 1_000_000, 7]) {
      expect(one.intent(index)).toEqual(other.intent(index));
      expect(one.repeatsAfter(index)).toEqual(other.repeatsAfter(index));
    }
    expect(new Intents({ ...OPTIONS, seed: 6n }).intent(7).key).not.toBe(one.intent(7).key);
  });

  test('intents have unique keys, positive amounts and accounts in range', () => {
    const intents = new Intents(OPTIONS);
    const all = Array.from({ length: 5000 }, (_, i) => intents.intent(i));
    expect(new Set(all.map((intent) => intent.key)).size).toBe(5000);
    for (const intent of all) {
      expect(intent.key).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      expect(intent.amountCents).toBeGreaterThan(0);
      expect(intent.accountId >= 1 && intent.accountId <= 1000).toBe(true);
    }
  });

  test('15% of the intents are followed by one to three repeats of keys that were already sent', () => {
    const intents = new Intents(OPTIONS);
    const counts = [0, 0, 0, 0];
    const popularity = new Map<number, number>();
    const total = 40_000;
    for (let i = 0; i < total; i++) {
      const repeats = intents.repeatsAfter(i);
      counts[repeats.length] = (counts[repeats.length] as number) + 1;
      for (const repeat of repeats) {
        expect(repeat.index <= i && repeat.index >= i - (i % OPTIONS.keys)).toBe(true);
        expect(repeat.afterMs >= 0 && repeat.afterMs < OPTIONS.retryWithinMs).toBe(true);
        popularity.set(repeat.index, (popularity.get(repeat.index) ?? 0) + 1);
      }
      expect([...repeats].sort((a, b) => a.afterMs - b.afterMs)).toEqual(repeats);
    }
    expect(Math.abs((total - (counts[0] as number)) / total - 0.15)).toBeLessThan(0.01);
    for (const n of [1, 2, 3]) expect(Math.abs((counts[n] as number) / total - 0.05)).toBeLessThan(0.005);
    // The most frequent key is repeated far more often than a key of middle rank.
    const at = (rank: number): number => {
      let sum = 0;
      for (let set = 0; set < total; set += OPTIONS.keys) sum += popularity.get(set + rank - 1) ?? 0;
      return sum;
    };
    expect(at(1)).toBeGreaterThan(20 * at(250));
  });
});

describe('schedule', () => {
  test('the schedule plans each intent once, at the requested rate', () => {
    const sends = drain(scheduleOf(10_000), 1);
    const firsts = sends.filter((send) => send.kind === 'first');
    expect(firsts.map((send) => send.index)).toEqual(Array.from({ length: 10_000 }, (_, i) => i));
    const span = (firsts.at(-1) as Send).dueMs;
    expect(Math.abs(sends.length / (span / 1000) - 1000)).toBeLessThan(30);
  });

  test('the schedule does not depend on the times of its polls, and a stall moves no due time', () => {
    const key = (send: Send): string => `${send.index} ${send.kind} ${send.dueMs}`;
    const steady = drain(scheduleOf(3000), 1).map(key);
    expect(drain(scheduleOf(3000), 700).map(key)).toEqual(steady);
    expect(drain(scheduleOf(3000), 0.1).map(key)).toEqual(steady);
  });

  test('the schedule gives sends in the order of their due times, never early', () => {
    const schedule = scheduleOf(5000);
    let last = 0;
    for (let nowMs = 0; !schedule.isDone; nowMs += 13) {
      for (const send of schedule.due(nowMs, 7)) {
        expect(send.dueMs).toBeGreaterThanOrEqual(last);
        expect(send.dueMs).toBeLessThanOrEqual(nowMs);
        last = send.dueMs;
      }
    }
  });

  test('the schedule keeps the due time of a send that is retried', () => {
    const schedule = scheduleOf(1, 1000, 0);
    const [send] = schedule.due(0, 10) as [Send];
    expect(schedule.isDone).toBe(true);
    schedule.resend(send, 500);
    expect(schedule.due(499, 10)).toEqual([]);
    expect(schedule.nextDueMs()).toBe(500);
    expect(schedule.due(500, 10)).toEqual([{ ...send, kind: 'resend', failures: 1 }]);
  });

  test('the schedule ends by count, by duration or when it is stopped, and repeats still leave', () => {
    const byTime = new Schedule(new Intents({ ...OPTIONS, retryRate: 0 }), {
      rate: 100,
      retryRate: 0,
      count: Number.POSITIVE_INFINITY,
      durationMs: 1000,
    });
    expect(drain(byTime, 1).length).toBe(100);
    const stopped = scheduleOf(Number.POSITIVE_INFINITY, 1000, 1);
    stopped.due(100, Number.POSITIVE_INFINITY);
    stopped.stop();
    expect(stopped.isPlanned).toBe(true);
    expect(stopped.waitingCount).toBeGreaterThan(0);
    expect(stopped.due(1e9, Number.POSITIVE_INFINITY).every((send) => send.kind === 'repeat')).toBe(true);
    expect(stopped.isDone).toBe(true);
  });
});

describe('latency histogram', () => {
  test('the latency histogram has no quantile before the first value', () => {
    expect(new LatencyHistogram().quantileMs(0.5)).toBeNaN();
    expect(new LatencyHistogram().maxMs).toBeNaN();
  });

  test('the latency histogram overstates a value by at most a 64th, from a microsecond to an hour', () => {
    for (let us = 1; us < 3.6e9; us = Math.ceil(us * 1.37)) {
      const histogram = new LatencyHistogram();
      histogram.record(us / 1000);
      histogram.record(4e6);
      const seen = histogram.quantileMs(0.5) * 1000;
      expect(seen).toBeGreaterThanOrEqual(us * (1 - 1e-9));
      expect(seen).toBeLessThanOrEqual(us * (1 + 1 / 64) + 1e-6);
    }
  });

  test('the latency histogram finds quantiles by rank', () => {
    const histogram = new LatencyHistogram();
    for (let ms = 1; ms <= 1000; ms++) histogram.record(ms);
    expect(histogram.count).toBe(1000);
    expect(Math.abs(histogram.quantileMs(0.5) / 500 - 1)).toBeLessThan(1 / 64);
    expect(Math.abs(histogram.quantileMs(0.99) / 990 - 1)).toBeLessThan(1 / 64);
    expect(histogram.quantileMs(1)).toBe(1000);
    expect(histogram.maxMs).toBe(1000);
  });

  test('the latency histogram accepts negative and infinite values', () => {
    const histogram = new LatencyHistogram();
    histogram.record(-5);
    histogram.record(1e12);
    expect(histogram.quantileMs(0.1)).toBe(0);
    expect(histogram.quantileMs(1)).toBeGreaterThan(8e6);
  });
});
