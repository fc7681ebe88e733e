/** The course of a soak: differences between samples, across a restart, and the slices that contain
 *  them. */
import { describe, expect, it } from 'vitest';
import { Course, type Observation } from '../../../bench/engine/soak-course.ts';

const SPILLED = 'engine_spill_bytes_total';
const EVENTS = 'engine_events_total';

const sample = (
  at: number,
  values: Readonly<Record<string, number>>,
  more: Partial<Pick<Observation, 'isRestarted' | 'gauges'>> = {},
): Observation => ({
  at,
  engine: new Map(Object.entries(values)),
  isRestarted: false,
  sent: at,
  gauges: {},
  ...more,
});

/** Metrics of a stage in which `fast` records took at most 1 ms and the others 10 ms. */
const stage = (fast: number, all: number): Readonly<Record<string, number>> => ({
  'engine_stage_seconds_bucket{stage="accumulate",le="0.001"}': fast,
  'engine_stage_seconds_bucket{stage="accumulate",le="0.01"}': all,
  'engine_stage_seconds_bucket{stage="accumulate",le="+Inf"}': all,
  'engine_stage_seconds_count{stage="accumulate"}': all,
});

describe('soak course', () => {
  it('a course sums growth by slices, by thirds and as a whole', () => {
    const course = new Course(sample(0, { [EVENTS]: 0 }), 6000, 3);
    course.add(sample(1000, { [EVENTS]: 10 }));
    course.add(sample(3000, { [EVENTS]: 40 }));
    course.add(sample(6000, { [EVENTS]: 100 }));
    expect(course.sliceMs).toBe(2000);
    expect(course.slices.map((span) => span.increase(EVENTS))).toEqual([10, 30, 60]);
    expect(course.slices.map((span) => span.perSecond(EVENTS))).toEqual([10, 15, 20]);
    expect(course.whole.increase(EVENTS)).toBe(100);
    expect(course.whole.sentPerSecond).toBe(1000);
    expect(course.first.increase(EVENTS)).toBe(10);
    expect(course.last.increase(EVENTS)).toBe(60);
  });

  it('a course returns each finished slice with a line about it', () => {
    const course = new Course(sample(0, { [EVENTS]: 0 }), 4000, 2);
    const gauges = { rss: 3 * 2 ** 20, disk: 2 ** 30 };
    expect(course.add(sample(1000, { [EVENTS]: 10 }))).toBeUndefined();
    const unread = { engine_unread_events: 7 };
    const busy = { [EVENTS]: 20, ...unread, ...stage(90, 100) };
    expect(course.add(sample(2000, busy, { gauges }))).toBeUndefined();
    const over = course.add(sample(3000, { [EVENTS]: 90, ...stage(90, 100) }));
    expect(over?.text).toBe(
      '10 events a second, lag up to 7, p99 at most 10 ms, resident 3 MiB, disk 1024 MiB less',
    );
    expect(course.add(sample(4000, { [EVENTS]: 100 }))).toBeUndefined();
  });

  it('a course omits slices without a sample', () => {
    const course = new Course(sample(0, { [EVENTS]: 0 }), 3000, 3);
    course.add(sample(3000, { [EVENTS]: 30 }));
    expect(course.slices).toHaveLength(1);
  });

  it('a course continues over a restart, where process counters begin at 0 and restored ones do not', () => {
    const course = new Course(sample(0, { [EVENTS]: 0, [SPILLED]: 0 }), 1000, 1);
    course.add(sample(400, { [EVENTS]: 50, [SPILLED]: 7 }));
    course.add(sample(600, { [EVENTS]: 45, [SPILLED]: 2 }, { isRestarted: true }));
    course.add(sample(1000, { [EVENTS]: 100, [SPILLED]: 5 }));
    expect(course.whole.increase(EVENTS)).toBe(100);
    expect(course.whole.increase(SPILLED)).toBe(12);
  });

  it('a course keeps the largest value of each gauge', () => {
    const course = new Course(sample(0, {}), 1000, 1);
    const lag = 'engine_unread_events';
    for (const [at, value] of [
      [300, Number.NaN],
      [500, 9],
      [1000, 4],
    ] as const)
      course.add(sample(at, { [lag]: value }, { gauges: { rss: value } }));
    expect(course.whole.max(lag)).toBe(9);
    expect(course.whole.max('rss')).toBe(9);
    expect(course.whole.max('never')).toBeNaN();
  });

  it('a course has the quantiles of the measurements in each slice', () => {
    const course = new Course(sample(0, stage(90, 100)), 1000, 2);
    course.add(sample(400, stage(190, 200)));
    course.add(sample(1000, stage(190, 300)));
    const [early, late] = course.slices;
    expect(early?.quantileMs('accumulate', 0.99)).toBe(1);
    expect(late?.quantileMs('accumulate', 0.5)).toBe(10);
    expect(course.whole.quantileMs('accumulate', 0.5)).toBe(1);
    expect(course.whole.quantileMs('sink', 0.5)).toBeNaN();
  });
});
