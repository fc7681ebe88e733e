import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { loadGenKernels } from '../../src/addon/gen.ts';
import { chooseNative } from '../../src/addon/load.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { GEN_STREAM } from '../../src/core/layout/layouts.gen.ts';
import { RandomStream, seedOf } from '../../src/core/random/threefry.ts';
import { ZipfTable } from '../../src/core/random/zipf.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../../src/gen/event-options.ts';
import { EventGenerator } from '../../src/gen/events.ts';
import { runs } from '../tier.ts';

const kernels = loadGenKernels(chooseNative(process.env['MILLRACE_NATIVE']).mode);

function seqsOf(options: EventOptions, batchRows: readonly number[]): number[] {
  const generator = new EventGenerator(options, kernels);
  const batch = EventBatch.create(Math.max(...batchRows));
  const seqs: number[] = [];
  for (let turn = 0; ; turn++) {
    const count = generator.fillEvents(batch, batchRows[turn % batchRows.length]);
    if (count === 0) break;
    for (let i = 0; i < count; i++) seqs.push(Number(batch.columns.seq[i]));
  }
  return seqs;
}

/** Computes the delayed order by its definition: draws the delays one by one, then sorts stably. */
function delayedByDefinition(options: EventOptions): number[] {
  const random = new RandomStream(seedOf(options.seed), GEN_STREAM.DELAY);
  const { tail, stragglers, typicalMaxMs, tailMaxMs, stragglerMaxMs } = options.delays;
  const events = Array.from({ length: options.count }, (_, seq) => {
    random.at(seq);
    const kind = random.fraction(0);
    const u = random.fraction(1);
    const delay =
      kind < 1 - tail - stragglers
        ? Math.floor(u * u * (typicalMaxMs + 1))
        : kind < 1 - stragglers
          ? typicalMaxMs + Math.floor(u * u * u * (tailMaxMs - typicalMaxMs + 1))
          : tailMaxMs + Math.floor(u * (stragglerMaxMs - tailMaxMs + 1));
    return { seq, arrival: Math.floor(seq / options.perMs) + delay };
  });
  return events.sort((a, b) => a.arrival - b.arrival).map((event) => event.seq);
}

const optionsArbitrary = fc
  .record({
    seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
    count: fc.integer({ min: 0, max: 3000 }),
    perMs: fc.oneof(
      fc.constantFrom(1, 20, 500, 0.5, 1 / 3),
      fc.double({ min: 0.001, max: 1000, noNaN: true }),
    ),
    tail: fc.double({ min: 0, max: 0.5, noNaN: true }),
    stragglers: fc.double({ min: 0, max: 0.5, noNaN: true }),
    typicalMaxMs: fc.constantFrom(0, 1, 1023, 1024, 5000),
    tailExtraMs: fc.constantFrom(0, 1, 60_000, 2 ** 20),
    stragglerExtraMs: fc.constantFrom(0, 3_600_000, 2 ** 24),
  })
  .map(
    ({
      tailExtraMs,
      stragglerExtraMs,
      seed,
      count,
      perMs,
      tail,
      stragglers,
      typicalMaxMs,
    }): EventOptions => ({
      ...DEFAULT_EVENTS,
      seed,
      count,
      perMs,
      accounts: 50,
      order: 'delayed',
      delays: {
        tail,
        stragglers,
        typicalMaxMs,
        tailMaxMs: typicalMaxMs + tailExtraMs,
        stragglerMaxMs: typicalMaxMs + tailExtraMs + stragglerExtraMs,
      },
    }),
  );

describe('delayed order', () => {
  test('the delayed order is the true order sorted stably by event time and delay, in any batches', () => {
    fc.assert(
      fc.property(
        optionsArbitrary,
        fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1, maxLength: 4 }),
        (options, rows) => {
          expect(seqsOf(options, rows)).toEqual(delayedByDefinition(options));
        },
      ),
      { numRuns: runs(40) },
    );
  });
});

describe('Zipf ranks', () => {
  /** Draws ranks, then compares their counts with exact probabilities. Ranks with too few expected
   *  draws are counted together. */
  function chiSquare(
    ranks: number,
    s: number,
    draws: number,
    seed: bigint,
    exactS = s,
  ): { readonly statistic: number; readonly cells: number } {
    const table = new ZipfTable(ranks, s);
    const random = new RandomStream(seedOf(seed), GEN_STREAM.ACCOUNT);
    const counts = new Map<number, number>();
    for (let i = 0; i < draws; i++) {
      let rank = 0;
      for (let attempt = 0; rank === 0; attempt++) rank = table.rankOf(random.at(i, attempt));
      expect(rank <= ranks).toBe(true);
      counts.set(rank, (counts.get(rank) ?? 0) + 1);
    }
    let total = 0;
    for (let rank = 1; rank <= ranks; rank++) total += rank ** -exactS;
    let statistic = 0;
    let cells = 0;
    let expectedRest = 0;
    let seenRest = 0;
    const close = (expected: number, seen: number): void => {
      statistic += (seen - expected) ** 2 / expected;
      cells++;
    };
    for (let rank = 1; rank <= ranks; rank++) {
      expectedRest += (draws * rank ** -exactS) / total;
      seenRest += counts.get(rank) ?? 0;
      if (expectedRest >= 20 || rank === ranks) {
        close(expectedRest, seenRest);
        expectedRest = 0;
        seenRest = 0;
      }
    }
    return { statistic, cells };
  }

  test.each([
    [1, 1.1],
    [50, 1.1],
    [200, 0],
    [500, 0.5],
    [1000, 1],
    [100_000, 1.1],
    [1_000_000, 1.1],
    [300, 2.5],
  ])('a distribution of %i ranks with exponent %f has its exact probabilities', (ranks, s) => {
    const { statistic, cells } = chiSquare(ranks, s, 40_000, 77n);
    // Five standard deviations of a chi-square with this many degrees of freedom.
    expect(statistic).toBeLessThan(cells + 5 * Math.sqrt(2 * cells) + 1);
  });

  test('a distribution of another exponent fails the chi-square test', () => {
    const { statistic, cells } = chiSquare(1000, 1.1, 40_000, 77n, 1.15);
    expect(statistic).toBeGreaterThan(cells + 10 * Math.sqrt(2 * cells));
  });
});
