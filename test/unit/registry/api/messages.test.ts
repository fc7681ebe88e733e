/** The messages of a refusal and their order. */
import { expect, it } from 'vitest';
import { parseSchema } from '../../../../src/formats/schema.ts';
import { messagesOf } from '../../../../src/registry/api/messages/proven.ts';
import { judge, type Level } from '../../../../src/registry/compatibility/modes.ts';
import type { StoredVersion } from '../../../../src/registry/store/service.ts';

function messages(
  format: 'AVRO' | 'PROTOBUF',
  proposed: string,
  olds: readonly string[],
  level: Level = 'BACKWARD',
  policy: 'PROVEN' | 'STRICT' = 'PROVEN',
) {
  const oldFormat = (text: string) => (text.startsWith('syntax') ? 'PROTOBUF' : 'AVRO');
  const versions = olds.map((text, i) => ({ version: i + 1, schema: parseSchema(oldFormat(text), text) }));
  const verdict = judge(parseSchema(format, proposed), level, versions, policy);
  const compared = olds.map((text, i) => ({
    version: i + 1,
    content: { text },
  })) as unknown as StoredVersion[];
  return messagesOf({ verdict, compared, level, policy, validateFields: false, proposed });
}
const proto = (body: string, head = ''): string => `syntax = "proto3";${head} message M { ${body} }`;
const record = (type: unknown): string =>
  JSON.stringify({ type: 'record', name: 'R', fields: [{ name: 'u', type }] });

it('a refusal lists findings of every mode before findings of versions', () => {
  const [one, two] = [proto('int32 a = 1; int32 b = 2;'), proto('int32 b = 2;')];
  const found = messages('PROTOBUF', proto('int32 aa = 1; string b = 2;'), [one, two], 'BACKWARD_TRANSITIVE');
  const kind =
    '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/M/2\' in the new schema does not match its kind in the old schema"}';
  expect(found).toEqual([
    kind,
    expect.stringMatching(
      /^\{errorType:"PROTO_NUMBER_REUSED", description:"The change at path '#\/M\/1' [^"]*"\}$/,
    ),
    expect.stringMatching(
      /^\{errorType:"PROTO_NUMBER_RETYPED", description:"The change at path '#\/M\/2' [^"]*"\}$/,
    ),
    '{oldSchemaVersion: 1}',
    `{oldSchema: '${one}'}`,
    '{oldSchemaVersion: 2}',
    `{oldSchema: '${two}'}`,
    "{validateFields: 'false', compatibility: 'BACKWARD_TRANSITIVE'}",
  ]);
});

it('a refusal names the label of a Protobuf field by its type, and the place without its package', () => {
  const [label] = messages('PROTOBUF', proto('optional int64 a = 1;', 'package p.q;'), [
    proto('repeated int64 a = 1;', 'package p.q;'),
  ]);
  expect(label).toBe(
    '{errorType:"FIELD_NUMERIC_LABEL_CHANGED", description:"The label of a numeric field at path \'#/M/1\' in the new schema does not match its label in the old schema"}',
  );
  expect(messages('PROTOBUF', proto(''), [`${proto('')} message N { message I {} }`])[1]).toBe(
    '{errorType:"MESSAGE_REMOVED", description:"The message at path \'#/N/I\' in the old schema is missing in the new schema"}',
  );
});

it('a refusal states once that the schema type differs, in the words that clients know', () => {
  const old = record('int');
  expect(messages('PROTOBUF', proto(''), [old], 'FULL')).toEqual([
    'Incompatible because of different schema type',
    '{oldSchemaVersion: 1}',
    `{oldSchema: '${old}'}`,
    "{validateFields: 'false', compatibility: 'FULL'}",
  ]);
});

it('a refusal names a missing union branch with its position, and a type that only a union could read', () => {
  expect(messages('AVRO', record(['null', 'int']), [record(['null', 'int', 'string'])])[0]).toMatch(
    /^\{errorType:'MISSING_UNION_BRANCH', .* the reader's union has no branch for string at R\.u /,
  );
  expect(messages('AVRO', record('string'), [record(['null', 'string'])])[0]).toMatch(
    /^\{errorType:'TYPE_MISMATCH', .* cannot read null, which is a branch of the writer's union at R\.u /,
  );
});

const indexes = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

it('a refusal bounds its messages for many findings against many versions, and counts the rest', () => {
  const text = (type: string): string =>
    proto(
      indexes(150)
        .map((i) => `${type} f${i} = ${i + 1};`)
        .join(' '),
    );
  const olds = indexes(150).map((i) => `${text('int32')} message N${i} {}`);
  const found = messages('PROTOBUF', `${text('string')} message Other {}`, olds, 'FULL_TRANSITIVE');
  expect(found.join('').length).toBeLessThan(512 << 10);
  expect(found.length).toBeLessThan(700);
  // A finding that holds in every mode precedes those of versions, so the bound does not drop it.
  expect(found[0]).toMatch(/^\{errorType:"PROTO_NUMBER_RETYPED"/);
  const findings = found.filter((one) => one.startsWith('{errorType'));
  expect(findings).toHaveLength(200);
  const more =
    /^and (\d+) more, counted in each version, that are not listed: an answer holds 200 findings/.exec(
      found[200] ?? '',
    );
  expect(Number(more?.[1])).toBeGreaterThan(10_000);
  expect(found.filter((one) => one.startsWith('{oldSchemaVersion'))).toHaveLength(150);
  expect(found.at(-1)).toBe("{validateFields: 'false', compatibility: 'FULL_TRANSITIVE'}");
});

it('a refusal bounds the text of few findings too', () => {
  const long = (letter: string): string => letter.repeat(24_000);
  const enums = (names: readonly string[]): string =>
    JSON.stringify({
      type: 'record',
      name: 'R',
      fields: names.map((name) => ({ name, type: 'string' })),
    });
  const found = messages('AVRO', enums(indexes(20).map((i) => `${long('f')}${i}`)), [enums([])], 'BACKWARD');
  const said = found.filter((one) => one.startsWith('{errorType'));
  expect(said.length).toBeGreaterThan(0);
  expect(said.join('').length).toBeLessThanOrEqual(256 << 10);
  expect(found[said.length]).toBe(
    `and ${20 - said.length} more, counted in each version, that are not listed: an answer holds 200 findings and 256 Ki characters of them`,
  );
});

it.each(['PROVEN', 'STRICT'] as const)('a refusal bounds a single text of %s that is too long', (policy) => {
  const long = `f${'x'.repeat(300_000)}`;
  const one = JSON.stringify({ type: 'record', name: 'R', fields: [{ name: long, type: 'int' }] });
  const found = messages('AVRO', one, [record('int')], 'BACKWARD', policy);
  expect(found[0]?.length).toBe((256 << 10) + 3);
  expect(found.at(-1)).toMatch(/^\{validateFields/);
});

it('an accepted schema lists its losses before the notes, up to the bound', () => {
  const fields = (type: string): string =>
    proto(
      indexes(90)
        .map((i) => `${type} f${i} = ${i + 1};`)
        .join(' '),
    );
  const olds = indexes(30).map((i) => `${fields('int64')} message N${i} {}`);
  const all = olds.map((_, i) => `message N${i} {}`).join(' ');
  const found = messages('PROTOBUF', `${fields('int32')} ${all}`, olds, 'BACKWARD_TRANSITIVE');
  expect(found).toHaveLength(201);
  expect(found[0]).toMatch(/^lossy: /);
  expect(found.at(-1)).toMatch(/^and \d+ more, /);
});
