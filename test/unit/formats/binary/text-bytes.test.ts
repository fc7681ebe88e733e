/** Texts from bytes, compared with the strict decoder of the platform. */
import { expect, it } from 'vitest';
import { textOf } from '../../../../src/formats/binary/text-bytes.ts';

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function expected(bytes: Buffer): string | undefined {
  try {
    return strict.decode(bytes);
  } catch {
    return undefined;
  }
}

/** Valid and invalid sequences, with U+FFFD itself and a byte order mark among the valid ones. */
const SEQUENCES = [
  '',
  '00',
  '7f',
  'c3a9',
  'efbfbd',
  'efbbbf',
  'f09f9880',
  '80',
  'c3',
  'c080',
  'eda080',
  'f4908080',
  'ff',
].map((hex) => Buffer.from(hex, 'hex'));

it('a text of any length is read as UTF-8, and invalid bytes are refused', () => {
  for (let length = 0; length <= 48; length++)
    for (const sequence of SEQUENCES)
      for (const at of [0, length >> 1, length]) {
        const text = Buffer.alloc(length, 'abcdefghijklmnopqrstuvwxyz');
        const bytes = Buffer.concat([text.subarray(0, at), sequence, text.subarray(at)]);
        const around = Buffer.concat([Buffer.of(0xff), bytes, Buffer.of(0xff)]);
        expect(textOf(around, 1, 1 + bytes.length)).toBe(expected(bytes));
      }
});

it('texts do not share their characters: a text stays when a later one is read', () => {
  const bytes = Buffer.from('onetwo');
  const first = textOf(bytes, 0, 3);
  expect([first, textOf(bytes, 3, 6)]).toEqual(['one', 'two']);
});
