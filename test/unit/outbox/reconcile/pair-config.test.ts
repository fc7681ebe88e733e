/** The file of pairs: defaults of the library's tables, and one clear error for each mistake. */
import { describe, expect, it } from 'vitest';
import { libraryPair, parsePairs } from '../../../../src/outbox/reconcile/pairs/config.ts';

const parse = (document: unknown) => parsePairs('pairs.json', JSON.stringify(document));
const side = { table: 't', id: 'i', time: 'w' };
const pair = { name: 'shop', outbox: side, inbox: side };

describe('parsePairs', () => {
  it('a pair with table names alone has the columns of the library', () => {
    const [parsed] = parse({ pairs: [{ name: 'shop', outbox: { table: 'o' }, inbox: { table: 'i' } }] });
    const { left, right } = libraryPair('o', 'i');
    expect(parsed).toMatchObject({ name: 'shop', left, right, judgesLate: true });
    expect(parsed?.keepMs).toBeUndefined();
  });

  it('a pair with its own columns has no column of the library', () => {
    const [parsed] = parse({ pairs: [{ ...pair, keep: '36h' }] });
    expect(parsed).toMatchObject({ left: side, right: side, keepMs: 36 * 3_600_000 });
    expect(Object.keys(parsed?.left ?? {})).toEqual(['table', 'id', 'time']);
  });

  it.each([
    ['not an object', 5, /the file is not an object/],
    ['an unknown field of the file', { pairs: [pair], x: 1 }, /unknown field "x"/],
    ['no pairs', { pairs: [] }, /no list of pairs/],
    ['a pair that is a text', { pairs: ['a'] }, /pair 1 is not an object/],
    ['an unknown field of a pair', { pairs: [{ ...pair, time: '' }] }, /pair 1 has the unknown field "time"/],
    [
      'an unknown field of a side',
      { pairs: [{ ...pair, outbox: { ...side, key: 'k' } }] },
      /unknown field "key"/,
    ],
    ['a name that is no label', { pairs: [{ ...pair, name: 'My shop' }] }, /name of pair 1/],
    ['two equal names', { pairs: [pair, pair] }, /two pairs have the name shop/],
    ['no table', { pairs: [{ ...pair, inbox: { id: 'a', time: 'b' } }] }, /inbox of shop has no table/],
    [
      'a time without an id',
      { pairs: [{ ...pair, inbox: { table: 't', time: 'b' } }] },
      /not both id and time/,
    ],
    [
      'a column that is no text',
      { pairs: [{ ...pair, inbox: { ...side, id: 5 } }] },
      /id of the inbox of shop/,
    ],
    ['a keep that is no duration', { pairs: [{ ...pair, keep: 'long' }] }, /keep of shop/],
    ['a keep of zero', { pairs: [{ ...pair, keep: '0' }] }, /keep of shop/],
    ['no inbox', { pairs: [{ name: 'shop', outbox: side }] }, /inbox of shop is not an object/],
    ['33 pairs', { pairs: Array.from({ length: 33 }, (_, n) => ({ ...pair, name: `p${n}` })) }, /at most 32/],
  ])('a file with %s is refused', (_, document, message) => {
    expect(() => parse(document)).toThrow(
      expect.objectContaining({ code: 'bad_file', message: expect.stringMatching(message) }),
    );
  });

  it('a file that is not JSON is refused', () => {
    expect(() => parsePairs('pairs.json', '{')).toThrow(expect.objectContaining({ code: 'bad_file' }));
  });
});
