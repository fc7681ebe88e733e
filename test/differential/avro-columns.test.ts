/** Columns of Avro payloads: both kernels against the resolving decoder of single payloads. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { drawingFrom, numbers, widened } from '../property/registry-avro-decoder-kit.ts';
import { avroSchema } from '../property/registry-avro-kit.ts';
import { pairOf } from '../property/registry-avro-pairs.ts';
import { runs } from '../tier.ts';
import { columnKernels, compare, eventsOf, mutated, noCounts, parse } from './avro-columns-kit.ts';

describe('columns of random schemas', () => {
  it("events and mutated events of a random schema have the decoder's verdicts and values", () => {
    const counts = noCounts();
    fc.assert(
      fc.property(avroSchema, numbers, (json, drawn) => {
        const next = drawingFrom(drawn);
        const { tree } = parse(json);
        const events = eventsOf(tree, next, 6);
        compare(
          columnKernels,
          tree,
          tree,
          [...events, null, ...events.map((event) => mutated(event, next))],
          counts,
        );
      }),
      { numRuns: runs(600) },
    );
    expect(counts.ok).toBeGreaterThan(counts.malformed);
    expect(counts.malformed).toBeGreaterThan(100);
  });

  it('a wider schema reads events into columns as the decoder resolves them', () => {
    const counts = noCounts();
    fc.assert(
      fc.property(avroSchema, numbers, (json, drawn) => {
        const next = drawingFrom(drawn);
        const writer = parse(json);
        const reader = parse(widened(JSON.parse(writer.text), next));
        const events = eventsOf(writer.tree, next, 6);
        const all = [...events, ...events.map((event) => mutated(event, next))];
        compare(columnKernels, reader.tree, writer.tree, all, counts);
      }),
      { numRuns: runs(600) },
    );
    expect(counts.ok).toBeGreaterThan(runs(4000));
  });

  it("random pairs of schemas have the decoder's verdicts and values, both ways", () => {
    const counts = noCounts();
    const pairs = runs(900);
    for (let seed = 1; seed <= pairs; seed++) {
      const { one, other } = pairOf(seed);
      const next = drawingFrom(Array.from({ length: 40 }, (_, i) => (seed * 7919 + i * 104_729) % 1_000_003));
      for (const [reader, writer] of [
        [parse(other).tree, parse(one).tree],
        [parse(one).tree, parse(other).tree],
      ] as const) {
        const events = eventsOf(writer, next, 4);
        compare(
          columnKernels,
          reader,
          writer,
          [...events, ...events.map((event) => mutated(event, next))],
          counts,
        );
      }
    }
    expect(counts.ok).toBeGreaterThan(pairs);
    expect(counts.malformed).toBeGreaterThan(pairs / 2);
    expect(counts.incompatible).toBeGreaterThan(pairs / 2);
  });
});
