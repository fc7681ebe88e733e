/** Imports, references and names of Protobuf schemas, and records that use them. */
import { describe, expect, it } from 'vitest';
import type { ResolvedReference } from '../../../../src/formats/content.ts';
import { Payloads } from '../../../../src/formats/payloads.ts';
import { KNOWN_PROTO_PATHS } from '../../../../src/formats/protobuf/known/files.ts';
import { parseSchema, type Schema, schemaText } from '../../../../src/formats/schema.ts';
import { checkPair } from '../../../../src/registry/compatibility/modes.ts';
import { readerCodec } from '../../../../src/registry/proof/reader.ts';
import { writerCodec } from '../../../../src/serde/codec.ts';

const reference = (
  name: string,
  text: string,
  references: readonly ResolvedReference[] = [],
): ResolvedReference => ({
  name,
  subject: name,
  version: 1,
  format: 'PROTOBUF',
  text: `syntax = "proto3"; ${text}`,
  references,
});
const proto = (text: string, references: readonly ResolvedReference[] = [], lenient = false): Schema =>
  parseSchema('PROTOBUF', `syntax = "proto3"; ${text}`, { references, lenient });
const refusal = (work: () => unknown): string => {
  try {
    work();
    return 'accepted';
  } catch (thrown) {
    const { code, message } = thrown as { code?: string; message: string };
    return `${code}: ${message}`;
  }
};
const D = reference('d.proto', 'package d; message D { int32 x = 1; } enum E { Z = 0; ONE = 1; }');
const B = reference('b.proto', 'package b; import public "d.proto"; message B { d.D d = 1; }', [D]);
const C = reference('c.proto', 'package c; import "d.proto"; message C { d.D d = 1; }', [D]);

describe('imports', () => {
  it('imports are found among the references, and public imports through others', () => {
    expect(refusal(() => proto('import "b.proto"; message M { b.B b = 1; d.D d = 2; }', [B]))).toBe(
      'accepted',
    );
    expect(refusal(() => proto('import "c.proto"; message M { c.C c = 1; d.D d = 2; }', [C]))).toMatch(
      /^invalid_schema: .*the type "d\.D" is not defined; it is in "d\.proto", which is not imported at 1:\d+/,
    );
    expect(refusal(() => proto('import "e.proto"; message M {}', [B]))).toMatch(
      /the import "e\.proto" is in no reference at 1:20/,
    );
  });

  it('imports are found where a client lists all references at the schema itself', () => {
    const flat = reference('b.proto', 'package b; import public "d.proto"; message B { d.D d = 1; }');
    expect(refusal(() => proto('import "b.proto"; message M { b.B b = 1; d.E e = 2; }', [flat, D]))).toBe(
      'accepted',
    );
  });

  it('imports that every Protobuf installation contains need no reference', () => {
    for (const path of KNOWN_PROTO_PATHS)
      expect(refusal(() => proto(`import "${path}"; message M {}`))).toBe('accepted');
    expect(KNOWN_PROTO_PATHS).toEqual(
      expect.arrayContaining([
        'google/protobuf/any.proto',
        'google/protobuf/descriptor.proto',
        'google/protobuf/timestamp.proto',
        'google/type/money.proto',
        'confluent/meta.proto',
        'confluent/type/decimal.proto',
      ]),
    );
  });

  it('imports prefer the nearer of two files with one path', () => {
    const newer = reference(
      'd.proto',
      'package d; message D { int32 x = 1; int32 y = 2; } enum E { Z = 0; }',
    );
    const schema = proto('import "b.proto"; import "d.proto"; message M { b.B b = 1; }', [B, newer]);
    const fields =
      schema.format === 'PROTOBUF'
        ? schema.tree.messages[0]?.fields[0]?.message?.fields[0]?.message?.fields
        : [];
    expect(fields?.map(({ name }) => name)).toEqual(['x', 'y']);
  });

  it('cyclic imports, duplicate references, other formats and duplicate types are refused', () => {
    const a = reference('a.proto', 'package a; import "b2.proto"; message A {}', [
      reference('b2.proto', 'import "a.proto"; message B {}'),
    ]);
    expect(refusal(() => proto('import "a.proto"; message M {}', [a]))).toMatch(
      /the imports are a circle: a\.proto imports b2\.proto imports a\.proto .*in the reference "b2\.proto"/,
    );
    const self = reference('s.proto', 'import "s.proto"; message S {}');
    expect(refusal(() => proto('import "s.proto"; message M {}', [self]))).toMatch(
      /the imports are a circle/,
    );
    const other = { ...D, version: 2, text: 'syntax = "proto3"; message Other {}' };
    expect(refusal(() => proto('import "d.proto"; message M {}', [D, other]))).toMatch(
      /two references are named "d\.proto"/,
    );
    const avro = { ...D, format: 'AVRO' as const, text: '"string"' };
    expect(refusal(() => proto('import "d.proto"; message M {}', [avro]))).toMatch(
      /is a schema of type AVRO/,
    );
    expect(refusal(() => proto('package d; import "d.proto"; message D {}', [D]))).toMatch(
      /d\.D is defined in d\.proto and again/,
    );
  });

  it('an error in an import names the reference', () => {
    const broken = reference('x.proto', 'message X { Missing m = 1; }');
    expect(refusal(() => proto('import "x.proto"; message M {}', [broken]))).toMatch(
      /"Missing" is not defined at 1:\d+ in the reference "x\.proto"/,
    );
  });

  it('a lenient reader omits imports that it does not find', () => {
    const schema = proto('import "gone.proto"; message M { gone.T t = 1; int32 a = 2; }', [], true);
    expect(schema.format === 'PROTOBUF' && schema.tree.messages[0]?.fields.map(({ name }) => name)).toEqual([
      't',
      'a',
    ]);
    expect(
      checkPair(schema, proto('import "gone.proto"; message M { gone.T t = 1; }', [], true)).some(
        ({ severity }) => severity === 'unjudged',
      ),
    ).toBe(true);
    expect(schemaText(schema, 'serialized')).toMatch(/^[A-Za-z0-9+/]+=*$/);
  });
});

