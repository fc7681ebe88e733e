/** Columns of Protobuf payloads: parts that merge, replace and clear each other, and programs that
 *  are refused. Both kernels run every case. */
import { describe, expect, it } from 'vitest';
import { column } from '../../../../src/core/columns/column.ts';
import { ColumnSchema } from '../../../../src/core/columns/schema.ts';
import { COLUMN_STATUS } from '../../../../src/core/layout/layouts.gen.ts';
import { compileProto } from '../../../../src/formats/protobuf/columns/compile.ts';
import { protoColumnDecoder } from '../../../../src/formats/protobuf/columns/decoder.ts';
import { columnKernels, spansOf } from '../../../differential/avro-columns-kit.ts';
import { compareProto } from '../../../differential/proto-columns-kit.ts';
import { messageOf } from '../../../property/registry-proto-decoder-kit.ts';

const P3 = 'syntax = "proto3";';
const P2 = 'syntax = "proto2";';
const hex = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex');

/** Checks payloads against the decoder of single payloads. @returns number of readable ones */
function check(text: string, ...payloads: readonly string[]): number {
  const counts = { ok: 0, malformed: 0 };
  compareProto(columnKernels, messageOf(text, 'M'), payloads.map(hex), counts);
  return counts.ok;
}

/** First row of requested fields, by each kernel. */
function rows(text: string, payload: string, fields?: readonly string[]): unknown[] {
  return columnKernels.map((kernels) => {
    const decoder = protoColumnDecoder(kernels, messageOf(text, 'M'), fields);
    const batch = decoder.createBatch(1);
    expect(decoder.decode(spansOf([hex(payload)]), 0, 1, batch)).toBe(1);
    expect(batch.status[0]).toBe(COLUMN_STATUS.OK);
    const all = decoder.rows();
    all.attach(batch);
    const value = all.value(0);
    for (const [name, part] of Object.entries(value as object)) expect(all.at(0)[name]).toStrictEqual(part);
    decoder.close();
    return value;
  });
}

describe('parts of a message', () => {
  it.each<readonly [string, string, string]>([
    [
      'a later scalar replaces an earlier one',
      `${P3} message M { string s = 1; int32 i = 2; }`,
      '0a0161 1001 0a026262 1002',
    ],
    [
      'parts of a message are merged',
      `${P3} message M { N n = 1; } message N { int32 a = 1; repeated int32 b = 2; N c = 3; }`,
      '0a020801 0a021002 0a061a0410031004 0a041a020809 0a021005',
    ],
    [
      'a member of a oneof clears the others, with their lists',
      `${P3} message M { oneof o { N n = 1; string s = 2; N m = 3; } repeated int32 z = 4; } message N { repeated string t = 1; repeated N r = 2; map<int32, bool> k = 3; repeated bool b = 4; }`,
      '0a110a01611203 0a01621a0408011001 200120 00 12026262 0a030a0163 2005',
    ],
    [
      'the last entry of a key wins',
      `${P3} message M { map<string, int32> m = 1; }`,
      '0a050a0161 1001 0a050a0162 1002 0a050a0161 1003 0a00',
    ],
    [
      'a number that a closed enum lacks leaves the field as it is',
      `${P2} message M { optional E e = 1; repeated E r = 2; map<int32, E> m = 3; } enum E { A = 0; B = 2; }`,
      '0802 0807 1002 1007 1203000207 1a0408011002 1a0408021007',
    ],
    [
      'a message inside itself is joined from its parts',
      `${P2} message M { optional M m = 1; repeated M l = 2; map<string, M> k = 3; optional int32 i = 4; optional group G = 5 { optional M m = 1; } }`,
      '0a022001 0a041202 2003 0a00 12022004 1200 1a07 0a0161 12022005 2b 0a022006 2c 2b 0a022007 2c',
    ],
    [
      'an entry that lacks a required field is replaced by a complete one',
      `${P2} message M { map<string, N> m = 1; } message N { required int32 a = 1; }`,
      '0a050a01611200 0a070a016112020801',
    ],
    [
      'a message that lacks a required field is completed by a later part, or cleared',
      `${P2} message M { optional N n = 1; oneof o { N a = 2; int32 b = 3; } } message N { required int32 a = 1; }`,
      '0a00 0a020801 1200 1801',
    ],
    [
      'unknown fields are skipped',
      `${P3} message M { int32 a = 1; }`,
      '1001 190000000000000000 2203616263 2b0801 2c 3500000000 0805',
    ],
    [
      'unpacked items of a packed list, and the reverse',
      `${P3} message M { repeated int32 a = 1; repeated string s = 2; repeated bool b = 3; }`,
      '0801 0a020203 0804 120161 1a020100 1800',
    ],
  ])('columns have the value of the decoder where %s', (_what, text, payload) => {
    expect(check(text, payload, payload + payload, '')).toBeGreaterThan(0);
  });
});

