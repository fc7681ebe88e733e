/** Plans of chaos runs: a pure function of seed and settings that contains each chosen fault. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  brokerLinksOf,
  CRASH_POINT_NAMES,
  CRASH_POINTS,
  FAULT_KINDS,
  FAULTS,
  FULL_TABLES,
  LINKS,
  LONG_PAUSE_MS,
  lanesOf,
  MEMBERS,
  SERVICES,
} from '../../src/chaos/faults.ts';
import { type PlannedFault, planChaos, type ScheduleSettings } from '../../src/chaos/schedule.ts';
import { runs } from '../tier.ts';

const settings: fc.Arbitrary<ScheduleSettings> = fc
  .record({
    seed: fc.nat(2 ** 31 - 1),
    durationMs: fc.integer({ min: 1000, max: 300_000 }),
    everyMs: fc.integer({ min: 3000, max: 60_000 }),
    faults: fc.subarray([...FAULT_KINDS]),
    crashPoints: fc.subarray([...CRASH_POINT_NAMES], { minLength: 1 }),
    relay: fc.constantFrom('poll' as const, 'wal' as const),
    brokerCount: fc.constantFrom(1, 3),
    links: fc.subarray([...LINKS], { minLength: 1 }),
  })
  .map((one) => ({
    ...one,
    faults: one.faults.filter(
      (kind) =>
        (one.relay === 'wal' || FAULTS[kind].need !== 'wal') &&
        (one.brokerCount > 1 || FAULTS[kind].need !== 'cluster'),
    ),
  }));

const ofLane = (plan: readonly PlannedFault[], lane: string): readonly PlannedFault[] =>
  plan.filter((fault) => fault.lane === lane);

const isLong = ({ kind, durationMs }: PlannedFault): boolean =>
  kind === 'pause' && durationMs >= LONG_PAUSE_MS.least;

const holds = (property: (given: ScheduleSettings) => void): void =>
  fc.assert(fc.property(settings, property), { numRuns: runs(90) });

describe('plan of a chaos run', () => {
  it('the plan is the same for the same seed and settings', () => {
    holds((given) => {
      expect(planChaos(structuredClone(given))).toEqual(planChaos(given));
    });
  });

  it('the order in which faults and crash points are listed does not change the plan', () => {
    holds((given) => {
      const turned = {
        ...given,
        faults: [...given.faults].reverse(),
        crashPoints: [...given.crashPoints].reverse(),
      };
      expect(planChaos(turned)).toEqual(planChaos(given));
    });
  });

  it('the plan of one lane does not depend on the faults of other lanes', () => {
    holds((given) => {
      const whole = planChaos(given);
      for (const lane of SERVICES) {
        const kinds = given.faults.filter((kind) => ['crash', 'kill', 'pause', 'clock-step'].includes(kind));
        const alone = planChaos({ ...given, faults: kinds });
        const without = ({ id: _, ...fault }: PlannedFault): Omit<PlannedFault, 'id'> => fault;
        expect(ofLane(alone, lane).map(without)).toEqual(ofLane(whole, lane).map(without));
      }
    });
  });

  it('each chosen kind and each crash point is planned, whatever the duration', () => {
    holds((given) => {
      const plan = planChaos(given);
      expect(new Set(plan.map(({ kind }) => kind))).toEqual(new Set(given.faults));
      const points = plan.flatMap(({ point }) => point ?? []);
      expect(new Set(points)).toEqual(new Set(given.faults.includes('crash') ? given.crashPoints : []));
    });
  });

  it('faults lie within the duration, in the order of their times, and those of a lane do not overlap', () => {
    holds((given) => {
      const plan = planChaos(given);
      expect(plan.map(({ id }) => id)).toEqual(plan.map((_, index) => index + 1));
      expect(plan.map(({ atMs }) => atMs)).toEqual(plan.map(({ atMs }) => atMs).sort((a, b) => a - b));
      for (const lane of lanesOf(SERVICES))
        for (const [i, fault] of ofLane(plan, lane).entries()) {
          const next = ofLane(plan, lane)[i + 1];
          expect(fault.atMs).toBeGreaterThanOrEqual(0);
          // Times are rounded to whole ms. The faults after a long pause are delayed.
          const longMs = ofLane(plan, lane).filter(isLong).length * LONG_PAUSE_MS.most;
          const endMs = next?.atMs ?? given.durationMs + longMs;
          expect(fault.atMs + fault.durationMs).toBeLessThanOrEqual(endMs + 1);
        }
    });
  });

  it('each fault has a target that its settings have, and crash points meet their service', () => {
    holds((given) => {
      const targets: readonly string[] = [
        ...Object.values(MEMBERS).flat(),
        'postgres',
        ...Array.from({ length: given.brokerCount }, (_, i) => `kafka-${i + 1}`),
        ...given.links,
        ...brokerLinksOf(given.brokerCount),
        ...FULL_TABLES,
      ];
      for (const { target, kind, point, durationMs } of planChaos(given)) {
        expect(targets).toContain(target);
        expect(point !== undefined).toBe(kind === 'crash');
        if (point !== undefined) expect(CRASH_POINTS[point]).toBe(target);
        expect(durationMs).toBeLessThanOrEqual(FAULTS[kind].mostMs);
      }
    });
  });

  it('kills and pauses meet each process of a service before one is met twice', () => {
    holds((given) => {
      const plan = planChaos(given);
      for (const lane of SERVICES)
        for (const kind of ['kill', 'pause'] as const) {
          const targets = ofLane(plan, lane)
            .filter((fault) => fault.kind === kind)
            .map(({ target }) => target);
          const members = MEMBERS[lane];
          expect(members).toEqual(expect.arrayContaining(targets));
          expect(new Set(targets).size).toBe(Math.min(targets.length, members.length));
        }
    });
  });

  it('every link and every broker is met before one is met twice by the same kind of fault', () => {
    holds((given) => {
      const plan = planChaos(given);
      for (const [kind, count] of [
        ['net-cut', given.links.length],
        ['broker-kill', given.brokerCount],
        ['broker-cut', brokerLinksOf(given.brokerCount).length],
      ] as const) {
        const targets = plan.filter((fault) => fault.kind === kind).map(({ target }) => target);
        expect(new Set(targets).size).toBe(Math.min(targets.length, count));
      }
    });
  });
});