describe('records with imported types', () => {
  const text =
    'import "b.proto"; import "google/protobuf/timestamp.proto"; message M { b.B b = 1; repeated d.E e = 2; map<string, d.D> m = 3; google.protobuf.Timestamp at = 4; message N { M m = 1; } }';
  const value = { b: { d: { x: 7 } }, e: ['ONE', 'Z'], m: { k: { x: -1 } }, at: { seconds: 5n, nanos: 6 } };

  it.each([
    ['as text', (): Schema => proto(text, [B])],
    [
      'as a descriptor',
      (): Schema => parseSchema('PROTOBUF', schemaText(proto(text, [B]), 'serialized'), { references: [B] }),
    ],
  ])('records with imported types are encoded and decoded, %s', (_how, make) => {
    const schema = make();
    const payloads = new Payloads(1, 16);
    writerCodec(schema, 'M').encode(value, payloads);
    const bytes = Buffer.from(payloads.bytes.subarray(0, payloads.used));
    expect(readerCodec(proto(text, [B]), schema, [0])(bytes, 0, bytes.length)).toEqual(value);
  });

  it('message indexes count only messages of the schema itself', () => {
    const schema = proto(text, [B]);
    expect(
      schema.format === 'PROTOBUF' && schema.tree.messages.map(({ name, path }) => [name, path]),
    ).toEqual([
      ['M', [0]],
      ['M.N', [0, 0]],
    ]);
    expect(Array.from(writerCodec(schema, 'M.N').messageIndexes ?? [])).toEqual([0, 0]);
  });

  it('a change in an imported file is checked in the importing schema', () => {
    const other = reference('d.proto', 'package d; message D { string x = 1; } enum E { Z = 0; ONE = 1; }');
    const changed = proto(text, [{ ...B, references: [other] }]);
    expect(checkPair(changed, proto(text, [B])).map(({ rule, path }) => [rule, path])).toContainEqual([
      'PROTO_TYPE_CHANGED',
      'M.b.d.x',
    ]);
    expect(checkPair(proto(text, [B]), proto(text, [B]))).toEqual([]);
  });

  it('records of proto2 and of an edition keep presence, packing and group tags', () => {
    const old = parseSchema(
      'PROTOBUF',
      'message M { required int32 a = 1; repeated int32 r = 2; repeated int32 p = 3 [packed = true]; optional group G = 4 { optional string s = 1; } optional E e = 5; enum E { ONE = 1; TWO = 2; } }',
    );
    const edition = parseSchema(
      'PROTOBUF',
      'edition = "2023"; message M { int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; repeated int32 r = 2 [features.repeated_field_encoding = EXPANDED]; repeated int32 p = 3; G g = 4 [features.message_encoding = DELIMITED]; message G { string s = 1; } E e = 5; enum E { option features.enum_type = CLOSED; ONE = 1; TWO = 2; } }',
    );
    const row = { a: 1, r: [1, 2], p: [3, 4], g: { s: 'x' }, e: 'TWO' };
    const encode = (schema: Schema): string => {
      const payloads = new Payloads(1, 16);
      writerCodec(schema, 'M').encode(row, payloads);
      return payloads.bytes.subarray(0, payloads.used).toString('hex');
    };
    expect(encode(old)).toBe('0801' + '10011002' + '1a020304' + '230a017824' + '2802');
    expect(encode(edition)).toBe(encode(old));
    expect(refusal(() => writerCodec(edition, 'M').encode({}, new Payloads(1, 16)))).toMatch(/value_refused/);
  });
});

it('a file that only re-exports others is a schema, and its types are used through it', () => {
  const all = reference('all.proto', 'import public "d.proto";', [D]);
  expect(proto('import public "d.proto";', [D]).text).toContain('import public "d.proto";');
  expect(refusal(() => proto('import "d.proto";', [D]))).toMatch(/declares no message/);
  const writer = proto('import "all.proto"; message M { d.D d = 1; }', [all]);
  const payloads = new Payloads(1, 16);
  writerCodec(writer).encode({ d: {} }, payloads);
  const bytes = Buffer.from(payloads.bytes.subarray(0, payloads.used));
  expect(Object.keys(readerCodec(writer, writer, [0])(bytes, 0, bytes.length) as object)).toEqual(['d']);
});
