/** Compares the stored layout with the output of the printer of the existing registries.
 *
 *  That printer starts its text with two comments, keeps other comments, and sets blank lines by
 *  its own rules. The other lines are compared byte for byte. registry-proto-text.test.ts tests the
 *  blank lines. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseProtoFile } from '../../src/formats/protobuf/syntax/parser.ts';
import { printProto } from '../../src/formats/protobuf/syntax/print.ts';
import { packageRoot } from '../../src/shell/package.ts';

interface Printed {
  readonly name: string;
  readonly source: string;
  readonly printed: string;
}
const path = join(packageRoot(), 'test', 'vectors', 'proto-printed.json');
const { vectors } = JSON.parse(readFileSync(path, 'utf8')) as { vectors: readonly Printed[] };

const lines = (text: string): string[] =>
  text.split('\n').filter((line) => line.trim() !== '' && !line.trim().startsWith('// '));

describe('printed texts', () => {
  it('the recording contains at least 40 sources', () => {
    expect(vectors.length).toBeGreaterThanOrEqual(40);
  });

  it.each(vectors.map((vector) => [vector.name, vector] as const))(
    'our printer gives the recorded lines for %s',
    (_name, { source, printed }) => {
      const ours = printProto(parseProtoFile(source));
      expect(lines(ours)).toEqual(lines(printed));
      expect(printProto(parseProtoFile(ours))).toBe(ours);
    },
  );
});
