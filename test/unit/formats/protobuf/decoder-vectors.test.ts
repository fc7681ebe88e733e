/** Results of the decoder for cases in which protobufjs differs from the wire specification. The
 *  test also checks the difference, so that an obsolete vector is detected. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { protoDecoder } from '../../../../src/formats/protobuf/codec/decoder.ts';
import { packageRoot } from '../../../../src/shell/package.ts';
import { messageOf } from '../../../property/registry-proto-decoder-kit.ts';
import { type Plain, plainFrom, typeOf } from '../../../property/registry-proto-decoder-oracle.ts';

interface Vector {
  readonly name: string;
  readonly schema: string;
  readonly hex: string;
  readonly value?: unknown;
  readonly refusal?: string;
  readonly why: string;
}

const path = join(packageRoot(), 'test', 'vectors', 'registry-proto-wire.json');
const { vectors } = JSON.parse(readFileSync(path, 'utf8')) as { vectors: readonly Vector[] };

/** Decoded value as JSON, or the reason of the refusal. */
function answer(work: () => unknown): unknown {
  try {
    return JSON.parse(JSON.stringify({ value: work() }));
  } catch (thrown) {
    return { refusal: (thrown as Error).message };
  }
}

describe('differences from protobufjs', () => {
  it.each(vectors.map((vector) => [vector.name, vector] as const))(
    'the decoder follows the specification although protobufjs does not: %s',
    (_name, vector) => {
      const message = messageOf(vector.schema, 'M');
      const bytes = Buffer.from(vector.hex.replaceAll(' ', ''), 'hex');
      const ours = answer(() => protoDecoder(message)(bytes, 0, bytes.length));
      const theirs = answer(() =>
        plainFrom(message, typeOf(vector.schema, 'M').decode(bytes) as unknown as Plain),
      );
      if (vector.refusal === undefined) {
        expect(ours).toEqual({ value: vector.value });
        expect(theirs).not.toEqual(ours);
      } else {
        expect(ours).toEqual({ refusal: expect.stringContaining(vector.refusal) });
        expect(theirs).toHaveProperty('value');
      }
    },
  );
});
