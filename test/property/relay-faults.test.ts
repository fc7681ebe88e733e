/** Relays under virtual time, from seeds. Faults: expired leases, relays that are suspended or die,
 *  lost rows and reports, slow acknowledgements, rows that the broker refuses for a while, lost
 *  statements and answers to COMMIT, broken streams, crashes of the database that lose commits and
 *  marks, and clock jumps. The oracle is written from the requirements
 *  (relay-world/world.ts): each key in the order of the outbox, no lost row, and no mark before its
 *  acknowledgement. */
import { describe, expect, it } from 'vitest';
import { isFull } from '../tier.ts';
import { relayViolations } from './relay-world/run.ts';
import { CALM, keyOf, LEASE_MS, RelayWorld } from './relay-world/world.ts';

const FIRST = process.env['MILLRACE_TEST_SEED'] === 'random' ? Math.floor(Math.random() * 2 ** 31) : 1;
const SEEDS = Array.from({ length: isFull ? 40 : 10 }, (_, i) => FIRST + i);

/** Seeds in which a row that got the id of a lost one was overtaken. */
const OVERTAKEN = [7006, 929_643_462];

const FENCES = ['mark', 'broker'] as const;
const WAYS = (['poll', 'wal'] as const).flatMap((mode) => FENCES.map((fence) => ({ mode, fence })));

describe.each(WAYS)('relays in $mode mode with fence=$fence that share an outbox under faults', (way) => {
  it('relays publish each row at least once, in the order of its key, and mark it after its acknowledgement', async () => {
    for (const seed of SEEDS)
      expect({ seed, violations: await relayViolations(seed, way.mode, way.fence) }).toEqual({
        seed,
        violations: [],
      });
  });
});

describe('a relay that follows the log', () => {
  it('a relay in wal mode keeps a key in order if the broker accepts no row for a while, then some, then all', async () => {
    for (const seed of SEEDS) {
      const world = new RelayWorld(seed, { mode: 'wal' });
      const { clock } = world;
      await clock.run(world.start());
      const nowMs = clock.monotonicMs();
      const noneUntilMs = nowMs + 1000 + world.below(2000);
      world.refuses = ({ key }) =>
        clock.monotonicMs() < noneUntilMs || (clock.monotonicMs() < nowMs + 6000 && key < keyOf(4));
      world.write(6, 20, 300);
      await clock.advance(6000);
      await world.settle();
      expect({ seed, violations: world.violations }).toEqual({ seed, violations: [] });
    }
  });

  it('a relay in wal mode finds the rows that the silent previous owner parked during the takeover', async () => {
    for (const seed of SEEDS) {
      const world = new RelayWorld(seed, { mode: 'wal' });
      const { clock } = world;
      await clock.run(Promise.all([world.start(), world.start()]));
      world.faults = { ...CALM, statementMs: 30 };
      const jumpMs = 1000 + world.below(2000);
      const untilMs = clock.monotonicMs() + jumpMs + world.below(1500);
      world.refuses = ({ id }) => clock.monotonicMs() < untilMs && id % 5n === 0n;
      world.write(8, 20, 300);
      await clock.advance(jumpMs);
      // The lease of the owner has expired for the database, but not yet for the owner.
      world.databaseJumpMs += 2 * LEASE_MS;
      await clock.advance(3000);
      world.faults = CALM;
      await world.settle();
      expect({ seed, violations: world.violations }).toEqual({ seed, violations: [] });
    }
  });

  it('a relay in wal mode keeps a key in order despite late notes of a relay of an earlier release, which claims no slot', async () => {
    for (const seed of SEEDS) {
      const world = new RelayWorld(seed, { mode: 'wal' });
      const { clock, database } = world;
      await clock.run(world.start());
      const untilMs = clock.monotonicMs() + 2000 + world.below(3000);
      world.refuses = ({ id }) => clock.monotonicMs() < untilMs && id % 5n === 0n;
      world.write(8, 20, 300);
      for (let note = 0; note < 6; note++) {
        await clock.advance(world.below(1500));
        // The stream of the earlier release has ended, so it knows no later position than that of
        // the slot.
        database.noteUnclaimed(database.slot.confirmed);
      }
      await world.settle();
      expect({ seed, violations: world.violations }).toEqual({ seed, violations: [] });
    }
  });

  it('a relay in wal mode records its parked rows again before its next stream begins, if the record was erased', async () => {
    const world = new RelayWorld(FIRST, { mode: 'wal' });
    const { clock, database } = world;
    await clock.run(world.start());
    let isOver = false;
    world.refuses = ({ key }) => !isOver && key === keyOf(0);
    world.write(4, 10, 100);
    await clock.until('a note of parked rows', () => database.unswept === 'parked');
    await clock.until('written rows', () => world.isWritten);
    const before = database.slot.activePid;
    database.noteUnclaimed(database.slot.confirmed);
    expect(database.unswept).toBeNull();
    await clock.until('the next stream', () => ![before, null].includes(database.slot.activePid));
    expect(database.unswept).toBe('parked');
    isOver = true;
    await world.settle();
    expect(world.violations).toEqual([]);
  });
});

