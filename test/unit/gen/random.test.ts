import { describe, expect, test } from 'vitest';
import { xxh32Create, xxh32Digest, xxh32Update } from '../../../src/addon/reference/xxh32.ts';
import { RandomStream, seedOf, threefry4x32, uuidOf } from '../../../src/core/random/threefry.ts';
import { powerOf, ZipfTable } from '../../../src/core/random/zipf.ts';

const hex = (words: Uint32Array): string =>
  Array.from(words, (word) => word.toString(16).padStart(8, '0')).join(' ');

describe('Threefry-4x32-20', () => {
  // Published known-answer vectors: counter, key, words.
  const vectors: ReadonlyArray<readonly [string, string, string]> = [
    [
      '00000000 00000000 00000000 00000000',
      '00000000 00000000 00000000 00000000',
      '9c6ca96a e17eae66 fc10ecd4 5256a7d8',
    ],
    [
      'ffffffff ffffffff ffffffff ffffffff',
      'ffffffff ffffffff ffffffff ffffffff',
      '2a881696 57012287 f6c7446e a16a6732',
    ],
    [
      '243f6a88 85a308d3 13198a2e 03707344',
      'a4093822 299f31d0 082efa98 ec4e6c89',
      '59cd1dbb b8879579 86b5d00c ac8b6d84',
    ],
  ];
  test.each(vectors)('the cipher gives the published block for counter %s', (counter, key, expected) => {
    const [c0, c1, c2, c3] = counter.split(' ').map((word) => Number.parseInt(word, 16)) as [
      number,
      number,
      number,
      number,
    ];
    const [k0, k1, k2, k3] = key.split(' ').map((word) => Number.parseInt(word, 16)) as [
      number,
      number,
      number,
      number,
    ];
    const out = new Uint32Array(4);
    threefry4x32(k0, k1, k2, k3, c0, c1, c2, c3, out);
    expect(hex(out)).toBe(expected);
  });

  test('a random stream separates seeds, streams, indexes above 2^32, parts and blocks', () => {
    const seen = new Set<string>();
    for (const seed of [0n, 1n, -1n, 1n << 32n]) {
      for (const stream of [1, 2]) {
        const random = new RandomStream(seedOf(seed), stream);
        for (const index of [0, 1, 2 ** 32, 2 ** 32 + 1, 2 ** 53 - 1]) {
          for (const part of [0, 1]) for (const block of [0, 1]) seen.add(hex(random.at(index, part, block)));
        }
      }
    }
    expect(seen.size).toBe(4 * 2 * 5 * 2 * 2);
  });

  test('a generated UUID has its version and variant', () => {
    expect(uuidOf(new Uint32Array([0, 0, 0, 0]))).toBe('00000000-0000-4000-8000-000000000000');
    expect(uuidOf(new Uint32Array([0x01234567, 0x89abcdef, 0xffffffff, 0x76543210]))).toBe(
      '01234567-89ab-4def-bfff-ffff76543210',
    );
  });
});

describe('XXH32', () => {
  const digestOf = (text: string, cut: number): number => {
    const state = xxh32Create();
    const bytes = new TextEncoder().encode(text);
    for (let at = 0; at < bytes.length; at += cut)
      xxh32Update(state, bytes, at, Math.min(cut, bytes.length - at));
    return xxh32Digest(state);
  };
  test.each([
    ['', 0x02cc5d05],
    ['a', 0x550d7456],
    ['abc', 0x32d153ff],
    ['Nobody inspects the spammish repetition', 0xe2293b2f],
  ] as const)('the hash of %j is the published one, however the text is cut', (text, expected) => {
    for (const cut of [1, 3, 5, 16, 17, 64]) expect(digestOf(text, cut)).toBe(expected);
  });
});

describe('powers without Math.pow', () => {
  test('powerOf agrees with Math.pow up to the rounding of the exponent', () => {
    for (const [whole, fraction, s] of [
      [1, 2 ** 29, 1.5],
      [0, 2 ** 28, 0.25],
      [2, 0, 2],
      [0, 0, 0],
    ] as const) {
      for (const base of [1, 2, 3, 1000, 4_294_967_295]) {
        expect(Math.abs(powerOf(base, whole, fraction) / base ** s - 1)).toBeLessThan(1e-14);
      }
    }
  });
});

describe('rank table', () => {
  test('the rank table covers every rank once with few rows', () => {
    for (const ranks of [1, 2, 63, 64, 127, 128, 129, 1000, 10_000_000, 4_294_967_295]) {
      const table = new ZipfTable(ranks, 1.1);
      let next = 1;
      for (let run = 0; run < table.rowCount; run++) {
        expect(table.columns.first[run]).toBe(next);
        next += table.columns.size[run] as number;
      }
      expect(next - 1).toBe(ranks);
      expect(table.rowCount).toBeLessThan(1500);
    }
  });
  test.each([
    [0, 1],
    [1.5, 1],
    [2 ** 32, 1],
    [10, -0.1],
    [10, 4.1],
    [10, Number.NaN],
  ])('the rank table refuses %s ranks with exponent %s', (ranks, s) => {
    expect(() => new ZipfTable(ranks, s)).toThrow(/takes 1 to|lies in/);
  });
});
