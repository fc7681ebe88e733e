/** Forms of a Protobuf schema's text: stored, normalized, without extensions, and as a
 *  descriptor. */
import { describe, expect, it } from 'vitest';
import type { ResolvedReference } from '../../../../src/formats/content.ts';
import { readFields } from '../../../../src/formats/protobuf/descriptor/bytes.ts';
import { lookupTextOf, parseSchema, type Schema, schemaText } from '../../../../src/formats/schema.ts';

const parse = (text: string, references: readonly ResolvedReference[] = [], normalize = false): Schema =>
  parseSchema('PROTOBUF', text, { references, normalize });
const reference = (name: string, text: string, references: ResolvedReference[] = []): ResolvedReference => ({
  name,
  subject: name,
  version: 1,
  format: 'PROTOBUF',
  text,
  references,
});
const COMMON = reference(
  'common.proto',
  'syntax = "proto3"; package c; message Money { int64 units = 1; } enum Unit { NONE = 0; }',
);

describe('stored Protobuf text', () => {
  it('the stored text has one order of sections, separated by blank lines and indented by block', () => {
    const { text } = parse(
      `syntax = "proto3"; package a.b;
       service S { rpc R (M) returns (stream M); rpc T (stream M) returns (M) { option deprecated = true; } option deprecated = true; }
       enum Top { ZERO = 0; reserved 5; option deprecated = true; reserved "X"; }
       message M { enum E { Z = 0; } message N { int32 z = 1; reserved 2; } int32 a = 1 [json_name = "x", deprecated = true];
         oneof q { string s = 3; option (o) = "t"; } reserved 90 to max, 70; option deprecated = true; map < string , N > m = 2; }
       import public "common.proto"; import "opt.proto"; option java_package = 'p'; message Last {}`,
      [
        COMMON,
        reference(
          'opt.proto',
          'syntax = "proto3"; import "google/protobuf/descriptor.proto"; extend google.protobuf.OneofOptions { string o = 50000; }',
        ),
      ],
    );
    expect(text).toBe(`syntax = "proto3";
package a.b;

import "opt.proto";
import public "common.proto";

option java_package = "p";

message M {
  reserved 90 to max, 70;

  option deprecated = true;

  int32 a = 1 [
    deprecated = true,
    json_name = "x"
  ];
  map<string, N> m = 2;

  oneof q {
    option (o) = "t";
  
    string s = 3;
  }

  message N {
    reserved 2;
  
    int32 z = 1;
  }
  enum E {
    Z = 0;
  }
}
message Last {}
enum Top {
  reserved 5;
  reserved "X";
  option deprecated = true;
  ZERO = 0;
}

service S {
  option deprecated = true;

  rpc R (M) returns (stream M);
  rpc T (stream M) returns (M) {
    option deprecated = true;
  };
}
`);
  });

  it('the stored text begins with a blank line where neither syntax nor package is stated', () => {
    expect(parse('message M {}').text).toBe('\nmessage M {}\n');
  });

  it('the stored text keeps weak imports, range options and group bodies, which older printers lose', () => {
    const { text } = parse(
      `syntax = "proto2"; import weak "common.proto"; message M { extensions 100 to 200 [verification = UNVERIFIED]; optional group G = 1 [deprecated = true] { message In {} optional In i = 1; extensions 5; } optional bytes b = 2 [default = "\\377"]; }`,
      [COMMON],
    );
    expect(text).toContain('import weak "common.proto";\n');
    expect(text).toContain('extensions 100 to 200 [verification = UNVERIFIED];\n');
    expect(text).toContain(
      'optional group G = 1 [deprecated = true] {\n    optional In i = 1;\n  \n    extensions 5;\n  \n    message In {}\n  }\n',
    );
    expect(text).toContain('optional bytes b = 2 [default = "\\377"];\n');
  });

  it('the stored text never moves a message past another or past a group', () => {
    const schema = parse(
      'syntax = "proto2"; message M { message A {} optional group G = 1 {} message B {} repeated int32 x = 2; }',
    );
    const names = (one: Schema): string[] =>
      one.format === 'PROTOBUF' ? one.tree.messages.map(({ name }) => name) : [];
    expect(names(schema)).toEqual(['M', 'M.A', 'M.G', 'M.B']);
    expect(names(parse(schema.text))).toEqual(names(schema));
    expect(names(parse(schema.text, [], true))).toEqual(names(schema));
    expect(parse(schema.text).text).toBe(schema.text);
  });

  it('the stored text escapes strings and joins adjacent ones', () => {
    const { text } = parse(
      `syntax = "proto3"; option java_package = 'a"b' "\\n\\x41\\u00fc\\001"; message M {}`,
    );
    expect(text).toContain('option java_package = "a\\"b\\nAü\\001";\n');
  });
});

