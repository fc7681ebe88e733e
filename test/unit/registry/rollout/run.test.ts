/** Rolling upgrades of a simulated fleet under virtual time: which instances run when, what stops
 *  the upgrade, and what a rollback undoes. */
import { describe, expect, test } from 'vitest';
import { registryError } from '../../../../src/registry/errors.ts';
import {
  type FleetInstance,
  type FleetSlot,
  type FleetSlotState,
  type FleetWorld,
  type InstanceCounts,
  NO_COUNTS,
  type RolloutOutcome,
  type Side,
  type UpgradeOrder,
} from '../../../../src/registry/rollout/model.ts';
import { rolloutPlot } from '../../../../src/registry/rollout/plot.ts';
import { Rollout } from '../../../../src/registry/rollout/run.ts';
import { VirtualClock } from '../../../../src/sim/clock.ts';

const SLOTS: readonly FleetSlot[] = [
  { name: 'consumer-1', role: 'consumer', group: 'g' },
  { name: 'consumer-2', role: 'consumer', group: 'g' },
  { name: 'producer-1', role: 'producer' },
];
const RATE = 100;
const START_MS = 500;

interface FleetRules {
  /** Old consumers read new records, and new consumers old records. */
  readonly forward: boolean;
  readonly backward: boolean;
  readonly lag?: number;
  /** Instance that ends by itself once it runs the new version. */
  readonly dies?: string;
  /** Instance whose new version does not start. */
  readonly broken?: string;
  /** Instance whose old version does not start. */
  readonly absent?: string;
  /** Instance that is never ready: its start ends with the signal. */
  readonly hangs?: string;
  /** The instances do not count what they produce and consume. */
  readonly mute?: boolean;
}

/** Fleet whose consumers count an error for each second in which they meet records that they cannot
 *  read. Old records are gone once `drained` was asked. */
class SimulatedFleet implements FleetWorld {
  readonly log: string[] = [];
  readonly running = new Set<string>();
  most = 0;
  private readonly clock: VirtualClock;
  private readonly rules: FleetRules;
  private readonly sides = new Map<string, Side>();
  private hasOld = false;
  private hasNew = false;

  constructor(clock: VirtualClock, rules: FleetRules) {
    this.clock = clock;
    this.rules = rules;
  }

  async start(slot: FleetSlot, side: Side, signal: AbortSignal): Promise<FleetInstance> {
    if (this.rules.hangs === slot.name) {
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
      this.log.push(`abort ${slot.name}`);
      throw registryError('not_delivered', `${slot.name} was ended`);
    }
    await new Promise<void>((resolve) => this.clock.after(START_MS, resolve));
    if (this.rules.absent === slot.name)
      throw registryError('not_delivered', `${slot.name} does not start`, { next: 'see its log' });
    if (this.rules.broken === slot.name && side === 'new')
      throw registryError('not_delivered', `${slot.name} does not start`);
    const key = `${slot.name} ${side}`;
    this.log.push(`start ${key}`);
    this.running.add(key);
    this.most = Math.max(this.most, this.running.size);
    this.sides.set(slot.name, side);
    this.noteRecords();
    const startMs = this.clock.monotonicMs();
    let errors = 0;
    return {
      countsWork: this.rules.mute !== true,
      scrape: async (): Promise<InstanceCounts> => {
        this.noteRecords();
        if (this.rules.mute === true) return NO_COUNTS;
        const work = 1 + Math.floor(((this.clock.monotonicMs() - startMs) / 1000) * RATE);
        if (slot.role === 'producer') return { errors: 0, produced: work, consumed: 0, lag: 0 };
        const isBroken =
          side === 'old' ? this.hasNew && !this.rules.forward : this.hasOld && !this.rules.backward;
        if (isBroken) errors++;
        return { errors, produced: 0, consumed: work, lag: this.rules.lag ?? 0 };
      },
      failure: () => (this.rules.dies === slot.name && side === 'new' ? 'killed' : undefined),
      stop: async () => {
        this.log.push(`stop ${key}`);
        this.running.delete(key);
        return undefined;
      },
    };
  }

  readonly drained = async (): Promise<boolean> => {
    this.log.push('drained');
    this.hasOld = false;
    this.hasNew = false;
    this.noteRecords();
    return true;
  };

  private noteRecords(): void {
    const side = this.running.has('producer-1 old')
      ? 'old'
      : this.running.has('producer-1 new')
        ? 'new'
        : undefined;
    if (side === 'old') this.hasOld = true;
    if (side === 'new') this.hasNew = true;
    if (this.running.has('producer-1 new')) this.hasNew = true;
  }
}

