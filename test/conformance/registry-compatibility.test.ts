import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseSchema, type Schema } from '../../src/formats/schema.ts';
import { judge, type Level } from '../../src/registry/compatibility/modes.ts';
import { verdictLines } from '../../src/registry/store/registry.ts';
import { liveDecode, type Outcome } from '../property/registry-avro-oracle.ts';

type AvroFieldCase = readonly [string, unknown, unknown?, string?];
type Mode = 'BACKWARD' | 'FORWARD' | 'FULL';
type Modes = Readonly<Record<Mode, boolean>>;
interface Case extends Modes {
  readonly format: 'AVRO';
  readonly change: string;
  readonly old: readonly AvroFieldCase[];
  readonly new: readonly AvroFieldCase[];
  readonly STRICT?: Modes;
  readonly decode: Readonly<Record<'BACKWARD' | 'FORWARD', Outcome>>;
  readonly names?: string;
}

const { cases } = JSON.parse(
  readFileSync(new URL('./registry-compatibility.json', import.meta.url), 'utf8'),
) as { cases: readonly Case[] };

function avroField([name, type, value, alias]: AvroFieldCase): Record<string, unknown> {
  if (value === 'ALIAS') return { name, type, aliases: [alias] };
  return value === undefined ? { name, type } : { name, type, default: value };
}

const avro = (...fields: ReadonlyArray<AvroFieldCase>): Schema =>
  parseSchema('AVRO', JSON.stringify({ type: 'record', name: 'Order', fields: fields.map(avroField) }));

function decoded(reader: Schema, writer: Schema): Outcome {
  if (reader.format !== 'AVRO' || writer.format !== 'AVRO')
    throw new Error('both schemas must be Avro schemas');
  const { outcome, wrong } = liveDecode(reader.tree, writer.tree);
  expect(wrong).toEqual([]);
  return outcome;
}

describe.each(cases)('$change', (one) => {
  const [before, proposed] = [avro(...one.old), avro(...one.new)];
  const versions = [{ version: 1, schema: before }];

  describe.each([
    ['PROVEN', one],
    ['STRICT', one.STRICT ?? one],
  ] as const)('%s', (policy, expected) => {
    it.each(['BACKWARD', 'FORWARD', 'FULL'] as const)(
      'the verdict under mode %s equals the table',
      (mode) => {
        for (const level of [mode, `${mode}_TRANSITIVE`] as readonly Level[]) {
          const verdict = judge(proposed, level, versions, policy);
          const lines = verdictLines(verdict);
          expect(verdict.compatible, lines.join('\n')).toBe(expected[mode]);
          if (expected[mode]) expect(lines).toEqual([]);
          else if (policy === 'PROVEN') expect(lines.join('\n')).toContain(one.names ?? '');
        }
      },
    );
  });

  it('the verdict equals the outcome of live decode', () => {
    expect(decoded(proposed, before)).toBe(one.decode.BACKWARD);
    expect(decoded(before, proposed)).toBe(one.decode.FORWARD);
    for (const direction of ['BACKWARD', 'FORWARD'] as const) {
      expect(one[direction]).toBe(one.decode[direction] !== 'FAIL');
      const [comparison] = judge(proposed, direction, versions).comparisons;
      expect(comparison?.findings.some(({ severity }) => severity === 'lossy') ?? false).toBe(
        one.decode[direction] === 'LOSSY',
      );
    }
  });

  it('every change is accepted under NONE', () => {
    for (const policy of ['PROVEN', 'STRICT'] as const)
      expect(judge(proposed, 'NONE', versions, policy).compatible).toBe(true);
  });
});

describe('several versions', () => {
  const proto = (body: string): Schema =>
    parseSchema('PROTOBUF', `syntax = "proto3"; message Order { ${body} }`);
  const ever = (...schemas: readonly Schema[]) => schemas.map((schema, i) => ({ version: i + 1, schema }));

  it('a default dropped later passes BACKWARD and fails BACKWARD_TRANSITIVE', () => {
    const versions = ever(avro(['id', 'string']), avro(['id', 'string'], ['note', 'string', '']));
    const proposed = avro(['id', 'string'], ['note', 'string']);
    expect(judge(proposed, 'BACKWARD', versions).compatible).toBe(true);
    const verdict = judge(proposed, 'BACKWARD_TRANSITIVE', versions);
    expect(verdictLines(verdict)).toEqual([expect.stringMatching(/version 1: field "note" has no default/)]);
  });

  it.each(['NONE', 'BACKWARD', 'FORWARD', 'FULL', 'FULL_TRANSITIVE'] as const)(
    'a Protobuf number that was removed is accepted again under %s only as the same field',
    (level) => {
      const versions = ever(proto('string phone = 2; string id = 1;'), proto('string id = 1;'));
      for (const body of [
        'string id = 1; string mail = 2;',
        'string id = 1; bytes phone = 2;',
        'string id = 1; repeated string phone = 2;',
        'string id = 1; int64 phone = 2;',
      ]) {
        const verdict = judge(proto(body), level, versions);
        expect(verdict.compatible).toBe(false);
        expect(verdictLines(verdict).join('\n')).toMatch(/in any mode: number 2 was/);
      }
      for (const body of ['string id = 1; string mail = 3;', 'string id = 1; string phone = 2;'])
        expect(judge(proto(body), level, versions).compatible).toBe(true);
    },
  );

  it('a number whose message was removed is never accepted under another name', () => {
    const one = 'syntax = "proto3"; message Order { string id = 1; } message Extra { string a = 1; }';
    const versions = ever(parseSchema('PROTOBUF', one), proto('string id = 1;'));
    expect(
      judge(parseSchema('PROTOBUF', one.replace('string a', 'string b')), 'NONE', versions).compatible,
    ).toBe(false);
  });

  it('a new name for the same number and type in the next version is a rename', () => {
    expect(judge(proto('string memo = 2;'), 'FULL', ever(proto('string note = 2;'))).compatible).toBe(true);
  });

  it('another format is refused unless the level is NONE', () => {
    const versions = ever(avro(['id', 'string']));
    expect(judge(proto('string id = 1;'), 'BACKWARD', versions).compatible).toBe(false);
    expect(judge(proto('string id = 1;'), 'NONE', versions).compatible).toBe(true);
  });
});