describe('normalized Protobuf text', () => {
  it('the normalized text is sorted, split and fully qualified', () => {
    const { text } = parse(
      `syntax = "proto2"; package p; import "z.proto"; import "common.proto"; import "z.proto"; option ruby_package = "r"; option java_package = "j";
       message M { reserved 9, 5 to 5, 1 to 3; reserved "b", "a"; optional N n = 20; repeated c.Money c = 10; map<int32, N> m = 15; oneof q { M y = 31; p.M x = 30; } oneof early { int32 e = 29; }
         extensions 200, 100 to 150; message N { enum E { B = 2; A = 1; } optional E e = 1 [deprecated = true, default = A]; } }
       message A {} extend M { optional N2 second = 200; } message N2 {} extend p.M { optional int32 first = 100; }
       service S { rpc R (M) returns (c.Money); }`,
      [COMMON, reference('z.proto', 'syntax = "proto3"; message Z {}')],
      true,
    );
    expect(text).toBe(`package p;

import "common.proto";
import "z.proto";

option java_package = "j";
option ruby_package = "r";

message M {
  reserved 1 to 3;
  reserved 5;
  reserved 9;
  reserved "a";
  reserved "b";

  repeated .c.Money c = 10;
  map<int32, .p.M.N> m = 15;
  optional .p.M.N n = 20;

  oneof early {
    int32 e = 29;
  }
  oneof q {
    .p.M x = 30;
    .p.M y = 31;
  }

  extensions 100 to 150;
  extensions 200;

  message N {
    optional .p.M.N.E e = 1 [
      default = A,
      deprecated = true
    ];
  
    enum E {
      A = 1;
      B = 2;
    }
  }
}
message A {}
message N2 {}

extend .p.M {
  optional int32 first = 100;
  optional .p.N2 second = 200;
}

service S {
  rpc R (.p.M) returns (.c.Money);
}
`);
  });

  it('the normalized text writes custom options by full name and as one value', () => {
    const options = reference(
      'o.proto',
      'syntax = "proto3"; package o; import "google/protobuf/descriptor.proto"; message V { int32 a = 1; repeated int32 r = 2; V v = 3; } extend google.protobuf.MessageOptions { V v = 50000; repeated string s = 50001; }',
    );
    const text = (body: string): string =>
      parse(`syntax = "proto3"; package p; import "o.proto"; message M { ${body} }`, [options], true).text;
    const split = text(
      'option (o.s) = "x"; option (o.v).v.r = 0x10; option (.o.v).a = 1; option (o.s) = "y"; option (o.v).v.a = 2;',
    );
    expect(split).toBe(
      text('option (o.v) = { v { a: 2 r: [16] } a: 1 }; option (o.s) = "x"; option (o.s) = "y";'),
    );
    expect(split).toContain(
      '  option (o.s) = "x";\n  option (o.s) = "y";\n  option (o.v) = {\n    a: 1,\n    v: {\n      a: 2,\n      r: 16\n    }\n  };\n',
    );
  });

  it('the normalized text keeps zero first in an open enum', () => {
    const { text } = parse('syntax = "proto3"; enum E { Z = 0; B = 2; NEG = -1; }', [], true);
    expect(text).toContain('  Z = 0;\n  NEG = -1;\n  B = 2;\n');
    expect(parse(text, [], true).text).toBe(text);
  });

  it('the normalized text is the same for a file and its descriptor', () => {
    const source =
      'syntax = "proto3"; package p; import "common.proto"; message M { map<string, c.Money> m = 2; c.Unit u = 1; optional int32 o = 3; }';
    const serialized = schemaText(parse(source, [COMMON]), 'serialized');
    const again = parse(serialized, [COMMON], true);
    expect(again.text).toContain('[json_name = "u"]');
    expect(lookupTextOf(again)).toBe(parse(source, [COMMON], true).text);
  });
});

describe('other text forms', () => {
  const source = `syntax = "proto2"; package p; import "google/protobuf/descriptor.proto"; import "confluent/meta.proto";
    message M { extensions 100 to 200; optional int32 a = 1 [(confluent.field_meta) = { doc: "d" }, (mine) = 5, deprecated = true]; option (mo) = "x"; }
    extend google.protobuf.FieldOptions { optional int32 mine = 50000; } extend google.protobuf.MessageOptions { optional string mo = 50000; } extend M { optional int32 e = 100; }`;

  it('the form without extensions keeps the metadata of registries', () => {
    expect(schemaText(parse(source), 'ignore_extensions')).toBe(`syntax = "proto2";
package p;

import "google/protobuf/descriptor.proto";
import "confluent/meta.proto";

message M {
  optional int32 a = 1 [
    (confluent.field_meta) = {
      doc: "d"
    },
    deprecated = true
  ];
}
`);
  });

  it('the serialized form is base64 of a descriptor that registers as the same schema', () => {
    const serialized = schemaText(parse(source), 'serialized');
    expect(readFields(Buffer.from(serialized, 'base64'))?.[0]?.bytes.toString()).toBe('default');
    expect(schemaText(parse(serialized), 'serialized')).toBe(serialized);
  });

  it('the text of a descriptor keeps its JSON names, and a look-up ignores derived ones', () => {
    const schema = parse('syntax = "proto3"; message C { int32 a_b = 1; string x = 3 [json_name = "y"]; }');
    const again = parseSchema('PROTOBUF', schemaText(schema, 'serialized'));
    expect(again.text).toContain('int32 a_b = 1 [json_name = "aB"];');
    expect(again.text).toContain('string x = 3 [json_name = "y"];');
    expect(lookupTextOf(again)).toBe(schema.text);
  });

  it('a form of another format returns the stored text', () => {
    expect(schemaText(parse('message M {}'), 'resolved')).toBe('\nmessage M {}\n');
  });
});
