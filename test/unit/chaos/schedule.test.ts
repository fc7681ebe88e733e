/** Plans of chaos runs: fixed values of a seed, and settings that plan nothing. */
import { expect, it } from 'vitest';
import { CRASH_POINT_NAMES, FAULT_KINDS, LINKS, TAKEOVER_MS } from '../../../src/chaos/faults.ts';
import { faultText, planChaos, type ScheduleSettings } from '../../../src/chaos/schedule.ts';

const SETTINGS: ScheduleSettings = {
  seed: 7,
  durationMs: 30_000,
  everyMs: 10_000,
  faults: FAULT_KINDS.filter((kind) => kind !== 'slot-drop'),
  crashPoints: CRASH_POINT_NAMES,
  relay: 'poll',
  brokerCount: 3,
  links: LINKS,
};

it('a seed keeps its plan over versions, or the version says so', () => {
  expect(planChaos({ ...SETTINGS, faults: ['crash', 'broker-kill'] }).map(faultText)).toMatchInlineSnapshot(`
    [
      "crash at mark of relay",
      "crash at respond of orders",
      "crash at effect of payments",
      "broker-kill of kafka-1 for 3.4 s",
      "crash at commit of relay",
      "crash at offset of payments",
      "broker-kill of kafka-2 for 4.0 s",
      "crash at respond of orders",
      "crash at publish of relay",
    ]
  `);
});

it('another seed gives another plan', () => {
  const plans = [1, 2, 3].map((seed) => JSON.stringify(planChaos({ ...SETTINGS, seed })));
  expect(new Set(plans).size).toBe(3);
});

it('a longer duration deals further decks, and each deck has every fault once', () => {
  const plan = planChaos({ ...SETTINGS, durationMs: 210_000, faults: ['crash', 'kill', 'pause'] });
  const relay = plan.filter(({ lane }) => lane === 'relay').map(({ kind, point }) => point ?? kind);
  expect(relay).toHaveLength(20);
  const deck = ['commit', 'kill', 'mark', 'pause', 'publish'];
  for (let from = 0; from < relay.length; from += deck.length)
    expect(relay.slice(from, from + deck.length).sort()).toEqual(deck);
});

it('about half of the pauses of a service with a standby outlast its lease and its session', () => {
  const pauses = Array.from({ length: 40 }, (_, seed) =>
    planChaos({ ...SETTINGS, seed, durationMs: 60_000, faults: ['pause'] }),
  ).flat();
  const long = (services: readonly string[]): number => {
    const all = pauses.filter(({ lane }) => services.includes(lane));
    return all.filter(({ durationMs }) => durationMs > TAKEOVER_MS.session).length / all.length;
  };
  expect(long(['relay', 'payments'])).toBeGreaterThan(0.35);
  expect(long(['relay', 'payments'])).toBeLessThan(0.65);
  // Orders has one process, so a long pause would only stop the load.
  expect(long(['orders'])).toBe(0);
  // A run of seconds stays short.
  const short = planChaos({ ...SETTINGS, durationMs: 10_000, faults: ['pause'] });
  expect(short.every(({ durationMs }) => durationMs < TAKEOVER_MS.session)).toBe(true);
});

it('a fault after a long pause of its component waits for its end', () => {
  for (let seed = 0; seed < 20; seed++) {
    const plan = planChaos({ ...SETTINGS, seed, everyMs: 2000, faults: ['pause', 'kill'] });
    const relay = plan.filter(({ lane }) => lane === 'relay');
    for (const [i, fault] of relay.entries())
      expect(relay[i + 1]?.atMs ?? Number.POSITIVE_INFINITY).toBeGreaterThanOrEqual(
        fault.atMs + fault.durationMs,
      );
  }
});

it('a fault that cannot be planned is refused with its reason', () => {
  expect(() => planChaos({ ...SETTINGS, faults: ['slot-drop'] })).toThrow(/slot-drop cannot be planned/);
  expect(planChaos({ ...SETTINGS, faults: [] })).toEqual([]);
});