describe('malformed payloads', () => {
  it.each<readonly [string, string, readonly string[]]>([
    [
      'a group that ends another',
      `${P2} message M { optional group G = 1 { optional int32 x = 1; } }`,
      ['0b 14', '0b 0801', '0c', '0b 0b 0c'],
    ],
    [
      'wire types and tags that do not exist',
      `${P3} message M { int32 a = 1; }`,
      ['0e', '07', '00', 'f8ffffffff01', '80808080808000'],
    ],
    [
      'lengths and numbers that are cut',
      `${P3} message M { string s = 1; M m = 2; fixed64 f = 3; int64 i = 4; }`,
      ['0a05616263', '1203 0a05', '190000', '20ffffffffffffffffffff01', '20ff', '0affffffffff01'],
    ],
    [
      'a text that is not UTF-8, also in a field that is dropped',
      `${P3} message M { string s = 1; repeated string t = 2; map<string, string> m = 3; }`,
      ['0a02c328', '1202c328', '1a040a02c328'],
    ],
    [
      'a required field that no part has',
      `${P2} message M { optional N n = 1; repeated N r = 2; map<int32, N> m = 3; } message N { required int32 a = 1; }`,
      ['0a00', '1200', '12020801 1200', '1a021200', '1a00'],
    ],
  ])('columns refuse the payload with %s', (_what, text, payloads) => {
    expect(check(text, ...payloads)).toBe(0);
  });

  it('entries and lists that lack a required field cost steps that grow linearly', () => {
    const text = `${P2} message M { map<int32, N> m = 1; repeated L l = 2; } message N { required int32 a = 1; } message L { repeated N n = 1; }`;
    const varint = (value: number): number[] => [
      (value & 127) | 128,
      ((value >> 7) & 127) | 128,
      value >> 14,
    ];
    // An entry with a key and an empty value, and a list of one complete element.
    const entry = (key: number): number[] => [0x0a, 6, 0x08, ...varint(key), 0x12, 0];
    const list = [0x12, 4, 0x0a, 2, 0x08, 1];
    const payload = Buffer.from(Array.from({ length: 200_000 }, (_, key) => [...entry(key), ...list]).flat());
    for (const kernels of columnKernels) {
      const decoder = protoColumnDecoder(kernels, messageOf(text, 'M'));
      const batch = decoder.createBatch(1);
      decoder.decode(spansOf([payload]), 0, 1, batch);
      expect(batch.status[0]).toBe(COLUMN_STATUS.MALFORMED);
      decoder.close();
    }
  }, 60_000);

  it('nesting beyond 100 levels is malformed, in known and unknown fields', () => {
    const text = `${P3} message M { M m = 1; repeated M l = 2; map<string, M> k = 3; }`;
    const nested = (levels: number, tag: string): string =>
      Array.from({ length: levels }).reduce<string>((inner) => {
        const size = Buffer.alloc(2);
        size.writeUInt8(((inner.length / 2) & 127) | 128, 0);
        size.writeUInt8((inner.length / 2) >> 7, 1);
        return `${tag}${size.toString('hex')}${inner}`;
      }, '');
    expect(check(text, nested(100, '0a'), nested(100, '12'), '5b'.repeat(100) + '5c'.repeat(100))).toBe(3);
    expect(check(text, nested(101, '0a'), nested(101, '12'), '5b'.repeat(101) + '5c'.repeat(101))).toBe(0);
  });

  it('empty messages of many fields are malformed beyond the limit of fields', () => {
    const fields = Array.from({ length: 2000 }, (_, i) => `int32 f${i} = ${i + 10};`).join(' ');
    const message = messageOf(
      `${P3} message M { repeated N n = 1; int32 a = 2; } message N { ${fields} }`,
      'M',
    );
    const counts = { ok: 0, malformed: 0 };
    const payloads = ['0a00'.repeat(500), '0a00'.repeat(600)].map(hex);
    compareProto(columnKernels, message, payloads, counts, ['a']);
    expect(counts).toEqual({ ok: 1, malformed: 1 });
  });
});

