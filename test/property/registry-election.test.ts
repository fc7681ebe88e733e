/** Any mix of stops, kills, outages, clock jumps, slow commits and unanswered commits on registries
 *  that share one topic. No acknowledged write is lost, no refused write is kept, no id is assigned
 *  twice, and one leader remains. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sleep, type Timers } from '../../src/core/clock.ts';
import type { BrokerDriver } from '../../src/io/kafka/port.ts';
import { Election, type ElectionOptions, LEASE_MS, type RegistryProcess } from './registry-election-kit.ts';

/** Number of leases within which one leader is elected after the faults end. */
const SETTLED_LEASES = 10;
/** Longest virtual time without an acknowledged write after a leader ends. */
const SILENCE_MS_MAX = 30_000;
const HOUR_MS = 3_600_000;
const PROCESSES_MAX = 4;

const place = fc.nat(PROCESSES_MAX - 1);
const ms = (max: number): fc.Arbitrary<number> => fc.integer({ min: 1, max });
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('pass' as const), ms: ms(LEASE_MS) }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('stop' as const), place, ms: ms(3 * LEASE_MS) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('cut' as const), place, ms: ms(4 * LEASE_MS) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('outage' as const), ms: ms(4 * LEASE_MS) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('jump' as const),
      place,
      ms: fc.constantFrom(-24 * HOUR_MS, -60_000, 60_000, 24 * HOUR_MS),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('kill' as const), place, ms: ms(LEASE_MS) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('close' as const), place, ms: ms(LEASE_MS) }) },
  ...(['stopLeader', 'killLeader', 'cutLeader'] as const).map((name) => ({
    weight: 3,
    arbitrary: fc.record({ do: fc.constant(name), ms: ms(3 * LEASE_MS) }),
  })),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** Begins the fault of a step; the fault ends by itself during later steps. Returns the name of a
 *  fault that met the leader. */
function begin(election: Election, one: Step): string | undefined {
  const { world, processes } = election;
  const leader = processes.findIndex(({ leads, isOver }) => leads && !isOver);
  const at = 'place' in one ? one.place % processes.length : Math.max(0, leader);
  const process = processes[at] as RegistryProcess;
  switch (one.do) {
    case 'stop':
    case 'stopLeader':
      process.clock.stop();
      world.after(one.ms, () => process.clock.continue());
      break;
    case 'cut':
    case 'cutLeader':
    case 'outage':
      for (const { link } of one.do === 'outage' ? processes : [process]) {
        link.cut();
        world.after(one.ms, () => link.mend());
      }
      break;
    case 'jump':
      process.clock.jump(one.ms);
      break;
    case 'kill':
    case 'killLeader':
    case 'close':
      if (process.isOver) break;
      if (one.do === 'close') election.watch(process.close());
      else process.kill();
      world.after(one.ms, () => {
        if (processes[at] === process) election.replace(at);
      });
      break;
    case 'pass':
  }
  return one.do.endsWith('Leader') && leader >= 0 ? one.do : undefined;
}

const runs = fc.record({
  seed: fc.nat(),
  processes: fc.integer({ min: 2, max: PROCESSES_MAX }),
  steps: fc.array(step, { minLength: 5, maxLength: 25 }),
});

const FAULTS = { lostReply: 0.03, slow: 0.2, lostRow: 0.01, lostReport: 0.01, shortRead: 0.2 };

/** Runs the steps and the checks of the oracle.
 *  @throws the first violation */
async function settledOutcomes(
  options: ElectionOptions,
  steps: readonly Step[],
): Promise<Readonly<Record<string, number>>> {
  const election = new Election(options);
  const met: Record<string, number> = {};
  for (const one of steps) {
    const name = begin(election, one);
    if (name !== undefined) met[name] = (met[name] ?? 0) + 1;
    await election.pass(one.do === 'pass' ? one.ms : LEASE_MS / 8);
  }
  await election.settle(SETTLED_LEASES * LEASE_MS);
  return { ...election.judge(), ...met };
}

/** Plants a fault: each producer has its own transactional id, so that no leader is fenced. */
let producers = 0;
function unfenced(driver: BrokerDriver): BrokerDriver {
  return {
    ...driver,
    transactional: (options) =>
      driver.transactional({ ...options, transactionalId: `${options.transactionalId}-${producers++}` }),
  };
}

/** Plants a fault: a registry asks for the end of a log once and trusts that answer, so that a
 *  registry without a connection still answers reads. */
function withOldEnds(driver: BrokerDriver): BrokerDriver {
  return {
    ...driver,
    consumer: async (options) => {
      const consumer = await driver.consumer(options);
      const ask = consumer.watermarkOffsets.bind(consumer);
      const known = new Map<string, ReturnType<typeof ask>>();
      consumer.watermarkOffsets = (at, timeoutMs) => {
        const answer = known.get(at.topic) ?? ask(at, timeoutMs);
        known.set(at.topic, answer);
        return answer;
      };
      return consumer;
    },
  };
}

/** The reply to a commit is late by this time, while its records can be read. */
const LATE_REPLY_MS = 2000;

/** Delays the reply to each commit. */
function withLateReplies(driver: BrokerDriver, clock: Timers): BrokerDriver {
  return {
    ...driver,
    transactional: async (options) => {
      const producer = await driver.transactional(options);
      const commit = producer.commit.bind(producer);
      producer.commit = async (timeoutMs) => {
        const failure = await commit(timeoutMs);
        await sleep(clock, LATE_REPLY_MS);
        return failure;
      };
      return producer;
    },
  };
}

