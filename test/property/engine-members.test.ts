/** Engines with -source=group under virtual time, with faults of the group, the disk, the sink, the
 *  clock and the processes. The results equal those of the batch oracle, and no window is written
 *  twice with different values. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { CHECKPOINT_ACTIONS, type CheckpointStep } from '../../src/engine/durability/checkpoint/steps.ts';
import type { Job } from '../../src/engine/job.ts';
import { isFull } from '../tier.ts';
import { feedOracle, jobs, oracleRows, rulesOf, streams, type TestEvent } from './engine-kit.ts';
import { type Folder, Member, newFolder, PARTITIONS, SESSION_MS, World } from './members-kit.ts';

/** Virtual time in which the members must settle after the last disturbance. */
const SETTLE_MS = 600_000;

/** Member that has read everything and whose sink is ready, if any. */
const settledMember = (members: readonly Member[], world: World): Member | undefined =>
  members.find(
    (one) => one.isReading && one.consumed === world.appended.length && one.engine?.sinkReady === true,
  );

/** Waits until a member has read everything, ends all members, and compares the rows of the sink
 *  with the oracle. */
async function expectOracle(world: World, members: () => readonly Member[]): Promise<void> {
  const { clock } = world;
  const last = await clock.until(
    'a member that has read everything',
    () => settledMember(members(), world),
    SETTLE_MS,
  );
  for (const other of members()) if (other !== last) await clock.run(other.stop());
  await clock.run(last.stop());
  expect(world.failures).toEqual([]);
  const oracle = new Oracle(rulesOf(world.job), PARTITIONS);
  feedOracle(oracle, world.appended);
  expect([...world.results.values()].sort()).toEqual(oracleRows(oracle, true).sort());
  expect(world.changed).toEqual([]);
  expect(last.engine?.progress().map(({ droppedLate }) => BigInt(droppedLate))).toEqual(oracle.droppedLate);
}

const member = fc.nat({ max: 2 });
/** Up to twice the session timeout. */
const span = fc.integer({ min: 1, max: 2 * SESSION_MS });
const disturbances = fc.oneof(
  fc.record({ kind: fc.constant('kill' as const), member, ms: span }),
  fc.record({ kind: fc.constant('kill at a step' as const), member, step: fc.nat({ max: 40 }), ms: span }),
  fc.record({ kind: fc.constant('stall' as const), member, ms: span }),
  fc.record({ kind: fc.constant('drain' as const), member, ms: span }),
  fc.record({ kind: fc.constant('intruder' as const), ms: span }),
  fc.record({ kind: fc.constant('jump' as const), ms: fc.integer({ min: -3_600_000, max: 3_600_000 }) }),
  fc.record({
    kind: fc.constant('faults' as const),
    diskMs: fc.constantFrom(0, 50, 3_000),
    sinkMs: fc.constantFrom(0, 100, 5_000),
    lostWrite: fc.constantFrom(0, 0.5),
    lostReply: fc.constantFrom(0, 0.5, 0.9),
  }),
);
type Disturbance = typeof disturbances extends fc.Arbitrary<infer T> ? T : never;

const scripts = fc.record({
  job: jobs,
  events: streams(PARTITIONS),
  members: fc.integer({ min: 2, max: 3 }),
  steps: fc.array(fc.record({ afterMs: fc.nat({ max: 6_000 }), disturbance: disturbances }), {
    maxLength: 8,
  }),
  seed: fc.nat(),
});

/** Runs one member per seat and restarts a member that dies or ends. */
class Course {
  readonly world: World;
  readonly seats: Member[];
  /** Number of restarts that are scheduled. */
  private pending = 0;
  private readonly folders: readonly Folder[];
  private readonly stepsLeft: number[] = [];

  constructor(world: World, folders: readonly Folder[]) {
    this.world = world;
    this.folders = folders;
    this.seats = folders.map((_, seat) => this.started(seat));
  }

  get isComplete(): boolean {
    return this.pending === 0;
  }

  disturb(disturbance: Disturbance): void {
    const { world, seats } = this;
    if (disturbance.kind === 'faults') {
      const { kind: _, ...faults } = disturbance;
      world.faults = faults;
    } else if (disturbance.kind === 'jump') world.clock.jump(disturbance.ms);
    else if (disturbance.kind === 'intruder') void world.joinForeignMember(disturbance.ms);
    else {
      const seat = disturbance.member % seats.length;
      const one = seats[seat] as Member;
      if (disturbance.kind === 'stall') one.process.stall(disturbance.ms);
      else if (disturbance.kind === 'kill') this.kill(seat, disturbance.ms);
      else if (disturbance.kind === 'drain') void this.drain(seat, one, disturbance.ms);
      else this.stepsLeft[seat] = disturbance.step;
    }
  }

  /** Ends all disturbances; scheduled restarts still happen. */
  calm(): void {
    this.world.calm();
    this.stepsLeft.length = 0;
  }