async function upgrade(
  rules: FleetRules,
  order: UpgradeOrder,
  more: {
    readonly rollback?: boolean;
    readonly surge?: boolean;
    readonly drain?: AbortController;
    readonly onSample?: (slots: readonly FleetSlotState[]) => void;
  } = {},
): Promise<{ readonly outcome: RolloutOutcome; readonly fleet: SimulatedFleet }> {
  const clock = new VirtualClock();
  const fleet = new SimulatedFleet(clock, rules);
  const drain = more.drain ?? new AbortController();
  const rollout = new Rollout({
    world: fleet,
    clock,
    drain: drain.signal,
    slots: SLOTS,
    order,
    rollback: more.rollback ?? true,
    stepMs: 5000,
    sampleMs: 1000,
    lagMax: 50,
    settleMs: 20_000,
    surge: more.surge ?? true,
    onSample: (_, slots) => more.onSample?.(slots),
    onEntry: ({ text }) => {
      if (more.drain !== undefined && text.startsWith('consumer-1 runs')) more.drain.abort();
    },
  });
  return { outcome: await clock.run(rollout.run()), fleet };
}

const started = ({ log }: SimulatedFleet): readonly string[] =>
  log.filter((line) => line.startsWith('start') || line === 'drained');

describe('a rollout in a safe order', () => {
  test('consumers first upgrades each consumer, then the producers, without an error', async () => {
    const { outcome, fleet } = await upgrade({ backward: true, forward: false }, 'consumers-first');
    expect(outcome).toMatchObject({ verdict: 'upgraded', errors: 0, reason: undefined });
    expect(outcome.upgraded).toEqual(['consumer-1', 'consumer-2', 'producer-1']);
    expect(fleet.running.size).toBe(0);
    expect(outcome.consumed).toBeGreaterThan(RATE);
  });

  test('producers first reads all old records before the first consumer is upgraded', async () => {
    const { outcome, fleet } = await upgrade({ backward: false, forward: true }, 'producers-first');
    expect(outcome).toMatchObject({ verdict: 'upgraded', errors: 0 });
    const lines = started(fleet);
    const producer = lines.indexOf('start producer-1 new');
    const consumer = lines.indexOf('start consumer-1 new');
    expect(lines.slice(producer, consumer)).toContain('drained');
  });

  test.each([
    [true, 4],
    [false, 3],
  ])('a rollout with surge=%s runs at most %i instances at the same time', async (surge, most) => {
    const { outcome, fleet } = await upgrade({ backward: true, forward: true }, 'consumers-first', { surge });
    expect(outcome.verdict).toBe('upgraded');
    expect(fleet.most).toBe(most);
  });
});

describe('a rollout in a wrong order', () => {
  test('producers first under BACKWARD stops at the first error and returns to the old version', async () => {
    const { outcome, fleet } = await upgrade({ backward: true, forward: false }, 'producers-first');
    expect(outcome.verdict).toBe('rolled-back');
    expect(outcome.errors).toBeGreaterThan(0);
    expect(outcome.reason).toContain('could not be read');
    expect(outcome.upgraded).toEqual(['producer-1']);
    expect(
      started(fleet)
        .filter((line) => line !== 'drained')
        .at(-1),
    ).toBe('start producer-1 old');
    expect(fleet.running.size).toBe(0);
  });

  test('an upgrade without a rollback continues to its end and reports the errors', async () => {
    const { outcome } = await upgrade({ backward: true, forward: false }, 'producers-first', {
      rollback: false,
    });
    expect(outcome.verdict).toBe('errors');
    expect(outcome.upgraded).toEqual(['producer-1', 'consumer-1', 'consumer-2']);
    expect(outcome.errors).toBeGreaterThan(0);
  });
});

