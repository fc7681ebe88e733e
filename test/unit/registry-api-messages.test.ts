/** What a refusal says, and in which order. */
import { expect, it } from 'vitest';
import { messagesOf } from '../../src/registry/api/messages.ts';
import { judge, type Level, parseSchema } from '../../src/registry/index.ts';
import type { StoredVersion } from '../../src/registry/store/service.ts';

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

it('tells what holds in every mode before the versions', () => {
  const [one, two] = [proto('int32 a = 1; int32 b = 2;'), proto('int32 b = 2;')];
  const found = messages('PROTOBUF', proto('int32 a = 1; string b = 2;'), [one, two], 'BACKWARD_TRANSITIVE');
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

it('names the label of a Protobuf field by its type, and the place without its package', () => {
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

it('says once that the schema type differs, in the words clients know', () => {
  const old = record('int');
  expect(messages('PROTOBUF', proto(''), [old], 'FULL')).toEqual([
    'Incompatible because of different schema type',
    '{oldSchemaVersion: 1}',
    `{oldSchema: '${old}'}`,
    "{validateFields: 'false', compatibility: 'FULL'}",
  ]);
});

it('calls a branch missing where it is, and says what no reader but a union can take', () => {
  expect(messages('AVRO', record(['null', 'int']), [record(['null', 'int', 'string'])])[0]).toMatch(
    /^\{errorType:'MISSING_UNION_BRANCH', .* the reader's union has no branch for string at R\.u /,
  );
  expect(messages('AVRO', record('string'), [record(['null', 'string'])])[0]).toMatch(
    /^\{errorType:'TYPE_MISMATCH', .* cannot read null, which is a branch of the writer's union at R\.u /,
  );
});
