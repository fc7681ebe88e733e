/** Compares the consumer's reader for records of a refused Protobuf writer with the trial of each
 *  event. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { parseSchema, type Schema } from '../../src/formats/schema.ts';
import { isCompatible } from '../../src/registry/compatibility/finding.ts';
import { checkPair } from '../../src/registry/compatibility/modes.ts';
import { trialsOf } from '../../src/registry/proof/live.ts';
import { readerCodec } from '../../src/registry/proof/reader.ts';
import { sameValue } from '../../src/registry/proof/same.ts';
import type { Trial } from '../../src/registry/proof/trial.ts';
import { runs } from '../tier.ts';
import { changedSchema, printSchema, randomSchema } from './registry-proto-pairs-kit.ts';

type Answer = { readonly value: unknown } | { readonly refused: string };

function answerOf(reader: Schema, writer: Schema, { witness }: Trial): Answer {
  const { bytes, path } = witness;
  try {
    return { value: readerCodec(reader, writer, path)(bytes, 0, bytes.length) };
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return { refused: error.code };
  }
}

it('the consumer delivers exactly the records that a live decode proves right', () => {
  let right = 0;
  let delivered = 0;
  let wrong = 0;
  fc.assert(
    fc.property(fc.infiniteStream(fc.nat()), (numbers) => {
      const stream = numbers[Symbol.iterator]();
      const next = (below: number): number => (stream.next().value as number) % below;
      const from = randomSchema(next);
      const writer = parseSchema('PROTOBUF', printSchema(from));
      const reader = parseSchema('PROTOBUF', printSchema(changedSchema(next, from)));
      if (isCompatible(checkPair(reader, writer))) return;
      for (const trial of trialsOf(reader, writer, { limit: 60 })) {
        const answer = answerOf(reader, writer, trial);
        if (trial.outcome === 'FAIL' || 'error' in trial.read) {
          wrong++;
          expect(answer).toEqual({ refused: 'incompatible_schema' });
          continue;
        }
        right++;
        if (!('value' in answer)) continue;
        delivered++;
        expect(sameValue(answer.value, trial.read.value)).toBe(true);
      }
    }),
    { numRuns: runs(200) },
  );
  expect(wrong).toBeGreaterThan(100);
  expect(right).toBeGreaterThan(100);
  // A map read as one message depends on the order of its entries, which a decoded map does not
  // keep.
  expect(delivered / right).toBeGreaterThan(0.95);
});
