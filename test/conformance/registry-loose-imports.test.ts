/** Protobuf texts that STRICT accepts like the existing registries: imports that only options use
 *  need no reference, and well-known types need no import. The type of every field is still
 *  resolved. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseSchema, schemaText } from '../../src/formats/schema.ts';
import { Conformance } from './registry-http-kit.ts';

const proto = (...lines: readonly string[]): string => ['syntax = "proto3";', '', ...lines, ''].join('\n');
const one = (field: string): string => proto('message M {', `  ${field}`, '}');
const importing = (path: string, ...lines: readonly string[]): string =>
  proto(`import "${path}";`, '', ...lines);

const ACCEPTED: ReadonlyArray<readonly [title: string, text: string]> = [
  [
    'google/api/annotations for the path of an rpc',
    importing(
      'google/api/annotations.proto',
      'message M {',
      '  string id = 1;',
      '}',
      '',
      'service S {',
      '  rpc Get (M) returns (M) {',
      '    option (google.api.http) = {',
      '      get: "/v1/m"',
      '    };',
      '  };',
      '}',
    ),
  ],
  [
    'google/api/field_behavior on a field',
    importing(
      'google/api/field_behavior.proto',
      'message M {',
      '  string id = 1 [(google.api.field_behavior) = REQUIRED];',
      '}',
    ),
  ],
  [
    'google/api/resource on a message',
    importing(
      'google/api/resource.proto',
      'message M {',
      '  option (google.api.resource) = {',
      '    type: "example.com/M"',
      '  };',
      '',
      '  string id = 1;',
      '}',
    ),
  ],
  [
    'google/api/client on a service',
    importing(
      'google/api/client.proto',
      'message M {}',
      '',
      'service S {',
      '  option (google.api.default_host) = "example.com";',
      '',
      '  rpc Get (M) returns (M);',
      '}',
    ),
  ],
  [
    'buf/validate/validate with a part of a rule',
    importing(
      'buf/validate/validate.proto',
      'message M {',
      '  string id = 1 [(buf.validate.field).string.min_len = 1];',
      '}',
    ),
  ],
  [
    'buf/validate/validate with a whole rule',
    importing(
      'buf/validate/validate.proto',
      'message M {',
      '  string id = 1 [(buf.validate.field) = {',
      '    required: true',
      '  }];',
      '}',
    ),
  ],
  [
    'validate/validate',
    importing(
      'validate/validate.proto',
      'message M {',
      '  int32 n = 1 [(validate.rules).int32.gt = 0];',
      '}',
    ),
  ],
  [
    'gogoproto/gogo on a field',
    importing('gogoproto/gogo.proto', 'message M {', '  bytes b = 1 [(gogoproto.nullable) = false];', '}'),
  ],
  [
    'gogoproto/gogo on a file',
    importing('gogoproto/gogo.proto', 'option (gogoproto.marshaler_all) = true;', '', 'message M {}'),
  ],
  [
    'protoc-gen-openapiv2 on a file',
    importing(
      'protoc-gen-openapiv2/options/annotations.proto',
      'option (grpc.gateway.protoc_gen_openapiv2.options.openapiv2_swagger) = {',
      '  swagger: "2.0"',
      '};',
      '',
      'message M {}',
    ),
  ],
  [
    'a file of the company on an enum value',
    importing('company/options.proto', 'enum E {', '  ZERO = 0 [(company.label) = "none"];', '}'),
  ],
  ['a file that nothing uses', importing('company/unused.proto', 'message M {}')],
  [
    'two files that only options use',
    proto('import "gogoproto/gogo.proto";', 'import "validate/validate.proto";', '', 'message M {}'),
  ],
  ['a public import that nothing uses', proto('import public "company/unused.proto";', '', 'message M {}')],
  ['an option that nothing defines', one('string id = 1 [(company.pii) = true];')],
  ['google.protobuf.Timestamp without its import', one('google.protobuf.Timestamp at = 1;')],
  ['google.protobuf.Duration by its full name', one('.google.protobuf.Duration d = 1;')],
  ['google.protobuf.StringValue without its import', one('google.protobuf.StringValue s = 1;')],
  ['google.protobuf.Any in a list', one('repeated google.protobuf.Any s = 1;')],
  ['google.protobuf.Struct in a map', one('map<string, google.protobuf.Struct> s = 1;')],
  ['google.type.Money without its import', one('google.type.Money m = 1;')],
  ['google.type.DayOfWeek, an enum', one('google.type.DayOfWeek d = 1;')],
  ['confluent.type.Decimal without its import', one('confluent.type.Decimal d = 1;')],
  [
    'google.protobuf.Empty as the input of an rpc',
    proto('message M {}', '', 'service S {', '  rpc Get (google.protobuf.Empty) returns (M);', '}'),
  ],
];

const REFUSED: ReadonlyArray<readonly [title: string, text: string]> = [
  [
    'a field of a type that a missing import would define',
    importing('company/order.proto', 'message M {', '  company.Order o = 1;', '}'),
  ],
  ['a field of a type that nothing defines', one('Nothing n = 1;')],
  ['a well-known name that no file has', one('google.protobuf.Nothing n = 1;')],
  [
    'an rpc of a type that nothing defines',
    proto('message M {}', '', 'service S {', '  rpc Get (Nothing) returns (M);', '}'),
  ],
  ['a known option with a value of another type', one('string id = 1 [deprecated = 7];')],
  ['an option without parentheses that does not exist', one('string id = 1 [pii = true];')],
];

let api: Conformance;
beforeAll(async () => {
  api = await Conformance.start();
});
afterAll(() => api.close());

let subjects = 0;
const answered = async (schema: string, verdictPolicy: string, more: object = {}) => {
  const subject = `s-${++subjects}`;
  await api.call('PUT', `/config/${subject}`, { body: { verdictPolicy } });
  const body = { schema, schemaType: 'PROTOBUF', ...more };
  const registered = await api.call('POST', `/subjects/${subject}/versions`, { body });
  const checked = await api.call('POST', `/compatibility/subjects/${subject}/versions`, { body });
  return { subject, registered, checked };
};

describe('accepted under STRICT', () => {
  it.each(ACCEPTED)('STRICT accepts a Protobuf text with %s', async (_title, schema) => {
    const { subject, registered, checked } = await answered(schema, 'STRICT');
    expect(registered.status, registered.text).toBe(200);
    expect(checked.body).toEqual({ is_compatible: true });
    const { body } = await api.call('GET', `/subjects/${subject}/versions/1`);
    expect((body as { schema: string }).schema).toBe(schema);
  });

  it.each(ACCEPTED)(
    'the descriptor of a text with %s contains all resolved types',
    async (_title, schema) => {
      const stored = parseSchema('PROTOBUF', schema, { lenient: true });
      const serialized = schemaText(stored, 'serialized');
      expect(() => parseSchema('PROTOBUF', serialized)).not.toThrow();
    },
  );

  it('a text that refers to a loosely imported text is accepted', async () => {
    const base = importing(
      'google/api/field_behavior.proto',
      'package base;',
      'message Base { string id = 1 [(google.api.field_behavior) = REQUIRED]; google.protobuf.Timestamp at = 2; }',
    );
    const { subject } = await answered(base, 'STRICT');
    const schema = importing('base.proto', 'message M { base.Base b = 1; }');
    const references = [{ name: 'base.proto', subject, version: 1 }];
    for (const policy of ['STRICT', 'PROVEN']) {
      const { registered } = await answered(schema, policy, { references });
      expect(registered.status, registered.text).toBe(200);
    }
  });
});

describe('refused under PROVEN', () => {
  it.each(ACCEPTED)('PROVEN refuses a new Protobuf text with %s', async (_title, schema) => {
    const fresh = schema.replaceAll(/\bM\b/g, 'N').replaceAll(/\bE\b/g, 'F');
    const { registered } = await answered(fresh, 'PROVEN');
    expect(registered.body).toMatchObject({ error_code: 42201 });
  });
});

describe('refused under every policy', () => {
  it.each(REFUSED)('every policy refuses a Protobuf text with %s', async (_title, schema) => {
    for (const policy of ['STRICT', 'PROVEN'])
      expect((await answered(schema, policy)).registered.body).toMatchObject({ error_code: 42201 });
  });
});
