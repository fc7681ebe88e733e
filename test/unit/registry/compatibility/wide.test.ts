/** Wide and cyclic schemas below the limit of a schema's text: the cost of a comparison grows with
 *  their size. */

import { describe, expect, it } from 'vitest';
import { SCHEMA_TEXT_CHARS_MAX } from '../../../../src/formats/format.ts';
import type { ProtoSchema } from '../../../../src/formats/schema.ts';
import { parseSchema, type Schema } from '../../../../src/formats/schema.ts';
import { type Finding, isCompatible } from '../../../../src/registry/compatibility/finding.ts';
import { checkPair } from '../../../../src/registry/compatibility/modes.ts';
import { checkProto } from '../../../../src/registry/compatibility/protobuf/checker.ts';
import { checkNumberHistory } from '../../../../src/registry/compatibility/protobuf/history.ts';
import { itFull } from '../../../tier.ts';
import { worked } from '../../../work.ts';

/** Maximum number of function calls of one comparison. A quadratic walk needs many times more. */
const CALLS_MAX = 8_000_000;
/** The same for schemas in which each part meets every other part, up to the comparison budget. */
const DENSE_CALLS_MAX = 60_000_000;
const MESSAGE_CHARS_MAX = 1_000;

const indexes = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

function schema(format: 'AVRO' | 'PROTOBUF', text: string): Schema {
  expect(text.length).toBeLessThanOrEqual(SCHEMA_TEXT_CHARS_MAX);
  return parseSchema(format, text);
}
const avro = (type: unknown): Schema => schema('AVRO', JSON.stringify(type));
const proto = (body: string): Schema => schema('PROTOBUF', `syntax="proto3";${body}`);
const record = (name: string, fields: unknown, more: object = {}): object => ({
  type: 'record',
  name,
  fields,
  ...more,
});

function bounded<T>(run: () => T, callsMax = CALLS_MAX): T {
  const { result, calls } = worked(run);
  expect(calls).toBeLessThan(callsMax);
  return result;
}

function compared(reader: Schema, writer: Schema, callsMax = CALLS_MAX): readonly Finding[] {
  const findings = bounded(() => checkPair(reader, writer), callsMax);
  for (const { message } of findings) expect(message.length).toBeLessThan(MESSAGE_CHARS_MAX);
  return findings;
}
const rules = (findings: readonly Finding[]): string[] => [...new Set(findings.map(({ rule }) => rule))];