describe('registries on one topic', () => {
  it('registries keep acknowledged writes in one order, and elect one leader after any faults', async () => {
    const totals: Record<string, number> = {};
    await fc.assert(
      fc.asyncProperty(runs, async ({ seed, processes, steps }) => {
        for (const [name, count] of Object.entries(
          await settledOutcomes({ seed, processes, faults: FAULTS }, steps),
        ))
          totals[name] = (totals[name] ?? 0) + count;
      }),
      // The seed reproduces a run; shrinking takes minutes.
      { numRuns: 10, endOnFailure: true },
    );
    // The faults take effect: some writes are refused, and leaders are killed, stopped and cut off.
    for (const met of ['kept', 'lost', 'reads', 'killLeader', 'stopLeader', 'cutLeader'])
      expect(totals[met], met).toBeGreaterThan(0);
  });

  it('a leader shows its own write as soon as others can, although the write has no outcome yet', async () => {
    const election = new Election({
      seed: 1,
      processes: 3,
      faults: {},
      plant: withLateReplies,
    });
    await election.settle(SETTLED_LEASES * LEASE_MS);
    const reads = election.history.operations.filter(({ kind, end }) => kind === 'read' && end < Infinity);
    const inFlight = election.history.operations.filter(
      (write) =>
        write.kind === 'write' && reads.some((read) => read.value === write.value && read.end < write.end),
    );
    // The case occurs: readers see writes that their writer does not know to be kept.
    expect(inFlight.length).toBeGreaterThan(0);
    election.judge();
  });

  it.each(['kill', 'stop', 'close'] as const)(
    'writes are acknowledged by a successor within 30 s of the leader’s end by %s',
    async (end) => {
      const silences: number[] = [];
      for (const seed of [1, 2, 3]) {
        const election = new Election({ seed, processes: 3, faults: {} });
        const { world, processes, kept } = election;
        await world.until('acknowledged writes', () => kept.length > 5);
        const leader = processes.find(({ leads }) => leads) as RegistryProcess;
        const fromMs = world.monotonicMs();
        if (end === 'kill') leader.kill();
        else if (end === 'stop') leader.clock.stop();
        else election.watch(leader.close());
        await world.until(
          'a successor',
          () => processes.some((one) => one !== leader && one.leads),
          SILENCE_MS_MAX,
        );
        const before = kept.length;
        const leftMs = SILENCE_MS_MAX - (world.monotonicMs() - fromMs);
        await world.until('a write that the successor acknowledged', () => kept.length > before, leftMs);
        silences.push(world.monotonicMs() - fromMs);
        await election.pass(0);
      }
      expect(Math.max(...silences)).toBeLessThanOrEqual(SILENCE_MS_MAX);
    },
  );

  it('an election ends in one round, because a fenced instance waits for the instance that fenced it', async () => {
    let fenced = 0;
    // A campaign takes some tens of milliseconds. At some of these distances each process fences
    // the previous one.
    for (const apartMs of [0, 5, 10, 20, 30, 40, 60, 80, 120])
      for (const seed of [1, 2, 3]) {
        const election = new Election({ seed, processes: PROCESSES_MAX, faults: {}, apartMs });
        await election.settle(SETTLED_LEASES * LEASE_MS);
        const terms = election.processes.map((one) => one.terms);
        expect(Math.max(...terms), `terms of each, ${apartMs} ms apart: ${terms}`).toBe(1);
        fenced += terms.reduce((sum, count) => sum + count) - 1;
        election.judge();
      }
    expect(fenced).toBeGreaterThan(0);
  });

  it('a seed repeats its history operation by operation, through kills, stops and cuts of leaders', async () => {
    const steps: Step[] = (['killLeader', 'stopLeader', 'cutLeader'] as const).flatMap((name) => [
      { do: 'pass' as const, ms: LEASE_MS },
      { do: name, ms: 2 * LEASE_MS },
      { do: 'pass' as const, ms: 2 * LEASE_MS },
    ]);
    const historyOf = async (seed: number): Promise<string> => {
      const election = new Election({ seed, processes: 3, faults: FAULTS });
      for (const one of steps) {
        begin(election, one);
        await election.pass(one.do === 'pass' ? one.ms : 0);
      }
      await election.settle(SETTLED_LEASES * LEASE_MS);
      election.judge();
      return JSON.stringify(election.history.operations);
    };
    for (const seed of [1, 2]) expect(await historyOf(seed)).toBe(await historyOf(seed));
  });

  it('the history of the settings shows reads of a registry that trusts an old end of the log', async () => {
    const election = new Election({ seed: 1, processes: 3, faults: {}, plant: withOldEnds });
    await election.pass(2 * LEASE_MS);
    expect(election.contradictions()).toEqual([]);
    const follower = election.processes.find(({ leads }) => !leads) as RegistryProcess;
    follower.link.cut();
    // The oracle inside of the processes fails as well, and ends the reads of the follower.
    await election.pass(2 * LEASE_MS).catch(() => {});
    expect(election.contradictions().join('\n')).toMatch(/read of .* behind the write of/);
  });

  it('the oracle detects lost and duplicate writes if the broker fences no old leader', async () => {
    const steps: Step[] = Array.from({ length: 6 }, () => [
      { do: 'pass' as const, ms: LEASE_MS },
      { do: 'stopLeader' as const, ms: 2 * LEASE_MS },
      { do: 'pass' as const, ms: 2 * LEASE_MS },
    ]).flat();
    const options = { seed: 1, processes: 3, faults: { slow: 0.5 } };
    await settledOutcomes(options, steps);
    await expect(settledOutcomes({ ...options, plant: unfenced }, steps)).rejects.toThrow(
      /given once|was acknowledged|read id|applied id|linearizable|the sequence of/,
    );
  });
});
