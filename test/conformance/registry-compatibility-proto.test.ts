import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseSchema } from '../../src/formats/schema.ts';
import type { Finding } from '../../src/registry/compatibility/finding.ts';
import { checkPair, judge, type Level } from '../../src/registry/compatibility/modes.ts';
import { tryAll } from '../../src/registry/proof/live.ts';
import { verdictLines } from '../../src/registry/store/registry.ts';

const DIRECTIONS = ['BACKWARD', 'FORWARD'] as const;
const POLICIES = ['PROVEN', 'STRICT'] as const;
type Outcome = 'OK' | 'LOSSY' | 'FAIL';
type Directed<T> = Readonly<Record<(typeof DIRECTIONS)[number], T>>;
interface Case {
  readonly change: string;
  readonly syntax?: string;
  readonly old: string;
  readonly new: string;
  readonly PROVEN: Directed<boolean>;
  readonly STRICT: Directed<boolean>;
  readonly decode: Directed<Outcome>;
  readonly NONE?: boolean;
  readonly rules?: { readonly PROVEN?: readonly string[]; readonly STRICT?: readonly string[] };
  readonly names?: string;
}

const { cases } = JSON.parse(
  readFileSync(new URL('./registry-compatibility-proto.json', import.meta.url), 'utf8'),
) as { cases: readonly Case[] };

const fileOf = (text: string, syntax = 'proto3'): string =>
  /^(syntax|edition) /.test(text) ? text : `syntax = "${syntax}"; message Order { ${text} }`;

function outcomeOf(findings: readonly Finding[]): Outcome {
  const severities = new Set(findings.map(({ severity }) => severity));
  expect(severities).not.toContain('unjudged');
  return severities.has('fail') ? 'FAIL' : severities.has('lossy') ? 'LOSSY' : 'OK';
}

describe.each(cases)('$change', (one) => {
  const old = parseSchema('PROTOBUF', fileOf(one.old, one.syntax));
  const proposed = parseSchema('PROTOBUF', fileOf(one.new, one.syntax));
  const versions = [{ version: 1, schema: old }];
  const held = one.NONE ?? true;

  describe.each(POLICIES)('%s', (policy) => {
    const { BACKWARD, FORWARD } = one[policy];
    const accepts = { BACKWARD, FORWARD, FULL: BACKWARD && FORWARD };
    it.each(Object.keys(accepts) as Array<keyof typeof accepts>)(
      'the verdict under mode %s equals the table',
      (mode) => {
        for (const level of [mode, `${mode}_TRANSITIVE`] as readonly Level[]) {
          const verdict = judge(proposed, level, versions, policy);
          expect(verdict.compatible).toBe(accepts[mode] && held);
          const lines = verdictLines(verdict).join('\n');
          if (verdict.compatible) expect(lines).toBe('');
          else expect(lines).toContain(policy === 'PROVEN' ? (one.names ?? '') : '');
        }
      },
    );

    it('each finding names its rule and its place in the text', () => {
      const findings = [checkPair(proposed, old, policy), checkPair(old, proposed, policy)].flat();
      const rules = new Set(findings.filter(({ severity }) => severity === 'fail').map(({ rule }) => rule));
      for (const rule of rules) expect(rule.startsWith('PROTO_')).toBe(policy === 'PROVEN');
      const expected = one.rules?.[policy];
      if (expected !== undefined) expect([...rules].sort()).toEqual([...expected].sort());
      for (const finding of findings) {
        expect(finding.message).not.toBe('');
        expect(finding.reader ?? finding.writer).toMatchObject({ line: 1, column: expect.any(Number) });
        expect(finding.place).toMatch(/^#\//);
      }
    });
  });

  it('only the number history decides under NONE', () => {
    expect(judge(proposed, 'NONE', versions).compatible).toBe(held);
  });

  it.each(DIRECTIONS)('the %s verdict equals the outcome of decoding', (direction) => {
    const [reader, writer] = direction === 'BACKWARD' ? [proposed, old] : [old, proposed];
    expect(outcomeOf(checkPair(reader, writer))).toBe(one.decode[direction]);
    expect(tryAll(reader, writer, { limit: 500 }).outcome).toBe(one.decode[direction]);
  });
});
