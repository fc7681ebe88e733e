/** Text of generated types: names, documentation, and the forms that random schemas rarely have. */
import { describe, expect, it } from 'vitest';
import type { ResolvedReference } from '../../../../src/formats/content.ts';
import { type AvroSchema, type ProtoSchema, parseSchema } from '../../../../src/formats/schema.ts';
import { schemaTypes } from '../../../../src/formats/typescript/types.ts';
import { checkClaims } from '../../../property/registry-types-kit.ts';

const record = (name: string, ...fields: object[]): object => ({ type: 'record', name, fields });
const field = (name: string, type: unknown, more: object = {}): object => ({ name, type, ...more });

function avro(json: unknown, options: { lenient?: boolean } = {}): string {
  return compiled(schemaTypes(parseSchema('AVRO', JSON.stringify(json), options) as AvroSchema, ['Types.']));
}
function proto(text: string, references: readonly ResolvedReference[] = []): string {
  return compiled(schemaTypes(parseSchema('PROTOBUF', text, { references }) as ProtoSchema, ['Types.']));
}
function compiled(module: string): string {
  expect(checkClaims(module, []).errors, module).toEqual([]);
  return module;
}

/** Errors of literals of a type, by their place in the list. */
const misfits = (module: string, type: string, literals: readonly string[]): boolean[] =>
  checkClaims(
    module,
    literals.map((literal) => ({ type, literal })),
  ).misfits.map((error) => error !== undefined);

describe('text of the module', () => {
  it('a record is an interface for each side, with the documentation of the schema', () => {
    const id = field('id', 'long', { doc: 'Key of the order.' });
    const note = field('note', ['null', 'string'], { default: null, doc: 'Two\nlines, */ and more.' });
    expect(avro({ ...record('shop.Order', id, note), doc: 'An order.' })).toBe(`// Types.

/** An order. */
export interface Order {
  /** Key of the order. */
  id: bigint;
  /**
   * Two
   * lines, *\\/ and more.
   */
  note: string | null;
}

/** Order as a serializer accepts it. */
export interface OrderInput {
  /** Key of the order. */
  id: bigint | number;
  /**
   * Two
   * lines, *\\/ and more.
   */
  note?: string | null | undefined;
}
`);
  });

  it('a long type is broken into lines of at most 100 columns', () => {
    const branches = Array.from({ length: 6 }, (_, i) =>
      record(`VeryLongNameOfARecord${i}`, field('x', 'int')),
    );
    const module = avro(record('Order', field('one', { type: 'array', items: ['null', ...branches] })));
    expect(module.split('\n').every((line) => line.length <= 100)).toBe(true);
    expect(module).toContain(`  one: (
    | ExactlyOne<{
        VeryLongNameOfARecord0: VeryLongNameOfARecord0;
`);
  });

  it('a header line cannot end its comment', () => {
    const schema = parseSchema('AVRO', '"string"') as AvroSchema;
    const module = schemaTypes(schema, ['a\nexport const b = 1;\u2028export const c = 2;']);
    expect(module).toBe('// a export const b = 1; export const c = 2;\n\nexport type Value = string;\n');
  });

  it('a schema that is no named type is exported as Value', () => {
    expect(avro({ type: 'map', values: ['null', 'long'] })).toContain(
      'export type Value = Record<string, bigint | null>;',
    );
  });
});

describe('names', () => {
  it('equal short names in several namespaces are told apart by the namespace', () => {
    const module = avro(
      record(
        'a.Order',
        field('one', record('b.Item', field('x', 'int'))),
        field('two', record('c.Item', field('x', 'long'))),
        field('three', record('a.b_Item', field('x', 'string'))),
      ),
    );
    for (const [name, type] of [
      ['one', 'b_Item_2'],
      ['two', 'c_Item'],
      ['three', 'b_Item'],
    ])
      expect(module).toContain(`  ${name}: ${type};`);
  });

  it('words and globals of TypeScript are no names of types', () => {
    const names = ['Buffer', 'Record', 'object', 'class', 'type', 'ExactlyOne', 'OrderInput', 'undefined'];
    const fields = names.map((name) => field(name, record(name, field('value', 'long'))));
    const union = ['Buffer', 'Record', { type: 'map', values: 'bytes' }];
    const module = avro(record('Order', ...fields, field('union', union)));
    expect(module).toContain('  Buffer: Buffer_2;');
    expect(module).toContain('export interface OrderInput {\n  value: bigint;');
    expect(module).toContain('export interface OrderInput_2 {\n');
  });

  it('names of properties that are no identifiers are quoted', () => {
    const fields = ['a b', "it's", 'größe', '1st', '__proto__', 'constructor', 'line\nbreak\\', ''].map(
      (name) => field(name, 'int'),
    );
    const module = avro(record('Order', ...fields), { lenient: true });
    expect(module).toContain(`export interface Order {
  'a b': number;
  'it\\'s': number;
  'größe': number;
  '1st': number;
  __proto__: number;
  constructor: number;
  'line\\nbreak\\\\': number;
  '': number;
}`);
  });
});

describe('forms of Avro', () => {
  it('logical types are the types that they annotate', () => {
    const module = avro(
      record(
        'Order',
        field('price', { type: 'bytes', logicalType: 'decimal', precision: 9, scale: 2 }),
        field('at', { type: 'long', logicalType: 'timestamp-micros' }),
        field('day', { type: 'int', logicalType: 'date' }),
        field('key', { type: 'string', logicalType: 'uuid' }),
        field('wait', { type: 'fixed', name: 'Wait', size: 12, logicalType: 'duration' }),
      ),
    );
    expect(module).toContain(
      '  price: Buffer;\n  at: bigint;\n  day: number;\n  key: string;\n  wait: Wait;\n}',
    );
    expect(module).toContain('/** 12 bytes. */\nexport type Wait = Buffer;');
    expect(module).toContain('  price: Uint8Array;\n  at: bigint | number;');
    expect(module).toContain('export type WaitInput = Uint8Array;');
  });

  it('a union of types that JavaScript does not tell apart has exactly one key', () => {
    const module = avro(record('Order', field('pay', ['null', record('Card'), record('Cash')])));
    expect(
      misfits(module, 'Order', [
        '{ pay: null }',
        '{ pay: { Card: {} } }',
        '{ pay: { Card: {}, Cash: {} } }',
        '{ pay: {} }',
      ]),
    ).toEqual([false, false, true, true]);
  });
});

