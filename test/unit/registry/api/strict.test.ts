/** Policy STRICT reports the exact messages of the existing registries.
 *
 *  Source of the expected texts: answers of Confluent Schema Registry 7 as users have published
 *  them, and its avro/Difference.java and SchemaValidatorBuilder.java, for facts. */
import { describe, expect, it } from 'vitest';
import { parseSchema } from '../../../../src/formats/schema.ts';
import { messagesOf } from '../../../../src/registry/api/messages/proven.ts';
import { judge, type Level } from '../../../../src/registry/compatibility/modes.ts';
import type { StoredVersion } from '../../../../src/registry/store/service.ts';

function messages(proposed: string, olds: readonly string[], level: Level = 'BACKWARD'): string[] {
  const formatOf = (text: string) => (text.startsWith('syntax') ? 'PROTOBUF' : 'AVRO');
  const versions = olds.map((text, i) => ({ version: i + 1, schema: parseSchema(formatOf(text), text) }));
  const verdict = judge(parseSchema(formatOf(proposed), proposed), level, versions, 'STRICT');
  const compared = versions.map(({ version, schema }) => ({
    version,
    content: { text: schema.text },
  })) as unknown as StoredVersion[];
  return messagesOf({ verdict, compared, level, policy: 'STRICT', validateFields: false, proposed });
}
const field = (name: string, type: unknown, more: object = {}): object => ({ name, type, ...more });
const record = (...fields: object[]): string => JSON.stringify({ type: 'record', name: 'R', fields });
const proto = (body: string): string => `syntax = "proto3"; message M { ${body} }`;
const end = (level: Level): string => `{validateFields: 'false', compatibility: '${level}'}`;
const trailer = (version: number, text: string, level: Level = 'BACKWARD'): string[] => [
  `{oldSchemaVersion: ${version}}`,
  `{oldSchema: '${text}'}`,
  end(level),
];
const F1 = record(field('f1', 'string'));

describe('Avro', () => {
  const symbols = (...names: string[]): object => ({ type: 'enum', name: 'E', symbols: names });
  const fixed = (size: number): object => ({ type: 'fixed', name: 'F', size });
  it.each<readonly [what: string, proposed: string, old: string, said: string]>([
    [
      'a field without default',
      record(field('f1', 'string'), field('f2', 'string')),
      F1,
      "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'f2' at path '/fields/1' in the new schema has no default value and is missing in the old schema', additionalInfo:'f2'}",
    ],
    [
      'another type',
      record(field('f1', 'int')),
      F1,
      "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in the new schema does not match with the old schema', additionalInfo:'reader type: INT not compatible with writer type: STRING'}",
    ],
    [
      'a primitive at the root',
      '"boolean"',
      '"int"',
      "{errorType:'TYPE_MISMATCH', description:'The type (path '/') of a field in the new schema does not match with the old schema', additionalInfo:'reader type: BOOLEAN not compatible with writer type: INT'}",
    ],
    [
      'a symbol less',
      record(field('f1', symbols('A', 'B'))),
      record(field('f1', symbols('A', 'B', 'C'))),
      "{errorType:'MISSING_ENUM_SYMBOLS', description:'The new schema is missing enum symbols '[C]' at path '/fields/0/type/symbols' in the old schema', additionalInfo:'[C]'}",
    ],
    [
      'another size',
      record(field('f1', fixed(4))),
      record(field('f1', fixed(8))),
      "{errorType:'FIXED_SIZE_MISMATCH', description:'The size of FIXED type field at path '/fields/0/type/size' in the new schema does not match with the old schema', additionalInfo:'expected: 8, found: 4'}",
    ],
    [
      'another name',
      F1.replace('"R"', '"Q"'),
      F1,
      "{errorType:'NAME_MISMATCH', description:'The name of the schema has changed (path '/name')', additionalInfo:'expected: R'}",
    ],
  ])("STRICT reports the existing registries' message for %s", (_what, proposed, old, said) => {
    expect(messages(proposed, [old])).toEqual([said, ...trailer(1, old)]);
  });

  it('STRICT reports a branch that was removed from a union', () => {
    const old = record(field('f1', ['int', 'null', 'string']));
    expect(messages(record(field('f1', ['int', 'null'])), [old])[0]).toBe(
      "{errorType:'MISSING_UNION_BRANCH', description:'The new schema is missing a type inside a union field at path '/fields/0/type/2' in the old schema', additionalInfo:'reader union lacking writer type: STRING'}",
    );
  });
});

describe('order of STRICT messages', () => {
  const two = record(field('f1', 'string'), field('f2', 'string'));
  const int = record(field('f1', 'int'));

  it('the old schema as the reader is named as such', () => {
    expect(messages(record(field('f2', 'string', { default: '' })), [F1], 'FORWARD')).toEqual([
      "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'f1' at path '/fields/0' in the old schema has no default value and is missing in the new schema', additionalInfo:'f1'}",
      ...trailer(1, F1, 'FORWARD'),
    ]);
  });
  it('the forward message is first in both directions, and the text follows the backward message', () => {
    const said = messages(int, [F1], 'FULL');
    expect(said.map((one) => /in the (old|new) schema does not match/.exec(one)?.[1])).toEqual([
      'old',
      'new',
      ...[undefined, undefined, undefined],
    ]);
    // The new schema as a reader has no finding, so its text is not reported.
    expect(messages(F1, [two], 'FULL')).toEqual([expect.stringMatching(/'f2' at path/), end('FULL')]);
  });
  it('only the newest version that refuses is reported', () => {
    const said = messages(
      record(field('f1', 'long')),
      [F1, two, record(field('f1', 'int'))],
      'BACKWARD_TRANSITIVE',
    );
    expect(said).toEqual([expect.stringMatching(/TYPE_MISMATCH/), ...trailer(2, two, 'BACKWARD_TRANSITIVE')]);
  });
  it('a long old schema is truncated', () => {
    const long = record(field('f1', 'string', { doc: 'x'.repeat(20_000) }));
    expect(messages(int, [long])[2]).toBe(
      `{oldSchema: <truncated to 10240 characters> '${long.slice(0, 10_240)}'}`,
    );
  });
  it('accepted changes and losses are not reported', () => {
    expect(messages('"float"', ['"long"'])).toEqual([]);
  });
  it('differing schema types are reported in each direction', () => {
    const said = 'Incompatible because of different schema type';
    expect(messages(proto(''), [F1], 'FULL')).toEqual([said, said, ...trailer(1, F1, 'FULL')]);
  });
});

it('a reused Protobuf number is reported in addition', () => {
  const [one, two] = [proto('int32 a = 1; int32 b = 2;'), proto('int32 b = 2;')];
  const said = messages(proto('int32 b = 2; string c = 1;'), [one, two]);
  expect(said).toEqual([expect.stringMatching(/^\{errorType:"PROTO_NUMBER_RE[A-Z]+"/), end('BACKWARD')]);
});
