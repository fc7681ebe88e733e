/** The catalogue of rules is complete, and each example has the finding that it illustrates. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { parseSchema, type Schema } from '../../../src/formats/schema.ts';
import { judgeProposed } from '../../../src/registry/check/judge.ts';
import type { Finding, Severity } from '../../../src/registry/compatibility/finding.ts';
import { checkPair, compareHistory } from '../../../src/registry/compatibility/modes.ts';
import { applyEdits, fixOf } from '../../../src/registry/proof/fix/search.ts';
import { RULES, type Rule, ruleOf } from '../../../src/registry/rules/catalogue.ts';
import { packageRoot } from '../../../src/shell/package.ts';

const RANKS: Readonly<Record<Severity, number>> = { note: 0, lossy: 1, fail: 2, unjudged: 3 };
const folder = join(packageRoot(), 'src', 'registry', 'compatibility');

interface Shown {
  readonly proposed: Schema;
  readonly last: Schema;
  readonly earlier: readonly Schema[];
  readonly findings: readonly Finding[];
}

const policyOf = ({ policy }: Rule): 'PROVEN' | 'STRICT' => (policy === 'STRICT' ? policy : 'PROVEN');

function findingsOf(rule: Rule, proposed: Schema, earlier: readonly Schema[]): readonly Finding[] {
  const last = earlier.at(-1) as Schema;
  if (rule.example?.direction === 'HISTORY') {
    const versions = earlier.map((schema, index) => ({ version: index + 1, schema }));
    return compareHistory(proposed, versions).flatMap(({ findings }) => findings);
  }
  return rule.example?.direction === 'FORWARD'
    ? checkPair(last, proposed, policyOf(rule))
    : checkPair(proposed, last, policyOf(rule));
}

function shown(rule: Rule): Shown {
  const { example } = rule;
  if (example === undefined) throw new Error(`${rule.id} has no example`);
  const earlier = example.earlier.map((text) => parseSchema(example.format, text, { lenient: true }));
  const proposed = parseSchema(example.proposedFormat ?? example.format, example.proposed);
  return {
    proposed,
    earlier,
    last: earlier.at(-1) as Schema,
    findings: findingsOf(rule, proposed, earlier),
  };
}

/** Rule names in the sources of the checkers, as texts or as keys of a table. */
function rulesOfSources(): string[] {
  const levels = /^(BACKWARD|FORWARD|FULL)_TRANSITIVE$/;
  const found = new Set<string>();
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.ts')) continue;
    const text = readFileSync(join(folder, name), 'utf8');
    for (const [, rule] of text.matchAll(/'([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)'/g)) found.add(rule as string);
    if (name.endsWith('strict.ts'))
      for (const [, rule] of text.matchAll(/^ {2}([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+): '/gm))
        found.add(rule as string);
  }
  return [...found].filter((one) => !levels.test(one)).sort();
}

test('every rule of the checkers is in the catalogue, and every catalogue rule is in a checker', () => {
  const known = RULES.map(({ id }) => id).filter((id) => id !== 'STORED_SCHEMA_UNREADABLE');
  expect(rulesOfSources()).toEqual(known.sort());
  expect(new Set(known).size).toBe(known.length);
});

describe('catalogue entries', () => {
  it.each(RULES.map((rule) => [rule.id, rule] as const))(
    'the catalogue entry of %s has a title, a reason, a fix and a source',
    (_id, rule) => {
      expect(rule.title).toMatch(/^[A-Z].*[^.]$/);
      for (const text of [rule.why, rule.fix, rule.source]) expect(text).toMatch(/^[A-Za-z].*[a-z)].*$/);
      for (const text of [rule.why, rule.fix]) expect(text).toMatch(/[.]$/);
    },
  );
});

const shownRules = RULES.filter(({ example }) => example !== undefined);

test('only rules that no short pair can show have no example', () => {
  const bare = RULES.filter(({ example }) => example === undefined).map(({ id }) => id);
  expect(bare.sort()).toEqual(['COMPARISON_TOO_LONG', 'STORED_SCHEMA_UNREADABLE']);
});

describe('rule examples', () => {
  it.each(shownRules.map((rule) => [rule.id, rule] as const))(
    'the example of %s has that finding, and no other finding of its severity',
    (id, rule) => {
      const { findings } = shown(rule);
      // Several notes may occur together.
      const isLike = (one: Finding): boolean => one.severity === rule.severity && rule.severity !== 'note';
      const grave = findings.filter(
        (one) => one.rule === id || isLike(one) || RANKS[one.severity] > RANKS[rule.severity],
      );
      expect([...new Set(grave.map((one) => one.rule))]).toEqual([id]);
      for (const one of grave) expect(one.severity).toBe(rule.severity);
    },
  );
});

/** Rules without a textual fix: no edit of a schema can fix the finding, or no fix is needed. */
const WITHOUT_FIX = new Set([
  'FORMAT_CHANGED',
  'AVRO_DEFAULT_MISFIT',
  'AVRO_FIELD_NOT_READ',
  'PROTO_TYPE_UNKNOWN',
  'PROTO_ENUM_VALUE_RENAMED',
]);

describe('rule fixes', () => {
  it.each(shownRules.map((rule) => [rule.id, rule] as const))(
    'the fix of %s removes the finding',
    (id, rule) => {
      const { findings, proposed, last, earlier } = shown(rule);
      const finding = findings.find((one) => one.rule === id) as Finding;
      const direction = rule.example?.direction ?? 'BACKWARD';
      const fix = fixOf(finding, direction, proposed, last, { ever: earlier, policy: policyOf(rule) });
      expect(fix?.words).toMatch(/\w/);
      const edits = fix?.edits ?? [];
      expect(edits.length > 0).toBe(proposed.format !== 'JSON' && !WITHOUT_FIX.has(id));
      if (edits.length === 0) return;
      const mended = parseSchema(proposed.format, applyEdits(proposed.source, edits));
      const after = findingsOf(rule, mended, earlier);
      expect(after.map((one) => one.rule)).not.toContain(id);
      const refused = (list: readonly Finding[]): number =>
        list.filter(({ severity }) => severity === 'fail' || severity === 'unjudged').length;
      expect(refused(after)).toBeLessThanOrEqual(refused(findings));
      // Edits are in bounds, in order, and do not overlap.
      const sorted = [...edits].sort((a, b) => a.at - b.at || a.end - b.end);
      for (const [index, { at, end }] of sorted.entries()) {
        expect(at).toBeLessThanOrEqual(end);
        expect(end).toBeLessThanOrEqual(proposed.source.length);
        expect(at).toBeGreaterThanOrEqual(sorted[index - 1]?.end ?? 0);
      }
    },
  );

  const message = (fields: string): Schema =>
    parseSchema('PROTOBUF', `syntax = "proto3"; message M { ${fields} }`);
  it.each([
    ['a swap of names', 'string first = 1; string last = 2;', 'string last = 1; string first = 2;'],
    ['a number that another field took', 'int32 a = 1;', 'int32 b = 1; int32 a = 2;'],
  ])('the fix of %s exchanges the numbers', (_, before, after) => {
    const [last, proposed] = [message(before), message(after)];
    for (const direction of ['BACKWARD', 'FORWARD'] as const) {
      const [reader, writer] = direction === 'BACKWARD' ? [proposed, last] : [last, proposed];
      const found = checkPair(reader, writer).find(({ severity }) => severity === 'fail') as Finding;
      expect(found.rule).toBe('PROTO_NUMBER_CHANGED');
      const fix = fixOf(found, direction, proposed, last, { ever: [last] });
      expect(fix?.words).toMatch(/^give "\w+" its number [12] back, and "\w+" the number [12]$/);
      const mended = parseSchema('PROTOBUF', applyEdits(proposed.source, fix?.edits ?? []));
      for (const one of [checkPair(mended, last), checkPair(last, mended)])
        expect(one.filter(({ severity }) => severity !== 'note')).toEqual([]);
    }
  });
});

test('an unreadable stored schema is reported by its own rule', () => {
  const proposed = parseSchema('AVRO', '"string"');
  const earlier = [{ version: 1, name: 'version 1', live: true, schema: { unreadable: 'it is no JSON' } }];
  const base = {
    proposed,
    level: 'BACKWARD',
    policy: 'PROVEN',
    lossy: 'ACCEPT',
    earlier,
    all: false,
  } as const;
  const { compatible, comparisons } = judgeProposed({ ...base, known: false });
  expect(compatible).toBe(false);
  expect(comparisons.flatMap(({ findings }) => findings.map(({ rule }) => rule))).toEqual([
    'STORED_SCHEMA_UNREADABLE',
  ]);
  expect(ruleOf('STORED_SCHEMA_UNREADABLE')?.severity).toBe('unjudged');
});

test('comparisons that outgrow their texts are reported as too long', () => {
  const fields = (type: (index: number) => string): string =>
    `{"type":"record","name":"R","fields":[${Array.from({ length: 4000 }, (_, i) => `{"name":"f${i}","type":${type(i)}}`).join()}]}`;
  const aliases = Array.from({ length: 4000 }, (_, i) => `"V${i}"`).join();
  const inner = Array.from({ length: 4000 }, (_, i) => `{"name":"w${i}","type":"int","default":0}`).join();
  const wide = `{"type":"record","name":"W","aliases":[${aliases}],"fields":[${inner}]}`;
  const reader = parseSchema(
    'AVRO',
    fields((i) => (i === 0 ? wide : '"W"')),
  );
  const writer = parseSchema(
    'AVRO',
    fields((i) => `{"type":"record","name":"V${i}","fields":[]}`),
  );
  const findings = checkPair(reader, writer);
  expect(findings.map(({ rule }) => rule)).toContain('COMPARISON_TOO_LONG');
  expect(ruleOf('COMPARISON_TOO_LONG')?.severity).toBe(
    findings.find(({ rule }) => rule === 'COMPARISON_TOO_LONG')?.severity,
  );
});
