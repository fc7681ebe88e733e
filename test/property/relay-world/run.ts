/** One run of relays under random faults. */
import { RELAY_DEFAULTS } from '../../../src/outbox/defaults.ts';
import { SeededRandom } from '../../../src/sim/clock.ts';
import { CALM, LEASE_MS, type RelayFaults, RelayWorld } from './world.ts';

/** Page size and in-flight limit of a few rows. */
const SMALL_BYTES = 8192;

/** Returns a random half of the kinds of faults. */
function faultsOf({ random }: RelayWorld): RelayFaults {
  const share = (): number => (random.fraction() < 0.5 ? 0 : random.fraction() ** 2);
  return {
    lostRow: 0.15 * share(),
    lostReport: 0.15 * share(),
    lostStatement: 0.05 * share(),
    brokenStream: 0.02 * share(),
    requestMs: 5 + 400 * share(),
    statementMs: 3 + 60 * share(),
  };
}

/** The broker refuses all rows for a while, then a share of the ids, then none. */
function refuseSome(world: RelayWorld): void {
  const nowMs = world.clock.monotonicMs();
  const noneUntilMs = nowMs + 3000 * world.random.fraction();
  const someUntilMs = nowMs + 6000 * world.random.fraction();
  const every = BigInt(2 + 2 * world.below(8));
  world.refuses = ({ id }) => {
    const atMs = world.clock.monotonicMs();
    return atMs < noneUntilMs || (atMs < someUntilMs && id % every === 0n);
  };
}

/** Suspends a relay for up to two leases, kills it, crashes the database of relays that poll, or
 *  lets a clock jump. */
async function strike(world: RelayWorld, mode: 'poll' | 'wal'): Promise<void> {
  const { clock, random, running } = world;
  const one = running[world.below(running.length)];
  if (one === undefined) return;
  const kind = random.fraction();
  if (kind < 0.4) {
    one.process.stop();
    await clock.advance(2 * LEASE_MS * random.fraction());
    one.process.resume();
  } else if (kind < 0.6) {
    world.kill(one);
    void world.start();
  } else if (kind < 0.7 && mode === 'poll') world.crashDatabase(world.below(6), world.below(6));
  else if (kind < 0.8) world.databaseJumpMs += (random.fraction() - 0.3) * 10_000;
  else one.process.jump((random.fraction() - 0.5) * 1e8);
}

/** Runs two relays over one outbox under the faults of a seed.
 *  @returns the violated requirements */
export async function relayViolations(
  seed: number,
  mode: 'poll' | 'wal',
  fence: 'mark' | 'broker',
): Promise<readonly string[]> {
  const drawn = new SeededRandom(seed);
  const hasSequence = drawn.fraction() < 0.7;
  const inFlightBytesMax = drawn.fraction() < 0.5 ? SMALL_BYTES : RELAY_DEFAULTS.inFlightBytesMax;
  const world = new RelayWorld(seed, { mode, fence, hasSequence, inFlightBytesMax });
  const { clock, random } = world;
  await clock.run(Promise.all([world.start(), world.start()]));
  world.faults = faultsOf(world);
  if (random.fraction() < 0.5) refuseSome(world);
  world.write(4 + world.below(12), 4 + world.below(12), 100 + world.below(900));
  for (let step = 0; step < 3; step++) {
    await clock.advance(500 + world.below(2500));
    await strike(world, mode);
  }
  await clock.advance(1000);
  world.faults = CALM;
  await world.settle();
  return world.violations;
}
