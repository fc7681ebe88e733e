/** Any series of redrives with different selections, alone or two at a time, killed at any step, on
 *  a broker with lost rows, lost reports, unanswered and slow commits: each record reaches each
 *  output at most once at any time, and exactly once when one redrive has completed. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { runs } from '../tier.ts';
import {
  type Bad,
  QUARANTINE,
  type Ran,
  RedriveWorld,
  type RunOptions,
  TOPIC,
  textOf,
} from '../unit/registry/quarantine/redrive-kit.ts';

const REASONS = ['bad_magic', 'unknown_schema_id', 'malformed_payload'] as const;
/** Errors after which a redrive is simply started again. */
const ENDINGS: readonly string[] = ['redrive_fenced', 'not_delivered', 'timeout'];

const reason = fc.constantFrom(...REASONS);
const filter = fc.record(
  {
    reasons: fc.uniqueArray(reason, { minLength: 1 }),
    partitions: fc.uniqueArray(fc.nat(2), { minLength: 1 }),
    sinceMs: fc.integer({ min: 990, max: 1040 }),
    untilMs: fc.integer({ min: 990, max: 1040 }),
  },
  { requiredKeys: [] },
);
const run = fc.record({
  filter,
  fixed: fc.uniqueArray(reason),
  out: fc.constantFrom('source' as const, 'kafka:lines' as const),
  kill: fc.option(
    fc.record({
      step: fc.integer({ min: 1, max: 40 }),
      when: fc.constantFrom('before' as const, 'after' as const),
    }),
  ),
  count: fc.nat(12),
});
const step = fc.oneof(
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('quarantine' as const),
      reasons: fc.array(reason, { minLength: 1, maxLength: 12 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('run' as const),
      runs: fc.array(run, { minLength: 1, maxLength: 2 }),
    }),
  },
);
const scenario = fc.record({
  seed: fc.nat(),
  partitions: fc.integer({ min: 1, max: 2 }),
  reasons: fc.array(reason, { minLength: 1, maxLength: 20 }),
  steps: fc.array(step, { maxLength: 8 }),
});

type Run = typeof run extends fc.Arbitrary<infer T> ? T : never;

const optionsOf = ({ kill, ...rest }: Run): RunOptions => ({ ...rest, ...(kill === null ? {} : { kill }) });

/** Runs redrives at the same time, until each has ended or was killed. */
async function together(world: RedriveWorld, runs: readonly Run[]): Promise<void> {
  const ends = runs.map(async (one) => {
    const { ran, killed } = world.start(optionsOf(one));
    try {
      await Promise.race([ran, killed]);
    } catch (thrown) {
      if (!ENDINGS.includes((thrown as { code?: string }).code ?? '')) throw thrown;
    }
  });
  await world.clock.run(Promise.all(ends));
}

async function expectOnce(world: RedriveWorld): Promise<void> {
  for (const topic of [TOPIC, 'lines']) {
    const seen = await world.values(topic);
    expect(new Set(seen).size, `distinct records of ${topic}`).toBe(seen.length);
  }
}

it('whatever redrives are started, killed and fenced, no record is lost and none is repeated', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, async ({ seed, partitions, reasons, steps }) => {
      const faults = { lostRow: 0.03, lostReport: 0.03, lostReply: 0.05, slow: 0.3, shortRead: 0.1 };
      const world = await new RedriveWorld({ seed, faults }).open(partitions);
      const all: Bad[] = [];
      const quarantine = async (of: readonly Bad['bad'][]): Promise<void> => {
        const added = of.map((bad, i) => ({ n: all.length + i, bad }));
        all.push(...added);
        await world.quarantine(added);
      };
      await quarantine(reasons);
      for (const one of steps) {
        if (one.do === 'quarantine') await quarantine(one.reasons);
        else await together(world, one.runs);
        await expectOnce(world);
      }
      world.cluster.heal();
      const last: Ran[] = [await world.complete(), await world.complete({ out: 'kafka:lines' })];
      expect(last.map(({ isWhole }) => isWhole)).toEqual([true, true]);
      expect(await world.values(TOPIC)).toEqual(all.map(textOf).sort());
      const lines = (await world.values('lines')).map((line) => (JSON.parse(line) as { value: Bad }).value);
      expect(lines.map(textOf).sort()).toEqual(all.map(textOf).sort());
      expect((await world.read(QUARANTINE)).length).toBe(all.length);
    }),
    { numRuns: runs(60) },
  );
});
