/** Compares the Protobuf decoder with upb's recorded answers for the same bytes, complete and
 *  damaged. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MillraceError } from '../../src/core/errors.ts';
import { protoDecoder } from '../../src/formats/protobuf/codec/decoder.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { messageOf } from '../property/registry-proto-decoder-kit.ts';

interface Vector {
  readonly schema: string;
  /** Recorded value; null if protobuf refuses the bytes. */
  readonly payloads: ReadonlyArray<readonly [hex: string, answer: unknown]>;
}

const path = join(packageRoot(), 'test', 'vectors', 'registry-proto-upb.json');
const { vectors } = JSON.parse(readFileSync(path, 'utf8')) as { vectors: readonly Vector[] };

/** Converts a value to the form of the vectors, in which one letter names the type of a text. */
function recorded(value: unknown): unknown {
  if (value === null || typeof value === 'boolean') return value;
  if (typeof value === 'bigint') return `n${value}`;
  if (typeof value === 'string') return `s${value}`;
  if (value instanceof Uint8Array) return `h${Buffer.from(value).toString('hex')}`;
  if (Array.isArray(value)) return value.map(recorded);
  if (typeof value !== 'number')
    return Object.fromEntries(Object.entries(value as object).map(([key, one]) => [key, recorded(one)]));
  const bits = Buffer.alloc(8);
  bits.writeDoubleBE(value);
  return Number.isNaN(value) ? 'fnan' : `f${bits.toString('hex')}`;
}

describe('recorded payloads', () => {
  it('the recording contains hundreds of payloads, nearly half of them refused', () => {
    const answers = vectors.flatMap(({ payloads }) => payloads.map(([, answer]) => answer));
    expect(answers.length).toBeGreaterThan(400);
    expect(answers.filter((answer) => answer === null).length).toBeGreaterThan(answers.length * 0.4);
  });

  it.each(vectors.map((vector, index) => [index, vector] as const))(
    'our decoder reads the payloads of schema %i as protobuf does',
    (_index, { schema, payloads }) => {
      const decode = protoDecoder(messageOf(schema));
      for (const [hex, answer] of payloads) {
        const bytes = Buffer.from(hex, 'hex');
        let read: unknown = null;
        try {
          read = recorded(decode(bytes, 0, bytes.length));
        } catch (thrown) {
          if (!(thrown instanceof MillraceError)) throw thrown;
          expect(thrown.code).toBe('malformed_payload');
        }
        expect({ hex, read }).toEqual({ hex, read: answer });
      }
    },
  );
});
