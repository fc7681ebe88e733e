/** Compares policy STRICT with the answers of Apache Avro's own check: rule, pointer and text of
 *  each finding, in order. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseAvroSchema } from '../../src/formats/avro/schema.ts';
import { checkStrictAvro } from '../../src/registry/compatibility/avro/strict.ts';
import { isCompatible } from '../../src/registry/compatibility/finding.ts';

interface Case {
  readonly about: string;
  readonly reader: unknown;
  readonly writer: unknown;
  readonly found: ReadonlyArray<readonly [rule: string, pointer: string, detail: string]> | 'ambiguous';
}
const { cases } = JSON.parse(
  readFileSync(new URL('../vectors/avro-strict.json', import.meta.url), 'utf8'),
) as { cases: readonly Case[] };

const RULES = [
  'NAME_MISMATCH',
  'FIXED_SIZE_MISMATCH',
  'MISSING_ENUM_SYMBOLS',
  'READER_FIELD_MISSING_DEFAULT_VALUE',
  'TYPE_MISMATCH',
  'MISSING_UNION_BRANCH',
];
const treeOf = (json: unknown) => parseAvroSchema(JSON.stringify(json), { lenient: true }).tree;
/** Removes repeated findings: Apache Avro repeats a finding if a pair recurs, Millrace reports it
 *  once. */
const once = (found: ReadonlyArray<readonly unknown[]>): unknown[] =>
  [...new Set(found.map((one) => JSON.stringify(one)))].map((one) => JSON.parse(one) as unknown);

describe('answers of Apache Avro', () => {
  it('the recorded answers contain each rule', () => {
    const rules = cases.flatMap(({ found }) =>
      found === 'ambiguous' ? [found] : found.map(([rule]) => rule),
    );
    expect(new Set(rules)).toEqual(new Set([...RULES, 'ambiguous']));
    expect(cases.filter(({ found }) => found.length === 0).length).toBeGreaterThan(5);
  });

  it.each(cases.map((one, i) => [`${i}: ${one.about}`, one] as const))(
    "the STRICT check gives Apache Avro's findings for case %s",
    (_name, one) => {
      const findings = checkStrictAvro(treeOf(one.reader), treeOf(one.writer));
      expect(isCompatible(findings)).toBe(one.found.length === 0);
      if (one.found === 'ambiguous')
        expect(findings.map(({ rule }) => rule)).toEqual(['AVRO_ALIAS_AMBIGUOUS']);
      else
        expect(once(findings.map(({ rule, pointer, detail }) => [rule, pointer, detail]))).toEqual(
          once(one.found),
        );
      for (const { reader, writer, message } of findings) {
        expect(reader).toBeDefined();
        expect(writer).toBeDefined();
        expect(message.length).toBeGreaterThan(10);
      }
    },
  );
});