describe('a slot that rests', () => {
  it('a relay in wal mode publishes no row again that a relay in poll mode published while the slot rested, whether the table still has it or not', async () => {
    for (const seed of SEEDS) {
      const world = new RelayWorld(seed, { mode: 'wal' });
      const { clock, database } = world;
      const isDrained = (): boolean => world.isDrained;
      const before = await clock.run(world.start());
      world.write(4, 4, 100);
      await clock.until('marked rows', isDrained);
      await clock.run(world.stop(before));
      const polling = await clock.run(world.start('poll'));
      world.write(4, 6, 100);
      await clock.until('rows that the polling relay marked', isDrained);
      await clock.run(world.stop(polling));
      for (const { row, isMarked } of [...database.rows.values()])
        if (isMarked && world.occurs(0.5)) database.rows.delete(row.id);
      const [lastId, published] = [database.lastId, world.published.length];
      world.write(4, 2, 100);
      await clock.until('pending rows below the start of the stream', () => world.isWritten);
      await clock.run(world.start());
      await world.settle();
      const again = world.published.slice(published).filter(({ id }) => id <= lastId);
      expect({ seed, again, violations: world.violations }).toEqual({ seed, again: [], violations: [] });
    }
  });
});

describe.each(FENCES)('relays with fence=%s whose database loses transactions', (fence) => {
  it.each([true, false])(
    'every row that the database kept is published in the order of its key, and none is marked for a lost row with its id (sequence: %s)',
    async (hasSequence) => {
      for (const seed of [...SEEDS, ...OVERTAKEN]) {
        const world = new RelayWorld(seed, { mode: 'poll', fence, hasSequence });
        const { clock } = world;
        await clock.run(Promise.all([world.start(), world.start()]));
        world.faults = { ...CALM, requestMs: 300, statementMs: 40 };
        world.write(8, 14, 300);
        for (let crash = 0; crash < 4; crash++) {
          await clock.advance(300 + world.below(1200));
          world.crashDatabase(1 + world.below(8), world.below(8));
        }
        world.faults = CALM;
        await world.settle();
        expect({ seed, violations: world.violations }).toEqual({ seed, violations: [] });
      }
    },
  );
});

describe('a relay that polls', () => {
  it('a relay in poll mode starts again at the lowest id each rescan interval, and no sooner', async () => {
    const world = new RelayWorld(FIRST, { mode: 'poll' });
    const { metrics } = await world.clock.run(world.start());
    await world.clock.advance(5000);
    const before = metrics.counter('relay_rescans_total', '').value();
    await world.clock.advance(60_000);
    expect(metrics.counter('relay_rescans_total', '').value() - before).toBe(6);
    await world.settle();
  });

  it('a relay in poll mode retries the mark of an acknowledged row that is missing from the table for half a minute, and not longer', async () => {
    const world = new RelayWorld(FIRST, { mode: 'poll' });
    const { metrics } = await world.clock.run(world.start());
    const missing = (): number => metrics.counter('relay_marks_missing_total', '').value();
    world.refuses = ({ id }) => {
      world.database.rows.delete(id);
      return false;
    };
    world.write(1, 1, 0);
    await world.clock.until('a published row', () => world.published.length > 0);
    await world.clock.advance(29_900);
    expect(missing()).toBe(0);
    await world.clock.advance(1000);
    expect(missing()).toBeGreaterThan(0);
    await world.settle();
  });

  it('a relay takes the shards of a stopped relay after a lease, and not before', async () => {
    const world = new RelayWorld(FIRST, { mode: 'poll' });
    const [first, second] = [await world.clock.run(world.start()), await world.clock.run(world.start())];
    const shards = (): number => {
      const found = second.metrics.snapshot().find(({ name }) => name === 'relay_owned_shards');
      return found?.samples[0]?.value ?? 0;
    };
    await world.clock.until('both with a share', () => shards() === 2);
    first.process.stop();
    // The last renewal of the stopped relay may be a third of a lease old, and the other relay
    // sends a heartbeat every third of a lease.
    await world.clock.advance((LEASE_MS * 2) / 3 - 100);
    expect(shards()).toBe(2);
    await world.clock.advance((LEASE_MS * 2) / 3 + 200);
    expect(shards()).toBe(4);
    first.process.resume();
    await world.settle();
    expect(world.violations).toEqual([]);
  });
});