it('requested fields pass through lists and maps, and other fields are checked', () => {
  const text = `${P3} message M { int32 a = 1; repeated N n = 2; map<string, N> m = 3; N one = 4; } message N { int32 x = 1; string y = 2; }`;
  const payload = '0801 1205 0801 120161 1a0a 0a016b 1205 0802 120162 2202 0803';
  const entries = Object.assign(Object.create(null), { k: { y: 'b' } }) as unknown;
  for (const row of rows(text, payload, ['n.x', 'm.y', 'one']))
    expect(row).toStrictEqual({ n: [{ x: 1 }], m: entries, one: { x: 3, y: '' } });
  for (const fields of [['z'], ['n.z'], ['a.b'], ['']])
    expect(() => rows(text, payload, fields)).toThrow('has no field');
});

it('an open enum is a column of numbers, a closed one of names', () => {
  const schema = (text: string) => compileProto(messageOf(text, 'M'), undefined).program.schema;
  const [open] = schema(`${P3} message M { E e = 1; } enum E { A = 0; B = 5; }`).top;
  expect(open).toEqual(column('int32', 'e', false));
  const [closed] = schema(`${P2} message M { optional E e = 1; } enum E { A = 0; B = 5; }`).top;
  expect(closed).toEqual(column('dictionary', 'e', true, { symbols: ['A', 'B'] }));
});

it('a message set has no columns, and the error names it', () => {
  const text = `${P2} message M { option message_set_wire_format = true; extensions 4 to max; }`;
  expect(() => compileProto(messageOf(text, 'M'), undefined)).toThrow('M is a message set');
});

describe('programs', () => {
  const text = `${P2} message M { oneof o { int32 a = 1; M m = 2; } repeated E e = 3; map<string, N> k = 4; } enum E { A = 0; } message N { required bytes b = 1; }`;
  const { program } = compileProto(messageOf(text, 'M'), undefined);

  it('a program with a word less, or with any word changed, is refused or runs within its bounds', () => {
    const payloads = spansOf([hex('0801 1200 1a0200 01 2207 0a0161 12020a00'), hex('12021801')]);
    for (const kernels of columnKernels) {
      expect(() => kernels.openProtobuf({ ...program, code: program.code.subarray(0, -1) })).toThrow('bad');
      for (let at = 0; at < program.code.length; at++)
        for (const word of [-2, -1, 0, 1, 7, 1 << 20]) {
          const code = program.code.slice();
          code[at] = word;
          try {
            const decoder = kernels.openProtobuf({ ...program, code });
            decoder.close();
          } catch (thrown) {
            expect((thrown as Error).message).toMatch(/^program: a bad/);
          }
        }
      const decoder = kernels.openProtobuf(program);
      decoder.close();
      expect(() => decoder.decode(payloads, 0, 1, undefined as never, false)).toThrow();
    }
  });

  it('both kernels refuse the same programs', () => {
    const [reference, native] = columnKernels;
    const opens = (kernels: (typeof columnKernels)[number] | undefined, code: Int32Array): boolean => {
      try {
        kernels?.openProtobuf({ ...program, code }).close();
        return true;
      } catch {
        return false;
      }
    };
    for (let at = 0; at < program.code.length; at++)
      for (const word of [-2, -1, 0, 1, 2, 3, 7, 12, 16, 33, 64, 1 << 20]) {
        const code = program.code.slice();
        code[at] = word;
        expect(opens(native, code), `word ${at} = ${word}`).toBe(opens(reference, code));
      }
  });

  it('columns of another kind are refused', () => {
    const schema = new ColumnSchema(program.schema.top.map(({ name }) => column('int32', name, false)));
    for (const kernels of columnKernels)
      expect(() => kernels.openProtobuf({ ...program, schema })).toThrow('program: a bad');
  });
});
