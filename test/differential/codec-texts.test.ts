/** Texts in columns: kernels handle short texts in blocks, whatever their size, and check UTF-8 in
 *  blocks. Both kernels against the decoder of single payloads. */
import { expect, it } from 'vitest';
import { messageOf, randomOf } from '../property/registry-proto-decoder-kit.ts';
import { runs } from '../tier.ts';
import { columnKernels, compare, noCounts, parse } from './avro-columns-kit.ts';
import { compareProto } from './proto-columns-kit.ts';

type Next = (below: number) => number;

/** Characters of every length, and bytes that are no character: cut, too long, surrogates, beyond
 *  U+10FFFF. */
const PARTS: readonly Buffer[] = [
  ...['é', '本', '😀', '\u{10ffff}', '\u0800', '\ud7ff'].map((text) => Buffer.from(text)),
  ...['80', 'c3', 'e69c', 'f09f98', 'c1bf', 'e08080', 'eda080', 'f0808080', 'f4908080', 'f580', 'ff'].map(
    (text) => Buffer.from(text, 'hex'),
  ),
];
const SIZES = [0, 1, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 62, 63, 64, 65, 66, 95, 127, 128, 129, 200];
const PAYLOADS = 1500;

/** Text of letters; two in three have one to three of the parts. */
function textOf(next: Next): Buffer {
  const text = Buffer.alloc(SIZES[next(SIZES.length)] as number, 'a');
  for (let parts = next(3) === 0 ? 0 : 1 + next(3); parts > 0; parts--) {
    // The first ones are characters.
    const part = PARTS[next(next(4) === 0 ? PARTS.length : 6)] as Buffer;
    if (part.length <= text.length) part.copy(text, next(text.length - part.length + 1));
  }
  return text;
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.of(...bytes, rest);
    bytes.push((rest % 128) + 128);
  }
}

/** A long number, whose bytes are no characters, follows the first text. */
const NUMBER = Buffer.from('ffffffff7f', 'hex');

const random: Next = randomOf(64);

it("texts of every size have the decoder's verdicts and values in Avro columns", () => {
  const text = (): Buffer => {
    const bytes = textOf(random);
    return Buffer.concat([varint(bytes.length * 2), bytes]);
  };
  const payloads = Array.from({ length: runs(PAYLOADS) }, () => Buffer.concat([text(), NUMBER, text()]));
  const fields = [
    { name: 'a', type: 'string' },
    { name: 'n', type: 'long' },
    { name: 'z', type: 'string' },
  ];
  const written = parse({ type: 'record', name: 'R', fields }).tree;
  const counts = noCounts();
  compare(columnKernels, written, written, payloads, counts);
  // Texts that no column receives are checked too.
  const number = parse({ type: 'record', name: 'R', fields: [fields[1]] }).tree;
  compare(columnKernels, number, written, payloads, counts);
  expect(counts.ok).toBeGreaterThan(payloads.length / 2);
  expect(counts.malformed).toBeGreaterThan(payloads.length / 2);
});

it("texts of every size have the decoder's verdicts and values in Protobuf columns", () => {
  const text = (tag: number): Buffer => {
    const bytes = textOf(random);
    return Buffer.concat([Buffer.of(tag), varint(bytes.length), bytes]);
  };
  const payloads = Array.from({ length: runs(PAYLOADS) }, () =>
    Buffer.concat([text(0x0a), Buffer.of(0x10), NUMBER, text(0x1a)]),
  );
  const message = messageOf('syntax = "proto3"; message M { string a = 1; int64 n = 2; string z = 3; }', 'M');
  const counts = { ok: 0, malformed: 0 };
  compareProto(columnKernels, message, payloads, counts);
  compareProto(columnKernels, message, payloads, counts, ['n']);
  expect(counts.ok).toBeGreaterThan(payloads.length / 2);
  expect(counts.malformed).toBeGreaterThan(payloads.length / 2);
});
