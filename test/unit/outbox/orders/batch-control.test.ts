/** AIMD batch sizing of orders, under virtual time. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BatchControl } from '../../../../src/outbox/orders/write/batch-control.ts';

const adaptive = (over: Partial<ConstructorParameters<typeof BatchControl>[0]> = {}): BatchControl =>
  new BatchControl({ lanes: 2, rowsMax: 512, budgetMs: 25, fixed: false, ...over });

/** Simulates a queue with lanes whose transactions take `commitMs(rows)`, and with these arrivals.
 *  @returns the time of each order from arrival to the end of its transaction, and the sizes of the
 *  transactions */
function simulate(
  control: BatchControl,
  lanes: number,
  arrivals: readonly number[],
  commitMs: (rows: number) => number,
): { readonly latencies: number[]; readonly sizes: number[]; readonly queueMax: number } {
  const latencies: number[] = [];
  const sizes: number[] = [];
  const ends: Array<{ atMs: number; startMs: number; orders: number[] }> = [];
  const queue: number[] = [];
  let next = 0;
  let nowMs = 0;
  let queueMax = 0;
  while (latencies.length < arrivals.length) {
    let wakeMs = Number.POSITIVE_INFINITY;
    while (ends.length < lanes && queue.length > 0) {
      const rows = control.decide(queue.length, nowMs - (queue[0] as number));
      if (rows <= 0) {
        // Timers have a resolution of whole milliseconds.
        wakeMs = nowMs + Math.max(1, Math.ceil(-rows));
        break;
      }
      const orders = queue.splice(0, rows);
      sizes.push(orders.length);
      ends.push({ atMs: nowMs + commitMs(orders.length), startMs: nowMs, orders });
    }
    ends.sort((a, b) => a.atMs - b.atMs);
    const arrivalMs = arrivals[next] ?? Number.POSITIVE_INFINITY;
    const endMs = ends[0]?.atMs ?? Number.POSITIVE_INFINITY;
    nowMs = Math.min(arrivalMs, endMs, wakeMs);
    if (nowMs === endMs) {
      const done = ends.shift() as (typeof ends)[number];
      for (const arrived of done.orders) latencies.push(nowMs - arrived);
      control.finished(done.orders.length, nowMs - done.startMs, queue.length);
    } else if (nowMs === arrivalMs) {
      queue.push(nowMs);
      control.arrived(nowMs);
      next++;
      queueMax = Math.max(queueMax, queue.length);
    }
  }
  return { latencies, sizes, queueMax };
}

const evenly = (perSecond: number, seconds: number): number[] =>
  Array.from({ length: perSecond * seconds }, (_, i) => 1 + (i * 1000) / perSecond);
const quantile = (values: readonly number[], q: number): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length * q)] as number;
const mean = (values: readonly number[]): number => values.reduce((sum, one) => sum + one, 0) / values.length;

describe('batch control', () => {
  it('each order is written immediately under low load', () => {
    const { latencies, sizes } = simulate(adaptive(), 2, evenly(20, 20), () => 2);
    expect(Math.max(...latencies)).toBe(2);
    expect(new Set(sizes)).toEqual(new Set([1]));
  });

  it('orders share transactions under load and stay within the latency budget', () => {
    const { latencies, sizes } = simulate(adaptive(), 2, evenly(5000, 5), (rows) => 1.5 + rows * 0.03);
    expect(mean(sizes)).toBeGreaterThan(15);
    expect(quantile(latencies, 0.999)).toBeLessThan(12.5);
  });

  it('orders wait less for a batch when commits are slow, and not at all when commits use up the budget', () => {
    const at = (commitMs: number): number => {
      const control = adaptive();
      simulate(control, 2, evenly(2000, 3), () => commitMs);
      return control.gatherMs();
    };
    const waits = [1, 4, 8, 9, 10, 12, 30].map(at);
    expect(waits[0]).toBe(5);
    for (const [i, wait] of waits.entries()) expect(wait).toBeLessThanOrEqual(waits[i - 1] ?? 5);
    expect(waits.slice(-2)).toEqual([0, 0]);
  });

  it('batches grow when orders queue, until they sustain the rate', () => {
    const control = adaptive();
    // Batches of 64 carry 12,800 orders per second; 20,000 need larger batches.
    const { queueMax, latencies } = simulate(control, 2, evenly(20_000, 3), (rows) => 8 + rows * 0.02);
    expect(control.rowsNow()).toBeGreaterThan(64);
    expect(queueMax).toBeLessThan(3000);
    expect(quantile(latencies.slice(40_000), 0.99)).toBeLessThan(60);
  });

  it('batches shrink when large batches are slow and the queue is empty', () => {
    const control = adaptive();
    for (let i = 0; i < 20; i++) control.finished(control.rowsNow(), 40, 0);
    expect(control.rowsNow()).toBe(16);
  });

  it('a fixed batch size stays fixed and never waits', () => {
    const control = adaptive({ fixed: true, rowsMax: 10 });
    const { sizes } = simulate(control, 2, evenly(10_000, 1), () => 5);
    expect(Math.max(...sizes)).toBe(10);
    expect([control.gatherMs(), control.rowsNow()]).toEqual([0, 10]);
    expect(adaptive({ fixed: true, rowsMax: 1 }).decide(5, 0)).toBe(1);
  });

  it('the expected wait is proportional to the queue', () => {
    const control = adaptive({ fixed: true, rowsMax: 50 });
    expect(control.expectedWaitMs(1000)).toBe(0);
    control.finished(50, 10, 0);
    expect(control.transactionMs()).toBe(10);
    expect(control.expectedWaitMs(1000)).toBe(100);
  });

  it('a decision takes between 1 and the maximum of rows, or waits at most a fifth of the budget', () => {
    const step = fc.record({
      queued: fc.integer({ min: 1, max: 5000 }),
      oldestMs: fc.double({ min: 0, max: 1e6, noNaN: true }),
      finished: fc.option(
        fc.tuple(fc.integer({ min: 1, max: 512 }), fc.double({ min: 0, max: 1e5, noNaN: true })),
      ),
      arrivals: fc.integer({ min: 0, max: 50 }),
      laterMs: fc.double({ min: 0, max: 500, noNaN: true }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), fc.integer({ min: 1, max: 512 }), (steps, rowsMax) => {
        const control = adaptive({ rowsMax });
        let nowMs = 0;
        for (const { queued, oldestMs, finished, arrivals, laterMs } of steps) {
          nowMs += laterMs;
          for (let i = 0; i < arrivals; i++) control.arrived(nowMs);
          if (finished !== null) control.finished(finished[0], finished[1], queued);
          const decided = control.decide(queued, oldestMs);
          if (decided > 0) expect(decided).toBeLessThanOrEqual(Math.min(queued, rowsMax));
          else {
            expect(decided).toBeLessThan(0);
            expect(-decided).toBeLessThanOrEqual(5);
            expect(queued).toBeLessThan(control.rowsNow());
          }
        }
      }),
    );
  });
});