describe('wide Avro schemas', () => {
  it('an enum whose symbols all changed is reported by some of them', () => {
    const symbols = (letter: string, more: object = {}): Schema =>
      avro({
        type: 'enum',
        name: 'E',
        symbols: indexes(50_000).map((i) => letter + i.toString(36)),
        ...more,
      });
    const [finding] = compared(symbols('a'), symbols('b'));
    expect(finding?.message).toMatch(/lacks b0, b1, .* and 49990 more and has no default symbol$/);
    const [read] = compared(symbols('a', { default: 'a0' }), symbols('b'));
    expect(read?.message).toMatch(/^b0, .* and 49990 more is read as a0$/);
  });

  it('a field that matches many written fields is reported by some of them', () => {
    const names = indexes(6_000).map((i) => `w${i}`);
    const writer = avro(
      record(
        'R',
        names.map((name) => ({ name, type: 'int' })),
      ),
    );
    const reader = avro(record('R', [{ name: 'x', type: 'int', aliases: names }]));
    expect(compared(reader, writer)[0]?.message).toMatch(/w0, .* and 5990 more$/);
  });

  it('a type under thousands of aliases in thousands of places is compared in bounded time', () => {
    const one = { type: 'fixed', name: 'Z', size: 1, aliases: indexes(15_000).map((i) => `A${i}`) };
    const reader = indexes(4_000).map((i) => ({ name: `f${i}`, type: i === 0 ? one : 'Z' }));
    const writer = indexes(4_000).map((i) => ({
      name: `f${i}`,
      type: { type: 'fixed', name: `A${14_999 - i}`, size: 1 },
    }));
    const findings = compared(avro(record('R', reader)), avro(record('R', writer)));
    expect(findings).toHaveLength(100);
    expect(rules(findings)).toEqual(['AVRO_TYPE_RENAMED']);
  });

  it('a union of thousands of branches is compared in bounded time', () => {
    const branches = indexes(7_000).map((i) => ({ type: 'fixed', name: `F${i}`, size: 1 }));
    const union = (doc: string): Schema =>
      avro(
        record(
          'R',
          [{ name: 'u', type: branches, default: doc }].map(({ name, type }) => ({ name, type, doc })),
        ),
      );
    expect(compared(union('a'), union('b'))).toEqual([]);
    const renamed = branches.map((branch, i) => ({ ...branch, name: `G${i}`, aliases: [branch.name] }));
    const reader = avro(record('R', [{ name: 'u', type: renamed }]));
    expect(rules(compared(reader, union('b')))).toEqual(['AVRO_TYPE_RENAMED']);
    expect(rules(compared(union('b'), reader))).toEqual(['AVRO_UNION_BRANCH_MISSING']);
  });

  it('thousands of unions of one wide record are compared in bounded time', () => {
    const wide = record(
      'Wide',
      indexes(4_000).map((i) => ({ name: `w${i}`, type: 'int' })),
    );
    const fields = (last: unknown): unknown[] => [
      { name: 'first', type: wide },
      ...indexes(4_000).map((i) => ({ name: `f${i}`, type: ['null', 'Wide'] })),
      { name: 'last', type: last },
    ];
    expect(compared(avro(record('R', fields('long'))), avro(record('R', fields('int'))))).toEqual([]);
  });

  it('a comparison stops when its pairs outgrow the texts, and reports the stop', () => {
    const wide = record(
      'W',
      indexes(4_000).map((i) => ({ name: `w${i}`, type: 'int', default: 0 })),
      { aliases: indexes(4_000).map((i) => `V${i}`) },
    );
    const reader = indexes(4_000).map((i) => ({ name: `f${i}`, type: i === 0 ? wide : 'W' }));
    const writer = indexes(4_000).map((i) => ({ name: `f${i}`, type: record(`V${i}`, []) }));
    const findings = compared(avro(record('R', reader)), avro(record('R', writer)));
    expect(rules(findings)).toContain('COMPARISON_TOO_LONG');
    expect(isCompatible(findings)).toBe(false);
  });

  it('a chain of thousands of Avro records is compared in bounded time', () => {
    const chain = (last: string): Schema =>
      avro(
        record(
          'R',
          indexes(5_000).map((i) => ({
            name: `f${i}`,
            type: record(`C${i}`, [{ name: 'n', type: i === 0 ? last : `C${i - 1}` }]),
          })),
        ),
      );
    const deep = (last: string): Schema => {
      const { tree } = chain(last) as Schema & { tree: { fields: Array<unknown> } };
      tree.fields.reverse();
      return { ...chain(last), tree } as Schema;
    };
    expect(rules(compared(deep('int'), deep('string')))).toEqual(['AVRO_TYPE_CHANGED']);
  });
});

