import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { judge, type Level, parseSchema } from '../../src/registry/index.ts';
import { verdictLines } from '../../src/registry/store/registry.ts';

interface Case {
  readonly change: string;
  readonly syntax?: string;
  readonly old: string;
  readonly new: string;
  readonly BACKWARD: boolean;
  readonly FORWARD: boolean;
  readonly FULL: boolean;
  readonly NONE?: boolean;
  readonly names?: string;
}

const { cases } = JSON.parse(
  readFileSync(new URL('./registry-compatibility-proto.json', import.meta.url), 'utf8'),
) as { cases: readonly Case[] };

describe.each(cases)('$change', (one) => {
  const schemaOf = (body: string) =>
    parseSchema('PROTOBUF', `syntax = "${one.syntax ?? 'proto3'}"; message Order { ${body} }`);
  const proposed = schemaOf(one.new);
  const versions = [{ version: 1, schema: schemaOf(one.old) }];
  for (const mode of ['BACKWARD', 'FORWARD', 'FULL'] as const) {
    for (const level of [mode, `${mode}_TRANSITIVE`] as readonly Level[]) {
      it(`${level}: ${one[mode] ? 'accepted' : 'refused'}`, () => {
        const verdict = judge(proposed, level, versions);
        expect(verdict.compatible).toBe(one[mode]);
        if (!one[mode]) expect(verdictLines(verdict).join('\n')).toContain(one.names ?? '');
        else expect(verdictLines(verdict)).toEqual([]);
      });
    }
  }
  it('NONE: decided by the number history alone', () => {
    expect(judge(proposed, 'NONE', versions).compatible).toBe(one.NONE ?? true);
  });
});