describe('forms of Protobuf', () => {
  const SHOP = `syntax = "proto3";
package shop.v1;
import "item.proto";

// An order
// of things.
message Order {
  int64 id = 1; // the key
  /* State,
   * of which some are final. */
  State state = 2;

  // stands alone

  repeated other.Item items = 3;
  map<int64, Item> by_id = 4;
  enum State { NONE = 0; PAID = 1; }
  oneof pay {
    // by card
    string card = 5;
    Item gift = 6;
  }
  // A thing.
  message Item { string sku = 1; Order order = 2; }
}
message Item {}
`;
  const OTHER = `syntax = "proto2";
package other;
// A thing of another file.
message Item { required string name = 1; optional Kind kind = 2; enum Kind { A = 0; B = 5; } }
`;
  const references = [
    { name: 'item.proto', subject: 'item', version: 1, format: 'PROTOBUF', text: OTHER, references: [] },
  ] as const;

  it('messages are named without their package where that is unique, and nested ones with the outer message', () => {
    const module = proto(SHOP, references);
    expect(module).toContain(`  state: Order_State;
  items: other_Item[];
  by_id: Record<string, Order_Item>;
} & AtMostOne<{
  /** by card */
  card: string;
  gift: Order_Item;
}>;`);
    expect(module).toContain('export interface shop_v1_Item {');
    expect(module).toContain("export type Order_State = 'NONE' | 'PAID' | number;");
    expect(module).toContain("export type Item_Kind = 'A' | 'B';");
    expect(module).toContain("export type Item_KindInput = 'A' | 'B' | 0 | 5;");
  });

  it('a serializer accepts every name of a number', () => {
    const states = 'option allow_alias = true; NONE = 0; PAID = 1; SETTLED = 1;';
    const module = proto(`syntax = "proto3"; message M { E e = 1; } enum E { ${states} }`);
    expect(module).toContain("export type E = 'NONE' | 'PAID' | number;");
    expect(module).toContain("export type EInput = 'NONE' | 'PAID' | 'SETTLED' | number;");
  });

  it('comments of the text and of its references are documentation', () => {
    const module = proto(SHOP, references);
    expect(module).toContain('/**\n * An order\n * of things.\n */\nexport type Order = {');
    expect(module).toContain('  /** the key */\n  id: bigint;');
    expect(module).toContain('  /**\n   * State,\n   * of which some are final.\n   */\n  state:');
    expect(module).toContain('/** A thing. */\nexport interface Order_Item {');
    expect(module).toContain('/** A thing of another file. */\nexport interface other_Item {');
    expect(module).not.toContain('stands alone');
  });

  it('a oneof has at most one member that is set', () => {
    const module = proto('syntax = "proto3"; message M { oneof o { string a = 1; int32 b = 2; } }');
    const literals = ["{ a: 'x', b: null }", '{ a: null, b: null }', "{ a: 'x', b: 1 }", "{ a: 'x' }"];
    expect(misfits(module, 'M', literals)).toEqual([false, false, true, true]);
    expect(misfits(module, 'MInput', [...literals, '{}'])).toEqual([false, false, true, false, false]);
  });

  it('a message with many oneofs compiles; those beyond the limit are separate properties', () => {
    const oneofs = Array.from({ length: 30 }, (_, i) => {
      const members = Array.from({ length: 9 }, (_member, j) => `string f${i}_${j} = ${i * 10 + j + 1};`);
      return `oneof o${i} { ${members.join(' ')} }`;
    });
    const module = proto(`syntax = "proto3"; message M { ${oneofs.join(' ')} }`);
    expect(module.split('AtMostOne<{').length - 1).toBe(2);
    expect(module).toContain('  f29_8: string | null;');
  });

  it('a type that is not known has no values', () => {
    const schema = parseSchema(
      'PROTOBUF',
      'syntax = "proto2"; message M { optional Lost a = 1; repeated Lost b = 2; required Lost c = 3; }',
      { lenient: true },
    ) as ProtoSchema;
    const module = compiled(schemaTypes(schema, []));
    expect(module).toContain('export interface M {\n  a: null;\n  b: never[];\n  c: null;\n}');
    expect(module).toContain(
      'export interface MInput {\n  a?: null | undefined;\n  b?: null | undefined;\n  c: never;\n}',
    );
  });

  it('well-known types and extensions are types like any other', () => {
    const module = proto(`syntax = "proto2"; package p; import "google/protobuf/timestamp.proto";
message M { optional google.protobuf.Timestamp at = 1; extensions 100 to 200; }
extend M { optional int64 more = 100; }`);
    expect(module).toContain("  at: Timestamp | null;\n  '[p.more]': bigint | null;");
    expect(module).toContain('export interface Timestamp {\n  seconds: bigint;\n  nanos: number;\n}');
  });
});

it('equal schemas give equal texts', () => {
  const text = JSON.stringify(record('Order', field('id', 'long'), field('more', ['null', 'Order'])));
  const once = (): string => schemaTypes(parseSchema('AVRO', text) as AvroSchema, ['Types.']);
  expect(once()).toBe(once());
});