  private started(seat: number): Member {
    const onStep = (): void => {
      const left = this.stepsLeft[seat];
      if (left === undefined) return;
      this.stepsLeft[seat] = left - 1;
      if (left === 0) this.kill(seat, 1_000);
    };
    return new Member(this.world, this.folders[seat] as Folder, { onStep });
  }

  private kill(seat: number, ms: number): void {
    const one = this.seats[seat] as Member;
    if (one.process.isDead) return;
    one.kill();
    this.restart(seat, one, ms);
  }

  private async drain(seat: number, one: Member, ms: number): Promise<void> {
    await one.stop();
    this.restart(seat, one, ms);
  }

  private restart(seat: number, one: Member, ms: number): void {
    this.pending++;
    this.world.clock.after(ms, () => {
      this.pending--;
      if (this.seats[seat] === one) this.seats[seat] = this.started(seat);
    });
  }
}

describe('engines of one group', () => {
  it.each(['one folder', 'a folder each'] as const)(
    'members with %s reach the results of the batch oracle under every disturbance',
    async (where) => {
      const seen = { deaths: 0, revoked: 0, lostWrites: 0, lostReplies: 0, lostCommits: 0 };
      await fc.assert(
        fc.asyncProperty(scripts, async ({ job, events, members, steps, seed }) => {
          const world = new World(job, seed);
          const { clock } = world;
          await clock.run(world.open());
          const shared = newFolder();
          const course = new Course(
            world,
            Array.from({ length: members }, () => (where === 'one folder' ? shared : newFolder())),
          );
          const chunk = Math.ceil(events.length / (steps.length + 1));
          const appended = (at: number): readonly TestEvent[] => events.slice(at * chunk, (at + 1) * chunk);
          await clock.run(world.append(appended(0)));
          for (const [at, { afterMs, disturbance }] of steps.entries()) {
            await clock.advance(afterMs);
            course.disturb(disturbance);
            await clock.run(world.append(appended(at + 1)));
          }
          await clock.advance(2 * SESSION_MS);
          course.calm();
          await clock.until('the end of the scheduled restarts', () => course.isComplete);
          await expectOracle(world, () => course.seats);
          if (where === 'one folder') expect(await clock.run(world.committed())).toEqual(world.ends);
          for (const key of ['deaths', 'lostWrites', 'lostReplies', 'lostCommits'] as const)
            seen[key] += world.seen[key];
          seen.revoked += world.rebalances.revoked;
        }),
        { numRuns: isFull ? 60 : 25 },
      );
      // A short search need not meet every disturbance.
      for (const [what, count] of Object.entries(isFull ? seen : { deaths: seen.deaths }))
        expect([what, count > 0]).toEqual([what, true]);
    },
  );
});

const JOB: Job = {
  ...{ topic: 'events', skewMs: 4, latenessMs: 6, watermark: 'partition' },
  ...{ window: 'tumbling', sizeMs: 20 },
};
/** Events of the first `partitions` partitions, in event-time order. */
const eventsOf = (count: number, partitions: number, from = 0): TestEvent[] =>
  Array.from({ length: count }, (_, i) => ({
    partition: i % partitions,
    accountId: BigInt(i % 7),
    value: BigInt(i),
    eventTs: BigInt(2 * (from + i)),
  }));

async function newWorld(): Promise<World> {
  const world = new World(JOB, 1, 0);
  await world.clock.run(world.open());
  return world;
}

describe('a standby', () => {
  it('a standby takes over the folder after a death at any step of a checkpoint, and reaches the same results', async () => {
    const play = async (killAt: number): Promise<readonly CheckpointStep[]> => {
      const world = await newWorld();
      const folder = newFolder();
      const steps: CheckpointStep[] = [];
      let first = true;
      const onStep = (step: CheckpointStep): void => {
        if (steps.push(step) - 1 === killAt && first) {
          first = false;
          reader.kill();
        }
      };
      const reader = new Member(world, folder, { onStep });
      const standby = new Member(world, folder);
      for (let part = 0; part < 6; part++) {
        await world.clock.run(world.append(eventsOf(60, PARTITIONS, 60 * part)));
        await world.clock.advance(2_500);
      }
      expect(reader.process.isDead).toBe(killAt >= 0);
      const live = killAt >= 0 ? [standby] : [standby, reader];
      await expectOracle(world, () => live);
      return steps;
    };
    const steps = await play(-1);
    const actions = CHECKPOINT_ACTIONS.filter((action) => !action.startsWith('run '));
    const names = actions.flatMap((action) => [`before ${action}`, `after ${action}`] as const);
    for (const name of names) {
      const at = steps.indexOf(name);
      expect([name, at >= 0]).toEqual([name, true]);
      await play(at);
    }
  });

  it('a standby rewrites the results that were not acknowledged when its predecessor died', async () => {
    const world = await newWorld();
    const folder = newFolder();
    const [reader, standby] = [new Member(world, folder), new Member(world, folder)];
    world.faults = { diskMs: 0, sinkMs: 0, lostWrite: 1, lostReply: 0 };
    await world.clock.run(world.append(eventsOf(90, PARTITIONS)));
    await world.clock.until('the events', () => reader.consumed === 90);
    await world.clock.advance(3_000);
    expect([world.results.size, world.seen.lostWrites > 0]).toEqual([0, true]);
    reader.kill();
    world.calm();
    await expectOracle(world, () => [standby]);
    expect(world.results.size).toBeGreaterThan(0);
  });

  it('a standby reads nothing while the owner of the folder is suspended, and the owner rejoins and resumes later', async () => {
    const world = await newWorld();
    const folder = newFolder();
    const [reader, standby] = [new Member(world, folder), new Member(world, folder)];
    await world.clock.run(world.append(eventsOf(90, PARTITIONS)));
    await world.clock.until('the first events', () => reader.consumed === 90);
    reader.process.stall(3 * SESSION_MS);
    await world.clock.run(world.append(eventsOf(90, PARTITIONS, 90)));
    await world.clock.advance(2.5 * SESSION_MS);
    expect([reader.consumed, standby.engine]).toEqual([90, undefined]);
    await expectOracle(world, () => [reader, standby]);
    expect(world.rebalances.lost).toBe(1);
  });
});

