import { describe, expect, it } from 'vitest';
import { parseSchema } from '../../../src/formats/schema.ts';

const refusal = (format: 'AVRO' | 'PROTOBUF', text: string): string => {
  try {
    parseSchema(format, text);
    return 'accepted';
  } catch (thrown) {
    const { code, message } = thrown as { code?: string; message: string };
    return `${code}: ${message}`;
  }
};
const avro = (schema: unknown): string => JSON.stringify(schema);
const record = (...fields: readonly unknown[]): unknown => ({ type: 'record', name: 'R', fields });

describe('Avro schemas', () => {
  it.each<readonly [string, string, RegExp]>([
    ['a text that is not JSON', '{', /is not JSON/],
    ['an unknown type', avro('strin'), /names the type "strin"/],
    ['a record without fields', avro({ type: 'record', name: 'R' }), /has no list of fields/],
    ['a record without a name', avro({ type: 'record', fields: [] }), /has no name/],
    ['a bad name', avro({ type: 'record', name: '1R', fields: [] }), /is not an Avro name/],
    ['a bad field name', avro(record({ name: 'a-b', type: 'int' })), /field R\.a-b is not an Avro name/],
    ['__proto__ as a field', avro(record({ name: '__proto__', type: 'int' })), /JavaScript/],
    ['a field twice', avro(record({ name: 'a', type: 'int' }, { name: 'a', type: 'int' })), /stands twice/],
    ['a field without a type', avro(record({ name: 'a' })), /field R\.a has no type/],
    [
      'a name defined twice',
      avro(record({ name: 'a', type: { type: 'fixed', name: 'R', size: 2 } })),
      /R is defined twice/,
    ],
    ['an enum without symbols', avro({ type: 'enum', name: 'E', symbols: [] }), /without symbols/],
    ['an enum symbol twice', avro({ type: 'enum', name: 'E', symbols: ['A', 'A'] }), /a name twice/],
    [
      'an enum default that is no symbol',
      avro({ type: 'enum', name: 'E', symbols: ['A'], default: 'B' }),
      /none of its symbols/,
    ],
    ['a fixed of no size', avro({ type: 'fixed', name: 'F', size: 0 }), /size 0/],
    ['an array without items', avro({ type: 'array' }), /without items/],
    ['a union in a union', avro(['null', ['int']]), /union directly inside/],
    ['a union with a type twice', avro(['int', 'int']), /int twice/],
    [
      'a default of another type',
      avro(record({ name: 'a', type: 'int', default: 'x' })),
      /field R\.a has a default that does not fit/,
    ],
    ['a default beyond int', avro(record({ name: 'a', type: 'int', default: 2 ** 31 })), /is not an int/],
    [
      'a default of a later branch that is a record and lacks a field',
      avro(
        record({
          name: 'a',
          type: ['null', { type: 'record', name: 'B', fields: [{ name: 'b', type: 'int' }] }],
          default: { b: 'x' },
        }),
      ),
      /"x" is not an int/,
    ],
    [
      'a default of no branch',
      avro(record({ name: 'a', type: ['null', 'int'], default: 'x' })),
      /default that does not fit its type: "x" is not of a branch of its union \(null, int\)/,
    ],
    ['a number as a schema', '5', /not a type/],
    ['a hostile depth', `${'{"type":"array","items":'.repeat(100)}"int"${'}'.repeat(100)}`, /nested deeper/],
  ])('the Avro parser refuses %s', (_what, text, why) => {
    expect(refusal('AVRO', text)).toMatch(/^invalid_schema: /);
    expect(refusal('AVRO', text)).toMatch(why);
  });

  it('the Avro parser checks a default inside many unions once for each value', () => {
    // Each level doubles the ways to the innermost value, so a walk over all of them would not end.
    const levels = 60;
    const branches = Array.from({ length: levels }, (_, i) => {
      const type = i === levels - 1 ? ['null', 'int'] : ['null', `A${i + 1}`, `B${i + 1}`];
      return ['A', 'B'].map((kind) => ({
        type: 'record',
        name: `${kind}${i}`,
        fields: [{ name: 'f', type }],
      }));
    }).reverse();
    const value = Array.from({ length: levels }).reduce<unknown>((inner) => ({ f: inner }), 'x');
    const fields = branches.flat().map((type, i) => ({ name: `t${i}`, type }));
    const last = { name: 'd', type: ['null', 'A0', 'B0'], default: value };
    const why = refusal('AVRO', avro({ type: 'record', name: 'R', fields: [...fields, last] }));
    expect(why).toMatch(/R\.d has a default that does not fit its type: "x" is not/);
  });

  it('the Avro parser refuses a text beyond the limit before it parses the text', () => {
    expect(refusal('AVRO', `"${'x'.repeat(600_000)}"`)).toMatch(/^schema_too_large/);
  });

  it('the Avro parser stores one line with ordered keys, documentation and properties', () => {
    const text = parseSchema(
      'AVRO',
      avro({
        fields: [
          { default: null, type: ['null', { type: 'string' }], doc: 'd', order: 'ascending', name: 'a' },
        ],
        owner: 'x',
        aliases: ['Old'],
        namespace: 'n',
        doc: 'D',
        name: 'R',
        type: 'record',
      }),
    ).text;
    expect(text).toBe(
      '{"type":"record","name":"R","namespace":"n","doc":"D","fields":[{"name":"a","type":["null","string"],"doc":"d","default":null}],"owner":"x","aliases":["Old"]}',
    );
  });

  it('schemas differ by documentation, but not by white space, key order or a repeated namespace', () => {
    const one = parseSchema(
      'AVRO',
      '{"type":"record","name":"n.R","fields":[{"name":"a","type":{"type":"enum","name":"E","namespace":"n","symbols":["A"]}}]}',
    );
    const same = parseSchema(
      'AVRO',
      '{ "name": "R", "namespace": "n", "fields": [ {"type": {"name":"E","symbols":["A"],"type":"enum"}, "name":"a"} ], "type":"record" }',
    );
    const other = parseSchema('AVRO', one.text.replace('"fields"', '"doc":"x","fields"'));
    expect(same.identity).toBe(one.identity);
    expect(other.identity).not.toBe(one.identity);
    expect(parseSchema('AVRO', one.text).text).toBe(one.text);
  });

  it('the Avro parser accepts a recursive schema', () => {
    expect(refusal('AVRO', avro(record({ name: 'next', type: ['null', 'R'], default: null })))).toBe(
      'accepted',
    );
  });
});