describe('wide Protobuf schemas', () => {
  it('removed messages are searched by name in one pass over the reader, not in one pass each', () => {
    const count = 1_000;
    const messages = (letter: string): ProtoSchema =>
      proto(
        indexes(count)
          .map((i) => `message ${letter}${i}{}`)
          .join(''),
      ) as ProtoSchema;
    const { tree } = messages('A');
    let reads = 0;
    const counted = new Proxy(tree.messages, {
      get: (list, key, receiver) => {
        reads++;
        return Reflect.get(list, key, receiver);
      },
    });
    const findings = checkProto({ ...tree, messages: counted }, messages('B').tree);
    expect(rules(findings)).toEqual(['PROTO_MESSAGE_REMOVED']);
    expect(reads).toBeLessThan(10 * count);
  });

  const fields = (type: string, count = 18_000): string =>
    indexes(count)
      .map((i) => `${type} f${i}=${i < 18_999 ? i + 1 : i + 1_001};`)
      .join('');

  it('a message whose fields were all retyped is compared in bounded time', () => {
    const [a, b] = [proto(`message M{${fields('int32')}}`), proto(`message M{${fields('string')}}`)];
    expect(rules(compared(a, b))).toEqual(['PROTO_TYPE_CHANGED']);
  });

  it('a message whose fields all moved into a oneof is compared in bounded time', () => {
    const reader = proto(`message M{oneof o{${fields('int32')}}}`);
    const writer = proto(`message M{${fields('int32')}}`);
    expect(rules(compared(reader, writer))).toContain('PROTO_ONEOF_CHANGED');
    // Leaving a oneof loses only the difference between absent and zero.
    expect(rules(compared(writer, reader))).toEqual(['PROTO_PRESENCE_CHANGED']);
  });

  itFull('the comparison of fully connected messages ends within a bound', () => {
    const mesh = (step: number): Schema =>
      proto(
        indexes(400)
          .map((i) => {
            const held = indexes(20).map((k) => `M${(i * step + k * 7) % 400} f${k}=${k + 1};`);
            return `message M${i}{${held.join('')}}`;
          })
          .join(''),
      );
    expect(rules(compared(mesh(1), mesh(3), DENSE_CALLS_MAX))).toEqual(['COMPARISON_TOO_LONG']);
  });

  itFull('the history check of fields whose messages all differ ends within a bound', () => {
    const mesh = (letter: string): ProtoSchema =>
      proto(
        indexes(300)
          .map((i) => {
            const held = indexes(20).map((k) => `${letter}${(i + k * 7) % 300} f${k}=${k + 1};`);
            return `message ${letter}${i}{${held.join('')}}`;
          })
          .concat(
            `message M{${indexes(300)
              .map((i) => `${letter}${i} f${i}=${i + 1};`)
              .join('')}}`,
          )
          .join(''),
      ) as ProtoSchema;
    const versions = ['B', 'C', 'D'].map((letter, i) => ({ version: i + 1, tree: mesh(letter).tree }));
    const findings = bounded(() => checkNumberHistory(mesh('A').tree, versions), DENSE_CALLS_MAX);
    expect(rules(findings)).toEqual(['COMPARISON_TOO_LONG']);
  });

  it('a finding in a message that several messages use is placed at the outermost use', () => {
    const nested = (type: string): Schema =>
      proto(`message A{B b=1; C c=2;} message B{C c=1;} message C{${type} x=1;}`);
    expect(checkPair(nested('string'), nested('int32')).map(({ path }) => path)).toEqual(['A.c.x']);
  });

  it('a field among thousands that changed its oneof is found', () => {
    const oneofs = (a: string, b: string): Schema => proto(`message M{oneof a{${a}} oneof b{${b}}}`);
    const [x, y, z] = ['int32 x=1;', 'int32 y=2;', 'int32 z=3;'];
    for (const [reader, writer] of [
      [oneofs(`${x}${y}`, `${z}`), oneofs(`${x}`, `${y}${z}`)],
      [oneofs(`${x}`, `${y}${z}`), oneofs(`${x}${y}`, `${z}`)],
      [oneofs(`${x}${y}`, `${z}`), oneofs(`${x}`, `${y}`)],
    ] as const)
      expect(rules(compared(reader, writer))).toContain('PROTO_ONEOF_CHANGED');
    expect(compared(oneofs(`${x}`, `${y}`), oneofs(`${x}${y}`, `${z}`))).toEqual([]);
    expect(compared(oneofs(`${x}${y}`, `${z}`), proto(`message M{oneof c{${x}${y}} oneof d{${z}}}`))).toEqual(
      [],
    );
  });

  it('an enum of thousands of values in thousands of fields is compared in bounded time', () => {
    const values = (letter: string): string =>
      `enum E{${indexes(9_000)
        .map((i) => `${letter}${i}=${i};`)
        .join('')}}`;
    const text = (letter: string): Schema => proto(`${values(letter)}message M{${fields('E', 9_000)}}`);
    expect(rules(compared(text('A'), text('B')))).toEqual(['PROTO_ENUM_VALUE_RENAMED']);
  });

  itFull('two rings of messages whose lengths have a large common multiple end within a bound', () => {
    const ring = (length: number, last = ''): Schema =>
      proto(
        indexes(length)
          .map((i) => `message M${i}{M${(i + 1) % length} n=1;${i === 1 ? last : ''}}`)
          .join(''),
      );
    const findings = compared(ring(1_500), ring(1_499), DENSE_CALLS_MAX);
    expect(rules(findings)).toContain('COMPARISON_TOO_LONG');
    expect(isCompatible(findings)).toBe(false);
  });

  it('a map of its own message is compared with a list of that message', () => {
    const [map, list] = ['map<string, M> f = 2;', 'repeated M f = 2;'];
    const text = (field: string): string => `message M{map<string, M> f = 2;} message N{${field}}`;
    const findings = compared(proto(text(list)), proto(text(map)));
    expect(rules(findings)).not.toContain('COMPARISON_TOO_LONG');
    expect(rules(compared(proto(text(map)), proto(text(list))))).toContain('PROTO_MAP_KEYS_MERGED');
  });

  itFull('the history of many numbers over many versions is checked in bounded time', () => {
    const tree = (text: string) => {
      const parsed = proto(text);
      if (parsed.format !== 'PROTOBUF')
        throw new Error(`the schema has the format ${parsed.format} instead of PROTOBUF`);
      return parsed.tree;
    };
    const wide = tree(`message M{${fields('int32')}}`);
    const other = tree(`message M{${fields('string')}}`);
    const small = tree('message M{int32 f0=1;}');
    const versions = indexes(2_000).map((i) => ({ version: i + 1, tree: i === 0 ? wide : small }));
    const findings = bounded(() => checkNumberHistory(tree(`message M{${fields('int64')}}`), versions));
    expect(findings).toHaveLength(100);
    expect(findings[0]?.message).toBe(
      'number 2 was int32 "f1" until version 1, was removed in version 2, and cannot be used again for int64 "f1"',
    );
    expect(bounded(() => checkNumberHistory(wide, versions))).toEqual([]);
    expect(rules(bounded(() => checkNumberHistory(other, [{ version: 1, tree: wide }])))).toEqual([
      'PROTO_NUMBER_RETYPED',
    ]);
    expect(rules(bounded(() => checkProto(other, wide)))).toEqual(['PROTO_TYPE_CHANGED']);
  });
});