it('an engine that is suspended beyond its session timeout loses the lease to another engine, and reads nothing after that', async () => {
  const world = await newWorld();
  const first = new Member(world, newFolder());
  await world.clock.run(world.append(eventsOf(90, PARTITIONS)));
  await world.clock.until('the first events', () => first.consumed === 90);
  first.process.stall(3 * SESSION_MS);
  const second = new Member(world, newFolder());
  await world.clock.until('a reader that took over', () => second.isReading && second.consumed === 90);
  await world.clock.advance(3 * SESSION_MS);
  await world.clock.run(world.append(eventsOf(90, PARTITIONS, 90)));
  await world.clock.until('the other events', () => second.consumed === 180);
  // The first engine has joined the group again and leaves the partitions to the reader.
  expect([first.isReading, first.consumed, world.rebalances.lost]).toEqual([false, 90, 1]);
  await expectOracle(world, () => [first, second]);
});

describe('a partition without events', () => {
  const IDLE_MS = 10_000;
  /** Results of the oracle once the silent partition is idle. */
  const expected = (world: World): readonly string[] => {
    const oracle = new Oracle(rulesOf(JOB), PARTITIONS);
    feedOracle(oracle, world.appended);
    oracle.apply({ kind: 'idle', partition: PARTITIONS - 1 });
    return oracleRows(oracle, true).sort();
  };
  const found = (world: World): readonly string[] => [...world.results.values()].sort();
  const started = async (folder: Folder) => {
    const world = await newWorld();
    const reader = new Member(world, folder, { idleTimeoutMs: IDLE_MS });
    await world.clock.run(world.append(eventsOf(90, PARTITIONS - 1)));
    await world.clock.until('all events', () => reader.consumed === 90);
    return { world, reader };
  };

  it('a silent partition holds the results back for the idle timeout, whatever the wall clock says', async () => {
    const { world, reader } = await started(newFolder());
    world.clock.jump(3_600_000);
    // The other partitions are not idle: each receives an event during each step.
    for (let left = IDLE_MS - 2_000; left > 0; left -= 2_000) {
      await world.clock.advance(2_000);
      expect(found(world)).toEqual([]);
      await world.clock.run(world.append(eventsOf(2, PARTITIONS - 1, 90 + world.appended.length)));
    }
    world.clock.jump(-7_200_000);
    await world.clock.advance(4_000);
    expect(found(world).length).toBeGreaterThan(0);
    expect(found(world)).toEqual(expected(world));
    await world.clock.run(reader.stop());
    expect([world.failures, world.changed]).toEqual([[], []]);
  });

  it('time in which the group had other readers does not make a partition idle', async () => {
    const { world, reader } = await started(newFolder());
    const keepAlive = async (ms: number): Promise<void> => {
      for (let left = ms; left > 0; left -= 2_000) {
        await world.clock.advance(Math.min(left, 2_000));
        await world.clock.run(world.append(eventsOf(2, PARTITIONS - 1, 90 + world.appended.length)));
      }
    };
    const foreignMember = world.joinForeignMember(20_000);
    await keepAlive(22_000);
    await world.clock.run(foreignMember);
    await world.clock.until('the lease', () => reader.isReading);
    expect(found(world)).toEqual([]);
    await keepAlive(IDLE_MS + 2_000);
    expect(found(world)).toEqual(expected(world));
    await world.clock.run(reader.stop());
  });

  it('an idle partition stays idle for the process that takes over after a death', async () => {
    const folder = newFolder();
    const { world, reader } = await started(folder);
    await world.clock.advance(IDLE_MS + 3_000);
    const before = found(world);
    expect(before.length).toBeGreaterThan(0);
    reader.kill();
    const next = new Member(world, folder, { idleTimeoutMs: 0 });
    await world.clock.until('the next reader', () => next.isReading);
    expect(next.engine?.progress().map(({ idle }) => idle)).toEqual([true, true, true]);
    expect(found(world)).toEqual(before);
    await world.clock.run(next.stop());
    expect([world.failures, world.changed]).toEqual([[], []]);
  });
});
