/** Columns of Protobuf payloads: both kernels against the decoder of single payloads. */
import { describe, expect, it } from 'vitest';
import { encodeProto } from '../../src/formats/protobuf/codec/encoder.ts';
import type { ProtoMessage } from '../../src/formats/protobuf/tree.ts';
import {
  messageOf,
  randomDatum,
  randomOf,
  randomText,
  SYNTAXES,
} from '../property/registry-proto-decoder-kit.ts';
import { runs } from '../tier.ts';
import { columnKernels, mutated } from './avro-columns-kit.ts';
import { compareProto, type ProtoCounts } from './proto-columns-kit.ts';

const none = (): ProtoCounts => ({ ok: 0, malformed: 0 });

/** Events, parts of several events one after the other, and both with changed bytes. */
function payloadsOf(message: ProtoMessage, next: (below: number) => number): Array<Buffer | null> {
  const events = Array.from({ length: 4 }, () => encodeProto(message, randomDatum(next, message)));
  const joined = events.map((event) => Buffer.concat([event, ...events.slice(0, 1 + next(3))]));
  const all = [...events, ...joined];
  return [...all, null, ...all.map((event) => mutated(event, next)), Buffer.alloc(0)];
}

/** Runs a check, and reports the schema of a failure. */
function withText(text: string, check: () => void): void {
  try {
    check();
  } catch (thrown) {
    throw new Error(`${(thrown as Error).message}\n${text}`, { cause: thrown });
  }
}

describe.each(SYNTAXES)('columns of random %s schemas', (syntax) => {
  it("events, merged events and mutated events have the decoder's verdicts and values", () => {
    const counts = none();
    const schemas = runs(150);
    for (let seed = 1; seed <= schemas; seed++) {
      const text = randomText(seed * 7919, syntax, { required: seed % 2 === 0 });
      const message = messageOf(text);
      const next = randomOf(seed);
      withText(text, () => compareProto(columnKernels, message, payloadsOf(message, next), counts));
    }
    expect(counts.ok).toBeGreaterThan(schemas * 4);
    expect(counts.malformed).toBeGreaterThan(schemas);
  });

  it('requested fields have the values of the whole message, and its verdicts', () => {
    const counts = none();
    const schemas = runs(80);
    for (let seed = 1; seed <= schemas; seed++) {
      const text = randomText(seed * 104_729, syntax, { required: true });
      const message = messageOf(text);
      const next = randomOf(seed + 500);
      const names = message.fields.map(({ name }) => name).filter(() => next(2) === 0);
      withText(text, () => compareProto(columnKernels, message, payloadsOf(message, next), counts, names));
    }
    expect(counts.ok).toBeGreaterThan(schemas * 3);
  });

  it('a schema with other packing and fewer fields reads the same payloads as the decoder', () => {
    const counts = none();
    const schemas = runs(60);
    for (let seed = 1; seed <= schemas; seed++) {
      const writer = messageOf(randomText(seed * 31, syntax, { required: true }));
      const text = randomText(seed * 31, syntax, { turnPacking: true });
      const next = randomOf(seed + 900);
      withText(text, () => compareProto(columnKernels, messageOf(text), payloadsOf(writer, next), counts));
    }
    expect(counts.ok).toBeGreaterThan(schemas * 4);
  });
});