describe('number history', () => {
  const tree = (text: string) => (parseSchema('PROTOBUF', text) as ProtoSchema).tree;
  const found = (old: string, now: string) =>
    checkNumberHistory(tree(now), [{ version: 1, tree: tree(old) }]).map(({ rule }) => rule);
  const three = (body: string): string =>
    `syntax = "proto3"; message M{${body}} message E{string key=1; int32 value=2;}`;
  const two = (type: string): string =>
    `syntax = "proto2"; message M{extensions 9;} extend M{optional ${type} x=9;}`;

  it.each([
    [
      'a map whose values change',
      three('map<string, int32> a=1;'),
      three('map<string, bytes> a=1;'),
      ['PROTO_NUMBER_RETYPED'],
    ],
    ['a map as the list of its entries', three('map<string, int32> a=1;'), three('repeated E a=1;'), []],
    [
      'another message whose numbers have another meaning',
      three('N a=1; message N{E e=1;} message E{string x=1;}'),
      three('K a=1; message K{D d=1;} message D{int64 x=1;}'),
      ['PROTO_NUMBER_RETYPED'],
    ],
    [
      'another message that reads the same bytes',
      three('N a=1; message N{string x=1; N n=2; int32 y=3;}'),
      three('K a=1; message K{bytes x=1; K n=2; string z=4;}'),
      [],
    ],
    ['an extension', two('int32'), two('string'), ['PROTO_NUMBER_RETYPED']],
    ['an extension of the same form', two('int32'), two('bool'), []],
    ['a removed number', three('int32 a=1;'), three(''), ['PROTO_NUMBER_NOT_RESERVED']],
    ['a removed and reserved number', three('int32 a=1;'), three('reserved 1;'), []],
  ])('the history check reports %s', (_name, old, now, rules) => {
    expect(found(old, now)).toEqual(rules);
  });
});
