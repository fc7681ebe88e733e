/** Decoders before and after they have code of their own, and mutants of payloads. */
import { inspect } from 'node:util';
import { expect } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import type { Decode } from '../../src/formats/decode.ts';
import { isFull } from '../tier.ts';

/** Reads after which a decoder has code of its own. */
const HOT_READS = 250;
/** Reads after which a decoder has none yet. */
const COLD_READS = 150;

/** Mutants of one payload: 100,000 of all payloads of a property in the full tier. */
export const MUTANTS = isFull ? 170 : 8;

/** The value with the order of its fields and its prototypes, or the error with its position. */
export function outcome(decode: Decode, bytes: Buffer): string {
  try {
    return inspect(decode(bytes, 0, bytes.length), {
      depth: null,
      maxArrayLength: null,
      maxStringLength: null,
    });
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return `${error.code} ${error.message} ${inspect(error.details)}`;
  }
}

/** Decoder that has read the first payload many times. */
export function hotDecoder(make: () => Decode, payloads: readonly Buffer[]): Decode {
  const decode = make();
  const [payload = Buffer.alloc(0)] = payloads;
  for (let turn = 0; turn < HOT_READS; turn++) outcome(decode, payload);
  return decode;
}

/** Decoder that never has code of its own. */
function coldDecoder(make: () => Decode): Decode {
  let decode = make();
  let reads = 0;
  return (bytes, start, end) => {
    if (++reads % COLD_READS === 0) decode = make();
    return decode(bytes, start, end);
  };
}

const EDGES = [0x00, 0x01, 0x02, 0x7f, 0x80, 0xff];

/** A part of the payload, or the payload with changed, removed, repeated or added bytes. */
function mutant(payload: Buffer, next: (most: number) => number): Buffer {
  const at = next(payload.length + 1);
  const length = 1 + next(4);
  const [before, after] = [payload.subarray(0, at), payload.subarray(at)];
  switch (next(5)) {
    case 0:
      return before;
    case 1:
      return Buffer.concat([before, after.subarray(length)]);
    case 2:
      return Buffer.concat([before, after.subarray(0, length), after]);
    case 3:
      return Buffer.concat([before, Buffer.of(EDGES[next(EDGES.length)] as number), after]);
    default: {
      const changed = Buffer.from(payload);
      if (at < changed.length)
        changed[at] = next(2) === 0 ? next(256) : (EDGES[next(EDGES.length)] as number);
      return changed;
    }
  }
}

/** Demands that a decoder with code of its own gives the outcomes of one without, for the payloads
 *  and their mutants. Returns how many outcomes were values and how many were errors. */
export function demandSame(
  make: () => Decode,
  payloads: readonly Buffer[],
  next: (most: number) => number,
): { readonly values: number; readonly errors: number } {
  const hot = hotDecoder(make, payloads);
  const cold = coldDecoder(make);
  let errors = 0;
  let values = 0;
  for (const payload of payloads)
    for (let i = 0; i <= MUTANTS; i++) {
      const bytes = i === 0 ? payload : mutant(payload, next);
      const expected = outcome(cold, bytes);
      expect(outcome(hot, bytes), bytes.toString('hex')).toBe(expected);
      if (/^(malformed_payload|incompatible_schema) /.test(expected)) errors++;
      else values++;
    }
  return { values, errors };
}
