/** Runners of effects under virtual time, from seeds (calls-world/world.ts): answers of claims and
 *  commits are lost, consequences are refused for a time, the clock of the database steps, runners
 *  are killed or suspended, and the database is away.
 *
 *  MILLRACE_TEST_SEED=random starts at a random seed; a failure names the seed that repeats it.
 */
import { describe, expect, it } from 'vitest';
import { runs } from '../tier.ts';
import { type CallsPlan, CallsWorld, LEASE_MS } from './calls-world/world.ts';

const FIRST = process.env['MILLRACE_TEST_SEED'] === 'random' ? Math.floor(Math.random() * 2 ** 31) : 1;
const SEEDS = Array.from({ length: runs(60) }, (_, i) => FIRST + i);

const CALM: CallsPlan = {
  ...{ effects: 24, keys: 6, runners: 2, delivery: 'at_least_once', callMs: 200, overlapMs: 0 },
};
const isDone = (world: CallsWorld): boolean => world.payments.every(({ state }) => state === 'done');
/** Effects that were not called exactly once. */
const notOnce = (world: CallsWorld) => world.payments.filter((row) => world.calls.get(row) !== 1);

/** Sum of what the runs met. */
class Met {
  private readonly counts = new Map<string, number>();

  add({ met }: CallsWorld): void {
    for (const [what, count] of met) this.counts.set(what, (this.counts.get(what) ?? 0) + count);
  }

  get names(): readonly string[] {
    return [...this.counts.keys()].sort();
  }
}

describe('runners of effects under faults', () => {
  it('an effect whose claim had no answer is called after its lease, while another call keeps its runner busy', async () => {
    const met = new Met();
    for (const seed of SEEDS) {
      const world = new CallsWorld(seed, { ...CALM, lostClaim: 0.3 });
      for (let n = 0; n < CALM.runners * 4; n++) world.addBusy(`busy ${n}`);
      // The faults last until all effects are done.
      await world.settle();
      await world.end();
      expect({ seed, violations: world.violations, notOnce: notOnce(world), done: isDone(world) }).toEqual({
        ...{ seed, violations: [], notOnce: [], done: true },
      });
      met.add(world);
    }
    expect(met.names).toEqual(['a lost answer']);
  });

  it('an effect whose outcome could not be written is called again after its lease, while another call keeps its runner busy', async () => {
    const met = new Met();
    for (const seed of SEEDS) {
      const world = new CallsWorld(seed, { ...CALM, canceledWrite: 0.3 });
      for (let n = 0; n < CALM.runners * 4; n++) world.addBusy(`busy ${n}`);
      await world.settle();
      await world.end();
      expect({ seed, violations: world.violations, done: isDone(world) }).toEqual({
        ...{ seed, violations: [], done: true },
      });
      met.add(world);
    }
    expect(met.names).toEqual(['a canceled write']);
  });

  it('a call that succeeded is not repeated and not reported as lost, whatever its commits and consequences meet', async () => {
    const met = new Met();
    for (const seed of SEEDS) {
      const plan: CallsPlan = {
        ...CALM,
        ...{ delivery: 'at_most_once', lostCommit: 0.15, refusedConsequence: 0.3 },
      };
      const world = new CallsWorld(seed, plan);
      await world.settle();
      await world.end();
      const lost = world.counted('lost') + world.counted('dead');
      expect({
        seed,
        violations: world.violations,
        notOnce: notOnce(world),
        done: isDone(world),
        lost,
      }).toEqual({
        ...{ seed, violations: [], notOnce: [], done: true, lost: 0 },
      });
      met.add(world);
    }
    expect(met.names).toEqual(['a lost answer', 'a refused consequence']);
  });

  it('a call ends within a renewal after the clock of the database ended its lease', async () => {
    let calls = 0;
    for (const seed of SEEDS) {
      const plan: CallsPlan = { ...CALM, callMs: 2 * LEASE_MS, overlapMs: LEASE_MS / 3 + 200 };
      const world = new CallsWorld(seed, plan);
      for (let step = 0; step < 12; step++) {
        await world.clock.advance(world.below(LEASE_MS));
        world.table.stepMs += LEASE_MS + world.below(LEASE_MS);
      }
      await world.settle();
      await world.end();
      expect({ seed, violations: world.violations, done: isDone(world) }).toEqual({
        ...{ seed, violations: [], done: true },
      });
      for (const count of world.calls.values()) calls += count;
    }
    expect(calls).toBeGreaterThan(CALM.effects * SEEDS.length);
  });

  it.each(['at_least_once', 'at_most_once'] as const)(
    'effects %s end through kills, suspensions, outages, steps of the clock and lost messages',
    async (delivery) => {
      const met = new Met();
      const { overlapMs: _any, ...calm } = CALM;
      const plan: CallsPlan = {
        ...{ ...calm, delivery, callMs: 1500, refusedCall: 0.02, notDone: 0.1, failedCall: 0.05 },
        ...{ lostRequest: 0.02, lostClaim: 0.1, lostCommit: 0.05, lostAnswer: 0.02 },
        ...{ refusedConsequence: 0.1, canceledWrite: 0.02 },
      };
      for (const seed of SEEDS) {
        const world = new CallsWorld(seed, plan);
        for (let fault = 0; fault < 8; fault++) {
          await world.clock.advance(world.below(2000));
          world.strike();
        }
        await world.clock.advance(2 * LEASE_MS);
        world.heal();
        await world.settle();
        await world.end();
        expect({ seed, violations: world.violations }).toEqual({ seed, violations: [] });
        const dead = world.payments.filter(({ state }) => state === 'dead');
        const reasons = new Set(dead.map(({ reason }) => reason));
        if (delivery === 'at_least_once') reasons.delete('refused');
        else for (const reason of ['refused', 'unknown_outcome']) reasons.delete(reason);
        expect({ seed, reasons }).toEqual({ seed, reasons: new Set() });
        met.add(world);
      }
      expect(met.names).toEqual(
        expect.arrayContaining(['a kill', 'a step of the clock', 'a suspension', 'an outage']),
      );
    },
  );
});