describe('Protobuf schemas', () => {
  const message = (body: string): string => `syntax = "proto3"; message M { ${body} }`;
  it.each<readonly [string, string, RegExp]>([
    ['an unfinished message', 'syntax = "proto3"; message M {', /illegal|invalid/],
    ['a character that begins nothing', message('int32 a = 1; §'), /unexpected "§" in line 1/],
    ['an unknown type', message('Missing a = 1;'), /Missing/],
    ['a number twice', message('int32 a = 1; int32 b = 1;'), /duplicate id|number 1/],
    ['a reserved number', message('reserved 1; int32 a = 1;'), /reserved/],
    ['number 0', message('int32 a = 0;'), /numbers are 1 to/],
    ["a number of Protobuf's own", message('int32 a = 19500;'), /keeps for itself/],
    [
      'an import',
      `syntax = "proto3"; import "x.proto"; message M { int32 a = 1; }`,
      /import "x\.proto" is in no reference at 1:20/,
    ],
    ['a file without a message', 'syntax = "proto3";', /declares no message/],
    ['an edition', 'edition = "2099"; message M { int32 a = 1; }', /edition "2099" is not supported/],
    ['__proto__ as a field', message('int32 __proto__ = 1;'), /JavaScript/],
    [
      'a hostile depth',
      `syntax = "proto3"; ${'message M { '.repeat(100)}${'}'.repeat(100)}`,
      /nested deeper/,
    ],
  ])('the Protobuf parser refuses %s', (_what, text, why) => {
    expect(refusal('PROTOBUF', text)).toMatch(/^invalid_schema: /);
    expect(refusal('PROTOBUF', text)).toMatch(why);
  });

  it('the Protobuf parser stores the same text for every layout and comment, and parses it again', () => {
    const one = parseSchema(
      'PROTOBUF',
      'syntax="proto3";package a.b;/* c */message M{optional int64 n=2[deprecated=true];map<string,int32>m=3;oneof q{bool x=4;}reserved 9 to 12;}',
    );
    const same = parseSchema(
      'PROTOBUF',
      `// head\nsyntax = "proto3";\n\npackage a.b;\nmessage M {\n optional int64 n = 2 [deprecated = true]; // n\n map < string, int32 > m = 3;\n oneof q { bool x = 4; }\n reserved 9 to 12;\n}\n`,
    );
    expect(same.text).toBe(one.text);
    expect(parseSchema('PROTOBUF', one.text).text).toBe(one.text);
    expect(one.text).toContain('  optional int64 n = 2 [deprecated = true];\n');
  });

  it('messages are numbered as on the wire: without enums, outer messages before inner ones', () => {
    const schema = parseSchema(
      'PROTOBUF',
      'syntax = "proto3"; enum E { Z = 0; } message A { message B { int32 x = 1; } enum F { Y = 0; } message C { B b = 1; } } message D { A.C c = 1; }',
    );
    const paths =
      schema.format === 'PROTOBUF' ? schema.tree.messages.map(({ name, path }) => [name, path.join()]) : [];
    expect(paths).toEqual([
      ['A', '0'],
      ['A.B', '0,0'],
      ['A.C', '0,1'],
      ['D', '1'],
    ]);
  });
});
