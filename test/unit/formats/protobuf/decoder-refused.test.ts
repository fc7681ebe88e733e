/** Payloads that the Protobuf decoder refuses: the position, the field and the reason of each
 *  refusal. */
import { describe, expect, it } from 'vitest';
import { LONGEST, read, refusal } from './decoder-bytes.ts';

describe('required fields', () => {
  const text =
    'message M { required int32 a = 1; optional N n = 2; repeated N r = 3; map<string, N> m = 4; } message N { required int32 x = 1; required int32 y = 2; }';
  const empty = { n: null, r: [], m: {} };
  it('required fields may arrive in several parts of a message', () => {
    expect(read(2, text, '0801 12020801 12021002')).toEqual({ ...empty, a: 1, n: { x: 1, y: 2 } });
    expect(read(2, text, '12021002 0801 12020801')).toEqual({ ...empty, a: 1, n: { x: 1, y: 2 } });
  });
  it.each<readonly [string, string, string, number, string]>([
    ['in the message', '', 'M', 0, 'a'],
    ['in a message inside', '0801 1202 0801', 'M.n', 6, 'y'],
    ['in an item', '0801 1a04 0801 1002 1a02 1002', 'M.r[1]', 12, 'x'],
    ['in a value of a map', '0801 2207 0a0178 1202 0801', 'M.m[x]', 11, 'y'],
    ['in a value that an entry does not have', '0801 2203 0a0178', 'M.m[x]', 7, 'x'],
  ])('a required field missing %s is refused with its place', (_what, hex, path, at, name) => {
    expect(refusal(2, text, hex)).toEqual({
      code: 'malformed_payload',
      message: `the required field ${name} is missing, at byte ${at}, in ${path}`,
      at,
      path,
    });
  });
  it('a required field may be missing in a replaced oneof member', () => {
    const oneof = 'message M { oneof o { N n = 1; int32 a = 2; } } message N { required int32 x = 1; }';
    expect(read(2, oneof, '0a00 1005')).toEqual({ n: null, a: 5 });
    expect(
      read(
        2,
        `message M { map<string, N> m = 1; } message N { required int32 x = 1; }`,
        '0a00 0a04 12020801',
      ),
    ).toEqual({
      m: { '': { x: 1 } },
    });
  });
  it('a required field is missing where a closed enum lacks its number', () => {
    expect(refusal(2, 'message M { required E e = 1; enum E { ONE = 1; } }', '0807').message).toMatch(
      /required field e is missing/,
    );
  });
});

describe('malformed messages', () => {
  const text =
    'message M { int32 a = 1; string s = 2; N n = 3; repeated N r = 4; fixed32 f = 5; double d = 6; map<string, N> m = 7; repeated int32 p = 8; message N { int32 x = 1; string s = 2; } }';
  it.each<readonly [string, string, RegExp, number, string]>([
    ['a tag without a value', '0801 08', /end inside a varint/, 3, 'M.a'],
    ['a cut tag', '0801 88', /end inside a varint/, 2, 'M'],
    ['a varint of eleven bytes', `08 ${LONGEST}ff01`, /longer than 10 bytes/, 1, 'M.a'],
    ['a length beyond the end', '12 05 7878', /a length of 5 bytes, where 2 are left/, 1, 'M.s'],
    ['a length of ten bytes', `12 ${LONGEST}01`, /a length is longer than 5 bytes/, 1, 'M.s'],
    ['a length of six bytes', '12 818080808000 78', /a length is longer than 5 bytes/, 1, 'M.s'],
    ['a tag of six bytes', '888080808000 05', /a tag or a length is longer than 5 bytes/, 0, 'M'],
    ['a length of 2^35 - 1', '12 ffffffff7f', /a length of 34359738367 bytes, where 0/, 1, 'M.s'],
    ['a length of 2^32', '12 8080808010 78', /a length of 4294967296 bytes, where 1/, 1, 'M.s'],
    [
      'a length beyond the enclosing message',
      '1a 03 12 05 78 7878787878',
      /a length of 5 bytes, where 1 are/,
      3,
      'M.n.s',
    ],
    ['a cut fixed32', '2d 000000', /4 bytes are needed, and 3 are left/, 1, 'M.f'],
    ['a cut double', '31 00000000000000', /8 bytes are needed, and 7 are left/, 1, 'M.d'],
    ['a run that ends inside an item', '42 02 0180 01', /end inside a varint/, 3, 'M.p[1]'],
    ['text that is not UTF-8', '12 02 c328', /not UTF-8/, 2, 'M.s'],
    ['half of a surrogate pair in text', '12 03 eda080', /not UTF-8/, 2, 'M.s'],
    ['text too long for its character', '12 02 c080', /not UTF-8/, 2, 'M.s'],
    ['a key that is not UTF-8', '3a 03 0a01ff', /not UTF-8/, 4, 'M.m'],
    ['field number 0', '00 01', /number 0/, 0, 'M'],
    ['field number 0 with a length', '02 00', /number 0/, 0, 'M'],
    ['field number 0 in an unknown group', '4b 0001 4c', /number 0/, 1, 'M'],
    ['a field number beyond 2^29 - 1', '8080808010 01', /above 2\^29 - 1/, 0, 'M'],
    ['wire type 6', '0e', /wire type 6 does not exist/, 0, 'M'],
    ['wire type 7 of an unknown number', '7f', /wire type 7 does not exist/, 0, 'M'],
    ['wire type 6 in an unknown group', '4b 0e 4c', /wire type 6/, 1, 'M'],
    ['an end without a group', '0c', /group 1 ends, and another is open/, 0, 'M'],
    ['an end tag of another group', '4b 54', /group 10 ends, and another is open/, 1, 'M'],
    ['a group without an end', '4b 0801', /end inside a varint/, 3, 'M'],
    ['a group that ends outside its message', '1a 01 4b 4c', /end inside a varint/, 3, 'M.n'],
    ['an item of a nested message', '2200 2203 12 01 ff', /not UTF-8/, 6, 'M.r[1].s'],
    ['a value of a map', '3a 07 12 05 12 03 ffffff', /not UTF-8/, 6, 'M.m.s'],
  ])('the decoder refuses %s', (_what, hex, why, at, path) => {
    expect(refusal(3, text, hex)).toMatchObject({
      code: 'malformed_payload',
      at,
      path,
      message: expect.stringMatching(why),
    });
  });

  it('a known group must end with its own number', () => {
    const group = 'message M { optional group G = 1 { optional int32 x = 1; } }';
    expect(refusal(2, group, '0b 0801 14')).toMatchObject({
      at: 3,
      path: 'M.g',
      message: expect.stringMatching(/group 2 ends, and group 1 is open/),
    });
    expect(refusal(2, group, '0b 0801')).toMatchObject({ at: 3, path: 'M.g' });
  });
});