describe('a rollout that cannot continue', () => {
  test('a lag that stays high stops the upgrade and rolls back', async () => {
    const { outcome } = await upgrade({ backward: true, forward: true, lag: 40 }, 'consumers-first');
    expect(outcome.verdict).toBe('rolled-back');
    expect(outcome.reason).toMatch(/^the lag is still 80 records after \d+ s, above 50$/);
    expect(outcome.upgraded).toEqual(['consumer-1']);
  });

  test('an instance that ends by itself fails the rollout and ends the fleet', async () => {
    const { outcome, fleet } = await upgrade(
      { backward: true, forward: true, dies: 'consumer-2' },
      'consumers-first',
    );
    expect(outcome).toMatchObject({ verdict: 'failed', reason: 'consumer-2: killed' });
    expect(fleet.running.size).toBe(0);
  });

  test('an instance that does not start fails the rollout and ends the fleet', async () => {
    const { outcome, fleet } = await upgrade(
      { backward: true, forward: true, broken: 'producer-1' },
      'consumers-first',
    );
    expect(outcome).toMatchObject({ verdict: 'failed', reason: 'producer-1 does not start' });
    expect(fleet.running.size).toBe(0);
  });

  test('the first instance that does not start ends the other starts, and names the next step', async () => {
    const { outcome, fleet } = await upgrade(
      { backward: true, forward: true, absent: 'consumer-1', hangs: 'consumer-2' },
      'consumers-first',
    );
    expect(outcome).toMatchObject({ verdict: 'failed', reason: 'consumer-1 does not start; see its log' });
    expect(fleet.log).toEqual(['abort consumer-2']);
  });

  test('a drain ends a start that hangs, and is no failure of the instance', async () => {
    const drain = new AbortController();
    const { outcome, fleet } = await upgrade(
      { backward: true, forward: true, hangs: 'consumer-2' },
      'consumers-first',
      {
        drain,
        onSample: (slots) => {
          if (slots[0]?.state === 'running') drain.abort();
        },
      },
    );
    expect(outcome).toMatchObject({ verdict: 'interrupted', reason: undefined, upgraded: [] });
    expect(fleet.log).toEqual(['start consumer-1 old', 'abort consumer-2', 'stop consumer-1 old']);
  });

  test('instances that do not count their work are upgraded without waiting for a first record', async () => {
    const { outcome } = await upgrade({ backward: true, forward: true, mute: true }, 'consumers-first');
    expect(outcome).toMatchObject({ verdict: 'upgraded', consumed: 0 });
    expect(outcome.timeline.filter(({ text }) => text.includes('has not processed'))).toEqual([]);
  });

  test('an ended instance still shows its counts, which are added once', async () => {
    let last: readonly FleetSlotState[] = [];
    const { outcome } = await upgrade({ backward: true, forward: true }, 'consumers-first', {
      onSample: (slots) => {
        last = structuredClone(
          slots.map(({ slot, side, state, counts, perSecond }) => {
            return { slot, side, state, counts, perSecond };
          }),
        );
      },
    });
    expect(last.map(({ state }) => state)).toEqual(['stopped', 'stopped', 'stopped']);
    for (const { counts, slot } of last)
      expect(slot.role === 'consumer' ? counts.consumed : counts.produced).toBeGreaterThan(0);
    expect(outcome.samples.at(-1)).toMatchObject({ consumed: outcome.consumed, lag: 0 });
    for (const [at, sample] of outcome.samples.entries())
      expect(sample.consumed).toBeGreaterThanOrEqual(outcome.samples[at - 1]?.consumed ?? 0);
  });

  test('a drain ends the fleet and reports an interrupted rollout', async () => {
    const { outcome, fleet } = await upgrade({ backward: true, forward: true }, 'consumers-first', {
      drain: new AbortController(),
    });
    expect(outcome).toMatchObject({ verdict: 'interrupted', upgraded: ['consumer-1'] });
    expect(fleet.running.size).toBe(0);
  });
});

test('the plot has a line for each entry of the timeline and escapes texts', async () => {
  const { outcome } = await upgrade({ backward: true, forward: true }, 'consumers-first');
  const svg = rolloutPlot('a < b & "c"', outcome.samples, outcome.timeline);
  expect(svg.match(/stroke-dasharray/g)).toHaveLength(outcome.timeline.length);
  expect(svg).toContain('a &#60; b &#38; &#34;c&#34;');
  expect(svg.match(/<polyline/g)).toHaveLength(4);
  for (const [at, { text }] of outcome.timeline.entries())
    expect(svg).toMatch(new RegExp(`>${at + 1}\\. [0-9.]+ s: ${text}</text>`));
});

test('the plot has a light and a dark color for each class that it uses', async () => {
  const { outcome } = await upgrade({ backward: true, forward: false }, 'producers-first');
  const svg = rolloutPlot('a title', outcome.samples, outcome.timeline);
  const [, light = '', dark = ''] =
    /<style>(.*)@media \(prefers-color-scheme: dark\)\{(.*)\}<\/style>/.exec(svg) ?? [];
  const used = new Set([...svg.matchAll(/ class="(\w+)"/g)].map(([, name]) => name));
  expect(used).toEqual(
    new Set([
      'ground',
      'axis',
      'grid',
      'step',
      'alarm',
      'rollback',
      'phase',
      'produced',
      'consumed',
      'lag',
      'errors',
    ]),
  );
  for (const name of used) {
    expect(light).toContain(`.${name}{`);
    expect(dark).toContain(`.${name}{`);
  }
});
